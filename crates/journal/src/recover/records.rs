//! Records: what counts of them is handed to the file system once the log's transactions are home.
//!
//! An entry says how a file was in a transaction, compared with what is valid. So it counts if, and
//! only if, recovery has not found that transaction valid. The floors, the last valid transaction
//! of each area, are kept behind the records until the file system has brought these home: it may
//! need several transactions for that, and a cut between two of them must not make records look
//! old.

use std::collections::BTreeSet;

use drive::Block;

use super::judge::Judged;
use crate::error::{Error, Result};
use crate::ondisk::record::{Entry, Floors, Record};
use crate::volume::Log;

/// Records that a block of an area may belong to, on average, going by headers and commit blocks.
/// An area is written from its start on again and again, so old ones that overlap are few.
const OVERLAP_MAX: u32 = 8;

impl Log<'_> {
    /// What counts of the records, oldest first; nothing if the log has no areas for them.
    pub fn live_records(&mut self, floors: &Floors) -> Result<Vec<Record>> {
        let Some(space) = self.superblock().records() else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for area in 0..space.areas {
            let first = space.first + area * space.blocks;
            let end = first + space.blocks;
            let (mut at, mut most) = (first, OVERLAP_MAX.saturating_mul(space.blocks));
            while at < end {
                // A record that was not complete may lie in front of one that is.
                at += match self.record_at(at, end, &mut most)? {
                    Some(mut record) => {
                        let blocks = record.blocks(self.volume().block_size());
                        record.entries.retain(|entry| floors.are_below(entry.of));
                        found.extend((!record.entries.is_empty()).then_some(record));
                        blocks
                    }
                    None => 1,
                };
            }
        }
        found.sort_by_key(|record| record.sub);
        self.leave_out_lost(&mut found)?;
        Ok(found)
    }

    /// Leaves out what says of a file that it has data which is not there. What older records say
    /// of a file does not matter if a newer one holds.
    fn leave_out_lost(&mut self, records: &mut Vec<Record>) -> Result<()> {
        let mut held = BTreeSet::new();
        for record in records.iter_mut().rev() {
            let mut kept = Vec::with_capacity(record.entries.len());
            for entry in std::mem::take(&mut record.entries) {
                if held.contains(&entry.ino) || self.has_data_of(&entry)? {
                    held.insert(entry.ino);
                    kept.push(entry);
                }
            }
            record.entries = kept;
        }
        records.retain(|record| !record.entries.is_empty());
        Ok(())
    }

    fn has_data_of(&self, entry: &Entry) -> Result<bool> {
        let volume = self.volume();
        for sum in &entry.sums {
            if sum.block >= volume.blocks() {
                return Ok(false);
            }
            let (lba, range) = volume.place(sum.block);
            if !sum.holds_for(&volume.io().read(lba)?[range]) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The last transaction of each area that was valid when the power failed.
    pub fn floors(&mut self, judged: &Judged) -> Result<Floors> {
        let space = self.superblock().records().filter(|_| self.superblock().has_record_floors());
        let Some(space) = space else { return Ok(Floors(judged.last.clone())) };
        let (block, range) = self.read(space.floors_at())?;
        Floors::parse(&block[range]).ok_or_else(|| {
            Error::corrupt(
                "floors of records",
                space.floors_at(),
                "none",
                "as s_rec_has_floor says",
            )
        })
    }

    /// The record that begins at block `at` of the log, in an area that ends at `end`, if there is
    /// one. Takes what it has to read of `most` blocks.
    fn record_at(&mut self, at: u32, end: u32, most: &mut u32) -> Result<Option<Record>> {
        let (header, range) = self.read(at)?;
        let header = &header[range];
        let count = Record::blocks_from(header).filter(|count| *count <= end - at);
        let Some(count) = count else { return Ok(None) };
        // Alone: what follows is read from here on.
        let (lba, range) = self.volume().place(self.home(at + count - 1)?);
        let commit = self.volume().io().read(lba)?;
        if !Record::is_commit_of(&commit[range], header) {
            return Ok(None);
        }
        *most = most.checked_sub(count).ok_or_else(|| {
            let allowed = format!("each block in at most {OVERLAP_MAX}, on average");
            Error::corrupt("area of records", at, "too many that overlap", allowed)
        })?;
        let mut blocks = Vec::with_capacity(count as usize);
        for block in at..at + count {
            let (block, range) = self.read(block)?;
            blocks.push(Block::from_prefix(&block[range]));
        }
        Ok(Record::parse(&blocks, self.volume().block_size(), self.superblock().seed()))
    }
}
