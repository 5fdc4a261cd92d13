//! Cleaning: moving what is still valid out of a section so that the section becomes free
//! (`gc.c`).
//!
//! The cleaner moves a [`PIECE`] at a time: it looks up what a piece of a segment holds
//! ([`piece`]), reads what is not cached, submits all of it to the logs, and waits. While the drive
//! works, the volume can be read ([`hands`]).
//!
//! What can tear: nothing. Moved blocks are written to the logs, and the section they came from is
//! not used again before a checkpoint that has their new places is durable. No node can point to a
//! moved block before it is stable: nothing changes until a checkpoint or [`Hands::flush_moved`]
//! has made it so.

pub(crate) mod by_age;
mod cleaner;
mod hands;
pub(crate) mod piece;
mod room;
mod victim;

use std::ops::Range;

use drive::{Block, Lba};
use queue::WriteSet;
use smallvec::SmallVec;
use vfs::{Errno, Hold};

pub(crate) use cleaner::Cleaner;
pub(crate) use hands::{Hands, Held};
pub(crate) use room::{CHAIN_LOGS, OPERATION_PAGES, balance};
pub(crate) use victim::Policy;

use by_age::ByAge;
use piece::{Owned, Piece};
use victim::Search;

use crate::F2fs;
use crate::error::{Error, Result};
use crate::file::writeback::WritePages;
use crate::inode::mapping::{Lookup, Mapping};
use crate::mount::attributes::GcMode;
use crate::mount::engine::{Caller, Engine};
use crate::mount::iostat::Moved;
use crate::mount::options::FsyncMode;
use crate::ondisk::inode::Inline;
use crate::ondisk::node::{RawNodeFooter, first_index_of};
use crate::ondisk::sit::LogType;
use crate::ondisk::summary::RawSummary;
use crate::ondisk::{BLOCKS_PER_SEGMENT, BlockAddr, Nid, SegNo};

/// A checkpoint writes the changed NAT entries when there are so many.
const MAX_DIRTY_NATS: usize = 100_000;
/// What a changed entry takes in memory, with its place in the tables (`struct nat_entry`).
const NAT_ENTRY_BYTES: u64 = 64;
/// The most blocks that are moved at a time: 512 KiB, and as much again is in memory twice.
const PIECE: usize = 128;

/// A block of data to be moved.
struct Move {
    addr: BlockAddr,
    ino: Nid,
    index: u64,
    /// What it holds, once it is in memory.
    block: Option<Block>,
}

impl Engine {
    /// Whether so much waits for a checkpoint that it is time for one (`excess_dirty_nats`,
    /// `excess_prefree_segs`).
    pub(crate) fn is_checkpoint_due(&mut self) -> bool {
        self.inodes.has_many_changed_nodes() || self.has_excess_nats() || self.has_excess_prefree()
    }

    fn has_excess_nats(&mut self) -> bool {
        let dirty = self.nat.get_mut().dirty_count();
        let ratio = u64::from(self.sb.max_nid()) * self.knobs.dirty_nats_ratio / 100;
        let bytes = dirty as u64 * NAT_ENTRY_BYTES;
        dirty > MAX_DIRTY_NATS
            || bytes > self.memory_for_tables() / 4
            || dirty > 0 && dirty as u64 >= ratio
    }

    fn has_excess_prefree(&mut self) -> bool {
        self.segments.get_mut().prefree_segments() as u64 > self.knobs.reclaim_segments
    }

    /// Whether more than `percent` of the sections are free (`has_enough_free_blocks`).
    pub(crate) fn has_enough_free_blocks(&mut self, percent: u64) -> bool {
        let limit = u64::from(self.sb.main_sections()) * percent / 100;
        u64::from(self.segments.get_mut().free_sections()) > limit
    }

    /// Whether there is much to clean and little left free (`has_enough_invalid_blocks`).
    pub(crate) fn has_enough_invalid_blocks(&mut self) -> bool {
        let user_blocks = self.space.user_blocks();
        let invalid = user_blocks.saturating_sub(self.segments.get_mut().valid_blocks());
        let free = self.segments.get_mut().free_segments(self.logs.get_mut());
        let free = free.saturating_sub(self.checkpoint.overprov_segment_count);
        invalid > user_blocks * 40 / 100
            && u64::from(free) * u64::from(BLOCKS_PER_SEGMENT) < invalid * 40 / 100
    }

    /// How victims are chosen in the background; with `sync` as in the foreground, unless
    /// `gc_idle` or `gc_urgent` says how.
    pub(crate) fn background_policy(&self, sync: bool) -> Policy {
        self.knobs.gc_mode().policy(sync, self.atgc)
    }

