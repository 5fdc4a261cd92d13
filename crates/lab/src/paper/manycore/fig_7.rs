//! Figure 7: FxMark on F2FS and on hybridF2FS, whose nodes and metadata are in persistent memory
//! and whose data is on the drive (`mkfs` on both, `mount -o hybrid`).
//!
//! The study's drive is a Samsung 970 EVO; NVMeVirt's 970 PRO stands for it, whose dies are the
//! same. The study shows plots without numbers, so a row agrees if it has the plot's order.

use super::{Kind, Row};
use crate::bench::fxmark::{Job, Load, Place};
use crate::{Error, Result};

const MACHINE: &str = "e7-8870v2-120";
const DRIVE: &str = "conventional-noplp";
const CORES: [u64; 5] = [1, 4, 15, 60, 120];
/// Operations of each core.
const OPS: u64 = 60;

/// Where an fsync has no flush to wait for.
const WITHOUT_CACHE: &str = "sz985";

/// 7a: DWSL, each core overwrites a block of its own file and fsyncs.
pub(super) fn fsyncs(seed: u64) -> Result<Vec<Row>> {
    let both = |drive: &str| -> Result<_> {
        let f2fs = rates("DWSL", drive, "", seed)?;
        Ok(f2fs.into_iter().zip(rates("DWSL", &format!("pm+{drive}"), "hybrid", seed)?))
    };
    let mut rows = Vec::new();
    for (cores, (f2fs, hybrid)) in CORES.iter().zip(both(DRIVE)?) {
        let row = |what: &str, paper: &str, ours, unit| {
            Row::new(Kind::Outcome, format!("{cores} cores: {what}"), paper, ours, unit)
        };
        rows.push(row("F2FS", "", f2fs / 1e3, "k/s"));
        rows.push(row("hybridF2FS / F2FS", "above", hybrid / f2fs, "x").within(1.01, 100.0));
    }
    for (cores, (f2fs, hybrid)) in CORES.iter().zip(both(WITHOUT_CACHE)?) {
        let what = format!("{cores} cores: the same on {WITHOUT_CACHE}, without a flush");
        rows.push(Row::new(Kind::Outcome, what, "", hybrid / f2fs, "x"));
    }
    Ok(rows)
}

/// Operations a second on each number of cores.
fn rates(load: &str, drive: &str, options: &str, seed: u64) -> Result<Vec<f64>> {
    let format = subjects::named("f2fs").map_err(Error::of("f2fs"))?;
    let job = Job {
        load: load.parse::<Load>()?,
        place: Place::Fresh { format, drive: drive.into(), mount_opts: options.into() },
        machine: MACHINE.into(),
        cores: CORES.to_vec(),
        ops: Some(OPS),
        direct: false,
        seed,
        profile_locks: false,
    };
    Ok(job.run(&mut || ())?.points.iter().map(|point| point.works_per_s).collect())
}
