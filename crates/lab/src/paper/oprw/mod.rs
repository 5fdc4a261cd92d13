//! The OPRW thesis's tables and figures from running code, one file per experiment.
//!
//! Time is simulated unless an experiment says otherwise: the emulated ZN540, with and without
//! power-loss protection, under the real file system on a virtual Xeon Silver 4116, the thesis's
//! CPU. The two cost tables (`drive/profiles`, `cores/profiles`) name the source of every value.

pub mod experiment;
mod fio;
pub(super) mod mail;
pub(super) mod oltp;
mod roll_forward;
mod stages;
mod sweep;

use std::sync::Arc;

use drive::{Drive, Timing};

use super::{Figure, Kind, Row};
use crate::{Error, Result, machine, rig};
use vfs::kind::{Format, Technique, Volume};

pub use sweep::{SENSITIVITY, Sweep, TABLE_6_2};

/// The drive with power-loss protection.
const PROTECTED: &str = "zn540";
/// The same without.
const VOLATILE: &str = "zn540-noplp";

/// Those of the OPRW thesis, in its order. Table 6.2 is a campaign: [`experiment`].
pub const OPRW: [Figure; 8] = [
    Figure {
        name: "table-3.1",
        about: "where the time of an fsync goes: 4 KiB random write, posix, ZN540 (PLP)",
        run: stages::run,
        simulated: true,
    },
    Figure {
        name: "fig-6.1a",
        about: "random write + fsync without PLP, beside posix",
        run: fio::without_protection,
        simulated: true,
    },
    Figure {
        name: "fig-6.1b",
        about: "random write + fsync with PLP: OPRW over F2FS",
        run: fio::with_protection,
        simulated: true,
    },
    Figure {
        name: "fig-6.2",
        about: "Varmail and OLTP-insert, one thread: OPRW over F2FS",
        run: macro_benchmarks,
        simulated: true,
    },
    Figure {
        name: "fig-6.3",
        about: "Varmail with more threads, PLP: OPRW over F2FS",
        run: mail::more_threads,
        simulated: true,
    },
    Figure {
        name: "table-6.3",
        about: "mounts that roll forward, without and with the check of write pointers",
        run: roll_forward::simulated,
        simulated: true,
    },
    Figure {
        name: "table-6.3-why",
        about: "Table 6.3 without read-ahead, with every version applied, with Linux's list",
        run: roll_forward::variations,
        simulated: true,
    },
    Figure {
        name: "roll-forward",
        about: "the last mount of Table 6.3 on this machine, in process, on a drive without times",
        run: roll_forward::measured,
        simulated: false,
    },
];

/// Figure 6.2.
fn macro_benchmarks(seed: u64) -> Result<Vec<Row>> {
    Ok([mail::one_thread(seed)?, oltp::one_thread(seed)?].concat())
}

/// Runs `job` on a fresh volume of `drive` with room for `footprint` bytes of writes, mounted in
/// `mode`, in simulated time.
fn on_volume<T>(
    drive: &str,
    mode: &'static Technique,
    footprint: u64,
    seed: u64,
    job: impl FnOnce(&Arc<dyn Volume>) -> Result<T>,
) -> Result<T> {
    on_volume_of((&f2fs::Format, mode.options), drive, footprint, seed, job)
}

/// A file system and its mount options.
pub(super) type System<'a> = (&'static dyn Format, &'a str);

/// As [`on_volume`], of any file system.
fn on_volume_of<T>(
    (format, options): System<'_>,
    drive: &str,
    footprint: u64,
    seed: u64,
    job: impl FnOnce(&Arc<dyn Volume>) -> Result<T>,
) -> Result<T> {
    let spec = rig::spec(drive, footprint)?;
    machine(seed)?.run(|| {
        let drive: Arc<dyn Drive> = rig::new_drive(&spec, Timing::Virtual, seed)?;
        rig::make(format, &drive)?;
        let fs = rig::mount(format, drive, options)?;
        let result = job(&fs)?;
        fs.unmount().map_err(Error::at("unmount", b""))?;
        Ok(result)
    })?
}

#[cfg(test)]
mod tests {
    use crate::paper::named;

    #[test]
    fn what_agreed_still_agrees() {
        let disagrees = |name| {
            let comparison = named(name).expect("it is there").run(1).expect("it runs");
            let rows = comparison.rows.into_iter().filter(|row| row.agrees == Some(false));
            rows.map(|row| row.what).collect::<Vec<_>>()
        };
        assert_eq!(disagrees("fig-6.1a"), [""; 0]);
        // Here OPRW gains more than in the thesis.
        assert_eq!(disagrees("fig-6.1b"), ["32 KiB, OPRW / F2FS"]);
    }

    #[test]
    fn the_stages_are_all_of_an_fsync() {
        let rows = named("table-3.1").expect("it is there").run(1).expect("it runs").rows;
        let percent: f64 = rows.iter().filter(|row| row.unit == "%").map(|row| row.ours).sum();
        assert!((percent - 100.0).abs() < 1e-6, "{percent}");
        assert!(rows.iter().all(|row| row.ours > 0.0), "{rows:?}");
    }
}
