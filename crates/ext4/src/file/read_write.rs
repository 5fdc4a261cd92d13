//! Reading and writing: through the page cache, with blocks promised when a page becomes dirty and
//! allocated when it is written back.

use std::ops::Range;

use drive::{BLOCK_SIZE, Blocks as DriveBlocks, Lba};
use vfs::file::{self, Miss, Part, Write};
use vfs::op::Stop;
use vfs::{Errno, FileKind, InodeFlags, WriteBack};

use crate::error::{Error, Result};
use crate::file::map::FileMap;
use crate::inode::cached::{Cached, Inode, Shard};
use crate::inode::map;
use crate::mount::engine::Engine;
use crate::mount::options::Linux;
use crate::mount::want::{Halt, Step, Want};
use crate::ondisk::Ino;

const PAGE: u64 = BLOCK_SIZE as u64;

/// What one pass of a write under its file's lock did.
struct Wrote {
    len: usize,
    /// What it lacks for the rest.
    stop: Option<Halt>,
    /// Whether every write to the file must be durable before it returns.
    is_sync: bool,
    /// The file's size before.
    size: u64,
}

/// Fails unless the inode is a regular file.
pub(crate) fn check_regular(inode: &Inode) -> Result<()> {
    match inode.kind() {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(Errno::ISDIR.into()),
        _ => Err(Errno::INVAL.into()),
    }
}

impl Engine {
    /// Reads a regular file.
    pub(crate) fn read_file(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        loop {
            let (len, stop) = {
                let shard = self.inodes.look(ino.into());
                match readable(&shard, ino, offset, buf.len()) {
                    Ok(len) => {
                        let rest = buf.get_mut(done..len).unwrap_or_default();
                        let at = offset + done as u64;
                        done += file::read_in_memory(&shard.pages, ino.into(), at, rest);
                        (len, None)
                    }
                    Err(stop) => (0, Some(stop)),
                }
            };
            match stop {
                Some(stop) => self.fetch_or_fail(stop)?,
                None if done >= len => return Ok(len),
                None => done += self.read_part(ino, offset, &mut buf[..len], done)?,
            }
        }
    }

    /// Reads past holes, up to what has to be fetched, and fetches it. Returns how far it came.
    fn read_part(&self, ino: Ino, offset: u64, buf: &mut [u8], done: usize) -> Result<usize> {
        let part = {
            let mut shard = self.inodes.own(ino.into());
            readable(&shard, ino, offset, buf.len()).and_then(|len| {
                // It may have become shorter.
                if len < buf.len() {
                    return Ok(Part { len: 0, miss: None });
                }
                let mut map = FileMap { engine: self, shard: &mut shard, ino };
                file::read_cached(&mut map, ino.into(), offset + done as u64, &mut buf[done..])
            })
        };
        let (len, stop) = match part {
            Ok(Part { len, miss }) => (len, miss.map(|miss| Stop::Want(Want::Pages(miss)))),
            Err(stop) => (0, Some(stop)),
        };
        stop.map_or(Ok(()), |stop| self.fetch_or_fail(stop))?;
        Ok(len)
    }

    /// Brings into memory what is missing.
    pub(crate) fn fetch_or_fail(&self, stop: Halt) -> Result<()> {
        match stop {
            Stop::Want(want) => vfs::op::Volume::fetch(self, want),
            Stop::Failed(error) => Err(error),
            Stop::Inode(_) | Stop::Room(_) => Err(Errno::IO.into()),
        }
    }

