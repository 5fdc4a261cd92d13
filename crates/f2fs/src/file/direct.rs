//! Reading and writing past the page cache, `O_DIRECT` (`f2fs_dio_read_iter`,
//! `f2fs_dio_write_iter`).
//!
//! A direct write goes through the page cache as any other, which promises it room and orders it
//! with other users of the file. It is submitted at once and dropped from the cache, and the caller
//! waits for the drive. A direct read takes from memory only what the drive does not have yet.

use drive::{BLOCK_SIZE, Blocks};
use vfs::file::{self, Map, Miss};
use vfs::{Errno, FileKind, Hold};

use crate::F2fs;
use crate::error::Result;
use crate::file::read_write::Contents;
use crate::file::writeback::WritePages;
use crate::inode::mapping::Mapping;
use crate::inode::protected::Protected;
use crate::inode::see::{Own, See, Unseen};
use crate::mount::engine::Engine;
use crate::ondisk::Nid;
use crate::ondisk::inode::{Advise, Inline};

/// Whether a file is read and written past the page cache.
trait Direct: See {
    /// Whether this file stays with the page cache (`f2fs_force_buffered_io`), or is none that
    /// could be read.
    fn stays_cached(&mut self, ino: Nid, writes: bool) -> Result<bool, Self::Error> {
        let engine = self.engine();
        let (is_atomic, zoned) = (engine.top_inode(ino) != ino, engine.zones.is_some());
        let inode = self.view(ino)?;
        let inline = inode.inline();
        Ok(is_atomic
            || inode.file_kind() != FileKind::Regular
            || inode.advise().intersects(Advise::ENCRYPT | Advise::VERITY)
            || inode.layout().cluster().is_some()
            || !writes && inline.contains(Inline::DATA)
            || writes && zoned && !inline.contains(Inline::PIN_FILE))
    }
}

impl<S: See> Direct for S {}

/// The smallest unit of `O_DIRECT`, a drive's sector.
const SECTOR: u64 = 512;

/// Whether these are whole blocks. If they are whole sectors only, the cache has to put the blocks
/// together; anything else is `EINVAL` (`f2fs_should_use_dio`).
fn are_whole_blocks(offset: u64, len: usize) -> Result<bool> {
    let both = offset | len as u64;
    if both.is_multiple_of(SECTOR) {
        Ok(both.is_multiple_of(BLOCK_SIZE as u64))
    } else {
        Err(Errno::INVAL.into())
    }
}

impl F2fs {
    /// Reads from a regular file past the cache; `None` if the file stays with it.
    pub(crate) fn read_past_cache(
        &self,
        ino: Nid,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<Option<usize>> {
        let mut volume = self.volume()?;
        volume.check_regular(ino)?;
        if volume.stays_cached(ino, false)? {
            return Ok(None);
        }
        if !are_whole_blocks(offset, buf.len())? {
            return Ok(None);
        }
        let mut done = 0;
        loop {
            let at = offset + done as u64;
            let len = volume.readable(ino, at, buf.len() - done)?;
            let rest = &mut buf[done..done + len];
            let part = file::read_direct(&mut *volume, ino, at, rest)?;
            done += part.len;
            let Some(miss) = part.miss else { return Ok(Some(done)) };
            let blocks;
            (volume, blocks) = self.fetch_direct(volume, miss)?;
            let pieces = rest[part.len..].chunks_mut(BLOCK_SIZE);
            for (piece, block) in pieces.zip(blocks.into_iter().flatten()) {
                cores::charge(cores::Stage::CopyPage);
                piece.copy_from_slice(&block[..piece.len()]);
                done += piece.len();
            }
        }
    }

    /// Reads the blocks of a miss. The volume is not locked while the drive works. `None` if the
    /// file has other blocks by now.
    fn fetch_direct<'a>(
        &'a self,
        mut volume: Hold<'a, Engine>,
        miss: Miss<Nid>,
    ) -> Result<(Hold<'a, Engine>, Option<Blocks>)> {
        if volume.must_hold_to_read(&miss)? {
            let blocks = volume.read_blocks(miss.blocks)?;
            return Ok((volume, Some(blocks)));
        }
        let (mut volume, version, blocks) = self.read_unlocked(volume, &miss);
        let Some(blocks) = volume.trust_reading(&miss, version, blocks)? else {
            return Ok((volume, None));
        };
        for (index, lba) in (miss.index..).zip(miss.blocks) {
            if u64::from(volume.addr_of(miss.file, index)?) != lba {
                return Ok((volume, None));
            }
        }
        Ok((volume, Some(blocks)))
    }

    /// Writes as much as one operation may write, and waits until the drive has it.
    pub(crate) fn write_some_direct(&self, ino: Nid, offset: u64, data: &[u8]) -> Result<usize> {
        let seen = self.glance(|volume| volume.stays_cached(ino, true))?;
        if seen.map_or_else(|| self.unseen()?.stays_cached(ino, true), Ok)? {
            return self.write_some(ino, offset, data);
        }
        if !are_whole_blocks(offset, data.len())? {
            return self.write_some(ino, offset, data);
        }
        let turn = self.take_turn(ino);
        let done = self.write_in_memory(ino, offset, data)?;
        // The turn is not that of a file over this one, whose pages are written back as others are.
        if done.to == ino {
            self.write_direct_out(ino, offset, done.len)?;
        }
        drop(turn);
        if done.is_sync {
            crate::fsync::execute(self, ino, false)?;
        }
        Ok(done.len)
    }

    /// Writes these bytes, which are cached, to the drive. The caller holds the file's turn.
    fn write_direct_out(&self, ino: Nid, offset: u64, len: usize) -> Result<()> {
        const PAGE: u64 = BLOCK_SIZE as u64;
        let pages = offset / PAGE..(offset + len as u64).div_ceil(PAGE);
        self.write_out(|set| {
            let beside = self.own([ino], |own| {
                own.check_may_submit(ino)?;
                own.submit_direct(ino, pages.clone(), set)
            })?;
            beside.map_or_else(|| self.settled().submit_direct(ino, pages, set), Ok)
        })
    }
}

impl Own<'_> {
    /// Fails if blocks have to be submitted in the order in which logs give them out (zones), or
    /// after a write in flight to the same place (pinned files): these need the exclusive path.
    fn check_may_submit(&mut self, ino: Nid) -> Result<(), Unseen> {
        let pinned = self.view(ino)?.inline().contains(Inline::PIN_FILE);
        if pinned || self.engine().zones.is_some() { Err(Unseen::Absent) } else { Ok(()) }
    }
}
