//! Writing dirty pages back: where each block goes, and the address that changes for it
//! (`f2fs_do_write_data_page`).
//!
//! Invariant: data in flight while the volume is not locked belongs to the holder of the file's
//! [`vfs::inode::Turn`]. An fsync takes the turn first, so it misses no write in flight.

use std::ops::Range;

use queue::WriteSet;
use vfs::{FileKind, Ino};

use crate::F2fs;
use crate::error::{Error, Result, is_unreadable};
use crate::inode::change::Change;
use crate::inode::mapping::{Lookup, Slot};
use crate::mount::attributes::IpuPolicy;
use crate::mount::engine::Engine;
use crate::mount::iostat::Moved;
use crate::mount::options::AllocationMode;
use crate::ondisk::inode::{Advise, Inline};
use crate::ondisk::sit::LogType;
use crate::ondisk::summary::RawSummary;
use crate::ondisk::{BlockAddr, COMPRESS_ADDR, NULL_ADDR, Nid, is_data_addr};

/// Pages of a file written back before others get at the volume again.
const WRITE_BACK_PAGES: usize = 1024;

/// How many files a sync writes back at a time.
const FILES_AT_ONCE: usize = 64;

/// How many zones may be filled at a time. Drives limit how many are active, and each log has one.
const ZONES_AT_ONCE: usize = 4;

impl F2fs {
    /// Writes the dirty pages of all files, leaving the volume free while the drive works. Fails
    /// with the first error, if there was one.
    pub(crate) fn write_back_files(&self) -> Result<()> {
        let mut volume = self.lock();
        let dirty = volume.dirty_files().into_iter();
        let (large, small): (Vec<_>, Vec<_>) = dirty.partition(|ino| volume.is_written_alone(*ino));
        drop(volume);
        // One that fails keeps no other from being written.
        let mut written = Ok(());
        for inos in small.chunks(FILES_AT_ONCE) {
            written = written.and(self.write_back_together(inos));
        }
        for ino in large {
            written = written.and(self.write_back_file(ino));
        }
        written
    }

    /// Writes the dirty pages of some files, ascending by number. Their writes are submitted before
    /// any is waited for: a small file has little to write, and many of them would each wait for
    /// the drive (`writeback_sb_inodes` waits for none of its inodes, either).
    fn write_back_together(&self, inos: &[Nid]) -> Result<()> {
        // A thread with one turn must not wait for another: a commit of an atomic write has two.
        let (mut turns, mut left) = (Vec::new(), Vec::new());
        for &ino in inos {
            match self.try_turn(ino) {
                Some(turn) => turns.push((ino, turn)),
                None => left.push(ino),
            }
        }
        let (mut room, mut submitted) = (WRITE_BACK_PAGES, Ok(()));
        let written = self.write_out(|set| {
            for &(ino, _) in &turns {
                let mut volume = self.settled();
                let dirty = volume.inodes.of(ino).pages.dirty_count(ino.into());
                match volume.submit_some(ino, 0, room, set) {
                    Ok(next) => left.extend(next.map(|_| ino)),
                    Err(error) => {
                        volume.stop(&error);
                        volume.write_errors.insert(ino);
                        if submitted.is_ok() {
                            submitted = Err(error);
                        }
                    }
                }
                room -= dirty.min(room);
            }
            Ok(())
        });
        if written.is_err() {
            // Whose write failed is not known, and the volume has stopped.
            self.lock().write_errors.extend(turns.iter().map(|(ino, _)| *ino));
        }
        drop(turns);
        let mut written = written.and(submitted);
        for ino in left {
            written = written.and(self.write_back_file(ino));
        }
        written
    }

    /// Writes the dirty pages of one file. What becomes dirty behind the last of them meanwhile is
    /// left for another time, or this would last as long as a stream into the file. That it failed
    /// is told to the file's next fsync too.
    pub(crate) fn write_back_file(&self, ino: Nid) -> Result<()> {
        let (alone, last) = {
            let mut volume = self.lock();
            let last = volume.inodes.of(ino).pages.last_dirty(ino.into());
            (volume.is_written_alone(ino), last)
        };
        // Locked before the turn, since its holder waits for turns.
        let _others = alone.then(|| self.writing_alone.lock());
        let mut from = last.and(Some(0));
        while let Some(index) = from.filter(|index| Some(*index) <= last) {
            // One turn for all would hold up a writer for as long as it takes.
            let _turn = self.take_turn(ino);
            let next = self.write_back_some(ino, index);
            from = next.inspect_err(|_| {
                self.lock().write_errors.insert(ino);
            })?;
        }
        Ok(())
    }

