//! Why ext4 is slowest in the study's figure 4b: what decides is whether the drive carries out one
//! flush at a time, and how much else a commit has to write.

use super::{IJOURNAL, Kind, ORDERED, Row, measure};
use crate::Result;

/// A drive whose flushes overlap, or not; and files that are created between two fsyncs.
const CASES: [(&str, &str, u64); 4] = [
    ("flushes one at a time", "sata-nofua", 0),
    ("flushes overlap", "sata-nofua:flush_exclusive=0", 0),
    ("flushes one at a time, 16 files created between fsyncs", "sata-nofua", 16),
    ("flushes overlap, 16 files created between fsyncs", "sata-nofua:flush_exclusive=0", 16),
];

pub(super) fn run(seed: u64) -> Result<Vec<Row>> {
    let rows = CASES.into_iter().map(|(what, drive, others)| {
        let ordered = measure(ORDERED, drive, others, seed)?.mean_us();
        let single = measure(IJOURNAL, drive, others, seed)?.mean_us();
        let what = format!("mean, iJournaling / ext4: {what}");
        Ok(Row::new(Kind::Outcome, what, "", single / ordered, "x"))
    });
    rows.collect()
}
