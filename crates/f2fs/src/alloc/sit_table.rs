//! The segment information table on the drive: two copies of each block, a version bitmap that says
//! which copy counts, and a small journal in the checkpoint (`f2fs_flush_sit_entries`).

use std::collections::BTreeSet;
use std::sync::Arc;

use drive::Block;

use crate::alloc::segments::Segments;
use crate::error::Result;
use crate::mount::io::Io;
use crate::ondisk::sit::{self, RawSitBlock, SitEntry};
use crate::ondisk::summary::SIT_JOURNAL_ENTRIES;
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{SegNo, bits};

/// Blocks read with one command while loading.
const READ_AHEAD: u32 = 256;

/// Which copy counts, and which entries are in the journal instead.
pub(crate) struct SitTable {
    sb: Arc<Superblock>,
    version_bitmap: Vec<u8>,
    journal: BTreeSet<SegNo>,
    /// The next checkpoint writes the table even if the journal could hold the changes, because a
    /// mount also checks the entries in the table that the journal overrides.
    to_table: bool,
}

impl SitTable {
    /// A table of which the caller knows all entries. The caller marks as dirty what differs from
    /// the copies that `version_bitmap` selects.
    pub(crate) fn mended(sb: Arc<Superblock>, version_bitmap: Vec<u8>) -> Self {
        Self { sb, version_bitmap, journal: BTreeSet::new(), to_table: true }
    }

    /// Reads the whole table; `journal` overrides it.
    pub(crate) fn load(
        sb: Arc<Superblock>,
        io: &Io,
        version_bitmap: Vec<u8>,
        journal: Vec<(SegNo, SitEntry)>,
    ) -> Result<(Self, Vec<SitEntry>)> {
        let segments = sb.segment_count_main;
        let blocks = sit::block_index(segments - 1) + 1;
        let mut entries = Vec::with_capacity(segments as usize);
        let mut index = 0;
        while index < blocks {
            let second = bits::msb::test(&version_bitmap, index as usize);
            let addr = sit::block_addr(&sb, &version_bitmap, index);
            let run = (index..blocks.min(index + READ_AHEAD))
                .take_while(|i| bits::msb::test(&version_bitmap, *i as usize) == second)
                .count() as u32;
            for (i, block) in io.read_run(addr, run)?.iter().enumerate() {
                let table = RawSitBlock::of(block);
                let first = (index + i as u32) * sit::ENTRIES_PER_BLOCK as u32;
                for segno in first..segments.min(first + sit::ENTRIES_PER_BLOCK as u32) {
                    entries.push(table.entry(segno).parse(addr + i as u32)?);
                }
            }
            index += run;
        }
        for (segno, entry) in &journal {
            entries[*segno as usize] = *entry;
        }
        let journal = journal.into_iter().map(|(segno, _)| segno).collect();
        Ok((Self { sb, version_bitmap, journal, to_table: false }, entries))
    }

    /// The present version bitmap, which the checkpoint stores.
    pub(crate) fn version_bitmap(&self) -> &[u8] {
        &self.version_bitmap
    }

    /// Reads the blocks of the table that the next checkpoint changes, ascending; `None` if the
    /// journal takes all that changed.
    pub(crate) fn read_for_checkpoint(
        &self,
        io: &Io,
        segments: &Segments,
    ) -> Result<Option<Vec<(u32, Block)>>> {
        let changed: BTreeSet<SegNo> = self.journal.union(segments.dirty()).copied().collect();
        if changed.len() <= SIT_JOURNAL_ENTRIES && !self.to_table {
            return Ok(None);
        }
        let indexes: BTreeSet<u32> = changed.into_iter().map(sit::block_index).collect();
        let at = |index| sit::block_addr(&self.sb, &self.version_bitmap, index);
        let read = indexes.into_iter().map(|index| Ok((index, io.read_meta(at(index))?)));
        read.collect::<Result<_>>().map(Some)
    }

    /// Writes the changed entries to the journal or, if they do not fit there, to the table's other
    /// copies, of which the `blocks` were read. Returns the segments for the checkpoint's journal.
    pub(crate) fn checkpoint(
        &mut self,
        io: &Io,
        segments: &Segments,
        blocks: Option<Vec<(u32, Block)>>,
    ) -> &BTreeSet<SegNo> {
        self.journal.extend(segments.dirty());
        if let Some(blocks) = blocks {
            self.to_table = false;
            let mut changed = std::mem::take(&mut self.journal).into_iter().peekable();
            for (index, mut block) in blocks {
                let table = RawSitBlock::of_mut(block.make_mut());
                while let Some(segno) = changed.next_if(|s| sit::block_index(*s) == index) {
                    table.set_entry(segno, segments.entry(segno));
                }
                bits::msb::flip(&mut self.version_bitmap, index as usize);
                io.write_meta(sit::block_addr(&self.sb, &self.version_bitmap, index), block);
            }
        }
        &self.journal
    }
}
