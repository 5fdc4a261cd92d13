//! The matrix for a terminal.

use std::fmt::Write;

use super::{Durable, Matrix, Measured, Ratio, Test};
use crate::report::columns;

const TESTS: [(Test, &str); 2] = [(Test::Write, "write"), (Test::Rewrite, "rewrite")];

impl Matrix {
    /// Each place beside the others, and the first peer cell by cell.
    pub fn text(&self) -> String {
        let each = self.cells.len() / 2 / self.durable().count().max(1);
        let mut text = format!(
            "iozone: {each} cells, measured, means of the best MB/s; the memory streams \
             {:.0} MB/s\n",
            self.stream_bytes_per_s / 1e6
        );
        text += &self.means();
        for why in &self.refused {
            let _ = writeln!(text, "{why}");
        }
        for (place, name) in self.places.iter().enumerate() {
            let Some(share) = self.of_floor(place) else { continue };
            let Ratio { mean, least, cells, .. } = share;
            let _ = writeln!(
                text,
                "{name}: buffered records of 64 KiB and more do {:.0}% of the stream's rate on \
                 average, {:.0}% at least, of {cells} cells",
                100.0 * mean,
                100.0 * least
            );
        }
        for peer in self.peers() {
            for (test, name) in TESTS {
                text += &self.grid(peer, test, name);
            }
        }
        text
    }

    fn durable(&self) -> impl Iterator<Item = Durable> + '_ {
        let has = |durable: &Durable| self.cells.iter().any(|cell| cell.durable == *durable);
        Durable::ALL.into_iter().filter(has)
    }

    /// Places that are not our own.
    fn peers(&self) -> std::ops::Range<usize> {
        self.ours.min(self.places.len())..self.places.len()
    }

    fn means(&self) -> String {
        let mut head = vec!["", "test"];
        head.extend(self.places.iter().map(String::as_str));
        let compared: Vec<String> = self
            .peers()
            .map(|peer| format!("{} / {}", self.places[self.judged], self.places[peer]))
            .collect();
        head.extend(compared.iter().map(String::as_str));
        let mut rows = Vec::new();
        for durable in self.durable() {
            for (test, name) in TESTS {
                let mut row = vec![durable.name().to_owned(), name.to_owned()];
                row.extend(
                    (0..self.places.len())
                        .map(|place| format!("{:.0}", self.mean(durable, test, place) / 1e6)),
                );
                row.extend(self.peers().map(|peer| {
                    self.ratio(durable, test, self.judged, peer).map_or_else(String::new, said)
                }));
                rows.push(row);
            }
        }
        columns(&head, rows, 2)
    }

    fn mean(&self, durable: Durable, test: Test, place: usize) -> f64 {
        let of = |cell: &&Measured| cell.durable == durable && cell.test == test;
        let rates = self.cells.iter().filter(of).filter_map(|cell| cell.bytes_per_s.get(place));
        let (count, sum) = rates.fold((0_u32, 0.0), |(count, sum), rate| (count + 1, sum + rate));
        sum / f64::from(count.max(1))
    }

    /// By how many percent each cell is faster than a peer's: files down, records across.
    fn grid(&self, peer: usize, test: Test, name: &str) -> String {
        let of = |cell: &&Measured| cell.durable == Durable::Buffered && cell.test == test;
        let cells: Vec<&Measured> = self.cells.iter().filter(of).collect();
        if cells.is_empty() {
            return String::new();
        }
        let sorted = |size: fn(&Measured) -> u64| {
            let mut all: Vec<u64> = cells.iter().map(|cell| size(cell)).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        let (files, records) = (sorted(|cell| cell.cell.file), sorted(|cell| cell.cell.record));
        let names: Vec<String> = records.iter().map(|&record| size(record)).collect();
        let head: Vec<&str> = [""].into_iter().chain(names.iter().map(String::as_str)).collect();
        let row = |&file: &u64| {
            let percent = |&record: &u64| {
                let found = cells.iter().find(|c| (c.cell.file, c.cell.record) == (file, record));
                let Some(cell) = found else { return String::new() };
                let ratio = cell.bytes_per_s[self.judged] / cell.bytes_per_s[peer];
                format!("{:+.0}%", 100.0 * (ratio - 1.0))
            };
            [size(file)].into_iter().chain(records.iter().map(percent)).collect()
        };
        let (ours, other) = (&self.places[self.judged], &self.places[peer]);
        let table = columns(&head, files.iter().map(row).collect(), 1);
        format!("\nbuffered {name}, {ours} beside {other}; files down, records across\n{table}")
    }
}

fn said(ratio: Ratio) -> String {
    let Ratio { mean, least, most, below, .. } = ratio;
    format!("{mean:.2} ({least:.2} to {most:.2}), below 1: {below}")
}

/// With k or m.
fn size(bytes: u64) -> String {
    match bytes >> 10 {
        kib @ 0..1024 => format!("{kib}k"),
        kib => format!("{}m", kib >> 10),
    }
}
