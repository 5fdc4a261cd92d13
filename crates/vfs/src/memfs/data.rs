//! Contents of regular files: a map of pages, in which a missing page is a hole.
//!
//! Invariant: every byte of a page behind the end of the file is zero, so growing a file never
//! shows old data.

use std::collections::BTreeMap;
use std::ops::Range;

use drive::{BLOCK_SIZE, Block};

use super::node::Body;
use super::state::State;
use crate::{Errno, FallocateMode, Ino, Result, Seek, check_fallocate, pieces};

pub(super) const BLOCK: u64 = BLOCK_SIZE as u64;
pub(super) const FILE_SIZE_MAX: u64 = 1 << 44;

#[derive(Default)]
pub(super) struct FileData {
    size: u64,
    /// By page index. `None` is allocated but never written, and reads as zeroes.
    pages: BTreeMap<u64, Option<Block>>,
}

impl FileData {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Allocated pages.
    pub(super) fn pages(&self) -> u64 {
        self.pages.len() as u64
    }

    /// The pages of `range` that were written, in order.
    pub(super) fn written(&self, range: Range<u64>) -> Vec<(u64, Block)> {
        let written = |(&page, block): (&u64, &Option<Block>)| Some((page, block.clone()?));
        self.pages.range(range).filter_map(written).collect()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let left = self.size.saturating_sub(offset);
        let len = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        for piece in pieces(offset, len) {
            let out = &mut buf[piece.buffer];
            match self.pages.get(&piece.page) {
                Some(Some(block)) => out.copy_from_slice(&block[piece.within]),
                Some(None) | None => out.fill(0),
            }
        }
        len
    }

    /// Writes until `pages_free` new pages are used up; returns how many bytes it wrote.
    fn write(&mut self, offset: u64, data: &[u8], mut pages_free: u64) -> usize {
        let mut done = 0;
        for piece in pieces(offset, data.len()) {
            if !self.pages.contains_key(&piece.page) {
                if pages_free == 0 {
                    break;
                }
                pages_free -= 1;
            }
            let slot = self.pages.entry(piece.page).or_default();
            let block = slot.get_or_insert_with(Block::zeroed);
            done = piece.buffer.end;
            block.make_mut()[piece.within].copy_from_slice(&data[piece.buffer]);
        }
        if done > 0 {
            self.size = self.size.max(offset + done as u64);
        }
        done
    }

    fn truncate(&mut self, size: u64) {
        if size <= self.size {
            self.wipe(size, size.next_multiple_of(BLOCK));
            self.pages.split_off(&size.div_ceil(BLOCK));
        }
        self.size = size;
    }

    /// Zeroes bytes of one page, if it has been written.
    fn wipe(&mut self, start: u64, end: u64) {
        if start < end
            && let Some(Some(block)) = self.pages.get_mut(&(start / BLOCK))
        {
            let first = (start % BLOCK) as usize;
            block.make_mut()[first..first + (end - start) as usize].fill(0);
        }
    }

    /// Zeroes the part of `start..end` in its first and last page, if it covers them only partly.
    fn wipe_edges(&mut self, start: u64, end: u64) {
        self.wipe(start, end.min(start.next_multiple_of(BLOCK)));
        self.wipe(start.max(end / BLOCK * BLOCK), end);
    }

    fn punch(&mut self, start: u64, end: u64) {
        self.wipe_edges(start, end);
        let (first, behind) = (start.div_ceil(BLOCK), end / BLOCK);
        if first < behind {
            let mut tail = self.pages.split_off(&first);
            self.pages.append(&mut tail.split_off(&behind));
        }
    }

    fn preallocate(&mut self, start: u64, end: u64) {
        for page in start / BLOCK..end.div_ceil(BLOCK) {
            self.pages.entry(page).or_default();
        }
    }

    fn collapse(&mut self, start: u64, len: u64) {
        let mut moved = self.pages.split_off(&(start / BLOCK));
        let moved = moved.split_off(&((start + len) / BLOCK));
        self.pages.extend(moved.into_iter().map(|(page, block)| (page - len / BLOCK, block)));
        self.size -= len;
    }

    fn insert(&mut self, start: u64, len: u64) {
        let moved = self.pages.split_off(&(start / BLOCK));
        self.pages.extend(moved.into_iter().map(|(page, block)| (page + len / BLOCK, block)));
        self.size += len;
    }

