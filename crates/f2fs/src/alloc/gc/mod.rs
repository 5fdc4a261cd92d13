//! Cleaning: moving what is still valid out of a section so that the section becomes free
//! (`gc.c`).
//!
//! What can tear: nothing. Moved blocks are written to the logs, and the section they came from is
//! not used again before a checkpoint that knows their new places is durable. Nobody can point to a
//! moved block before it is stable: cleaning holds the volume until a checkpoint or
//! [`Engine::flush_moved`] has made it so.

mod room;
mod victim;

use std::ops::Range;

use drive::{Block, Blocks};
use queue::WriteSet;
use vfs::Ino;

pub(crate) use room::{Cleaner, OPERATION_PAGES};
pub(crate) use victim::Policy;

use crate::error::{Error, Result};
use crate::inode::mapping::{Lookup, Mapping};
use crate::mount::engine::{Caller, Engine};
use crate::mount::io::Io;
use crate::mount::options::FsyncMode;
use crate::ondisk::inode::Inline;
use crate::ondisk::node::{RawNodeFooter, first_index_of};
use crate::ondisk::sit::{LogType, MAP_SIZE};
use crate::ondisk::summary::{RawSummary, RawSummaryBlock};
use crate::ondisk::{BLOCKS_PER_SEGMENT, BlockAddr, Nid, SegNo, bits};

/// A checkpoint writes the changed nodes when there are so many, to bound memory and recovery time.
const MAX_DIRTY_NODES: usize = 16 * 1024;
/// A checkpoint writes the changed NAT entries when there are so many.
const MAX_DIRTY_NATS: usize = 100_000;
/// How much may wait for a checkpoint to free it (`excess_prefree_segs`): a share of the main area
/// in percent, and a number of segments. Blocks that are used again soon are still in the caches.
const MAX_PREFREE: (usize, usize) = (5, 4096);

/// The segment being cleaned. It is read as a whole when its first block is not in memory.
struct Source<'a> {
    addr: BlockAddr,
    map: &'a [u8; MAP_SIZE],
    blocks: Blocks,
}

impl Source<'_> {
    fn read(&mut self, io: &Io, addr: BlockAddr) -> Result<Block> {
        let n = (addr - self.addr) as usize;
        if self.blocks.is_empty() {
            // Not beyond the last valid block: in a zone nothing may have been written there.
            let end = (n..BLOCKS_PER_SEGMENT as usize).rfind(|i| bits::msb::test(self.map, *i));
            let (first, end) = (addr, end.unwrap_or(n) as u32 + 1);
            self.addr = first;
            self.blocks = io.read_run(first, end - n as u32)?;
        }
        let block = self.blocks.get((addr - self.addr) as usize);
        block.cloned().ok_or_else(|| Error::corrupt("cleaned segment", addr, "nothing", "a block"))
    }
}

impl Engine {
    /// Whether so much waits for a checkpoint that it is time for one (`excess_dirty_nats`,
    /// `excess_prefree_segs`).
    pub(crate) fn is_checkpoint_due(&self) -> bool {
        self.nodes.dirty_count() > MAX_DIRTY_NODES
            || self.nat.dirty_count() > MAX_DIRTY_NATS
            || self.has_excess_prefree()
    }

    fn has_excess_prefree(&self) -> bool {
        let (percent, most) = MAX_PREFREE;
        let share = self.segments.count() as usize * percent / 100;
        self.segments.prefree_segments() > share.min(most)
    }

    /// Whether more than `percent` of the sections are free (`has_enough_free_blocks`).
    pub(crate) fn has_enough_free_blocks(&self, percent: u32) -> bool {
        let limit = u64::from(self.sb.main_sections()) * u64::from(percent) / 100;
        u64::from(self.segments.free_sections()) > limit
    }

    /// Whether there is much to clean and little left free (`has_enough_invalid_blocks`).
    pub(crate) fn has_enough_invalid_blocks(&self) -> bool {
        let (user_blocks, _) = self.space.totals();
        let invalid = user_blocks.saturating_sub(self.segments.valid_blocks());
        let free = self.segments.free_segments(&self.logs);
        let free = free.saturating_sub(self.checkpoint.overprov_segment_count);
        invalid > user_blocks * 40 / 100
            && u64::from(free) * u64::from(BLOCKS_PER_SEGMENT) < invalid * 40 / 100
    }

    /// Chooses the best section to clean among those that gain `least_gain` blocks.
    pub(crate) fn begin_cleaning(
        &mut self,
        policy: Policy,
        least_gain: u32,
        caller: Caller,
    ) -> Option<u32> {
        let skip = |section| {
            self.pinned_sections.contains(&section)
                || self.cleaner.is_done_with(section)
                || self.logs.current().any(|segno| self.sb.section_of(segno) == section)
        };
        let section = victim::select(&self.segments, policy, least_gain, skip)?;
        self.stats.cleanings[caller as usize] += 1;
        Some(section)
    }

