//! A mounted F2FS: the lock around the volume, and POSIX on top of it.

use std::sync::Arc;

use drive::Drive;
use queue::BlockQueue;
use vfs::inode::Turns;
use vfs::{
    Attr, Creator, DirEntry, Errno, FallocateMode, FileKind, FileSystem, Gate, Hold, Ino,
    RenameFlags, Seek, SetAttr, StatFs, XattrMode,
};

use crate::alloc::gc::{OPERATION_PAGES, Policy};
use crate::checkpoint::Reason;
use crate::dir::namei::{NameIn, NewInode};
use crate::error::{Error, Result};
use crate::file::read_write::Miss;
use crate::fsync::chain::Chain;
use crate::fsync::{self, Plan};
use crate::mount;
use crate::mount::maintain::{Upkeep, Wishes};
use crate::mount::options::{Inject, MountOptions};
use crate::mount::tunables::Tunables;
use crate::mount::volume::{Caller, Health, Volume};
use crate::ondisk::checkpoint::CpFlags;
use crate::ondisk::sit::LogType;
use crate::ondisk::{BLOCK_SIZE, NAME_MAX, Nid};
use crate::recover::{RecoveryReport, recover};

/// A mounted F2FS volume.
///
/// Dropping it without [`FileSystem::unmount`] is a crash: what was not made durable is lost, and
/// the next mount recovers.
pub struct F2fs {
    gate: Gate<Volume>,
    queue: Arc<BlockQueue>,
    plan: &'static Plan,
    options: MountOptions,
    pub(crate) upkeep: Upkeep,
    recovery: RecoveryReport,
    turns: Arc<Turns>,
    /// Where the fsyncs under way stand in the node log.
    chain: Chain,
}

/// The right to write one inode's data and wait for it; given up when dropped.
pub(crate) struct Turn<'a> {
    fs: &'a F2fs,
    ino: Nid,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.fs.turns.end(self.ino.into()) {
            self.fs.clear_up(self.ino);
        }
    }
}

impl F2fs {
    /// Mounts the volume on `drive`, recovering what the last fsyncs made durable.
    ///
    /// Fails without changing anything on the drive if a structure it needs is corrupt
    /// ([`Error::Corrupt`]), or asks for what is not built here ([`Error::Unsupported`]).
    pub fn mount(drive: Arc<dyn Drive>, options: &MountOptions) -> Result<Self> {
        let mut volume = mount::load(drive, options)?;
        let recovery = recover(&mut volume).map_err(|error| unrecoverable(&volume, error))?;
        let wishes = Wishes::new(Tunables::new(options, volume.zones.is_some()));
        Ok(Self {
            queue: volume.io.queue().clone(),
            turns: volume.turns.clone(),
            plan: fsync::plan_of(options),
            upkeep: Upkeep::new("f2fs upkeep", wishes),
            options: volume.options.clone(),
            recovery,
            gate: Gate::new("f2fs volume", volume),
            chain: Chain::default(),
        })
    }

