//! Reading and writing past the page cache, `O_DIRECT` (`ext4_dio_read_iter`,
//! `ext4_dio_write_iter`).
//!
//! A read takes from memory only what the drive does not have yet. A write of whole blocks that the
//! file has already goes to them at once; any other one goes through the page cache, which promises
//! it room and keeps unwritten blocks unreadable until their contents are there, and is written
//! back before the call returns. So does all of it where blocks are smaller than pages. Both take
//! whole sectors only, as `iomap_dio_rw` does.

use std::ops::Range;

use drive::{BLOCK_SIZE, Block};
use queue::WriteSet;
use vfs::file::{self, Miss, Part};
use vfs::inode::Turn;
use vfs::{Errno, pieces};

use crate::error::Result;
use crate::file::map::{FileMap, file_block, written_at};
use crate::file::read_write::{check_regular, readable};
use crate::file::write_back::Place;
use crate::fsync::vouched::Written;
use crate::inode::map::{self, Mapped};
use crate::mount::engine::Engine;
use crate::ondisk::{FsBlock, Ino};

const PAGE: u64 = BLOCK_SIZE as u64;
/// The smallest unit of `O_DIRECT`, a drive's sector.
const SECTOR: u64 = 512;

/// Whether these are whole blocks. If they are whole sectors only, the cache has to put the blocks
/// together; anything else is `EINVAL`.
fn are_whole_blocks(offset: u64, len: usize) -> Result<bool> {
    let both = offset | len as u64;
    if both.is_multiple_of(SECTOR) {
        Ok(both.is_multiple_of(PAGE))
    } else {
        Err(Errno::INVAL.into())
    }
}

impl Engine {
    /// Reads a regular file past the cache.
    pub(crate) fn read_direct(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let is_whole = are_whole_blocks(offset, buf.len())? && self.sb.blocks_per_page() == 1;
        if !is_whole || self.is_logged(ino)? {
            return self.heed(self.read_file(ino, offset, buf));
        }
        let mut done = 0;
        loop {
            let at = offset + done as u64;
            let part = {
                let mut shard = self.inodes.own(ino.into());
                readable(&shard, ino, at, buf.len() - done).and_then(|len| {
                    let mut map = FileMap { engine: self, shard: &mut shard, ino };
                    file::read_direct(&mut map, ino.into(), at, &mut buf[done..done + len])
                })
            };
            match part {
                Ok(Part { len, miss: None }) => return Ok(done + len),
                Ok(Part { len, miss: Some(miss) }) => {
                    done += len;
                    done += self.read_miss(ino, &miss, &mut buf[done..])?;
                }
                Err(stop) => self.heed(self.fetch_or_fail(stop))?,
            }
        }
    }

    /// Reads blocks of a file. None of them counts if the file has others by now.
    fn read_miss(&self, ino: Ino, miss: &Miss<vfs::Ino>, buf: &mut [u8]) -> Result<usize> {
        let count = miss.blocks.end - miss.blocks.start;
        let blocks = self.io.read_run(miss.blocks.start, count as u32)?;
        let size = self.look(ino.into(), |shard| {
            let inode = &shard.inode(ino)?.inode;
            let found = map::find(self, inode, file_block(miss.index)?)?;
            let range = miss.index..miss.index + count;
            let is_there = matches!(found, Mapped::Extent(extent)
                if !extent.unwritten && extent.part(range).home() == miss.blocks);
            Ok(if is_there { inode.size } else { 0 })
        })?;
        // What lies behind the end of the file is not the caller's.
        let most = buf.len().min(size.saturating_sub(miss.index * PAGE) as usize);
        let mut done = 0;
        for (piece, block) in buf[..most].chunks_mut(BLOCK_SIZE).zip(blocks) {
            cores::charge(cores::Stage::CopyPage);
            piece.copy_from_slice(&block[..piece.len()]);
            done += piece.len();
        }
        Ok(done)
    }

    /// Writes a regular file; when this returns, the drive has it.
    pub(crate) fn write_direct(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        let is_whole = are_whole_blocks(offset, data.len())? && self.sb.blocks_per_page() == 1;
        if is_whole && !data.is_empty() && self.overwrite(ino, offset, data)? {
            return Ok(data.len());
        }
        let done = self.write_file(ino, offset, data)?;
        self.flush_inode(ino)?;
        Ok(done)
    }

    /// Writes to the blocks of a file. False if some of them have to be allocated first, or if the
    /// page cache has newer contents.
    fn overwrite(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<bool> {
        let is_sync = {
            // During the turn the file's map does not change, and no write-back of it runs.
            let _turn = Turn::take(self, ino.into());
            let pages = offset / PAGE..(offset + data.len() as u64) / PAGE;
            let Some(blocks) = self.blocks_to_overwrite(ino, offset, pages.clone())? else {
                return Ok(false);
            };
            let places: Vec<Place> = pieces(offset, data.len())
                .zip(pages.clone().zip(blocks))
                .filter_map(|(piece, (index, at))| {
                    Some((index, at, Block::copy_of(data[piece.buffer].try_into().ok()?)))
                })
                .collect();
            self.keep_vouched(ino, &places)?;
            let (block_size, end) = (self.sb.block_size, offset + data.len() as u64);
            let sum = |place: &Place| Written::new(place, block_size, end, false);
            let summed = match self.record_csum {
                true => places.iter().map(sum).collect(),
                false => Vec::new(),
            };
            let mut set = WriteSet::default();
            for (_, at, page) in places {
                set.push(&self.io, at, page);
            }
            set.submit(&self.io);
            set.wait(self.io.queue())?;
            self.note_written(ino, summed);
            self.overwritten(ino, pages)?
        };
        if is_sync {
            self.fsync(ino, false)?;
        }
        Ok(true)
    }

    fn blocks_to_overwrite(
        &self,
        ino: Ino,
        offset: u64,
        pages: Range<u64>,
    ) -> Result<Option<Vec<FsBlock>>> {
        self.check_writable()?;
        self.look(ino.into(), |shard| {
            let inode = &shard.inode(ino)?.inode;
            check_regular(inode)?;
            inode.protection().check_may_write()?;
            let end = pages.end * PAGE;
            // The log would bring back what it has (`ext4_should_use_dio`).
            let is_logged = self.journals_data(inode);
            let is_dirty = shard.pages.dirty_in(ino.into(), pages.clone()).next().is_some();
            if is_logged || is_dirty || offset > inode.size || end > inode.raw.size() {
                return Ok(None);
            }
            // None of them is to be allocated, or read as zeroes until it is written.
            pages.clone().map(|index| written_at(self, inode, index)).collect()
        })
    }

    /// The drive has new contents of these pages: memory drops what it has, unless that is newer
    /// still. Returns whether they must be durable.
    fn overwritten(&self, ino: Ino, pages: Range<u64>) -> Result<bool> {
        let now = self.clock.now();
        self.with_map(ino, |map| {
            let cached = map.shard.inode_mut(ino)?;
            cached.overwrites += 1;
            cached.inode.touch(now);
            let is_sync = cached.inode.protection().contains(vfs::InodeFlags::SYNC);
            map.shard.changed.insert(ino);
            for index in pages.clone() {
                if !map.shard.pages.is_dirty(ino.into(), index) {
                    map.shard.pages.remove(ino.into(), index);
                }
            }
            Ok(is_sync)
        })
    }
}