    /// Moves all valid blocks out of these segments.
    pub(crate) fn clean_segments(&mut self, segments: Range<SegNo>, caller: Caller) -> Result<()> {
        let mut set = WriteSet::default();
        let moved =
            segments.into_iter().try_for_each(|segno| self.clean_segment(segno, &mut set, caller));
        self.finish(set, moved)
    }

    /// Makes moved blocks stable before the volume is released. Otherwise an fsync that flushed
    /// before the move would write nodes that point to them.
    pub(crate) fn flush_moved(&mut self) -> Result<()> {
        self.flush().inspect_err(|error| self.stop(error))
    }

    fn clean_segment(&mut self, segno: SegNo, set: &mut WriteSet, caller: Caller) -> Result<()> {
        if self.segments.entry(segno).valid == 0 {
            return Ok(());
        }
        let at = self.sb.ssa_block(segno);
        let block = self.io.read_meta(at)?;
        let log = self.segments.entry(segno).log;
        let summary = RawSummaryBlock::of(&block);
        summary.check_type(log, at)?;
        let start = self.sb.seg_start(segno);
        let map = self.segments.entry(segno).map;
        let mut source = Source { addr: start, map: &map, blocks: Blocks::new() };
        let mut from = 0;
        while let Some(n) = bits::msb::next_one(&map, from, BLOCKS_PER_SEGMENT as usize) {
            from = n + 1;
            let (addr, owner) = (start + n as u32, summary.entries[n]);
            if log.is_node() {
                self.move_node(addr, owner.nid.get())?;
            } else {
                self.move_data(addr, owner, &mut source, set, caller)?;
            }
            self.stats.moved_blocks[caller as usize] += 1;
        }
        Ok(())
    }

    /// Moves a node: the next checkpoint writes it again.
    fn move_node(&mut self, addr: BlockAddr, nid: Nid) -> Result<()> {
        if self.nat.get(&self.io, nid)?.addr != addr {
            let found = format!("node {nid} as the owner of {addr:#x}");
            return Err(Error::corrupt("summary of a node", addr, found, "the node's NAT entry"));
        }
        let was_clean = !self.nodes.is_dirty(nid);
        self.node_mut(nid)?;
        if was_clean {
            self.nodes.leave_to_checkpoint(nid);
        }
        Ok(())
    }

    /// Moves a data block to the cold log. If the page cache has a newer version, that is moved
    /// instead, unless an fsync must bring all newer versions or none.
    fn move_data(
        &mut self,
        addr: BlockAddr,
        owner: RawSummary,
        source: &mut Source<'_>,
        set: &mut WriteSet,
        caller: Caller,
    ) -> Result<()> {
        let Some((ino, index)) = self.owner_of(addr, owner)? else {
            let found = format!("slot {} of node {}", owner.ofs_in_node, owner.nid);
            return Err(Error::corrupt(
                "summary of data",
                addr,
                found,
                "the slot that points here",
            ));
        };
        if self.is_pinned(ino)? {
            let section = self.sb.locate(addr).map(|(segno, _)| self.sb.section_of(segno));
            self.pinned_sections.extend(section);
            return match caller {
                Caller::Foreground => self.count_pin_failure(ino),
                Caller::Background => Ok(()),
            };
        }
        let key = Ino::from(ino);
        // The pages of a compressed cluster are not what its blocks hold, and are never dirty.
        let dirty = self.pages.is_dirty(key, index);
        let waits = dirty && self.options.fsync_mode == FsyncMode::Strict;
        let is_content = !waits && (dirty || self.layout(ino)?.cluster().is_none());
        let block = match self.pages.peek(key, index).filter(|_| is_content) {
            Some(block) => block.clone(),
            None => source.read(&self.io, addr)?,
        };
        let Lookup::Slot(slot) = self.lookup_slot(ino, index)? else { return Ok(()) };
        let was_clean = !self.nodes.is_dirty(slot.nid);
        let new = self.move_block(ino, slot, addr, LogType::ColdData)?;
        if !waits {
            self.pages.mark_clean(key, index);
        }
        // Until the next checkpoint, the block is also in its old place.
        if was_clean && (waits || !dirty) {
            self.nodes.leave_to_checkpoint(slot.nid);
        }
        set.push(self.io.writer(), new.into(), block);
        Ok(())
    }

    /// File and block a summary names, if that file's slot still points to `addr` (`is_alive`).
    pub(crate) fn owner_of(
        &mut self,
        addr: BlockAddr,
        owner: RawSummary,
    ) -> Result<Option<(Nid, u64)>> {
        let nid = owner.nid.get();
        if !self.sb.is_node_id(nid) || self.nat.get(&self.io, nid)?.is_free() {
            return Ok(None);
        }
        let footer = *RawNodeFooter::of(&self.node(nid)?.block);
        let ino = footer.ino.get();
        let inode = self.inode(ino)?;
        if inode.inline().intersects(Inline::DATA | Inline::DENTRY) {
            return Ok(None);
        }
        let Some(first) = first_index_of(footer.node_offset(), inode.layout.addr_counts()) else {
            return Ok(None);
        };
        drop(inode);
        let index = first + u64::from(owner.ofs_in_node.get());
        Ok((self.addr_of(ino, index)? == addr).then_some((ino, index)))
    }
}
