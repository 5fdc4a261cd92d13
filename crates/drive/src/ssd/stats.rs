//! What a drive has done since it was switched on.

use crate::Command;

/// Counters since power-on. Blocks are 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Commands of any kind.
    pub commands: u64,
    /// Reads.
    pub reads: u64,
    /// Writes, without appends.
    pub writes: u64,
    /// Zone appends.
    pub appends: u64,
    /// Flush commands.
    pub flushes: u64,
    /// Deallocations.
    pub discards: u64,
    /// Zone reports.
    pub reports: u64,
    /// Zone management commands.
    pub manages: u64,
    /// Blocks read.
    pub blocks_read: u64,
    /// Blocks written or appended.
    pub blocks_written: u64,
    /// NAND programs that ended.
    pub programs: u64,
    /// Blocks those programs carried; the rest of a program unit is padding.
    pub blocks_programmed: u64,
    /// Zones reset.
    pub resets: u64,
    /// Times the drive flushed by itself.
    pub internal_flushes: u64,
}

impl Stats {
    pub(super) fn count(&mut self, command: &Command) {
        self.commands += 1;
        match command {
            Command::Read { blocks, .. } => {
                self.reads += 1;
                self.blocks_read += u64::from(*blocks);
            }
            Command::Write { data, .. } => {
                self.writes += 1;
                self.blocks_written += data.len() as u64;
            }
            Command::Append { data, .. } => {
                self.appends += 1;
                self.blocks_written += data.len() as u64;
            }
            Command::Flush => self.flushes += 1,
            Command::Discard { .. } => self.discards += 1,
            Command::ReportZones { .. } => self.reports += 1,
            Command::ManageZone { .. } => self.manages += 1,
        }
    }
}
