//! The matrix as a drawing: by how many percent each cell is faster than the first peer's.

use super::Matrix;
use super::table::{Grid, TESTS, percent};
use crate::report::{Cells, cells};

impl Matrix {
    /// An SVG file: a grid for each test, files down, records across.
    pub fn svg(&self) -> String {
        let mut all = Vec::new();
        if let Some(peer) = self.peers().next() {
            let (ours, other) = (&self.places[self.judged], &self.places[peer]);
            for durable in self.durable() {
                for (test, name) in TESTS {
                    let Grid { records, rows } = self.grid(peer, durable, test);
                    let cell = |ratio: Option<f64>| ratio.map(|r| (percent(Some(r)), r >= 1.0));
                    let rows = rows.into_iter().map(|(name, row)| {
                        let row = row.into_iter().map(cell).collect();
                        (name, row)
                    });
                    let title = format!("{} {name}, {ours} beside {other}", durable.name());
                    all.push(Cells { title, columns: records, rows: rows.collect() });
                }
            }
        }
        cells(&all, "files down, records across: by how many percent it is faster")
    }
}
