//! Reading and writing the contents of files.

use drive::{BLOCK_SIZE, Blocks, Lba};
use queue::IoError;
use vfs::Errno;
use vfs::file::{self, Miss, Part, Write, Written};

use crate::error::Result;
use crate::file::overwrite::RangeLocks;
use crate::inode::mapping::Mapping;
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

impl Glance<'_> {
    /// Reads from a regular file up to the first page that is not in memory. Returns how much that
    /// was, and how much there is.
    pub(crate) fn read(
        &mut self,
        ino: Nid,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<(usize, usize), Unseen> {
        let len = self.readable(ino, offset, buf.len())?;
        let buf = &mut buf[..len];
        if self.engine().top_inode(ino) != ino {
            return Err(Unseen::Absent);
        }
        if self.read_inline(ino, offset as usize, buf)? {
            return Ok((len, len));
        }
        let shard = self.shard(ino)?;
        let done = match shard.overwritten() {
            None => file::read_in_memory(&shard.pages, ino.into(), offset, buf),
            Some(overwrites) => overwrites.read(&shard.pages, ino.into(), offset, buf),
        };
        Ok((done, len))
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

    /// Whether the volume must stay locked while the blocks of `miss` are read: some are in flight,
    /// or may be written in place meanwhile.
    pub(crate) fn must_hold_to_read(&mut self, miss: &Miss<Nid>) -> Result<bool> {
        Ok(self.io.has_in_flight(miss.blocks.clone()) || self.is_pinned(miss.file)?)
    }

    /// The blocks of `miss` are about to be read with the volume not locked. The checkpoint's
    /// version, for [`Engine::end_reading`].
    pub(crate) fn begin_reading(&mut self, miss: &Miss<Nid>) -> u64 {
        self.reading.push(miss.blocks.clone());
        self.checkpoint.version
    }

    /// Takes what was read while others had the volume, where it still is what the file holds.
    pub(crate) fn end_reading(
        &mut self,
        miss: &Miss<Nid>,
        version: u64,
        blocks: Result<Blocks, IoError>,
    ) -> Result<()> {
        let Some(blocks) = self.trust_reading(miss, version, blocks)? else { return Ok(()) };
        file::insert(self, miss, blocks, |volume, index, lba| {
            let known = volume.inodes.of(miss.file).extents.at(miss.file, index);
            let addr = known.map_or_else(|| volume.addr_of(miss.file, index), Ok)?;
            Ok(Lba::from(addr) == lba)
        })
    }

    /// What was read while others had the volume; `None` if other contents may have got the places
    /// of these. A block that still has its place is as it was, for it is not updated in place
    /// while it is read, and no other gets its place before the next checkpoint.
    pub(crate) fn trust_reading(
        &mut self,
        miss: &Miss<Nid>,
        version: u64,
        blocks: Result<Blocks, IoError>,
    ) -> Result<Option<Blocks>> {
        if let Some(at) = self.reading.iter().position(|run| *run == miss.blocks) {
            self.reading.swap_remove(at);
        }
        let (ino, blocks) = (miss.file, blocks?);
        // A COW inode may be gone.
        let is_there = !self.nat.get_mut().get(&self.io, ino)?.is_free();
        let trusted = self.checkpoint.version == version && is_there && !self.is_pinned(ino)?;
        Ok(trusted.then_some(blocks))
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
