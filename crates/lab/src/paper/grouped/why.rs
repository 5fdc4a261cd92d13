//! Why ext4 is slowest in the study's figure 4b: what decides is whether the drive carries out one
//! flush at a time, and how much else a commit has to write. Whether another thread commits does
//! not.

use super::four_threads::{Place, STUDY};
use super::{IJOURNAL, Kind, ORDERED, Row};
use crate::Result;

const DRIVES: [(&str, &str); 2] =
    [("flushes one at a time", "sata-nofua"), ("flushes overlap", "sata-nofua:flush_exclusive=0")];

/// How many files are created between two fsyncs, and whether a thread carries out those of ext4.
const LOADS: [(&str, u64, bool); 3] = [
    ("", 0, false),
    (", 16 files created between fsyncs", 16, false),
    (", a thread commits", 0, true),
];

pub(super) fn run(seed: u64) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (load, others, hands_over) in LOADS {
        for (flushes, drive) in DRIVES {
            let place = Place { drive, ..STUDY };
            let ext4 = Place { hands_over, ..place };
            let ordered = ext4.measure(ORDERED, others, seed)?.mean_us();
            let single = place.measure(IJOURNAL, others, seed)?.mean_us();
            let what = format!("mean, iJournaling / ext4: {flushes}{load}");
            rows.push(Row::new(Kind::Outcome, what, "", single / ordered, "x"));
        }
    }
    Ok(rows)
}