    /// Chooses the best section to clean among those that gain `least_gain` blocks.
    pub(crate) fn begin_cleaning(
        &mut self,
        policy: Policy,
        least_gain: u32,
        caller: Caller,
    ) -> Option<u32> {
        let current: SmallVec<[SegNo; 6]> = self.logs.get_mut().current().collect();
        let skip = |section| {
            self.pinned_sections.contains(&section)
                || self.damaged_sections.contains(&section)
                || self.cleaner.is_done_with(section)
                || current.iter().any(|segno| self.sb.section_of(*segno) == section)
        };
        let search = match caller {
            Caller::Foreground => Search::ALL,
            Caller::Background => Search {
                from: self.cleaner.after_victim,
                most: usize::try_from(self.knobs.max_victim_search).unwrap_or(usize::MAX),
            },
        };
        let ages = ByAge::new(&self.knobs, self.clock.elapsed());
        let segments = self.segments.get_mut();
        let section = victim::select(segments, policy, least_gain, search, &ages, skip)?;
        self.cleaner.after_victim = section + 1;
        self.stats.cleanings[caller as usize] += 1;
        Some(section)
    }

    /// The segments to clean next: those of the best section or, in the background,
    /// `migration_granularity` of them. The next call then goes on with that section.
    pub(crate) fn segments_to_clean(
        &mut self,
        policy: Policy,
        least_gain: u32,
        caller: Caller,
    ) -> Option<Range<SegNo>> {
        if caller == Caller::Foreground {
            let section = self.begin_cleaning(policy, least_gain, caller)?;
            return Some(self.sb.segments_of(section));
        }
        let mut left = std::mem::take(&mut self.cleaner.left_in_background);
        // Segments that are empty by now cost nothing.
        left.start = left
            .clone()
            .find(|segno| self.segments.get_mut().entry(*segno).valid > 0)
            .unwrap_or(left.end);
        if left.is_empty() {
            let section = self.begin_cleaning(policy, least_gain, caller)?;
            left = self.sb.segments_of(section);
        }
        let most = u32::try_from(self.knobs.migration_granularity).unwrap_or(u32::MAX);
        let now = left.start..left.end.min(left.start.saturating_add(most));
        self.cleaner.left_in_background = now.end..left.end;
        Some(now)
    }

    /// Begins to move the blocks of a piece. Nodes are moved already then, and not returned.
    fn begin_moves(&mut self, piece: Piece, caller: Caller) -> Result<Vec<Move>> {
        let mut moves = Vec::new();
        for block in piece.blocks {
            if piece.is_node {
                self.move_node(block.addr, block.summary.nid.get())?;
            } else {
                moves.extend(self.begin_move(block, caller)?);
            }
            self.stats.moved_blocks[caller as usize] += 1;
        }
        Ok(moves)
    }

    /// Moves a node: the next checkpoint writes it again.
    fn move_node(&mut self, addr: BlockAddr, nid: Nid) -> Result<()> {
        let entry = self.nat.get_mut().get(&self.io, nid)?;
        if entry.addr != addr {
            let found = format!("node {nid} as the owner of {addr:#x}");
            return Err(Error::corrupt("summary of a node", addr, found, "the node's NAT entry"));
        }
        let was_clean = !self.inodes.of(entry.ino).nodes.is_dirty(entry.ino, nid);
        self.node_mut(entry.ino, nid)?;
        if was_clean {
            self.inodes.of(entry.ino).nodes.leave_to_checkpoint(entry.ino, nid);
        }
        Ok(())
    }

    /// Begins to move a data block; `None` if it stays. If the page cache has a newer version, that
    /// is moved instead, unless an fsync must bring all newer versions or none.
    fn begin_move(&mut self, block: Owned, caller: Caller) -> Result<Option<Move>> {
        let Owned { addr, summary, owner } = block;
        let owner = owner.map_or_else(|| self.owner_of(addr, summary), |owner| Ok(Some(owner)));
        let Some((ino, index)) = owner? else {
            let found = format!("slot {} of node {}", summary.ofs_in_node, summary.nid);
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
            if caller == Caller::Foreground {
                self.count_pin_failure(ino)?;
            }
            return Ok(None);
        }
        // The pages of a compressed cluster are not what its blocks hold, and are never dirty.
        let dirty = self.inodes.of(ino).pages.is_dirty(ino.into(), index);
        let is_content =
            !self.waits_for_fsync(dirty) && (dirty || self.layout(ino)?.cluster().is_none());
        let block =
            self.inodes.of(ino).pages.peek(ino.into(), index).filter(|_| is_content).cloned();
        Ok(Some(Move { addr, ino, index, block }))
    }

    /// Whether a page that is `dirty` must not be written before an fsync writes it.
    fn waits_for_fsync(&self, dirty: bool) -> bool {
        dirty && self.options.fsync_mode == FsyncMode::Strict
    }

    /// Submits data blocks. In the background, on a volume that is cleaned by age, they go to
    /// segments of about their age (`CURSEG_ALL_DATA_ATGC`), otherwise to the cold log.
    fn submit_moves(&mut self, moves: Vec<Move>, caller: Caller, set: &mut WriteSet) -> Result<()> {
        let urgent = self.knobs.gc_mode() == GcMode::UrgentHigh;
        if self.atgc && caller == Caller::Background && !urgent {
            let ages = ByAge::new(&self.knobs, self.clock.elapsed());
            self.logs.get_mut().begin_by_age(ages);
        }
        let submitted = moves.into_iter().try_for_each(|moved| self.submit_move(moved, set));
        self.logs.get_mut().end_by_age(self.segments.get_mut(), &self.io);
        submitted
    }

