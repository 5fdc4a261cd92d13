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
use crate::file::reading::{Reading, Reads};
use crate::file::writeback::WritePages;
use crate::inode::protected::Protected;
use crate::inode::see::{Glance, Own, See, Unseen};
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

    /// Whether a read of these bytes goes past the cache: of whole blocks, of a regular file that
    /// can be read and does not stay with it.
    fn goes_past_cache(&mut self, ino: Nid, offset: u64, len: usize) -> Result<bool, Self::Error> {
        self.check_regular(ino)?;
        Ok(!self.stays_cached(ino, false)? && are_whole_blocks(offset, len)?)
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

/// How a direct read goes on.
enum NextDirect {
    /// It is at its end.
    Done,
    /// With these blocks, which hold so many bytes of the file.
    Read(Reading, usize),
}

impl Glance<'_> {
    /// How a direct read goes on at `offset`, for `len` bytes more. The drive has to have the
    /// first block.
    fn next_direct(&mut self, ino: Nid, offset: u64, len: usize) -> Result<NextDirect, Unseen> {
        let len = self.readable(ino, offset, len)?;
        if len == 0 {
            return Ok(NextDirect::Done);
        }
        if self.shard(ino)?.overwritten().is_some() {
            return Err(Unseen::Absent);
        }
        let block = BLOCK_SIZE as u64;
        let pages = offset / block..(offset + len as u64).div_ceil(block);
        let reading = self.missing(ino, pages, |cache, at| !cache.is_dirty(ino.into(), at))?;
        Ok(NextDirect::Read(reading, len))
    }
}

/// Copies blocks into the buffer of a direct read, which may end within the last one. Returns how
/// many bytes that is.
fn copy_out(blocks: Blocks, buf: &mut [u8]) -> usize {
    let mut done = 0;
    for (piece, block) in buf.chunks_mut(BLOCK_SIZE).zip(blocks) {
        cores::charge(cores::Stage::CopyPage);
        piece.copy_from_slice(&block[..piece.len()]);
        done += piece.len();
    }
    done
}

impl F2fs {
    /// Reads from a regular file past the cache; `None` if the file stays with it.
    pub(crate) fn read_past_cache(
        &self,
        ino: Nid,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<Option<usize>> {
        let _span = cores::span(cores::Stage::Syscall);
        let mut done = 0;
        while let Some(next) = self.glance_within(|volume| {
            if !volume.goes_past_cache(ino, offset, buf.len())? {
                return Ok(None);
            }
            volume.next_direct(ino, offset + done as u64, buf.len() - done).map(Some)
        })? {
            match next {
                None => return Ok(None),
                Some(NextDirect::Done) => return Ok(Some(done)),
                Some(NextDirect::Read(reading, len)) => {
                    let Some(blocks) = self.read_shared(&reading)? else { break };
                    done += copy_out(blocks, &mut buf[done..][..len]);
                }
            }
        }
        self.read_past_cache_alone(ino, offset, buf, done)
    }

    /// Goes on with a direct read of which so much is `done`, with the volume locked but while the
    /// drive works.
    fn read_past_cache_alone(
        &self,
        ino: Nid,
        offset: u64,
        buf: &mut [u8],
        mut done: usize,
    ) -> Result<Option<usize>> {
        let (mut volume, mut holds) = (self.unseen()?, false);
        if !volume.goes_past_cache(ino, offset, buf.len())? {
            return Ok(None);
        }
        loop {
            let at = offset + done as u64;
            let len = volume.readable(ino, at, buf.len() - done)?;
            let rest = &mut buf[done..done + len];
            let part = file::read_direct(&mut *volume, ino, at, rest)?;
            done += part.len;
            let Some(miss) = part.miss else { return Ok(Some(done)) };
            let blocks;
            (volume, blocks) = self.fetch_direct(volume, miss, holds)?;
            holds = blocks.is_none();
            if let Some(blocks) = blocks {
                done += copy_out(blocks, &mut rest[part.len..]);
            }
        }
    }

    /// Reads the blocks of a miss, for a caller that had the volume and gets it back. `holds` if it
    /// is to be kept meanwhile. `None` if what was read does not count.
    fn fetch_direct<'a>(
        &'a self,
        mut volume: Hold<'a, Engine>,
        miss: Miss<Nid>,
        holds: bool,
    ) -> Result<(Hold<'a, Engine>, Option<Blocks>)> {
        if holds || volume.io.has_in_flight(miss.blocks.clone()) {
            let blocks = volume.read_blocks(miss.blocks)?;
            return Ok((volume, Some(blocks)));
        }
        let reading = volume.begin_reading(miss)?;
        drop(volume);
        let blocks = self.read_from_drive(&reading);
        let mut volume = self.lock();
        let counts = volume.is_there(reading.miss.file)?
            && volume.is_undisturbed(&reading)?
            && volume.has_all(&reading)?;
        Ok((volume, if counts { Some(blocks?) } else { None }))
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
