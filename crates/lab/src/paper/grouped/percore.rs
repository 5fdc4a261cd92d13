//! Beyond the study: grouped fsync on a log per core (`journal=zgrouped`) beside grouped fsync and
//! Z-Journal, by 16 threads on the machine of Z-Journal's study; and records that need one flush
//! (`record_csum`).

use super::four_threads::{Measured, Place, STUDY};
use super::{Kind, Row};
use crate::Result;

/// A drive whose buffer survives a power cut; and one whose buffer does not, so that flushes take
/// time, which carries out several of them at once.
const DRIVES: [&str; 2] = ["sz985", "conventional-noplp"];
/// Ways to fsync, as mount options. Linux's JBD2 does not wait for other threads' fsyncs.
pub(super) const POLICIES: [(&str, &str); 8] = [
    ("JBD2", "journal=jbd2,max_batch_time=0"),
    ("JBD2, batched", "journal=jbd2"),
    ("iJournaling", "journal=ijournal"),
    ("Grouped", "journal=grouped"),
    ("Z-Journal", "journal=zjournal"),
    ("Z-Journal, grouped", "journal=zgrouped"),
    ("Grouped, one flush", "journal=grouped,record_csum"),
    ("Z-Journal, grouped, one flush", "journal=zgrouped,record_csum"),
];

pub(super) fn run(seed: u64) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let row = |what, paper: &str, ours, unit| Row::new(Kind::Outcome, what, paper, ours, unit);
    for drive in DRIVES {
        let place = Place { machine: "gold-6138-80", drive, threads: 16, fsyncs: 500, ..STUDY };
        let mut best = 0.0;
        for (name, options) in POLICIES {
            let Measured { latencies, took, flushes, .. } = place.measure(options, 0, seed)?;
            let per_s = latencies.len() as f64 / took as f64 * 1e9;
            rows.push(row(format!("{drive}, {name}"), "", per_s / 1e3, "K/s"));
            let flushes = flushes as f64 / latencies.len() as f64;
            rows.push(row(format!("{drive}, {name}: flushes per fsync"), "", flushes, ""));
            match name {
                "Grouped" | "Z-Journal" => best = f64::max(best, per_s),
                "Z-Journal, grouped" => {
                    let what = format!("{drive}, Z-Journal, grouped / the better of both");
                    rows.push(row(what, "", per_s / best, "x"));
                }
                _ => {}
            }
        }
    }
    Ok(rows)
}
