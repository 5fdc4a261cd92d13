//! What the segments know of free blocks: which ones a log must not write yet, and which ones can
//! be discarded.

use std::ops::Range;

use super::Segments;
use crate::alloc::discard::Pending;
use crate::error::Result;
use crate::ondisk::sit::MAP_SIZE;
use crate::ondisk::{BlockAddr, SegNo, bits};

impl Segments {
    /// From now on, what is free is noted for a drive that wants to know.
    /// With `stale`, a deliberate fault, what is written again is not taken out.
    pub(crate) fn note_free(&mut self, stale: bool) {
        self.pending = Pending::new(self.sb.segment_count_main, stale);
    }

    /// What the drive could be told is free.
    pub(crate) fn pending(&mut self) -> &mut Pending {
        &mut self.pending
    }

    /// Notes that all of a free segment could be told to the drive.
    pub(crate) fn add_pending(&mut self, segno: SegNo) {
        let start = self.sb.seg_start(segno);
        self.pending.add(start..start + self.usable(segno));
    }

    /// Keeps the free blocks of a segment in use from the logs, until [`Segments::end_busy`]. False
    /// if they are kept already.
    pub(crate) fn set_busy(&mut self, segno: SegNo) -> bool {
        self.busy.insert(segno, false).is_none()
    }

    /// Ends [`Segments::set_busy`]. True if a checkpoint has freed the segment meanwhile.
    pub(crate) fn end_busy(&mut self, segno: SegNo) -> bool {
        let freed = self.busy.remove(&segno).unwrap_or(false) && self.entry(segno).valid == 0;
        if freed {
            self.set_free(segno);
        }
        freed && self.is_free(segno)
    }

    /// Whether the drive could be told that a block is free: neither memory nor the last checkpoint
    /// has it, nothing has been written there since, and the drive does not know.
    pub(crate) fn is_discardable(&self, segno: SegNo, offset: usize) -> bool {
        let has_owner = self.entry(segno).is_valid(offset)
            || bits::msb::test(&self.spent[segno as usize], offset);
        // A segment without a valid block that is not free waits for a checkpoint.
        let waits = self.entry(segno).valid == 0 && !self.is_free(segno);
        let kept = waits || self.barred.contains(&self.sb.section_of(segno));
        let is_told = self.pending.is_told(segno, offset);
        offset < self.usable(segno) as usize && !has_owner && !kept && !is_told
    }

    /// Keeps the block at `addr`, which no longer holds anything, from being written before the
    /// next checkpoint is durable.
    pub(crate) fn keep_until_checkpoint(&mut self, addr: BlockAddr) -> Result<()> {
        let (segno, offset) = self.locate(addr)?;
        bits::msb::set(&mut self.spent[segno as usize], offset);
        self.pending.remove(addr..addr + 1);
        self.dirty.insert(segno);
        if self.is_free(segno) {
            self.set_used(segno);
            self.set_prefree(segno);
        }
        Ok(())
    }

    /// From now on, the blocks described by the checkpoint being written must not be overwritten.
    /// Adds up to `small` runs to what the drive could be told: blocks that the checkpoint freed in
    /// segments that stay in use (`add_discard_addrs`).
    pub(crate) fn set_checkpointed(&mut self, small: u64, is_current: impl Fn(SegNo) -> bool) {
        let mut left = small;
        for segno in std::mem::take(&mut self.dirty) {
            // A log that fills holes may write there at once.
            if left > 0 && !is_current(segno) {
                let runs = self.freed_in(segno).take(usize::try_from(left).unwrap_or(usize::MAX));
                left -= runs.map(|run| self.pending.add(run)).count() as u64;
            }
            self.spent[segno as usize] = self.entries[segno as usize].map;
        }
    }

    /// Runs of blocks of a segment in use that were valid in the last checkpoint, or written since,
    /// and are not any more.
    fn freed_in(&self, segno: SegNo) -> impl Iterator<Item = Range<BlockAddr>> + use<> {
        let (entry, spent) = (*self.entry(segno), self.spent[segno as usize]);
        let end = if entry.valid == 0 { 0 } else { MAP_SIZE * 8 };
        let start = self.sb.seg_start(segno);
        let freed = move |n: &usize| bits::msb::test(&spent, *n) && !entry.is_valid(*n);
        let mut from = 0;
        std::iter::from_fn(move || {
            let first = (from..end).find(freed)?;
            let next = (first..end).find(|n| !freed(n)).unwrap_or(end);
            from = next;
            Some(start + first as BlockAddr..start + next as BlockAddr)
        })
    }
}
