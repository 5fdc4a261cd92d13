//! Reading and writing the contents of files.

use std::ops::Range;

use drive::{BLOCK_SIZE, Block, Blocks};
use queue::IoError;
use vfs::{Errno, Ino, Piece, pieces};

use crate::error::{Error, Result};
use crate::mount::volume::Volume;
use crate::ondisk::inode::Advise;
use crate::ondisk::{BlockAddr, NEW_ADDR, NULL_ADDR, Nid, is_data_addr};

/// Blocks read at once when they lie side by side on the drive.
const READ_AHEAD: u64 = 256;

/// What a read found in the cache, and where it went on to.
pub(crate) struct Part {
    /// Bytes read.
    pub(crate) len: usize,
    /// What has to be read before it can go on; `None` at the end.
    pub(crate) miss: Option<Miss>,
}

/// Pages of a file that are not in the cache and lie side by side on the drive.
pub(crate) struct Miss {
    /// Whose: of a file that is written atomically, perhaps those of the inode over it.
    pub(crate) ino: Nid,
    index: u64,
    pub(crate) addr: BlockAddr,
    pub(crate) count: u32,
}

impl Miss {
    /// The blocks.
    pub(crate) fn addrs(&self) -> Range<BlockAddr> {
        self.addr..self.addr + self.count
    }
}

impl Volume {
    /// Reads from a regular file or a block-backed symlink; short at the end of the file.
    pub(crate) fn read_file(&mut self, ino: Nid, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        loop {
            let part = self.read_cached(ino, offset + done as u64, &mut buf[done..])?;
            done += part.len;
            match part.miss {
                Some(miss) => self.read_miss(&miss)?,
                None => return Ok(done),
            }
        }
    }

    /// Reads up to the first page that is not in the cache.
    pub(crate) fn read_cached(&mut self, ino: Nid, offset: u64, buf: &mut [u8]) -> Result<Part> {
        let size = self.raw_inode(self.top_inode(ino))?.size.get();
        let len = size.saturating_sub(offset).min(buf.len() as u64) as usize;
        let buf = &mut buf[..len];
        if self.has_inline_data(ino)? {
            self.read_inline(ino, offset as usize, buf)?;
            return Ok(Part { len, miss: None });
        }
        let last = (offset + len as u64).div_ceil(BLOCK_SIZE as u64);
        for Piece { page: index, within, buffer } in pieces(offset, len) {
            let done = buffer.start;
            let into = &mut buf[buffer];
            let ino = self.inode_of_page(ino, index)?;
            let key = Ino::from(ino);
            if let Some(page) = self.pages.get(key, index) {
                into.copy_from_slice(&page[within]);
            } else if self.load_cluster(ino, index)? {
                let page = self.pages.get(key, index).ok_or(Error::Posix(Errno::IO))?;
                into.copy_from_slice(&page[within]);
            } else if let Some(miss) = self.locate(ino, index, last)? {
                return Ok(Part { len: done, miss: Some(miss) });
            } else {
                into.fill(0);
            }
        }
        Ok(Part { len, miss: None })
    }

    /// Page `index` of a file, `None` for a hole. Reads ahead, but not to page `end`.
    pub(crate) fn page(&mut self, ino: Nid, index: u64, end: u64) -> Result<Option<&Block>> {
        let key = Ino::from(ino);
        if self.pages.get(key, index).is_none() {
            if self.load_cluster(ino, index)? {
                return Ok(self.pages.get(key, index));
            }
            let Some(miss) = self.locate(ino, index, end)? else { return Ok(None) };
            self.read_miss(&miss)?;
        }
        Ok(self.pages.get(key, index))
    }