    /// Writes the dirty pages of a file whose turn the caller holds, up to the last of them.
    pub(crate) fn write_back_held(&self, ino: Nid) -> Result<()> {
        let last = self.lock().inodes.of(ino).pages.last_dirty(ino.into());
        let mut from = last.and(Some(0));
        while let Some(index) = from.filter(|index| Some(*index) <= last) {
            from = self.write_back_some(ino, index)?;
        }
        Ok(())
    }

    /// Writes some of a file's dirty pages, from page `from` on and around its end. So a writer
    /// pays for what it makes dirty a little at a time, and most often for no page twice.
    pub(crate) fn write_back_around(&self, ino: Nid, from: u64) -> Result<()> {
        let _turn = self.take_turn(ino);
        let next = self.write_back_some(ino, from);
        let done = next.and_then(|next| match next {
            Some(_) => Ok(()),
            None => self.write_back_some(ino, 0).map(drop),
        });
        done.inspect_err(|_| {
            self.lock().write_errors.insert(ino);
        })
    }

    /// Writes [`WRITE_BACK_PAGES`] dirty pages of a file, from page `from` on. The page to go on
    /// with.
    fn write_back_some(&self, ino: Nid, from: u64) -> Result<Option<u64>> {
        self.write_out(|set| self.settled().submit_some(ino, from, WRITE_BACK_PAGES, set))
    }

    /// Waits for the writes that `submit` submits.
    pub(crate) fn write_out<T>(
        &self,
        submit: impl FnOnce(&mut WriteSet) -> Result<T>,
    ) -> Result<T> {
        let mut set = WriteSet::default();
        let submitted = submit(&mut set);
        let waited = set.wait(self.queue()).map_err(Error::from);
        waited.and(submitted).inspect_err(|error| {
            self.lock().stop(error);
        })
    }
}

/// How pages are written.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    log: LogType,
    cause: Cause,
}

impl From<LogType> for Way {
    fn from(log: LogType) -> Self {
        Self { log, cause: Cause::WriteBack }
    }
}

/// Why pages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Write-back, for which no caller waits.
    WriteBack,
    /// An fsync or a checkpoint.
    Sync,
    /// An fsync of at most `min_fsync_blocks` pages, or an fdatasync (`FI_NEED_IPU`).
    SmallSync,
    /// A direct write.
    Direct,
}

/// Writing the dirty pages of an inode.
pub(crate) trait WritePages: Change {
    /// Allocates and submits all dirty pages of a file.
    fn submit_data(
        &mut self,
        ino: Nid,
        cause: Cause,
        set: &mut WriteSet,
    ) -> Result<(), Self::Error> {
        let way = Way { log: self.data_log(ino)?, cause };
        self.submit_pages(ino, 0..u64::MAX, usize::MAX, way, set).map(drop)
    }

    /// Submits the dirty pages of a file among `pages`, as a direct write of them, and drops all of
    /// these from memory.
    fn submit_direct(
        &mut self,
        ino: Nid,
        pages: Range<u64>,
        set: &mut WriteSet,
    ) -> Result<(), Self::Error> {
        let way = Way { log: self.data_log(ino)?, cause: Cause::Direct };
        self.submit_pages(ino, pages.clone(), usize::MAX, way, set)?;
        self.shard_mut(ino)?.pages.drop_range(ino.into(), pages);
        Ok(())
    }

    /// Submits up to `most` dirty pages of a file, if it still is there, from page `from` on. The
    /// page to go on with.
    fn submit_some(
        &mut self,
        ino: Nid,
        from: u64,
        most: usize,
        set: &mut WriteSet,
    ) -> Result<Option<u64>, Self::Error> {
        match self.shard_mut(ino)?.pages.next_dirty(ino.into(), from) {
            Some(first) => {
                let way = self.data_log(ino)?.into();
                self.submit_pages(ino, first..u64::MAX, most, way, set)
            }
            None => Ok(None),
        }
    }

