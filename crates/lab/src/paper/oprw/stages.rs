//! Table 3.1: the stages of an fsync after a 4 KiB overwrite, as spans of the running file system.
//!
//! A stage's CPU time is charged when it begins; what happens inside counts to it: blocks taken
//! from a log, requests handed to the drive, completions taken while it waits.

use cores::Stage;

use super::{Kind, PROTECTED, Row, fio};
use crate::Result;
use f2fs::technique;

/// How far from the thesis's time ours may be. That is up to the model: each is an input, four as
/// CPU costs taken from the table, the waits as the drive's time to write.
const NEAR: f64 = 0.1;
/// Stage, the thesis's name for it, its microseconds and its percentage.
const STAGES: [(Stage, &str, f64, f64); 6] = [
    (Stage::FsyncPrepare, "prepare and dispatch data", 10.40, 15.77),
    (Stage::WaitData, "wait for data DMA", 15.25, 23.12),
    (Stage::FsyncNode, "prepare and dispatch node", 16.16, 24.50),
    (Stage::WaitNode, "wait for node DMA", 16.38, 24.83),
    (Stage::WaitFlush, "flush", 2.12, 3.21),
    (Stage::FsyncOther, "other", 5.65, 8.57),
];

pub(super) fn run(seed: u64) -> Result<Vec<Row>> {
    let trace = fio::random_writes(PROTECTED, technique::POSIX, 4096, seed)?.trace;
    let time = |stage| trace.total(stage).time as f64;
    let all: f64 = STAGES.iter().map(|(stage, ..)| time(*stage)).sum();
    let fsyncs = trace.total(Stage::FsyncPrepare).count.max(1) as f64;
    let mut rows = Vec::new();
    for (stage, what, us, percent) in STAGES {
        let row = |paper, ours, unit| Row::new(Kind::Input, what, paper, ours, unit);
        let ours = time(stage) / fsyncs / 1e3;
        rows.push(row(format!("{us:.2} us"), ours, "us").near(us, NEAR));
        rows.push(row(format!("{percent:.2} %"), 100.0 * time(stage) / all, "%"));
    }
    Ok(rows)
}
