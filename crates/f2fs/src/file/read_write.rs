//! Reading and writing the contents of files.

use drive::BLOCK_SIZE;
use vfs::Errno;
use vfs::file::{self, Part, Write, Written};

use crate::error::Result;
use crate::file::overwrite::RangeLocks;
use crate::file::reading::Reading;
use crate::inode::see::{Glance, See, Unseen};
use crate::mount::engine::Engine;
use crate::mount::faults::FaultType;
use crate::ondisk::Nid;
use crate::ondisk::inode::{Advise, Inline};

/// Reading contents.
pub(crate) trait Contents: See {
    /// How much of `len` bytes from `offset` on lies within the file.
    fn readable(&mut self, ino: Nid, offset: u64, len: usize) -> Result<usize, Self::Error> {
        let size = self.view(self.engine().top_inode(ino))?.size.get();
        Ok(size.saturating_sub(offset).min(len as u64) as usize)
    }

    /// Copies contents from `offset` on that lie in the inode; false if these do not. `buf` ends
    /// within the file.
    fn read_inline(
        &mut self,
        ino: Nid,
        offset: usize,
        buf: &mut [u8],
    ) -> Result<bool, Self::Error> {
        let inode = self.view(ino)?;
        if !inode.inline().contains(Inline::DATA) {
            return Ok(false);
        }
        let area = &inode.block()[inode.layout().inline_range()];
        if let Some(bytes) = area.get(offset..offset + buf.len()) {
            buf.copy_from_slice(bytes);
        }
        Ok(true)
    }
}

impl<S: See> Contents for S {}

/// How a read goes on behind what is cached.
pub(crate) enum Next {
    /// It is at its end.
    Done,
    /// With these blocks of the drive.
    Read(Reading),
    /// With the volume locked.
    Hold,
}

impl Glance<'_> {
    /// Reads from a regular file up to the first page that is not in memory. Returns how much that
    /// was, and how to go on.
    pub(crate) fn read(
        &mut self,
        ino: Nid,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<(usize, Next), Unseen> {
        let len = self.readable(ino, offset, buf.len())?;
        let buf = &mut buf[..len];
        if self.engine().top_inode(ino) != ino {
            return Err(Unseen::Absent);
        }
        if self.read_inline(ino, offset as usize, buf)? {
            return Ok((len, Next::Done));
        }
        let shard = self.shard(ino)?;
        let done = match shard.overwritten() {
            None => file::read_in_memory(&shard.pages, ino.into(), offset, buf),
            Some(overwrites) => overwrites.read(&shard.pages, ino.into(), offset, buf),
        };
        if done == len {
            return Ok((len, Next::Done));
        }
        let first = (offset + done as u64) / BLOCK_SIZE as u64;
        let pages = first..(offset + len as u64).div_ceil(BLOCK_SIZE as u64);
        let missing = self.missing(ino, pages, |cache, at| cache.peek(ino.into(), at).is_none());
        // What cannot be looked up here may end in an error, behind what was read.
        let fits = |reading: &Reading| reading.len() <= self.engine().inodes.pages().room();
        Ok((done, missing.ok().filter(fits).map_or(Next::Hold, Next::Read)))
    }
}

impl Engine {
    /// Reads from a regular file or a block-backed symlink; short at the end of the file.
    pub(crate) fn read_file(&mut self, ino: Nid, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let len = self.readable(ino, offset, buf.len())?;
        let buf = &mut buf[..len];
        if !self.read_inline(ino, offset as usize, buf)? {
            file::read(self, ino, offset, buf)?;
        }
        Ok(len)
    }

    /// Reads up to the first page that is not in the cache.
    pub(crate) fn read_cached(
        &mut self,
        ino: Nid,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<Part<Nid>> {
        let len = self.readable(ino, offset, buf.len())?;
        let buf = &mut buf[..len];
        match self.read_inline(ino, offset as usize, buf)? {
            true => Ok(Part { len, miss: None }),
            false => file::read_cached(self, ino, offset, buf),
        }
    }

    /// Writes to a regular file. Short only if it failed on the way.
    pub(crate) fn write_file(&mut self, ino: Nid, mut write: Write<'_>) -> Result<usize> {
        let (offset, data) = (write.offset(), write.data());
        if data.is_empty() {
            return Ok(0);
        }
        let room = self.max_size(ino)?.saturating_sub(offset);
        if room == 0 {
            return Err(Errno::FBIG.into());
        }
        // As far as a file can go, like `generic_write_checks`.
        let len = data.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        let data = &data[..len];
        if len < write.data().len() {
            write = Write::new(offset, data);
        }
        let end = offset + data.len() as u64;
        if self.has_inline_data(ino)? {
            if end <= self.layout(ino)?.inline_capacity() as u64 {
                self.write_inline(ino, offset as usize, data)?;
                self.wrote(ino, end)?;
                return Ok(data.len());
            }
            self.convert_inline_data(ino)?;
        }
        let Written { len, failed } = file::write(self, ino, write)?;
        if len > 0 {
            self.wrote(ino, offset + len as u64)?;
        }
        if let Some((error, reserved)) = failed {
            self.give_back_behind_end(ino, reserved)?;
            if len == 0 {
                return Err(error);
            }
        }
        Ok(len)
    }

    /// Gives back the blocks behind the end of a file up to page `to`, which were reserved for what
    /// did not come: recovery would take them for contents. Those that were to lie there stay.
    pub(crate) fn give_back_behind_end(&mut self, ino: Nid, to: u64) -> Result<()> {
        let inode = self.raw_inode(ino)?;
        let end = inode.size.get().div_ceil(BLOCK_SIZE as u64);
        let are_to_stay = inode.advise().contains(Advise::KEEP_SIZE);
        if are_to_stay || end >= to { Ok(()) } else { self.free_range(ino, end..to) }
    }

    /// Takes note of a write that ended at `end`.
    fn wrote(&mut self, ino: Nid, end: u64) -> Result<()> {
        let now = self.clock.now();
        self.inode_mut(ino)?.wrote(end, now);
        self.lock_pages_from_now_on(ino)
    }

    /// Sets the size: cuts off, or extends with a hole.
    pub(crate) fn resize(&mut self, ino: Nid, size: u64) -> Result<()> {
        let old = self.inode(ino)?.size.get();
        if self.faults.fires(FaultType::TRUNCATE) {
            return Err(Errno::IO.into());
        }
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
            self.inodes.of(ino).pages.truncate(ino.into(), blocks);
            self.truncate_blocks(ino, blocks)?;
            file::zero_in_page(self, ino, size..size.next_multiple_of(BLOCK_SIZE as u64))?;
        }
        let inode = self.inode_mut(ino)?;
        inode.size.set(size);
        if size <= old {
            inode.set_advise(inode.advise() - Advise::KEEP_SIZE);
        }
        Ok(())
    }
}