    /// Submits a data block, which is in memory, to the cold log.
    fn submit_move(&mut self, moved: Move, set: &mut WriteSet) -> Result<()> {
        let Move { addr, ino, index, block } = moved;
        let block =
            block.ok_or_else(|| Error::corrupt("cleaned segment", addr, "nothing", "a block"))?;
        let Lookup::Slot(slot) = self.lookup_slot(ino, index)? else { return Ok(()) };
        let dirty = self.inodes.of(ino).pages.is_dirty(ino.into(), index);
        let waits = self.waits_for_fsync(dirty);
        let was_clean = !self.inodes.of(ino).nodes.is_dirty(ino, slot.nid);
        let new = self.move_block(ino, slot, addr, LogType::ColdData)?;
        if !waits {
            self.inodes.of(ino).pages.mark_clean(ino.into(), index);
        }
        // Until the next checkpoint, the block is also in its old place.
        if was_clean && (waits || !dirty) {
            self.inodes.of(ino).nodes.leave_to_checkpoint(ino, slot.nid);
        }
        self.iostat.add_blocks(Moved::GcData, 1);
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
        if !self.sb.is_node_id(nid) {
            return Ok(None);
        }
        let entry = self.nat.get_mut().get(&self.io, nid)?;
        if entry.is_free() {
            return Ok(None);
        }
        let ino = entry.ino;
        let footer = *RawNodeFooter::of(&self.node(ino, nid)?.block);
        let inode = match self.inode(ino) {
            Err(Error::Posix(Errno::NOENT)) => return Ok(None),
            inode => inode?,
        };
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

/// Moves the valid blocks of `segno` from block `from` on, [`PIECE`] at most. Returns the block to
/// go on with.
fn clean_piece(hands: &mut impl Hands, segno: SegNo, from: usize, caller: Caller) -> Result<usize> {
    let cleaned = move_piece(hands, segno, from, caller);
    hands.engine().io.forget_ahead();
    cleaned
}

fn move_piece(hands: &mut impl Hands, segno: SegNo, from: usize, caller: Caller) -> Result<usize> {
    let (moves, next) = find_moves(hands, segno, from, caller)
        .inspect_err(|error| hands.engine().leave_if_damaged(segno, error))?;
    let mut set = WriteSet::default();
    let submitted = hands.engine().submit_moves(moves, caller, &mut set);
    hands.finish(set, submitted)?;
    Ok(next)
}

/// What there is to move, read, and the block to go on with.
fn find_moves(
    hands: &mut impl Hands,
    segno: SegNo,
    from: usize,
    caller: Caller,
) -> Result<(Vec<Move>, usize)> {
    let piece = piece::look_up(hands, segno, from)?;
    let next = piece.next;
    let mut moves = hands.engine().begin_moves(piece, caller)?;
    read(hands, &mut moves)?;
    Ok((moves, next))
}

/// Reads the blocks that are not in memory, with whatever lies between them.
fn read(hands: &mut impl Hands, moves: &mut [Move]) -> Result<()> {
    let mut missing = moves.iter().filter(|moved| moved.block.is_none()).map(|moved| moved.addr);
    let Some(first) = missing.next() else { return Ok(()) };
    let count = missing.next_back().unwrap_or(first) - first + 1;
    let start = Lba::from(first);
    let blocks = if hands.engine().io.has_in_flight(start..start + Lba::from(count)) {
        // Some of it is in memory, on its way to the drive.
        hands.engine().io.read_run(first, count)?
    } else {
        hands.wait(|queue| queue.read_blocks(start, count))?
    };
    for moved in moves.iter_mut().filter(|moved| moved.block.is_none()) {
        moved.block = blocks.get((moved.addr - first) as usize).cloned();
    }
    Ok(())
}

/// Moves all valid blocks out of `segno`. They are not stable yet.
pub(crate) fn clean_segment(hands: &mut impl Hands, segno: SegNo, caller: Caller) -> Result<()> {
    let mut from = 0;
    while from < BLOCKS_PER_SEGMENT as usize {
        from = clean_piece(hands, segno, from, caller)?;
    }
    Ok(())
}

impl F2fs {
    /// Moves all valid blocks out of these segments, and unlocks the volume.
    pub(crate) fn empty_segments(
        &self,
        volume: Hold<'_, Engine>,
        mut segments: Range<SegNo>,
        caller: Caller,
    ) -> Result<()> {
        let mut held = Held::new(self, volume);
        let moved = segments.try_for_each(|segno| clean_segment(&mut held, segno, caller));
        moved.and(held.flush_moved())
    }

    /// Makes room if the logs are about to run out of free sections. The volume can be read while
    /// the drive works.
    pub(crate) fn balance<'a>(&'a self, volume: Hold<'a, Engine>) -> Result<Hold<'a, Engine>> {
        let mut held = Held::new(self, volume);
        balance(&mut held)?;
        Ok(held.into_hold())
    }
}
