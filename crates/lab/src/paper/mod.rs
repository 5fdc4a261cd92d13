//! Papers' tables and figures beside ours, one folder per paper.
//!
//! - `oprw`: the thesis about ordering by write pointers in F2FS.
//! - `grouped`: Grouped fsync and iJournaling on ext4.
//! - `z-journal`: Z-Journal, a journal per core, on ext4.
//! - `f2fs-versions`: the study of F2FS from Linux 3.8 to 4.16 and its tunables.
//! - `manycore`: the study of file systems and the block layer on many cores.
//! - `pm`: pNOVA, overwrites of files in persistent memory on many cores.

mod grouped;
mod manycore;
mod oprw;
mod pm;
mod row;
pub mod sensitivity;
mod versions;
mod zjournal;

use std::sync::Arc;

use drive::Drive;

use crate::{Error, Result};

pub use grouped::GROUPED;
pub use manycore::MANYCORE;
pub use oprw::{OPRW, SENSITIVITY, Sweep, TABLE_6_2, experiment};
pub use pm::PM;
pub use row::{Comparison, Kind, Row};
pub use versions::VERSIONS;
pub use zjournal::ZJOURNAL;

/// An experiment of the paper.
pub struct Figure {
    /// Name on the command line.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    run: fn(u64) -> Result<Vec<Row>>,
    simulated: bool,
}

impl Figure {
    /// Runs it.
    pub fn run(&self, seed: u64) -> Result<Comparison> {
        let rows = (self.run)(seed)?;
        let command = format!("strandline lab run {} --seed {seed}", self.name);
        let Self { name, about, simulated, .. } = *self;
        Ok(Comparison { name, about, command, simulated, rows })
    }

    /// Measures it on this machine and a drive, called `device`, whose contents are lost; with
    /// `force`, even if something is known there. Few experiments can do that.
    pub fn run_on(
        &self,
        drive: Arc<dyn Drive>,
        device: &str,
        force: bool,
        seed: u64,
    ) -> Result<Comparison> {
        let rows = versions::on_drive(self.name, drive, force, seed)?;
        let command =
            format!("strandline lab run {} --device {device} -f --seed {seed}", self.name);
        let Self { name, about, .. } = *self;
        Ok(Comparison { name, about, command, simulated: false, rows })
    }
}

/// Names that [`of`] knows.
pub const NAMES: [&str; 6] = ["oprw", "grouped", "z-journal", "f2fs-versions", "manycore", "pm"];

/// The experiments of the paper called `paper`.
pub fn of(paper: &str) -> Result<&'static [Figure]> {
    match paper {
        "oprw" => Ok(&OPRW),
        "grouped" => Ok(GROUPED),
        "z-journal" => Ok(ZJOURNAL),
        "manycore" => Ok(MANYCORE),
        "f2fs-versions" => Ok(VERSIONS),
        "pm" => Ok(PM),
        _ => {
            let known = NAMES.join(", ");
            Err(Error::Usage(format!("unknown paper '{paper}'; known: {known}")))
        }
    }
}

/// The experiments of all papers.
pub fn all() -> impl Iterator<Item = &'static Figure> {
    OPRW.iter().chain(GROUPED).chain(ZJOURNAL).chain(VERSIONS).chain(MANYCORE).chain(PM)
}

/// The experiment called `name`.
pub fn named(name: &str) -> Option<&'static Figure> {
    all().find(|figure| figure.name == name)
}
