//! Preallocation, holes and moved ranges (`ext4_fallocate`).
//!
//! The caller has the file's turn, so no page is on its way to the drive meanwhile. Long
//! ranges take several transactions; each of them leaves a file that is right by itself, as in the
//! kernel. Moving a range is one transaction.

use std::ops::Range;

use drive::BLOCK_SIZE;
use vfs::inode::Turn;
use vfs::{Errno, FallocateMode, FileKind, InodeFlags, file};

use crate::alloc::room::SetAside;
use crate::error::{Error, Result};
use crate::file::map::{FileMap, count_dirty, count_lacking, file_block};
use crate::inode::map::{self, Mapped};
use crate::mount::draft::{Draft, Pages};
use crate::mount::engine::Engine;
use crate::mount::want::Step;
use crate::ondisk::extent::{Extent, UNWRITTEN_LEN_MAX};
use crate::ondisk::{FileBlock, Ino};

const PAGE: u64 = BLOCK_SIZE as u64;
/// Extents that one transaction makes or converts.
const EXTENTS_MAX: u32 = 24;
/// Room in the log that this needs, most often.
const ROOM: u32 = 32;

/// No write to a file begins while this lives. The owner has the file's turn.
pub(super) struct Still<'a> {
    engine: &'a Engine,
    ino: Ino,
}

impl<'a> Still<'a> {
    /// From now on.
    pub(super) fn begin(engine: &'a Engine, ino: Ino) -> Result<Self> {
        engine.with_map(ino, |map| {
            map.shard.inode_mut(ino)?.still = true;
            Ok(())
        })?;
        Ok(Self { engine, ino })
    }
}

impl Drop for Still<'_> {
    fn drop(&mut self) {
        let mut shard = self.engine.inodes.own(self.ino.into());
        shard.inodes.get_mut(&self.ino).into_iter().for_each(|cached| cached.still = false);
    }
}

impl Engine {
    /// `fallocate(2)`.
    pub(crate) fn fallocate(
        &self,
        ino: Ino,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        vfs::check_fallocate(mode, offset, len).map_err(|error| Error::Posix(error.errno()))?;
        let _turn = Turn::take(self, ino.into());
        let size = self.check_fallocate(ino, mode)?;
        let end =
            offset.checked_add(len).filter(|end| *end <= self.sb.size_max()).ok_or(Errno::FBIG)?;
        let grown = (!mode.contains(FallocateMode::KEEP_SIZE)).then_some(end);
        match mode - FallocateMode::KEEP_SIZE {
            FallocateMode::PUNCH_HOLE => {
                let blocks = self.zero_ends(ino, offset..end)?;
                self.punch(ino, blocks)?;
            }
            FallocateMode::ZERO_RANGE => {
                let blocks = self.zero_ends(ino, offset..end)?;
                self.unwrite(ino, blocks)?;
                self.preallocate(ino, offset..end, grown)?;
            }
            FallocateMode::COLLAPSE_RANGE => self.move_rest(ino, size, offset..end, false)?,
            FallocateMode::INSERT_RANGE => self.move_rest(ino, size, offset..end, true)?,
            _ => self.preallocate(ino, offset..end, grown)?,
        }
        let is_sync = self.change(&[ino.into()], 2, |draft| {
            let now = draft.now;
            let inode = draft.inode_mut(ino)?;
            inode.touch(now);
            Ok(inode.protection().contains(InodeFlags::SYNC))
        })?;
        if is_sync { self.fsync_in_turn(ino) } else { Ok(()) }
    }

    /// Fails unless this can be done to the file. Its size.
    fn check_fallocate(&self, ino: Ino, mode: FallocateMode) -> Result<u64> {
        self.check_writable()?;
        self.look(ino.into(), |shard| {
            let inode = &shard.inode(ino)?.inode;
            inode.protection().check_may_fallocate(mode)?;
            match inode.kind() {
                FileKind::Regular if inode.has_extents() => Ok(inode.size),
                FileKind::Regular => Err(Errno::OPNOTSUPP.into()),
                FileKind::Directory => Err(Errno::ISDIR.into()),
                FileKind::Fifo => Err(Errno::SPIPE.into()),
                _ => Err(Errno::NODEV.into()),
            }
        })
    }

    /// Zeroes both ends of `bytes` that are parts of a page. Returns the blocks of the whole pages
    /// between them.
    fn zero_ends(&self, ino: Ino, bytes: Range<u64>) -> Result<Range<u64>> {
        let pages = self.with_map(ino, |map| map.zero_ends(bytes.clone()))?;
        Ok(self.blocks_in(pages))
    }

    /// The blocks of whole pages.
    fn blocks_in(&self, pages: Range<u64>) -> Range<u64> {
        let each = self.sb.blocks_per_page();
        pages.start * each..pages.end * each
    }