    /// What recovery found and did when this volume was mounted.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.recovery
    }

    /// How the volume is mounted: as asked for, and what its drive asks for.
    pub fn options(&self) -> &MountOptions {
        &self.options
    }

    /// The plan fsyncs of this mount follow.
    pub fn plan(&self) -> &'static Plan {
        self.plan
    }

    /// Cleans one section by cost-benefit, as the background cleaner would when the volume is
    /// idle. False if there was nothing worth cleaning.
    pub fn background_gc(&self) -> Result<bool> {
        if self.options.background_gc == crate::BackgroundGc::Off {
            return Ok(false);
        }
        self.clean_one(Policy::CostBenefit, 0, Caller::Background)
    }

    /// Writes a checkpoint without writing back file data, `F2FS_IOC_WRITE_CHECKPOINT`.
    pub fn write_checkpoint(&self) -> Result<()> {
        self.checkpoint(self.settled(), Caller::Foreground).map(drop)
    }

    /// Sections cleaned since the mount.
    pub fn cleaned_sections(&self) -> u64 {
        self.lock().stats.cleanings.iter().sum()
    }

    /// The volume, to look at it: while a checkpoint is on its way too, when what is in memory may
    /// not be durable, and must not change.
    pub(crate) fn lock(&self) -> Hold<'_, Volume> {
        self.gate.look()
    }

    /// The volume while no checkpoint is being written.
    pub(crate) fn settled(&self) -> Hold<'_, Volume> {
        self.gate.settled()
    }

    /// The volume, to change it: writable, and with room to log the change.
    pub(crate) fn change(&self) -> Result<Hold<'_, Volume>> {
        let _span = cores::span(cores::Stage::Syscall);
        let mut volume = self.settled();
        volume.operations += 1;
        volume.check_writable()?;
        if volume.is_checkpoint_due() {
            volume = self.checkpoint(volume, Caller::Foreground)?;
        }
        volume.balance()?;
        Ok(volume)
    }

    /// Writes a checkpoint. Others can look at the volume while the drive is at work on it.
    pub(crate) fn checkpoint<'a>(
        &'a self,
        mut volume: Hold<'a, Volume>,
        caller: Caller,
    ) -> Result<Hold<'a, Volume>> {
        let submitted = volume.begin_checkpoint(Reason::Sync)?;
        volume.stats.checkpoints[caller as usize] += 1;
        let (mut volume, written) = self.gate.commit(volume, || submitted.commit(&self.queue));
        volume.end_checkpoint(written)?;
        Ok(volume)
    }

    pub(crate) fn queue(&self) -> &BlockQueue {
        &self.queue
    }

    pub(crate) fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Ends a call of `open`: an inode without a name goes with the last who uses it, and an atomic
    /// write that nobody committed.
    pub(crate) fn release_inode(&self, ino: Nid) {
        let mut volume = self.lock();
        if !volume.opens.release(ino.into()) {
            return;
        }
        let leaves_something = volume.orphans.contains(&ino) || volume.is_left_atomic(ino);
        drop(volume);
        if leaves_something {
            self.clear_up(ino);
        }
    }

    /// Drops what is left of an inode that nobody has open or is at work on.
    fn clear_up(&self, ino: Nid) {
        let mut volume = self.settled();
        let is_open = volume.opens.is_open(ino.into());
        if !is_open && volume.is_left_atomic(ino) && volume.abort_atomic(ino).is_err() {
            volume.checkpoint.flags |= CpFlags::FSCK;
        }
        if volume.orphans.contains(&ino) && volume.check_writable().is_ok() {
            volume.evict_if_unused(ino);
        }
    }

    pub(crate) fn injected(&self, fault: Inject) -> bool {
        self.options.inject.contains(fault)
    }

    /// Makes everything the drive has completed stable, unless mounted `nobarrier`.
    pub(crate) fn flush(&self) -> Result<()> {
        if !self.options.barrier {
            return Ok(());
        }
        let _span = cores::span(cores::Stage::WaitFlush);
        let flushed =
            if self.options.flush_merge { self.queue.flush_joined() } else { self.queue.flush() };
        Ok(flushed?)
    }

    /// Reads what a read missed, leaving the volume free while the drive works.
    fn fetch<'a>(&'a self, mut volume: Hold<'a, Volume>, miss: &Miss) -> Result<Hold<'a, Volume>> {
        if volume.io.has_in_flight(miss.addrs()) || volume.is_pinned(miss.ino)? {
            // In memory, some of it; or it is written in place, whoever reads it.
            volume.read_miss(miss)?;
            return Ok(volume);
        }
        let version = volume.begin_reading(miss);
        drop(volume);
        let blocks = self.queue.read_blocks(miss.addr.into(), miss.count);
        let mut volume = self.lock();
        volume.end_reading(miss, version, blocks)?;
        Ok(volume)
    }

    /// Waits until no other fsync or write-back of `ino` is under way.
    pub(crate) fn take_turn(&self, ino: Nid) -> Turn<'_> {
        if !self.injected(Inject::NO_TURN) {
            self.turns.begin(ino.into());
        }
        Turn { fs: self, ino }
    }

    /// The volume, if it is still mounted, for an operation that changes nothing.
    pub(crate) fn volume(&self) -> Result<Hold<'_, Volume>> {
        let _span = cores::span(cores::Stage::Syscall);
        let mut volume = self.lock();
        volume.check_usable()?;
        volume.operations += 1;
        Ok(volume)
    }

    /// Writes what one operation may.
    fn write_some(&self, ino: Ino, offset: u64, data: &[u8]) -> vfs::Result<usize> {
        let ino = nid(ino)?;
        let mut volume = self.change()?;
        let written = match volume.kind_of(ino)? {
            FileKind::Regular => {
                volume.check_may_write(ino)?;
                volume.check_unsealed(ino)?;
                let to = volume.begin_write(ino, offset, data.len())?;
                volume.write_file(to, offset, data)?
            }
            FileKind::Directory => return Err(Errno::ISDIR.into()),
            _ => return Err(Errno::INVAL.into()),
        };
        if volume.is_sync(ino)? {
            drop(volume);
            fsync::execute(self, ino)?;
        } else if volume.pages.over_background_limit() && !volume.pages.over_dirty_limit() {
            drop(volume);
            self.upkeep.kick();
        } else if volume.pages.over_dirty_limit() {
            drop(volume);
            // This write is in memory whatever comes of it; a failed file's fsync will tell.
            let _ = self.write_back_files();
        }
        Ok(written)
    }

    pub(crate) fn attr_of(&self, volume: &mut Volume, ino: Nid) -> vfs::Result<Attr> {
        Ok(volume.attr(ino)?)
    }
}

