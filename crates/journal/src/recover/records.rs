//! Records: those that count are handed to the file system once the log's transactions are home.
//!
//! A record says how files were in a transaction that was not committed, compared with what was.
//! So it counts if, and only if, recovery has not found that transaction committed. The floor, the
//! last transaction that was, is kept in the superblock until the file system has brought the
//! records home: it may need several transactions for that, and a cut between two of them must not
//! make records look old.

use super::scan::Scanned;
use crate::error::{Error, Result};
use crate::ondisk::header::Tid;
use crate::ondisk::record::Record;
use crate::volume::Log;

impl Log<'_> {
    /// The records that count, oldest first; none if the log has no areas for them.
    pub(super) fn live_records(&mut self, scanned: &Scanned) -> Result<Vec<Record>> {
        let Some(space) = self.superblock().records() else { return Ok(Vec::new()) };
        if self.volume().block_size() != drive::BLOCK_SIZE {
            return Err(Error::unsupported("records in blocks of less than 4 KiB"));
        }
        let floor = self.floor(scanned);
        let mut found = Vec::new();
        for area in 0..space.areas {
            let first = space.first + area * space.blocks;
            let end = first + space.blocks;
            let mut at = first;
            while at < end {
                // A record that was not complete may lie in front of one that is.
                at += match self.record_at(at, end)? {
                    Some(record) => {
                        let blocks = record.blocks();
                        if record.tid.is_after(floor) {
                            found.push(record);
                        }
                        blocks
                    }
                    None => 1,
                };
            }
        }
        found.sort_by_key(|record| record.sub);
        Ok(found)
    }

    /// The last transaction that was committed when the power failed.
    pub(super) fn floor(&self, scanned: &Scanned) -> Tid {
        let last = Tid(scanned.end.0.wrapping_sub(1));
        self.superblock().record_floor().unwrap_or(last)
    }

    fn record_at(&mut self, at: u32, end: u32) -> Result<Option<Record>> {
        let (block, _) = self.read(at)?;
        let Some(count) = Record::blocks_from(&block[..]).filter(|count| *count <= end - at) else {
            return Ok(None);
        };
        let mut blocks = Vec::with_capacity(count as usize);
        for block in at..at + count {
            blocks.push(self.read(block)?.0);
        }
        Ok(Record::parse(&blocks, self.superblock().seed()))
    }
}