    /// Puts pages that were read into memory, unless the file has changed there.
    pub(crate) fn keep_pages(
        &self,
        shard: &mut Shard,
        miss: &Miss<vfs::Ino>,
        blocks: DriveBlocks,
        is_still_there: impl FnMut(&mut FileMap<'_>, u64, Lba) -> Step<bool>,
    ) -> Result<()> {
        let ino = miss.file as Ino;
        let Ok(cached) = shard.inode(ino) else { return Ok(()) };
        let size = cached.inode.size;
        let mut map = FileMap { engine: self, shard, ino };
        let kept = file::insert(&mut map, miss, blocks, is_still_there);
        if let Err(stop) = kept {
            self.fetch_or_fail(stop)?;
        }
        // Bytes behind the end of the file are zero in memory, whatever the drive has there.
        let (last, within) = (size / PAGE, (size % PAGE) as usize);
        let pages = miss.index..miss.index + (miss.blocks.end - miss.blocks.start);
        let is_clean = !shard.pages.is_dirty(ino.into(), last);
        if within > 0 && pages.contains(&last) && is_clean {
            if let Some(page) = shard.pages.dirty_mut(ino.into(), last) {
                page.make_mut()[within..].fill(0);
            }
            shard.pages.mark_clean(ino.into(), last);
        }
        // It is in use: the operation that lacked it must find it, however little room there is.
        shard.pages.touch(ino.into(), miss.index);
        Ok(())
    }

    /// Writes a regular file; short only if it failed on the way, or if no file is as long
    /// (`generic_write_checks`).
    pub(crate) fn write_file(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        let room = self.sb.size_max().saturating_sub(offset);
        if room == 0 && !data.is_empty() {
            return Err(Errno::FBIG.into());
        }
        let data = &data[..data.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        // Not again before the end: it could evict what has just been fetched.
        self.make_room();
        let (mut done, mut old_size) = (0, u64::MAX);
        let is_sync = loop {
            let write = Write::new(offset + done as u64, &data[done..]);
            let step = {
                let mut shard = self.inodes.own(ino.into());
                self.check_writable()?;
                self.write_step(&mut shard, ino, write)
            };
            match step {
                Ok(Wrote { len, stop, is_sync, size }) => {
                    done += len;
                    old_size = old_size.min(size);
                    let fetch = |stop| self.heed(self.fetch_or_fail(stop)).map(|()| true);
                    match stop.map_or(Ok(false), fetch) {
                        Ok(true) => {}
                        Err(error) if done == 0 => return Err(error),
                        Ok(false) | Err(_) => break is_sync,
                    }
                }
                Err(stop) => self.heed(self.fetch_or_fail(stop))?,
            }
        };
        self.begin_as_linux(ino, offset..offset + done as u64, old_size)?;
        self.throttle(ino, offset / PAGE)?;
        if done > 0 && is_sync {
            self.fsync(ino, false)?;
        }
        Ok(done)
    }

    /// Puts the inode into the running transaction as often as that kernel does for a write of
    /// these bytes: 4.14 for each page (`ext4_da_write_begin`), 6.1 for each by which the file
    /// grows (`generic_write_end`, `ext4_dirty_inode`).
    fn begin_as_linux(&self, ino: Ino, written: Range<u64>, old_size: u64) -> Result<()> {
        let from = match self.linux {
            None => return Ok(()),
            Some(Linux::V4_14) => written.start,
            Some(Linux::V6_1) => written.start.max(old_size),
        };
        if from >= written.end {
            return Ok(());
        }
        let mut pages = from / PAGE..written.end.div_ceil(PAGE);
        pages
            .try_for_each(|_| self.change(&[ino.into()], 2, |draft| draft.inode_mut(ino).map(drop)))
    }

    fn write_step(&self, shard: &mut Shard, ino: Ino, write: Write<'_>) -> Step<Wrote> {
        let Cached { inode, still, .. } = shard.inode(ino)?;
        check_regular(inode)?;
        let flags = inode.protection();
        flags.check_may_write()?;
        let is_sync = flags.contains(InodeFlags::SYNC);
        if *still {
            return Err(Stop::Want(Want::Turn(ino)));
        }
        let (size, offset) = (inode.size, write.offset());
        if write.data().is_empty() {
            return Ok(Wrote { len: 0, stop: None, is_sync, size });
        }
        let mut map = FileMap { engine: self, shard, ino };
        if offset > size {
            map.zero_behind(size)?;
        }
        map.want_ends(offset, write.data().len() as u64)?;
        let written = file::write(&mut map, ino.into(), write)?;
        if written.len > 0 {
            let now = self.clock.now();
            let cached = shard.inode_mut(ino)?;
            cached.inode.size = cached.inode.size.max(offset + written.len as u64);
            cached.inode.touch(now);
            shard.changed.insert(ino);
        }
        if let Some((_, ready)) = &written.failed {
            self.unpromise(shard, ino, offset + written.len as u64, *ready)?;
        }
        let stop = written.failed.map(|(stop, _)| stop);
        Ok(Wrote { len: written.len, stop, is_sync, size })
    }

    /// Takes back promises to pages that a write did not reach.
    fn unpromise(&self, shard: &mut Shard, ino: Ino, from: u64, ready: u64) -> Step<()> {
        let inode = &shard.inode(ino)?.inode;
        let clean =
            (from.div_ceil(PAGE)..ready).filter(|at| !shard.pages.is_dirty(ino.into(), *at));
        let vain: u64 = clean.map(|at| map::holes_in(self, inode, at)).sum::<Step<_>>()?;
        self.room.release(vain);
        let cached = shard.inode_mut(ino)?;
        cached.promised = cached.promised.saturating_sub(vain);
        Ok(())
    }

    /// Wakes the flusher if much is dirty. If it is too much, writes back some of this file, from
    /// `page` on if possible: a caller pays for what it makes dirty a little at a time, and most
    /// often for no page twice. If the file has too little, others are written.
    fn throttle(&self, ino: Ino, page: u64) -> Result<()> {
        match self.budget.write_back() {
            WriteBack::Later => return Ok(()),
            WriteBack::Soon => {
                self.upkeep.kick();
                return Ok(());
            }
            WriteBack::Now => {}
        }
        if self.flush_some(ino, page)?.is_none() {
            self.flush_some(ino, 0)?;
        }
        while self.budget.write_back() == WriteBack::Now {
            let Some(dirty) = self.some_dirty_inode() else { break };
            if self.flush_some(dirty, 0)?.is_none() {
                break;
            }
        }
        Ok(())
    }
}

impl FileMap<'_> {
    /// Zeroes the rest of the page in which the file ends at `size`, before it becomes longer: the
    /// drive may have something else there.
    pub(crate) fn zero_behind(&mut self, size: u64) -> Step<()> {
        if size.is_multiple_of(PAGE) {
            return Ok(());
        }
        self.want_page(size / PAGE)?;
        file::zero_in_page(self, self.ino.into(), size..size.next_multiple_of(PAGE))
    }

    /// Asks for the pages of which a write changes a part.
    fn want_ends(&mut self, offset: u64, len: u64) -> Step<()> {
        let end = offset + len;
        for at in [offset, end] {
            if !at.is_multiple_of(PAGE) {
                self.want_page(at / PAGE)?;
            }
        }
        Ok(())
    }

    /// Asks for page `index` unless it is in memory or a hole.
    pub(crate) fn want_page(&mut self, index: u64) -> Step<()> {
        if self.shard.pages.touch(self.ino.into(), index).is_some() {
            return Ok(());
        }
        match file::Map::locate(self, self.ino.into(), index, 1)? {
            Some(blocks) => {
                Err(Stop::Want(Want::Pages(Miss { file: self.ino.into(), index, blocks })))
            }
            None => Ok(()),
        }
    }
}

/// How many of `len` bytes from `offset` there are to read.
pub(crate) fn readable(shard: &Shard, ino: Ino, offset: u64, len: usize) -> Step<usize> {
    let inode = &shard.inode(ino)?.inode;
    check_regular(inode)?;
    Ok(inode.size.saturating_sub(offset).min(len as u64) as usize)
}

impl Engine {
    /// Fails unless the volume may be changed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        match self.health() {
            vfs::Health::Sound => Ok(()),
            vfs::Health::Stopped => Err(Error::ReadOnly),
            vfs::Health::Shutdown | vfs::Health::Gone => Err(Errno::IO.into()),
        }
    }

    /// Some inode with dirty pages.
    pub(crate) fn some_dirty_inode(&self) -> Option<Ino> {
        (0..self.inodes.count())
            .find_map(|index| self.inodes.at(index)?.pages.dirty_inos().next())
            .map(|ino| ino as Ino)
    }
}
