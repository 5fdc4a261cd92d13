//! The study of F2FS from Linux 3.8 to 4.16: what its changes and three of its tunables are worth.
//! One file per table and figure; the second and the third share their load.
//!
//! All run F2FS as Linux 4.16 has it (`linux=4.16`), the study's version: it cleans earlier than we
//! would, and overwrites in place less often.
//!
//! Time is simulated: the emulated 850 EVO under the real file system on a virtual Core i7-8700,
//! the study's machine. Its partition of 10 GB is one of [`VOLUME`] here, so that a figure takes
//! seconds; what counts sections (`min_ssr_sections`, reserve) is smaller in proportion.

mod inline_data;
mod random_write;
mod table_1;

use std::sync::Arc;

use drive::{BLOCK_SIZE, Drive, Timing};
use serde_json::Value;
use vfs::kind::Volume;

use super::{Figure, Kind, Row};
use crate::{Error, Result, machine_named, rig};

/// The study's machine and drive.
const MACHINE: &str = "i7-8700";
const DRIVE: &str = "850-evo";
/// The study's version of Linux, as `mount -o` takes it.
const LINUX: &str = "linux=4.16";
/// Bytes of the volume.
const VOLUME: u64 = 512 << 20;

/// Those of the study, in its order.
pub const VERSIONS: &[Figure] = &[
    Figure {
        name: "f2fs-changes",
        about: "changes of F2FS from Linux 3.8 to 4.16, each without and with (table 1)",
        run: table_1::run,
        simulated: true,
    },
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

/// How a volume is mounted, and what is then set by `tune`.
#[derive(Clone, Copy, Default)]
struct Setup {
    options: &'static str,
    settings: &'static [(&'static str, &'static str)],
}

/// Runs `job` on a fresh volume of the study's Linux.
fn on_volume<T>(
    setup: Setup,
    seed: u64,
    job: impl FnOnce(&Arc<dyn Volume>) -> Result<T>,
) -> Result<T> {
    on_prepared(setup, seed, |_| Ok(()), |fs, ()| job(fs))
}

/// Runs `prepare` on a fresh volume of the study's Linux as it comes, then mounts it again as
/// `setup` says, with nothing cached, for `job`.
fn on_prepared<P, T>(
    setup: Setup,
    seed: u64,
    prepare: impl FnOnce(&Arc<dyn Volume>) -> Result<P>,
    job: impl FnOnce(&Arc<dyn Volume>, P) -> Result<T>,
) -> Result<T> {
    let spec = rig::spec(DRIVE, VOLUME)?.blocks(VOLUME / BLOCK_SIZE as u64);
    machine_named(MACHINE, seed)?.run(|| {
        let drive: Arc<dyn Drive> = rig::new_drive(&spec, Timing::Virtual, seed)?;
        let format = subjects::named("f2fs").map_err(Error::of("f2fs"))?;
        rig::make(format, &drive)?;
        let fs = rig::mount(format, drive.clone(), LINUX)?;
        let prepared = prepare(&fs)?;
        fs.unmount().map_err(Error::at("unmount", b""))?;
        let fs = rig::mount(format, drive, &format!("{LINUX},{}", setup.options))?;
        fs.set(setup.settings).map_err(Error::of("tune"))?;
        let result = job(&fs, prepared)?;
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
    const DISAGREE: [(&str, &[&str]); 4] = [
        ("f2fs-changes", &[]),
        (
            "inline-data",
            &[
                "4000 files, time without / with inline_data",
                "8000 files, time without / with inline_data",
            ],
        ),
        ("ipu-policy", &[]),
        ("min-ssr-sections", &[]),
    ];

    #[test]
    #[ignore = "half a minute: part of make test-all"]
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
