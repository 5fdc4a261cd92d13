//! Preallocation, holes and moved ranges (`f2fs_fallocate`), and the search for data and holes.

use std::ops::Range;

use drive::BLOCK_SIZE;
use vfs::{Errno, FallocateMode, FileKind, Ino, Seek, WriteBack, file};

use crate::alloc::gc::Hands;
use crate::error::{Error, Result};
use crate::mount::engine::Engine;
use crate::ondisk::Nid;
use crate::ondisk::inode::Advise;

const PAGE: u64 = BLOCK_SIZE as u64;
/// How many pages an insertion looks up at once.
const MOVE_WINDOW: u64 = 1 << 16;

impl Engine {
    /// `fallocate(2)` on a regular file.
    pub(crate) fn fallocate(
        &mut self,
        ino: Nid,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        vfs::check_fallocate(mode, offset, len).map_err(|error| Error::Posix(error.errno()))?;
        match self.inode(ino)?.file_kind() {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Errno::ISDIR.into()),
            FileKind::Fifo => return Err(Errno::SPIPE.into()),
            _ => return Err(Errno::NODEV.into()),
        }
        self.check_may_fallocate(ino, mode)?;
        self.check_unsealed(ino)?;
        self.check_not_atomic(ino)?;
        let end = offset.checked_add(len).ok_or(Error::Posix(Errno::FBIG))?;
        self.check_size(ino, end)?;
        let keep_size = mode.contains(FallocateMode::KEEP_SIZE);
        match mode - FallocateMode::KEEP_SIZE {
            FallocateMode::PUNCH_HOLE => self.punch_hole(ino, offset, end)?,
            FallocateMode::ZERO_RANGE => self.zero_range(ino, offset, end, keep_size)?,
            FallocateMode::COLLAPSE_RANGE => self.collapse_range(ino, offset, end)?,
            FallocateMode::INSERT_RANGE => self.insert_range(ino, offset, len)?,
            _ => self.preallocate(ino, offset, end, keep_size)?,
        }
        let now = self.clock.now();
        let inode = self.inode_mut(ino)?;
        inode.set_mtime(now);
        inode.set_ctime(now);
        Ok(())
    }

    /// Fails if a file of this inode cannot be `size` bytes long.
    pub(crate) fn check_size(&mut self, ino: Nid, size: u64) -> Result<()> {
        if size > self.max_size(ino)? { Err(Errno::FBIG.into()) } else { Ok(()) }
    }

    fn leave_inline(&mut self, ino: Nid) -> Result<()> {
        if self.has_inline_data(ino)? { self.convert_inline_data(ino) } else { Ok(()) }
    }

    fn preallocate(&mut self, ino: Nid, from: u64, to: u64, keep_size: bool) -> Result<()> {
        self.leave_inline(ino)?;
        let pages = from / PAGE..to.div_ceil(PAGE);
        let free = self.space.free_for_caller();
        if pages.end - pages.start > free && self.holes(ino, pages.clone(), free)? > free {
            return Err(Error::NoSpace);
        }
        for index in pages {
            if let Err(error) = self.reserve_block(ino, index) {
                self.give_back_behind_end(ino, index)?;
                return Err(error);
            }
        }
        self.extend(ino, to, keep_size)
    }

    /// How many of these pages are not allocated; no more are counted than one beyond `most`.
    fn holes(&mut self, ino: Nid, pages: Range<u64>, most: u64) -> Result<u64> {
        let (mut holes, mut at) = (0, pages.start);
        while holes <= most
            && let Some(hole) = self.next_allocated(ino, at..pages.end, false)?
        {
            // Of a long hole, only what counts is looked at.
            let end = pages.end.min(hole + (most - holes) + 1);
            at = self.next_allocated(ino, hole..end, true)?.unwrap_or(end);
            holes += at - hole;
        }
        Ok(holes)
    }

    /// Sets the size after an operation that reached `to`; notes blocks beyond a kept size, so that
    /// recovery does not take them for contents.
    fn extend(&mut self, ino: Nid, to: u64, keep_size: bool) -> Result<()> {
        let inode = self.inode_mut(ino)?;
        if to > inode.size.get() {
            if keep_size {
                inode.set_advise(inode.advise() | Advise::KEEP_SIZE);
            } else {
                inode.size.set(to);
            }
        }
        Ok(())
    }

    fn punch_hole(&mut self, ino: Nid, from: u64, to: u64) -> Result<()> {
        self.leave_inline(ino)?;
        let pages = file::zero_ends(self, ino, from..to)?;
        self.drop_pages(ino, pages)
    }

    /// Makes whole pages a hole.
    fn drop_pages(&mut self, ino: Nid, pages: Range<u64>) -> Result<()> {
        self.inodes.of(ino).pages.drop_range(Ino::from(ino), pages.clone());
        self.free_range(ino, pages)
    }

    fn zero_range(&mut self, ino: Nid, from: u64, to: u64, keep_size: bool) -> Result<()> {
        self.punch_hole(ino, from, to)?;
        self.preallocate(ino, from, to, keep_size)
    }

    fn collapse_range(&mut self, ino: Nid, from: u64, to: u64) -> Result<()> {
        let size = self.inode(ino)?.size.get();
        if to >= size || !from.is_multiple_of(PAGE) || !to.is_multiple_of(PAGE) {
            return Err(Errno::INVAL.into());
        }
        self.leave_inline(ino)?;
        let (gap, end) = ((to - from) / PAGE, size.div_ceil(PAGE));
        let mut done = to / PAGE;
        while let Some(page) = self.next_allocated(ino, done..end, true)? {
            self.drop_pages(ino, done - gap..page - gap)?;
            self.move_page(ino, page, page - gap)?;
            done = page + 1;
        }
        self.drop_pages(ino, done - gap..end - gap)?;
        self.resize(ino, size - (to - from))
    }

    fn insert_range(&mut self, ino: Nid, at: u64, len: u64) -> Result<()> {
        let size = self.inode(ino)?.size.get();
        if at >= size || !at.is_multiple_of(PAGE) || !len.is_multiple_of(PAGE) {
            return Err(Errno::INVAL.into());
        }
        let new_size = size.checked_add(len).ok_or(Error::Posix(Errno::FBIG))?;
        self.check_size(ino, new_size)?;
        self.leave_inline(ino)?;
        let gap = len / PAGE;
        let first = at / PAGE;
        // From the end, so that nothing is overwritten before it has been moved.
        let mut end = size.div_ceil(PAGE);
        while end > first {
            let start = end.saturating_sub(MOVE_WINDOW).max(first);
            self.move_up(ino, start..end, gap)?;
            end = start;
        }
        self.drop_pages(ino, first..first + gap)?;
        self.inode_mut(ino)?.size.set(new_size);
        Ok(())
    }

    /// Moves `pages` up by `gap`, the last first; holes stay holes and cost nothing.
    fn move_up(&mut self, ino: Nid, pages: Range<u64>, gap: u64) -> Result<()> {
        let mut allocated = Vec::new();
        let mut from = pages.start;
        while let Some(page) = self.next_allocated(ino, from..pages.end, true)? {
            allocated.push(page);
            from = page + 1;
        }
        let mut end = pages.end;
        for page in allocated.into_iter().rev() {
            self.drop_pages(ino, page + 1 + gap..end + gap)?;
            self.move_page(ino, page, page + gap)?;
            end = page;
        }
        self.drop_pages(ino, pages.start + gap..end + gap)
    }

    /// Gives page `to` the contents of page `from`, which is allocated.
    fn move_page(&mut self, ino: Nid, from: u64, to: u64) -> Result<()> {
        let page = file::page(self, ino, from, from + 1)?.cloned();
        self.reserve_block(ino, to)?;
        let page = page.unwrap_or_else(drive::Block::zeroed);
        self.inodes.make_room();
        self.inodes.of(ino).pages.insert_dirty(Ino::from(ino), to, page);
        if self.inodes.pages().write_back() == WriteBack::Now {
            self.write_back(ino)?;
        }
        Ok(())
    }

    /// `SEEK_DATA` and `SEEK_HOLE`.
    pub(crate) fn seek(&mut self, ino: Nid, offset: u64, seek: Seek) -> Result<u64> {
        let top = self.top_inode(ino);
        let size = self.inode(top)?.size.get();
        if offset >= size {
            return Err(Errno::NXIO.into());
        }
        // A hole in one of the two need not be one in the other.
        if top != ino || self.has_inline_data(ino)? {
            return Ok(if seek == Seek::Data { offset } else { size });
        }
        let range = offset / PAGE..size.div_ceil(PAGE);
        match (self.next_allocated(ino, range, seek == Seek::Data)?, seek) {
            (Some(index), _) => Ok((index * PAGE).clamp(offset, size)),
            (None, Seek::Hole) => Ok(size),
            (None, Seek::Data) => Err(Errno::NXIO.into()),
        }
    }
}