    /// Makes `blocks`, those of whole pages, a hole, from the last one to the first.
    fn punch(&self, ino: Ino, mut blocks: Range<u64>) -> Result<()> {
        while !blocks.is_empty() {
            blocks.end = self.change(&[ino.into()], ROOM, |draft| {
                let most = self.freed_extents_max();
                let rest = draft.remove_extents(ino, blocks.clone(), most)?;
                let from = rest.unwrap_or(blocks.start);
                draft.drop_pages(ino, from..blocks.end)?;
                Ok(from)
            })?;
        }
        Ok(())
    }

    /// Makes what is written of `blocks`, those of whole pages, unwritten, so that it reads as
    /// zeroes.
    fn unwrite(&self, ino: Ino, mut blocks: Range<u64>) -> Result<()> {
        while !blocks.is_empty() {
            blocks.start = self.change(&[ino.into()], ROOM, |draft| {
                let to = draft.unwrite(ino, blocks.clone())?;
                draft.drop_pages(ino, blocks.start..to)?;
                Ok(to)
            })?;
        }
        Ok(())
    }

    /// Gives blocks to all of `bytes`, and the file the size `grown`, if that is more than it has.
    fn preallocate(&self, ino: Ino, bytes: Range<u64>, grown: Option<u64>) -> Result<()> {
        let size = u64::from(self.sb.block_size);
        let blocks = bytes.start / size..bytes.end.div_ceil(size);
        let mut aside = self.set_holes_aside(ino, blocks.clone())?;
        let mut from = blocks.start;
        while from < blocks.end {
            let step = self.change(&[ino.into()], ROOM, |draft| {
                draft.allocate(ino, from..blocks.end, aside.left())
            });
            let (to, taken) = step?;
            aside.taken(taken);
            from = to;
        }
        match grown {
            Some(size) => self.with_map(ino, |map| map.grow_to(size)),
            None => Ok(()),
        }
    }

    /// Sets blocks aside for the holes among `blocks`, so that neither another call nor a write
    /// takes them. Fails if there are not as many.
    fn set_holes_aside(&self, ino: Ino, blocks: Range<u64>) -> Result<SetAside<'_>> {
        self.look(ino.into(), |shard| {
            let holes = count_lacking(self, shard, ino, blocks.clone())?;
            Ok(self.room.set_aside(holes)?)
        })
    }

    /// Removes `bytes` of a file of `size` bytes and closes the gap, or inserts a hole there.
    /// Writes wait until it is done: otherwise one that comes again and again would never let it
    /// begin.
    fn move_rest(&self, ino: Ino, size: u64, bytes: Range<u64>, is_insert: bool) -> Result<()> {
        let is_whole = bytes.start.is_multiple_of(PAGE) && bytes.end.is_multiple_of(PAGE);
        let last = if is_insert { bytes.start } else { bytes.end };
        if !is_whole || last >= size {
            return Err(Errno::INVAL.into());
        }
        let len = bytes.end - bytes.start;
        if is_insert && size.checked_add(len).is_none_or(|size| size > self.sb.size_max()) {
            return Err(Errno::FBIG.into());
        }
        let pages = bytes.start / PAGE..bytes.end / PAGE;
        let (moved, blocks) = (pages.start..1 << 32, self.blocks_in(pages));
        let _still = Still::begin(self, ino)?;
        loop {
            self.flush_in_turn(ino)?;
            let done = self.change(&[ino.into()], ROOM, |draft| {
                // A write may have been under way.
                if draft.shard(ino)?.pages.dirty_in(ino.into(), moved.clone()).next().is_some() {
                    return Ok(None);
                }
                if !draft.move_blocks(ino, blocks.clone(), is_insert)? {
                    return Ok(Some(false));
                }
                let inode = draft.inode_mut(ino)?;
                inode.size = if is_insert { inode.size + len } else { inode.size - len };
                inode.raw.set_size(inode.size);
                draft.drop_range(ino, moved.clone())?;
                Ok(Some(true))
            })?;
            match done {
                Some(true) => return Ok(()),
                // The rest of them goes one transaction at a time: they become a hole.
                Some(false) => self.punch(ino, blocks.clone())?,
                None => {}
            }
        }
    }
}

impl FileMap<'_> {
    fn zero_ends(&mut self, bytes: Range<u64>) -> Step<Range<u64>> {
        for at in [bytes.start, bytes.end] {
            if !at.is_multiple_of(PAGE) {
                self.want_page(at / PAGE)?;
            }
        }
        file::zero_ends(self, self.ino.into(), bytes)
    }
}

