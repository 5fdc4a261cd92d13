//! The comparison as a table for a terminal.

use std::fmt::Write;

use super::{Comparison, Measured, Row, Spread};
use crate::report;

impl Comparison {
    /// A row for each interface that works, and a line for each that does not.
    pub fn text(&self) -> String {
        let Self { on, bytes, rw, bs, iodepth, numjobs, direct, rounds, .. } = self;
        let cache = if *direct { "past the page cache" } else { "through the page cache" };
        let mut text = format!(
            "{rw} of {bs} bytes on {on} ({:.0} MiB, {cache}); jobs: {numjobs}, depth: {iodepth}; \
             measured, medians of {rounds}\n",
            *bytes as f64 / f64::from(1 << 20)
        );
        let rows = self.interfaces.iter();
        let worked: Vec<_> = rows
            .filter_map(|row| row.measured.as_ref().map(|measured| cells(row, measured)))
            .collect();
        if !worked.is_empty() {
            text += &report::columns(&HEAD, worked, 1);
        }
        for Row { ioengine, refused, remark, .. } in &self.interfaces {
            if let Some(said) = refused.as_deref().or(*remark) {
                let _ = writeln!(text, "{ioengine}: {said}");
            }
        }
        text
    }
}

const HEAD: [&str; 12] = [
    "interface",
    "depth",
    "IO/s",
    "least",
    "most",
    "ratio",
    "p50 µs",
    "p99 µs",
    "p99.9 µs",
    "CPU µs/IO",
    "calls/IO",
    "waits/IO",
];

fn cells(row: &Row, measured: &Measured) -> Vec<String> {
    let Measured { iops, over_first, user_us_per_io, system_us_per_io, .. } = measured;
    let cpu = user_us_per_io.median + system_us_per_io.median;
    let calls = measured.calls_per_io.map(|Spread { median, .. }| format!("{median:.2}"));
    vec![
        row.ioengine.to_owned(),
        row.iodepth.to_string(),
        format!("{:.0}", iops.median),
        format!("{:.0}", iops.least),
        format!("{:.0}", iops.most),
        format!("{:.2}", over_first.median),
        format!("{:.1}", measured.latency_us_p50),
        format!("{:.1}", measured.latency_us_p99),
        format!("{:.1}", measured.latency_us_p999),
        format!("{cpu:.2}"),
        calls.unwrap_or_else(|| "-".into()),
        format!("{:.2}", measured.waits_per_io.median),
    ]
}
