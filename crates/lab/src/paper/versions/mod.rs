//! The study of F2FS from Linux 3.8 to 4.16: what three of its tunables are worth. One file per
//! figure.
//!
//! Time is simulated: the emulated 850 EVO under the real file system on a virtual Core i7-8700,
//! the study's machine. Its partition of 10 GB is one of [`VOLUME`] here, so that a figure takes
//! seconds; what counts sections (`min_ssr_sections`, reserve) is smaller in proportion.

mod inline_data;
mod random_write;

use std::sync::Arc;

use drive::{BLOCK_SIZE, Drive, Timing};
use serde_json::Value;
use vfs::kind::Volume;

use super::{Figure, Kind, Row};
use crate::{Error, Result, machine_named, rig};

/// The study's machine and drive.
const MACHINE: &str = "i7-8700";
const DRIVE: &str = "850-evo";
/// Bytes of the volume.
const VOLUME: u64 = 512 << 20;

/// Those of the study, in its order.
pub const VERSIONS: &[Figure] = &[
    Figure {
        name: "inline-data",
        about: "creating files of 1 KiB without and with inline_data (figure 1)",
        run: inline_data::run,
        simulated: true,
    },
    Figure {
        name: "ipu-policy",
        about: "random writes when free blocks run low: IPU in place of SSR (figure 2)",
        run: random_write::ipu,
        simulated: true,
    },
    Figure {
        name: "min-ssr-sections",
        about: "random writes at 90% full: min_ssr_sections as it is, 0, and mode=lfs (figure 3)",
        run: random_write::ssr,
        simulated: true,
    },
];

/// Runs `job` on a fresh volume, mounted with `options` and with `settings` made.
fn on_volume<T>(
    options: &str,
    settings: &[(&str, &str)],
    seed: u64,
    job: impl FnOnce(&Arc<dyn Volume>) -> Result<T>,
) -> Result<T> {
    let spec = rig::spec(DRIVE, VOLUME)?.blocks(VOLUME / BLOCK_SIZE as u64);
    machine_named(MACHINE, seed)?.run(|| {
        let drive: Arc<dyn Drive> = rig::new_drive(&spec, Timing::Virtual, seed)?;
        let format = subjects::named("f2fs").map_err(Error::of("f2fs"))?;
        rig::make(format, &drive)?;
        let fs = rig::mount(format, drive, options)?;
        fs.set(settings).map_err(Error::of("tune"))?;
        let result = job(&fs)?;
        fs.unmount().map_err(Error::at("unmount", b""))?;
        Ok(result)
    })?
}

/// A count of the volume's status.
fn count(fs: &Arc<dyn Volume>, name: &str) -> Result<f64> {
    let count = fs.status().get(name).and_then(Value::as_f64);
    count.ok_or_else(|| Error::Usage(format!("{name}: not in the status of this volume")))
}

#[cfg(test)]
mod tests {
    use crate::paper::named;

    /// docs/results/f2fs-versions.md says why these do not.
    const DISAGREE: [(&str, &[&str]); 3] = [
        (
            "inline-data",
            &[
                "4000 files, time without / with inline_data",
                "8000 files, time without / with inline_data",
            ],
        ),
        ("ipu-policy", &["throughput, IPU / SSR"]),
        ("min-ssr-sections", &["cleanings more, 0 / default", "throughput, 0 / default"]),
    ];

    #[test]
    #[ignore = "twenty seconds: part of make test-all"]
    fn what_agreed_still_agrees() {
        let disagrees = |name| {
            let comparison = named(name).expect("it is there").run(1).expect("it runs");
            let rows = comparison.rows.into_iter().filter(|row| row.agrees == Some(false));
            rows.map(|row| row.what).collect::<Vec<_>>()
        };
        for (name, expected) in DISAGREE {
            assert_eq!(disagrees(name), expected, "{name}");
        }
    }
}