    /// Where page `index`, which is not in the cache, is on the drive, and with it those that
    /// follow it both in the file, to page `end`, and on the drive. `None` for a hole.
    fn locate(&mut self, ino: Nid, index: u64, end: u64) -> Result<Option<Miss>> {
        let addr = self.addr_of(ino, index)?;
        if addr == NULL_ADDR || addr == NEW_ADDR {
            return Ok(None);
        }
        if !is_data_addr(addr) {
            return Err(Error::corrupt("node.addr", ino, "COMPRESS_ADDR", "a block"));
        }
        // The blocks behind a plain cluster may be those of a compressed one.
        let end = match self.layout(ino)?.cluster().map(u64::from) {
            Some(blocks) => end.min(index - index % blocks + blocks),
            None => end,
        };
        let most = end.saturating_sub(index).clamp(1, READ_AHEAD) as usize;
        let behind = self.addrs_from(ino, index, most)?;
        let follows =
            (addr..).zip(behind).zip(index..).skip(1).take_while(|((addr, found), at)| {
                addr == found && is_data_addr(*addr) && self.pages.peek(ino.into(), *at).is_none()
            });
        Ok(Some(Miss { ino, index, addr, count: 1 + follows.count() as u32 }))
    }

    /// Reads what was missed, holding the volume.
    pub(crate) fn read_miss(&mut self, miss: &Miss) -> Result<()> {
        let blocks = self.io.read_run(miss.addr, miss.count)?;
        // The one asked for goes in last: in a full cache each may push out one before it.
        for (i, block) in blocks.into_iter().enumerate().rev() {
            self.pages.insert_clean(miss.ino.into(), miss.index + i as u64, block);
        }
        Ok(())
    }

    /// The blocks of `miss` are about to be read with the volume not locked. The checkpoint's
    /// version, for [`Volume::end_reading`].
    pub(crate) fn begin_reading(&mut self, miss: &Miss) -> u64 {
        self.reading.push(miss.addrs());
        self.checkpoint.version
    }

    /// Takes what was read while others had the volume, where it still is what the file holds:
    /// a block that still has its place is as it was, for it is not updated in place while it is
    /// read, and no other gets its place before the next checkpoint.
    pub(crate) fn end_reading(
        &mut self,
        miss: &Miss,
        version: u64,
        blocks: Result<Blocks, IoError>,
    ) -> Result<()> {
        if let Some(at) = self.reading.iter().position(|run| *run == miss.addrs()) {
            self.reading.swap_remove(at);
        }
        let (ino, blocks) = (miss.ino, blocks?);
        // A COW inode may be gone.
        let is_there = !self.nat.get(&self.io, ino)?.is_free();
        if self.checkpoint.version != version || !is_there || self.is_pinned(ino)? {
            return Ok(());
        }
        for (i, block) in blocks.into_iter().enumerate().rev() {
            let index = miss.index + i as u64;
            if self.pages.peek(ino.into(), index).is_none()
                && self.addr_of(ino, index)? == miss.addr + i as u32
            {
                self.pages.insert_clean(ino.into(), index, block);
            }
        }
        Ok(())
    }

