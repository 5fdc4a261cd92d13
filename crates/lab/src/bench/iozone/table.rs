//! The matrix for a terminal.

use std::fmt::Write;

use super::{Durable, Matrix, Measured, Ratio, Test};
use crate::report::columns;

pub(super) const TESTS: [(Test, &str); 2] = [(Test::Write, "write"), (Test::Rewrite, "rewrite")];

impl Matrix {
    /// Each place beside the others, and the first peer cell by cell.
    pub fn text(&self) -> String {
        let each = self.cells.len() / 2 / self.durable().count().max(1);
        let mut text = format!("iozone: {each} cells, measured, means of the best MB/s\n");
        text += &self.means();
        for why in &self.refused {
            let _ = writeln!(text, "{why}");
        }
        for (place, name) in self.places.iter().enumerate().filter(|it| it.0 != self.floor) {
            for (test, which) in TESTS {
                let Some(share) = self.of_floor(place, test) else { continue };
                let Ratio { mean, least, cells, .. } = share;
                let _ = writeln!(
                    text,
                    "{name}: {which} of 64 KiB and more at a time does {:.0}% of what streaming \
                     stores do, {:.0}% at least, in {cells} cells",
                    100.0 * mean,
                    100.0 * least
                );
            }
        }
        for peer in self.peers() {
            for (test, name) in TESTS {
                text += &self.grid_text(peer, test, name);
            }
        }
        text
    }

    pub(super) fn durable(&self) -> impl Iterator<Item = Durable> + '_ {
        let has = |durable: &Durable| self.cells.iter().any(|cell| cell.durable == *durable);
        Durable::ALL.into_iter().filter(has)
    }

    /// Places that are not our own.
    pub(super) fn peers(&self) -> std::ops::Range<usize> {
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

    /// How many times as fast as a peer each cell is: a row for each file, a column for each
    /// record, both in order.
    pub(super) fn grid(&self, peer: usize, durable: Durable, test: Test) -> Grid {
        let of = |cell: &&Measured| cell.durable == durable && cell.test == test;
        let cells: Vec<&Measured> = self.cells.iter().filter(of).collect();
        let sorted = |size: fn(&Measured) -> u64| {
            let mut all: Vec<u64> = cells.iter().map(|cell| size(cell)).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        let (files, records) = (sorted(|cell| cell.cell.file), sorted(|cell| cell.cell.record));
        let ratio = |file: u64, record: u64| {
            let found = cells.iter().find(|c| (c.cell.file, c.cell.record) == (file, record));
            found.map(|cell| cell.bytes_per_s[self.judged] / cell.bytes_per_s[peer])
        };
        let row =
            |&file: &u64| (size(file), records.iter().map(|&record| ratio(file, record)).collect());
        let rows = files.iter().map(row).collect();
        Grid { records: records.iter().map(|&record| size(record)).collect(), rows }
    }

    /// By how many percent each buffered cell is faster than a peer's.
    fn grid_text(&self, peer: usize, test: Test, name: &str) -> String {
        let Grid { records, rows } = self.grid(peer, Durable::Buffered, test);
        if rows.is_empty() {
            return String::new();
        }
        let head: Vec<&str> = [""].into_iter().chain(records.iter().map(String::as_str)).collect();
        let row = |(file, ratios): (String, Vec<Option<f64>>)| {
            [file].into_iter().chain(ratios.into_iter().map(percent)).collect()
        };
        let (ours, other) = (&self.places[self.judged], &self.places[peer]);
        let table = columns(&head, rows.into_iter().map(row).collect(), 1);
        format!("\nbuffered {name}, {ours} beside {other}; files down, records across\n{table}")
    }
}

/// Cells by file and record.
pub(super) struct Grid {
    /// Names of the columns.
    pub(super) records: Vec<String>,
    /// Names of the rows, and a ratio for each column that has a cell.
    pub(super) rows: Vec<(String, Vec<Option<f64>>)>,
}

/// By how many percent something is more, if it is there.
pub(super) fn percent(ratio: Option<f64>) -> String {
    ratio.map_or_else(String::new, |ratio| format!("{:+.0}%", 100.0 * (ratio - 1.0)))
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