impl Draft<'_, '_> {
    /// The pages of `blocks` go, dirty ones with the promise of blocks. This draft has changed what
    /// they are mapped to. A page of which that range has a part goes, too: the caller changes all
    /// of it, this time or the next.
    fn drop_pages(&mut self, ino: Ino, blocks: Range<u64>) -> Step<()> {
        let each = self.volume().sb.blocks_per_page();
        self.drop_range(ino, blocks.start / each..blocks.end.div_ceil(each))
    }

    fn drop_range(&mut self, ino: Ino, pages: Range<u64>) -> Step<()> {
        let promised = self.promised_in(ino, pages.clone())?;
        self.change_pages(Pages::Dropped { ino, pages, promised });
        Ok(())
    }

    /// Makes the first written extents of `blocks` unwritten. Returns the block up to which none
    /// is written any more.
    fn unwrite(&mut self, ino: Ino, blocks: Range<u64>) -> Step<u64> {
        let mut at = blocks.start;
        for _ in 0..EXTENTS_MAX {
            if at >= blocks.end {
                break;
            }
            match map::find(self, self.inode(ino)?, file_block(at)?)? {
                Mapped::Hole(end) => at = end,
                Mapped::Extent(extent) if extent.unwritten => at = extent.end(),
                Mapped::Extent(extent) => {
                    let end = blocks.end.min(at + u64::from(UNWRITTEN_LEN_MAX));
                    let new = Extent { unwritten: true, ..extent.part(at..end) };
                    self.unmap(ino, new.range())?;
                    self.insert_extent(ino, new)?;
                    at = new.end();
                }
            }
        }
        Ok(at.min(blocks.end))
    }

    /// Gives unwritten blocks to the first holes of `blocks`. Returns the block up to which there
    /// are none, and how many of the `aside` blocks that took.
    fn allocate(&mut self, ino: Ino, blocks: Range<u64>, aside: u64) -> Step<(u64, u64)> {
        let (mut at, mut lacking) = (blocks.start, 0);
        for _ in 0..EXTENTS_MAX {
            if at >= blocks.end {
                break;
            }
            let end = match map::find(self, self.inode(ino)?, file_block(at)?)? {
                Mapped::Extent(extent) => {
                    at = extent.end();
                    continue;
                }
                Mapped::Hole(end) => end.min(blocks.end),
            };
            let goal = match at.checked_sub(1) {
                Some(before) => {
                    let found = map::find(self, self.inode(ino)?, before as FileBlock)?;
                    found.at(before as FileBlock).map(|at| at + 1)
                }
                None => None,
            };
            let goal = goal.map_or_else(|| self.goal(ino), Ok)?;
            let most = (end - at).min(UNWRITTEN_LEN_MAX.into()) as u32;
            let taken = self.take_blocks(goal, most)?;
            let len = (taken.end - taken.start) as u32;
            let new = Extent { block: at as FileBlock, len, start: taken.start, unwritten: true };
            self.count_blocks(ino, len.into())?;
            self.insert_extent(ino, new)?;
            // Dirty pages among them have what they were promised.
            let dirty = count_dirty(self.volume(), self.shard(ino)?, ino, new.range());
            self.change_pages(Pages::Written { ino, pages: Vec::new(), promised: dirty });
            lacking += u64::from(len) - dirty;
            at = new.end();
        }
        self.changes.paid = lacking.min(aside);
        Ok((at.min(blocks.end), self.changes.paid))
    }

    /// Moves what the file has behind `blocks` to where these begin, or what it has from there on
    /// behind them. False if `blocks` are more extents than one transaction frees.
    fn move_blocks(&mut self, ino: Ino, blocks: Range<u64>, is_insert: bool) -> Step<bool> {
        let most = self.volume().freed_extents_max();
        if !is_insert && self.remove_extents(ino, blocks.clone(), most)?.is_some() {
            return Ok(false);
        }
        let gap = blocks.end - blocks.start;
        let first = if is_insert { blocks.start } else { blocks.end };
        let (mut at, mut moved) = (first, Vec::new());
        while at < 1 << 32 {
            match map::find(self, self.inode(ino)?, at as FileBlock)? {
                Mapped::Hole(end) => at = end,
                Mapped::Extent(extent) => {
                    let to = if is_insert { at + gap } else { at - gap };
                    if to + u64::from(extent.len) >= 1 << 32 {
                        return Err(Errno::FBIG.into());
                    }
                    moved.push(Extent { block: to as FileBlock, ..extent.part(at..1 << 32) });
                    at = extent.end();
                }
            }
        }
        // Blocks that move from one place of the file to another are there twice in between.
        self.note_more();
        self.unmap(ino, first..1 << 32)?;
        moved.into_iter().try_for_each(|extent| self.insert_extent(ino, extent))?;
        Ok(true)
    }
}
