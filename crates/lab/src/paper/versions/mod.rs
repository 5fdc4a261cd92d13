//! The study of F2FS from Linux 3.8 to 4.16: what its changes and three of its tunables are worth.
//! One file per table and figure; the second and the third share their load.
//!
//! All run F2FS as Linux 4.16 has it (`linux=4.16`), the study's version: it cleans earlier than we
//! would, and overwrites in place less often.
//!
//! Unless a drive is given, time is simulated: the emulated 850 EVO under the real file system on a
//! virtual Core i7-8700, the study's machine. Its partition of 10 GB is one of [`VOLUME`] here, so
//! that a figure takes seconds; what counts sections (`min_ssr_sections`, reserve) is smaller in
//! proportion.

mod inline_data;
mod random_write;
mod table_1;

use std::sync::Arc;

use cores::Machine;
use drive::{BLOCK_SIZE, Block, Blocks, Drive, Timing};
use queue::BlockQueue;
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
        run: |seed| inline_data::run(&Place::Simulated, seed),
        simulated: true,
    },
    Figure {
        name: "ipu-policy",
        about: "random writes when free blocks run low: IPU in place of SSR (figure 2)",
        run: |seed| random_write::ipu(&Place::Simulated, seed),
        simulated: true,
    },
    Figure {
        name: "min-ssr-sections",
        about: "random writes at 90% full: min_ssr_sections as it is, 0, and mode=lfs (figure 3)",
        run: |seed| random_write::ssr(&Place::Simulated, seed),
        simulated: true,
    },
];

/// What runs an experiment.
type Run = fn(&Place, u64) -> Result<Vec<Row>>;

/// Those that can be measured on a drive as well.
const ON_DRIVE: [(&str, Run); 3] = [
    ("inline-data", inline_data::run),
    ("ipu-policy", random_write::ipu),
    ("min-ssr-sections", random_write::ssr),
];

/// Where a load runs.
enum Place {
    /// On the study's machine and drive, in virtual time.
    Simulated,
    /// On this machine and a drive, whose contents are lost.
    Real(Arc<dyn Drive>),
}

/// The rows of the experiment `name` on `drive`, whose contents are lost; with `force`, even if
/// something is known there.
pub(super) fn on_drive(
    name: &str,
    drive: Arc<dyn Drive>,
    force: bool,
    seed: u64,
) -> Result<Vec<Row>> {
    let run = ON_DRIVE.iter().find(|(known, _)| *known == name).ok_or_else(|| {
        let known = ON_DRIVE.map(|(name, _)| name).join(", ");
        Error::Usage(format!("{name} cannot be measured on a drive; these can: {known}"))
    })?;
    if force {
        wipe(&drive)?;
    }
    // Refuses what is not blank.
    let format = subjects::named("f2fs").map_err(Error::of("f2fs"))?;
    format.make(&drive).map_err(|error| Error::Usage(error.to_string()))?;
    (run.1)(&Place::Real(drive), seed)
}

impl Place {
    fn machine(&self, seed: u64) -> Result<Machine> {
        match self {
            Self::Simulated => machine_named(MACHINE, seed),
            Self::Real(_) => Ok(Machine::real()),
        }
    }

    /// A drive with an empty volume.
    fn new_volume(&self, seed: u64) -> Result<Arc<dyn Drive>> {
        let drive: Arc<dyn Drive> = match self {
            Self::Simulated => {
                let spec = rig::spec(DRIVE, VOLUME)?.blocks(VOLUME / BLOCK_SIZE as u64);
                rig::new_drive(&spec, Timing::Virtual, seed)?
            }
            Self::Real(drive) => {
                wipe(drive)?;
                drive.clone()
            }
        };
        rig::make(subjects::named("f2fs").map_err(Error::of("f2fs"))?, &drive)?;
        Ok(drive)
    }
}

/// Takes away what a drive is known by.
fn wipe(drive: &Arc<dyn Drive>) -> Result<()> {
    let blocks = drive.identify().blocks.min(256);
    let zeroes: Blocks = (0..blocks).map(|_| Block::zeroed()).collect();
    let wiped = BlockQueue::new(drive.clone()).write_blocks(0, zeroes, false);
    wiped.map(drop).map_err(|error| Error::Usage(format!("the device's start: {error}")))
}

/// How a volume is mounted, and what is then set by `tune`.
#[derive(Clone, Copy, Default)]
struct Setup {
    options: &'static str,
    settings: &'static [(&'static str, &'static str)],
}

/// Runs `job` on a fresh volume of the study's Linux.
fn on_volume<T>(
    place: &Place,
    setup: Setup,
    seed: u64,
    job: impl FnOnce(&Arc<dyn Volume>) -> Result<T>,
) -> Result<T> {
    on_prepared(place, setup, seed, |_| Ok(()), |fs, ()| job(fs))
}

/// Runs `prepare` on a fresh volume of the study's Linux as it comes, then mounts it again as
/// `setup` says, with nothing cached, for `job`.
fn on_prepared<P, T>(
    place: &Place,
    setup: Setup,
    seed: u64,
    prepare: impl FnOnce(&Arc<dyn Volume>) -> Result<P>,
    job: impl FnOnce(&Arc<dyn Volume>, P) -> Result<T>,
) -> Result<T> {
    place.machine(seed)?.run(|| {
        let drive = place.new_volume(seed)?;
        let format = subjects::named("f2fs").map_err(Error::of("f2fs"))?;
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
