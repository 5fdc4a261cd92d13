//! Why ext4 is slowest in the study's figure 4b: what decides is whether the drive carries out one
//! flush at a time, and how much else a commit has to write. Whether another thread commits does
//! not.

use super::four_threads::{Place, STUDY};
use super::{IJOURNAL, Kind, ORDERED, Row};
use crate::Result;
use crate::bench::Spread;

const DRIVES: [(&str, &str); 2] =
    [("flushes one at a time", "sata-nofua"), ("flushes overlap", "sata-nofua:flush_exclusive=0")];

/// How many files are created between two fsyncs, and whether a thread carries out those of ext4.
const LOADS: [(&str, u64, bool); 3] = [
    ("", 0, false),
    (", 16 files created between fsyncs", 16, false),
    (", a thread commits", 0, true),
];

/// Where others' files are created, the threads fall into one of two steps by seed.
const SEEDS: u64 = 5;

pub(super) fn run(seed: u64) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (load, others, hands_over) in LOADS {
        for (flushes, drive) in DRIVES {
            let place = Place { drive, ..STUDY };
            let ratio = |seed| -> Result<f64> {
                let ext4 = Place { hands_over, ..place }.measure(ORDERED, others, seed)?;
                let single = place.measure(IJOURNAL, others, seed)?;
                Ok(single.mean_us() / ext4.mean_us())
            };
            let ratios =
                (0..SEEDS).map(|n| ratio(seed.wrapping_add(n))).collect::<Result<Vec<_>>>()?;
            let Spread { median, least, most } = Spread::of(ratios);
            let what = format!("mean, iJournaling / ext4: {flushes}{load}");
            let row = Row::new(Kind::Outcome, what, "", median, "x");
            rows.push(Row { range: Some((least, most)), ..row });
        }
    }
    Ok(rows)
}