    /// As [`WritePages::submit_some`], of a file that is there, within `pages`. If this fails, the
    /// pages in front of the one where it failed have been submitted.
    fn submit_pages(
        &mut self,
        ino: Nid,
        pages: Range<u64>,
        most: usize,
        way: Way,
        set: &mut WriteSet,
    ) -> Result<Option<u64>, Self::Error> {
        self.engine().check_writable()?;
        let mut next = self.shard_mut(ino)?.pages.next_dirty(ino.into(), pages.start);
        let mut done = Ok(());
        for _ in 0..most {
            let Some(index) = next.filter(|index| done.is_ok() && *index < pages.end) else {
                break;
            };
            done = self.write_page(ino, index, way, set);
            next = self.shard_mut(ino)?.pages.next_dirty(ino.into(), index + 1);
        }
        set.submit(self.engine().io.writer());
        done.map(|()| next)
    }

    /// The log a file's data belongs to (`__get_segment_type_6`).
    fn data_log(&mut self, ino: Nid) -> Result<LogType, Self::Error> {
        let dirty = self.shard_mut(ino)?.pages.dirty_count(ino.into()) as u64;
        let hot = dirty <= self.engine().knobs.min_hot_blocks;
        let inode = self.view(ino)?;
        let (advise, compressed) = (inode.advise(), inode.layout().cluster().is_some());
        Ok(if inode.file_kind() == FileKind::Directory {
            LogType::HotData
        } else if advise.contains(Advise::COLD) || compressed {
            LogType::ColdData
        } else if advise.contains(Advise::HOT) || hot {
            LogType::HotData
        } else {
            LogType::WarmData
        })
    }

    /// Whether an allocated block is overwritten where it is (`f2fs_should_update_inplace`): always
    /// in a pinned file, after an earlier write of it; never under LFS or OPRW, nor in a directory
    /// or quota file, whose old blocks the last checkpoint relies on, nor while an earlier write is
    /// on its way; else as `ipu_policy` says. A direct write does not ask the policy
    /// (`f2fs_map_blocks`).
    fn updates_in_place(
        &mut self,
        ino: Nid,
        addr: BlockAddr,
        cause: Cause,
    ) -> Result<bool, Self::Error> {
        let inode = self.view(ino)?;
        let pinned = inode.inline().contains(Inline::PIN_FILE);
        let is_dir = inode.file_kind() == FileKind::Directory;
        let engine = self.engine();
        if pinned {
            if engine.io.is_in_flight(addr) {
                engine.io.writer().drain().map_err(Error::from)?;
            }
            return Ok(true);
        }
        Ok(engine.options.mode == AllocationMode::Adaptive
            && !engine.options.oprw
            && !engine.is_sequential(addr)
            && !engine.io.is_in_flight(addr)
            && !is_dir
            && !engine.is_quota_file(ino)
            && (cause == Cause::Direct || engine.prefers_in_place(cause)))
    }

    /// Writes one dirty page to the log, or to where it already is.
    fn write_page(
        &mut self,
        ino: Nid,
        index: u64,
        way: Way,
        set: &mut WriteSet,
    ) -> Result<(), Self::Error> {
        let key = Ino::from(ino);
        let Some(block) = self.shard_mut(ino)?.pages.peek(key, index).cloned() else {
            return Ok(());
        };
        let of_hole = || Error::corrupt("page cache", ino, "a dirty page of a hole", "none");
        let Lookup::Slot(slot) = self.lookup_slot(ino, index)? else {
            return Err(of_hole().into());
        };
        let old = self.addr_in(slot)?;
        if old == NULL_ADDR || old == COMPRESS_ADDR {
            return Err(of_hole().into());
        }
        let in_place = is_data_addr(old) && self.updates_in_place(ino, old, way.cause)?;
        let addr = if in_place {
            if self.shard_mut(ino)?.nodes.is_left_to_checkpoint(ino, slot.nid) {
                // The node on the drive knows another place of the block, which stays as it was.
                self.node_mut(ino, slot.nid)?;
            }
            old
        } else {
            let addr = self.move_block(ino, slot, old, way.log)?;
            if self.engine().options.oprw && !self.engine().is_sequential(addr) {
                let cp_ver = self.engine().checkpoint.node_cp_ver();
                let unjudged = &mut self.shard_mut(ino)?.unjudged;
                unjudged.entry(ino).or_default().push(cp_ver, ino, addr, &block);
            }
            addr
        };
        let shard = self.shard_mut(ino)?;
        shard.in_place += u64::from(in_place);
        shard.pages.mark_clean(key, index);
        // In place no node changes: nothing else would tell an fsync that there is this to flush.
        shard.unflushed.insert(ino);
        self.engine().iostat.add_blocks(Moved::FsData, 1);
        set.push(self.engine().io.writer(), addr.into(), block);
        Ok(())
    }