/// A chain or an orphan that does not fit the checkpoint fails some operation with a plain errno;
/// to who mounts it is corruption.
fn unrecoverable(volume: &Volume, error: Error) -> Error {
    match error {
        Error::Posix(errno) => {
            let at = volume.logs.next_addr(&volume.sb, LogType::WarmNode);
            Error::corrupt("recovery", at, errno, "nodes that fit the checkpoint")
        }
        other => other,
    }
}

/// F2FS numbers inodes with 32 bits; a larger number names none.
pub(crate) fn nid(ino: Ino) -> Result<Nid> {
    Nid::try_from(ino).map_err(|_| Error::Posix(Errno::NOENT))
}

impl FileSystem for F2fs {
    fn root(&self) -> Ino {
        3
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> vfs::Result<Attr> {
        let _span = cores::span(cores::Stage::PathLookup);
        let mut volume = self.volume()?;
        let found = volume.find(nid(parent)?, name)?;
        self.attr_of(&mut volume, found.ino)
    }

    fn getattr(&self, ino: Ino) -> vfs::Result<Attr> {
        Ok(self.volume()?.attr(nid(ino)?)?)
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> vfs::Result<Attr> {
        let ino = nid(ino)?;
        let mut volume = self.change()?;
        volume.set_attr(ino, set)?;
        self.attr_of(&mut volume, ino)
    }

    fn mknod(
        &self,
        parent: Ino,
        name: &[u8],
        kind: FileKind,
        perm: u16,
        rdev: u64,
        creator: Creator,
    ) -> vfs::Result<Attr> {
        if matches!(kind, FileKind::Directory | FileKind::Symlink) {
            return Err(Errno::INVAL.into());
        }
        let mut volume = self.change()?;
        let parent = nid(parent)?;
        let ino = volume.make(&NewInode { parent, name, kind, perm, rdev, creator })?;
        self.attr_of(&mut volume, ino)
    }

    fn mkdir(&self, parent: Ino, name: &[u8], perm: u16, creator: Creator) -> vfs::Result<Attr> {
        let mut volume = self.change()?;
        let (parent, kind) = (nid(parent)?, FileKind::Directory);
        let ino = volume.make(&NewInode { parent, name, kind, perm, rdev: 0, creator })?;
        self.attr_of(&mut volume, ino)
    }

    fn symlink(
        &self,
        parent: Ino,
        name: &[u8],
        target: &[u8],
        creator: Creator,
    ) -> vfs::Result<Attr> {
        let mut volume = self.change()?;
        let (parent, kind) = (nid(parent)?, FileKind::Symlink);
        let new = NewInode { parent, name, kind, perm: 0o777, rdev: 0, creator };
        let ino = volume.symlink(&new, target)?;
        self.attr_of(&mut volume, ino)
    }

    fn readlink(&self, ino: Ino) -> vfs::Result<Vec<u8>> {
        let ino = nid(ino)?;
        let mut volume = self.volume()?;
        let inode = volume.inode(ino)?;
        if inode.file_kind() != FileKind::Symlink {
            return Err(Errno::INVAL.into());
        }
        let len = inode.size.get().min(BLOCK_SIZE as u64) as usize;
        drop(inode);
        if let Some(target) = volume.encrypted_target(ino)? {
            return Ok(target);
        }
        let mut target = vec![0; len];
        volume.read_file(ino, 0, &mut target)?;
        Ok(target)
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> vfs::Result<Attr> {
        let ino = nid(ino)?;
        let mut volume = self.change()?;
        volume.link(ino, nid(parent)?, name)?;
        self.attr_of(&mut volume, ino)
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> vfs::Result<()> {
        Ok(self.change()?.unlink(nid(parent)?, name)?)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> vfs::Result<()> {
        Ok(self.change()?.rmdir(nid(parent)?, name)?)
    }

    fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> vfs::Result<()> {
        let from = NameIn { dir: nid(parent)?, name };
        let to = NameIn { dir: nid(new_parent)?, name: new_name };
        Ok(self.change()?.rename(from, to, flags)?)
    }

    fn open(&self, ino: Ino) -> vfs::Result<()> {
        let ino = nid(ino)?;
        let mut volume = self.volume()?;
        volume.check_readable(ino)?;
        volume.opens.open(ino.into());
        Ok(())
    }

    fn release(&self, ino: Ino) {
        if let Ok(ino) = nid(ino) {
            self.release_inode(ino);
        }
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> vfs::Result<usize> {
        let ino = nid(ino)?;
        let mut volume = self.volume()?;
        match volume.kind_of(ino)? {
            FileKind::Regular => volume.check_readable(ino)?,
            FileKind::Directory => return Err(Errno::ISDIR.into()),
            _ => return Err(Errno::INVAL.into()),
        }
        let mut done = 0;
        loop {
            let part = volume.read_cached(ino, offset + done as u64, &mut buf[done..])?;
            done += part.len;
            let Some(miss) = part.miss else { return Ok(done) };
            volume = self.fetch(volume, &miss)?;
        }
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> vfs::Result<usize> {
        let mut done = 0;
        loop {
            // More at once might be more than there is room for.
            let end = data.len().min(done + OPERATION_PAGES * BLOCK_SIZE);
            let written = self.write_some(ino, offset + done as u64, &data[done..end]);
            done += match written {
                Err(_) if done > 0 => return Ok(done),
                written => written?,
            };
            if done < end || end == data.len() {
                return Ok(done);
            }
        }
    }

    /// `fdatasync` does the same: every write changes the inode's times, and recovery wants the
    /// inode after the data anyway.
    fn fsync(&self, ino: Ino, _datasync: bool) -> vfs::Result<()> {
        let _span = cores::span(cores::Stage::Syscall);
        Ok(fsync::execute(self, nid(ino)?)?)
    }

    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> vfs::Result<()> {
        Ok(self.change()?.fallocate(nid(ino)?, mode, offset, len)?)
    }

    fn lseek(&self, ino: Ino, offset: u64, seek: Seek) -> vfs::Result<u64> {
        Ok(self.volume()?.seek(nid(ino)?, offset, seek)?)
    }

    fn readdir(
        &self,
        ino: Ino,
        from: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> vfs::Result<()> {
        Ok(self.volume()?.read_dir(nid(ino)?, from, emit)?)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> vfs::Result<Vec<u8>> {
        Ok(self.volume()?.get_xattr(nid(ino)?, name)?)
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> vfs::Result<()> {
        Ok(self.change()?.set_xattr(nid(ino)?, name, Some(value), mode)?)
    }

    fn listxattr(&self, ino: Ino) -> vfs::Result<Vec<Vec<u8>>> {
        Ok(self.volume()?.list_xattrs(nid(ino)?)?)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> vfs::Result<()> {
        Ok(self.change()?.set_xattr(nid(ino)?, name, None, XattrMode::Replace)?)
    }

    fn statfs(&self) -> vfs::Result<StatFs> {
        let volume = self.volume()?;
        let (blocks, free) = volume.space.totals();
        let nodes_free = u64::from(volume.nat.available()).min(free);
        Ok(StatFs {
            block_size: BLOCK_SIZE as u32,
            blocks,
            blocks_free: free,
            blocks_available: free,
            files: u64::from(volume.space.valid_nodes) + nodes_free,
            files_free: nodes_free,
            name_max: NAME_MAX as u32,
        })
    }

    fn sync(&self) -> vfs::Result<()> {
        {
            let volume = self.volume()?;
            if volume.options.read_only {
                return Ok(());
            }
            volume.check_writable()?;
        }
        self.write_back_files()?;
        self.write_checkpoint()?;
        Ok(())
    }

    fn unmount(&self) -> vfs::Result<()> {
        let mut volume = self.settled();
        volume.check_usable()?;
        let left = volume.options.read_only || volume.health == Health::Shutdown;
        let written = if left { Ok(()) } else { volume.leave() };
        volume.health = Health::Gone;
        Ok(written?)
    }
}
