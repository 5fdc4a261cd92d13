//! Figure 7: FxMark on F2FS and on hybridF2FS, whose nodes and metadata are in persistent memory
//! and whose data is on the drive (`mkfs` on both, `mount -o hybrid`). Overwrites of one file lock
//! pages there, and the inode in F2FS.
//!
//! The study's drive is a Samsung 970 EVO; NVMeVirt's 970 PRO stands for it, whose dies are the
//! same. The study shows plots without numbers, so a row agrees if it has the plot's order.

use super::{Kind, Row};
use crate::bench::fxmark::{Job, Load, Place};
use crate::{Error, Result};

const MACHINE: &str = "e7-8870v2-120";
const DRIVE: &str = "conventional-noplp";
/// The drive of hybridF2FS.
const WITH_MEMORY: &str = "pm+conventional-noplp";
const CORES: [u64; 5] = [1, 4, 15, 60, 120];

/// Where an fsync has no flush to wait for.
const WITHOUT_CACHE: &str = "sz985";
/// Reads of 4 KiB a second that this drive can do, of its data sheet.
const READS_MOST: f64 = 750e3;

/// A load, and how often each core does it.
#[derive(Clone, Copy)]
struct Part {
    load: &'static str,
    ops: u64,
    direct: bool,
    seed: u64,
}

impl Part {
    /// Operations a second on each number of cores.
    fn rates(self, drive: &str, options: &str) -> Result<Vec<f64>> {
        let format = subjects::named("f2fs").map_err(Error::of("f2fs"))?;
        let job = Job {
            load: self.load.parse::<Load>()?,
            place: Place::Fresh { format, drive: drive.into(), mount_opts: options.into() },
            machine: MACHINE.into(),
            cores: CORES.to_vec(),
            ops: Some(self.ops),
            direct: self.direct,
            seed: self.seed,
            profile_locks: false,
        };
        Ok(job.run(&mut || ())?.points.iter().map(|point| point.works_per_s).collect())
    }
}

fn outcome(cores: u64, what: &str, paper: &str, ours: f64, unit: &'static str) -> Row {
    Row::new(Kind::Outcome, format!("{cores} cores: {what}"), paper, ours, unit)
}

/// 7a: DWSL, each core overwrites a block of its own file and fsyncs.
pub(super) fn fsyncs(seed: u64) -> Result<Vec<Row>> {
    let part = Part { load: "DWSL", ops: 60, direct: false, seed };
    let both = |drive: &str| -> Result<_> {
        let f2fs = part.rates(drive, "")?;
        Ok(f2fs.into_iter().zip(part.rates(&format!("pm+{drive}"), "hybrid")?))
    };
    let mut rows = Vec::new();
    for (cores, (f2fs, hybrid)) in CORES.into_iter().zip(both(DRIVE)?) {
        rows.push(outcome(cores, "F2FS", "", f2fs / 1e3, "k/s"));
        let ratio = outcome(cores, "hybridF2FS / F2FS", "above", hybrid / f2fs, "x");
        rows.push(ratio.within(1.01, 100.0));
    }
    for (cores, (f2fs, hybrid)) in CORES.into_iter().zip(both(WITHOUT_CACHE)?) {
        let what = format!("the same on {WITHOUT_CACHE}, without a flush");
        rows.push(outcome(cores, &what, "", hybrid / f2fs, "x"));
    }
    Ok(rows)
}

/// 7b: DRBM, each core reads its own block of one file.
pub(super) fn reads(seed: u64) -> Result<Vec<Row>> {
    let part = Part { load: "DRBM", ops: 4000, direct: false, seed };
    let mut rows = of_one_file(part)?;
    for drive in [DRIVE, WITHOUT_CACHE] {
        let part = Part { ops: 200, direct: true, ..part };
        let rates = part.rates(&format!("pm+{drive}"), "hybrid")?;
        for (cores, rate) in CORES.into_iter().zip(&rates) {
            let what = format!("hybridF2FS, direct on {drive}");
            rows.push(outcome(cores, &what, "", rate / 1e3, "k/s"));
        }
        if drive == WITHOUT_CACHE {
            let share = rates.last().copied().unwrap_or(0.0) / READS_MOST;
            let row = outcome(120, "of the drive's bandwidth", "all", 100.0 * share, "%");
            rows.push(row.within(90.0, 101.0));
        }
    }
    Ok(rows)
}

/// 7c: DWOM, each core overwrites its own block of one file.
pub(super) fn overwrites(seed: u64) -> Result<Vec<Row>> {
    of_one_file(Part { load: "DWOM", ops: 4000, direct: false, seed })
}

/// How both scale on one file: that of F2FS depends on how it locks, so its rows have no figure of
/// the study to agree with.
fn of_one_file(part: Part) -> Result<Vec<Row>> {
    let (f2fs, hybrid) = (part.rates(DRIVE, "")?, part.rates(WITH_MEMORY, "hybrid")?);
    let mut rows = Vec::new();
    for (cores, (f2fs, hybrid)) in CORES.into_iter().zip(f2fs.iter().zip(&hybrid)) {
        rows.push(outcome(cores, "F2FS", "", f2fs / 1e6, "M/s"));
        rows.push(outcome(cores, "hybridF2FS", "", hybrid / 1e6, "M/s"));
    }
    let scaled = |rates: &[f64]| rates.last().copied().unwrap_or(0.0) / rates[0];
    let most = CORES[CORES.len() - 1];
    rows.push(outcome(most, "F2FS / 1 core", "1", scaled(&f2fs), "x").within(0.0, 1.5));
    let hybrid = outcome(most, "hybridF2FS / 1 core", "to the bandwidth", scaled(&hybrid), "x");
    rows.push(hybrid.within(f64::from(most as u32) / 4.0, f64::from(most as u32)));
    Ok(rows)
}