    /// Gives the block in `slot` a new place in `log`.
    fn move_block(
        &mut self,
        ino: Nid,
        slot: Slot,
        old: BlockAddr,
        log: LogType,
    ) -> Result<BlockAddr, Self::Error> {
        let version = self.place_of(slot.nid)?.entry.version;
        // Nothing is read after the allocation: a read that fails must not leave a valid block to
        // which nothing points. Loading one of the two does not evict the other, just used.
        self.node(ino, ino)?;
        self.node(ino, slot.nid)?;
        let addr =
            self.allocate(log, old, RawSummary::data(slot.nid, version, slot.ofs_in_node))?;
        self.set_addr(ino, slot, addr)?;
        Ok(addr)
    }
}

impl<C: Change> WritePages for C {}

impl Engine {
    /// Whether a file is so large that its write-back keeps that of other large files waiting, so
    /// that its blocks lie side by side (`min_seq_blocks`, `__should_serialize_io`).
    fn is_written_alone(&mut self, ino: Nid) -> bool {
        let dirty = self.inodes.of(ino).pages.dirty_count(ino.into()) as u64;
        dirty > 0 && dirty >= self.knobs.min_seq_blocks
    }

    /// Whether `ipu_policy` asks for an overwrite in place (`check_inplace_update_policy`).
    fn prefers_in_place(&self, cause: Cause) -> bool {
        let (policy, knobs) = (self.knobs.ipu(), &self.knobs);
        let needs_ssr = || self.logs.lock().needs_ssr(&self.segments.lock());
        let is_full = || self.space.used_percent() > knobs.min_ipu_util;
        policy.contains(IpuPolicy::FORCE)
            || policy.contains(IpuPolicy::SSR) && needs_ssr()
            || policy.contains(IpuPolicy::UTIL) && is_full()
            || policy.contains(IpuPolicy::SSR_UTIL) && is_full() && needs_ssr()
            || policy.contains(IpuPolicy::ASYNC) && cause == Cause::WriteBack
            || policy.contains(IpuPolicy::FSYNC) && cause == Cause::SmallSync
    }

    /// How many pages of a file may be on their way to the drive at once.
    pub(crate) fn at_once(&mut self) -> usize {
        match self.zones {
            Some(_) => ZONES_AT_ONCE * self.segments.get_mut().section_capacity() as usize,
            None => usize::MAX,
        }
    }

    /// Writes the pages of every directory, for a checkpoint, and of every symbolic link: it cannot
    /// be fsynced, so it becomes durable with its name.
    pub(crate) fn write_dirty_directories(&mut self, set: &mut WriteSet) -> Result<()> {
        for ino in self.dirty_files() {
            match self.kind_of(ino) {
                Ok(FileKind::Regular) => {}
                // The inode of a directory or link with dirty pages has changed with them, so it is
                // cached. What cannot be read is a file, which its fsync tells.
                Err(error) if is_unreadable(&error) => {}
                kind => self.submit_data(kind.map(|_| ino)?, Cause::Sync, set)?,
            }
        }
        Ok(())
    }

    /// The inodes that have dirty pages now.
    pub(crate) fn dirty_files(&mut self) -> Vec<Nid> {
        self.inodes.with_dirty_pages()
    }
}