    /// Preallocated pages count as holes: nothing was written to them.
    pub(super) fn seek(&self, offset: u64, seek: Seek) -> Result<u64> {
        if offset >= self.size {
            return Err(Errno::NXIO.into());
        }
        let mut data = self.pages.range(offset / BLOCK..).filter(|(_, b)| b.is_some());
        let found = match seek {
            Seek::Data => data.next().map_or(u64::MAX, |(page, _)| page * BLOCK),
            Seek::Hole => {
                let mut hole = offset / BLOCK;
                while data.next().is_some_and(|(&page, _)| page == hole) {
                    hole += 1;
                }
                hole * BLOCK
            }
        };
        match seek {
            Seek::Data if found >= self.size => Err(Errno::NXIO.into()),
            Seek::Data | Seek::Hole => Ok(found.max(offset).min(self.size)),
        }
    }

    /// How many new pages `start..end` would take.
    fn missing(&self, start: u64, end: u64) -> u64 {
        let pages = start / BLOCK..end.div_ceil(BLOCK);
        (pages.end - pages.start) - self.pages.range(pages).count() as u64
    }
}

impl State {
    /// Changes a regular file, marks its times and keeps count of its pages.
    fn change_file<T>(&mut self, ino: Ino, change: impl FnOnce(&mut FileData) -> T) -> Result<T> {
        let before = self.file(ino)?.pages();
        let node = self.node_mut(ino)?;
        node.touch_data();
        let Body::File(file) = &mut node.body else { return Err(Errno::INVAL.into()) };
        let result = change(file);
        let after = file.pages();
        self.pages = self.pages - before + after;
        Ok(result)
    }

    pub(super) fn read(&mut self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let got = self.file(ino)?.read(offset, buf);
        self.mark_access(ino)?;
        Ok(got)
    }

    pub(super) fn write(&mut self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        self.file(ino)?;
        if data.is_empty() {
            return Ok(0);
        }
        if offset >= FILE_SIZE_MAX {
            return Err(Errno::FBIG.into());
        }
        let room = usize::try_from(FILE_SIZE_MAX - offset).unwrap_or(usize::MAX);
        let data = &data[..data.len().min(room)];
        let pages_free = self.pages_max - self.pages;
        match self.change_file(ino, |file| file.write(offset, data, pages_free))? {
            0 => Err(Errno::NOSPC.into()),
            done => Ok(done),
        }
    }

    pub(super) fn truncate(&mut self, ino: Ino, size: u64) -> Result<()> {
        self.file(ino)?;
        if size > FILE_SIZE_MAX {
            return Err(Errno::FBIG.into());
        }
        self.change_file(ino, |file| file.truncate(size))
    }

    /// fallocate(2), with the checks in the order of Linux's generic layer, then F2FS's.
    pub(super) fn fallocate(
        &mut self,
        ino: Ino,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        check_fallocate(mode, offset, len)?;
        match &self.node(ino)?.body {
            Body::File(_) => {}
            Body::Dir(_) => return Err(Errno::ISDIR.into()),
            Body::Device { kind: crate::FileKind::Fifo, .. } => return Err(Errno::SPIPE.into()),
            Body::Device { .. } | Body::Link(_) => return Err(Errno::NODEV.into()),
        }
        let end = offset.saturating_add(len);
        if end > FILE_SIZE_MAX {
            return Err(Errno::FBIG.into());
        }
        let size = self.file(ino)?.size;
        if mode.intersects(FallocateMode::COLLAPSE_RANGE | FallocateMode::INSERT_RANGE) {
            return self.move_range(ino, mode, offset, len);
        }
        if mode.contains(FallocateMode::PUNCH_HOLE) {
            return self.change_file(ino, |file| file.punch(offset, end));
        }
        if self.file(ino)?.missing(offset, end) > self.pages_max - self.pages {
            return Err(Errno::NOSPC.into());
        }
        self.change_file(ino, |file| {
            if mode.contains(FallocateMode::ZERO_RANGE) {
                file.punch(offset, end);
            }
            file.preallocate(offset, end);
            if !mode.contains(FallocateMode::KEEP_SIZE) {
                file.size = size.max(end);
            }
        })
    }

    fn move_range(&mut self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        let size = self.file(ino)?.size;
        if !offset.is_multiple_of(BLOCK) || !len.is_multiple_of(BLOCK) {
            return Err(Errno::INVAL.into());
        }
        if mode == FallocateMode::COLLAPSE_RANGE {
            if offset + len >= size {
                return Err(Errno::INVAL.into());
            }
            self.change_file(ino, |file| file.collapse(offset, len))
        } else {
            if size + len > FILE_SIZE_MAX {
                return Err(Errno::FBIG.into());
            }
            if offset >= size {
                return Err(Errno::INVAL.into());
            }
            self.change_file(ino, |file| file.insert(offset, len))
        }
    }
}
