//! What a run found, three ways: a table for the terminal, JSON for programs, a page for people.

mod bars;
mod cells;
mod curve;
mod html;
mod lanes;
mod svg;
mod table;
#[cfg(test)]
mod tests;
mod timeline;
mod words;

use std::path::Path;

use serde::Serialize;

use crate::campaign::ModeResult;
use crate::{Error, Result};

pub use cells::{Cells, cells};
pub use curve::curve;
pub use html::html;
pub(crate) use table::{TABLE_6_2_FAILED, columns};
pub use table::{campaign_table, counted, micro, paper_table};
pub use timeline::{Timeline, record as record_timeline};

/// One zone at the moment of a cut. Blocks are counted from the zone's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ZoneMark {
    /// Number of the zone.
    pub zone: u32,
    /// Blocks that can be written.
    pub capacity: u64,
    /// Where the host believed the write pointer to be: `wp_zns`.
    pub wp_zns: u64,
    /// What NAND had: `wp_nand`.
    pub wp_nand: u64,
}

/// Zones with anything written in them, at one cut.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ZoneMap {
    /// When, nanoseconds since the workload started.
    pub at_ns: u64,
    /// In order.
    pub zones: Vec<ZoneMark>,
}

/// A finished experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Headline.
    pub title: String,
    /// What was run on what, in a sentence or two.
    pub about: String,
    /// The command that repeats it.
    pub command: String,
    /// One result per mode and workload.
    pub campaigns: Vec<ModeResult>,
    /// One fsync of each mode.
    pub timelines: Vec<Timeline>,
    /// A drive at the moment of a cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone_map: Option<ZoneMap>,
}

impl Report {
    /// Writes `report.json` and `report.html` into `dir`, which is made if need be.
    pub fn write(&self, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir).map_err(Error::host(dir))?;
        let mut json = serde_json::to_string_pretty(self)
            .map_err(|e| Error::Usage(format!("the report cannot be written as JSON: {e}")))?;
        json.push('\n');
        for (name, text) in [("report.json", json), ("report.html", html(self))] {
            let path = dir.join(name);
            std::fs::write(&path, text).map_err(Error::host(&path))?;
        }
        Ok(())
    }

    /// Whether some mode broke a promise.
    pub fn is_broken(&self) -> bool {
        self.campaigns.iter().any(|c| c.broken > 0)
    }
}