    /// Writes to a regular file. Short only if it failed on the way.
    pub(crate) fn write_file(&mut self, ino: Nid, offset: u64, data: &[u8]) -> Result<usize> {
        if data.is_empty() {
            return Ok(0);
        }
        let room = self.max_size(ino)?.saturating_sub(offset);
        if room == 0 {
            return Err(Errno::FBIG.into());
        }
        // As far as a file can go, like `generic_write_checks`.
        let data = &data[..data.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        let end = offset + data.len() as u64;
        if self.has_inline_data(ino)? {
            if end <= self.layout(ino)?.inline_capacity() as u64 {
                self.write_inline(ino, offset as usize, data)?;
                self.wrote(ino, end)?;
                return Ok(data.len());
            }
            self.convert_inline_data(ino)?;
        }
        let _span = cores::span(cores::Stage::CopyPage);
        let whole = offset.div_ceil(BLOCK_SIZE as u64)..end / BLOCK_SIZE as u64;
        let ready = whole.start..self.reserve_run(ino, whole.clone())?;
        let (mut done, mut failed) = (0, None);
        for piece in pieces(offset, data.len()) {
            let bytes = &data[piece.buffer.clone()];
            let result = match <&[u8; BLOCK_SIZE]>::try_from(bytes) {
                Ok(page) if ready.contains(&piece.page) => {
                    self.pages.insert_dirty(ino.into(), piece.page, Block::copy_of(page));
                    Ok(())
                }
                _ => self.write_piece(ino, piece.page, piece.within, bytes),
            };
            if let Err(error) = result {
                failed = Some(error);
                break;
            }
            done = piece.buffer.end;
        }
        if done > 0 {
            self.wrote(ino, offset + done as u64)?;
        }
        match failed {
            Some(error) => {
                self.give_back_behind_end(ino, ready.end)?;
                if done > 0 { Ok(done) } else { Err(error) }
            }
            None => Ok(done),
        }
    }

    /// Gives back the blocks behind the end of a file up to page `to`, which were reserved for what
    /// did not come: recovery would take them for contents. Those that were to lie there stay.
    pub(crate) fn give_back_behind_end(&mut self, ino: Nid, to: u64) -> Result<()> {
        let inode = self.raw_inode(ino)?;
        let end = inode.size.get().div_ceil(BLOCK_SIZE as u64);
        let are_to_stay = inode.advise().contains(Advise::KEEP_SIZE);
        if are_to_stay || end >= to { Ok(()) } else { self.free_range(ino, end..to) }
    }

    /// Writes `data`, which is as long as `within`, into page `index`.
    fn write_piece(
        &mut self,
        ino: Nid,
        index: u64,
        within: Range<usize>,
        data: &[u8],
    ) -> Result<()> {
        let key = Ino::from(ino);
        if let Ok(whole) = <&[u8; BLOCK_SIZE]>::try_from(data) {
            if !self.pages.is_dirty(key, index) {
                self.reserve_block(ino, index)?;
            }
            self.pages.insert_dirty(key, index, Block::copy_of(whole));
            return Ok(());
        }
        let page = self.page_to_change(ino, index)?;
        page[within].copy_from_slice(data);
        Ok(())
    }

    /// Page `index` with its present contents, reserved and dirty.
    pub(crate) fn page_to_change(&mut self, ino: Nid, index: u64) -> Result<&mut [u8; BLOCK_SIZE]> {
        let key = Ino::from(ino);
        self.expand_cluster(ino, index)?;
        if self.page(ino, index, index + 1)?.is_none() {
            let below = self.page_below(ino, index)?;
            self.reserve_block(ino, index)?;
            self.pages.insert_dirty(key, index, below);
        }
        let page = self.pages.dirty_mut(key, index).ok_or(Error::Posix(Errno::IO))?;
        Ok(page.make_mut())
    }

    /// Takes note of a write that ended at `end`.
    fn wrote(&mut self, ino: Nid, end: u64) -> Result<()> {
        let now = self.clock.now();
        let inode = self.inode_mut(ino)?;
        if end > inode.size.get() {
            inode.size.set(end);
        }
        inode.set_mtime(now);
        inode.set_ctime(now);
        Ok(())
    }

    /// Sets the size: cuts off, or extends with a hole.
    pub(crate) fn resize(&mut self, ino: Nid, size: u64) -> Result<()> {
        let old = self.inode(ino)?.size.get();
        if self.has_inline_data(ino)? {
            if size <= self.layout(ino)?.inline_capacity() as u64 {
                self.truncate_inline(ino, size as usize)?;
                self.inode_mut(ino)?.size.set(size);
                return Ok(());
            }
            self.convert_inline_data(ino)?;
        }
        self.check_size(ino, size)?;
        let blocks = size.div_ceil(BLOCK_SIZE as u64);
        if size <= old {
            self.pages.truncate(ino.into(), blocks);
            self.truncate_blocks(ino, blocks)?;
            self.zero_range_in_page(ino, size, size.next_multiple_of(BLOCK_SIZE as u64))?;
        }
        let inode = self.inode_mut(ino)?;
        inode.size.set(size);
        if size <= old {
            inode.set_advise(inode.advise() - Advise::KEEP_SIZE);
        }
        Ok(())
    }

    /// Zeroes `from..to`, which lies within one page, if that page exists.
    pub(crate) fn zero_range_in_page(&mut self, ino: Nid, from: u64, to: u64) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let index = from / BLOCK_SIZE as u64;
        if self.page(ino, index, index + 1)?.is_none() {
            return Ok(());
        }
        let start = (from % BLOCK_SIZE as u64) as usize;
        let len = (to - from) as usize;
        self.page_to_change(ino, index)?[start..start + len].fill(0);
        Ok(())
    }
}
