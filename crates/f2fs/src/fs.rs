//! A mounted F2FS: the lock around the volume, and POSIX on top of it.

use std::sync::Arc;

use cores::{Condvar, Mutex, MutexGuard};
use drive::Drive;
use queue::BlockQueue;
use rustc_hash::FxHashSet;
use vfs::{
    Attr, Creator, DirEntry, Errno, FallocateMode, FileKind, FileSystem, Ino, RenameFlags, Seek,
    SetAttr, StatFs, XattrMode,
};

use crate::checkpoint::Reason;
use crate::error::{Error, Result};
use crate::fsync::{self, Plan};
use crate::mount;
use crate::namei::{NameIn, NewInode};
use crate::ondisk::sit::LogType;
use crate::ondisk::{BLOCK_SIZE, NAME_MAX, Nid};
use crate::options::{Inject, MountOptions};
use crate::recover::{RecoveryReport, recover};
use crate::volume::{Health, Volume};

/// A mounted F2FS volume.
///
/// Dropping it without [`FileSystem::unmount`] is a crash: what was not made durable is lost, and
/// the next mount recovers.
pub struct F2fs {
    volume: Mutex<Volume>,
    queue: Arc<BlockQueue>,
    plan: &'static Plan,
    flushes: bool,
    inject: Inject,
    recovery: RecoveryReport,
    /// Inodes an fsync is under way for.
    fsyncing: Mutex<FxHashSet<Nid>>,
    fsynced: Condvar,
}

/// The right to fsync one inode; given up when dropped.
pub(crate) struct Turn<'a> {
    fs: &'a F2fs,
    ino: Nid,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.fs.fsyncing.lock().remove(&self.ino);
        self.fs.fsynced.notify_all();
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
        Ok(Self {
            queue: volume.io.queue().clone(),
            plan: Plan::of(options),
            flushes: options.barrier,
            inject: options.inject,
            recovery,
            volume: Mutex::named("f2fs volume", volume),
            fsyncing: Mutex::named("f2fs fsync turns", FxHashSet::default()),
            fsynced: Condvar::new(),
        })
    }

    /// What recovery found and did when this volume was mounted.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.recovery
    }

    /// The plan fsyncs of this mount follow.
    pub fn plan(&self) -> &'static Plan {
        self.plan
    }

    /// Cleans one section by cost-benefit, as the background cleaner would when the volume is
    /// idle. False if there was nothing worth cleaning.
    pub fn background_gc(&self) -> Result<bool> {
        let mut volume = self.lock();
        if volume.options.background_gc == crate::BackgroundGc::Off {
            return Ok(false);
        }
        volume.background_gc()
    }

    /// Writes a checkpoint without writing back file data, `F2FS_IOC_WRITE_CHECKPOINT`.
    pub fn write_checkpoint(&self) -> Result<()> {
        let mut volume = self.lock();
        volume.check_writable()?;
        volume.write_checkpoint(Reason::Sync)
    }

    /// Sections cleaned since the mount.
    pub fn cleaned_sections(&self) -> u64 {
        self.lock().gc_count
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Volume> {
        self.volume.lock()
    }

    pub(crate) fn queue(&self) -> &BlockQueue {
        &self.queue
    }

    pub(crate) fn injected(&self, fault: Inject) -> bool {
        self.inject.contains(fault)
    }

    /// Makes everything the drive has completed stable, unless mounted `nobarrier`.
    pub(crate) fn flush(&self) -> Result<()> {
        let _span = cores::span(cores::Stage::WaitFlush);
        if self.flushes {
            self.queue.flush()?;
        }
        Ok(())
    }

    /// Waits until no other fsync of `ino` is under way: two at once could each take the other's
    /// writes for done.
    pub(crate) fn take_turn(&self, ino: Nid) -> Turn<'_> {
        let mut busy = self.fsyncing.lock();
        while !busy.insert(ino) {
            self.fsynced.wait(&mut busy);
        }
        Turn { fs: self, ino }
    }

    fn volume(&self) -> Result<MutexGuard<'_, Volume>> {
        let volume = self.lock();
        volume.check_usable()?;
        Ok(volume)
    }

    fn attr_of(&self, volume: &mut Volume, ino: Nid) -> vfs::Result<Attr> {
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
fn nid(ino: Ino) -> Result<Nid> {
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
        let mut volume = self.volume()?;
        volume.begin_change()?;
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
        let mut volume = self.volume()?;
        let parent = nid(parent)?;
        let ino = volume.make(&NewInode { parent, name, kind, perm, rdev, creator })?;
        self.attr_of(&mut volume, ino)
    }

    fn mkdir(&self, parent: Ino, name: &[u8], perm: u16, creator: Creator) -> vfs::Result<Attr> {
        let mut volume = self.volume()?;
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
        let mut volume = self.volume()?;
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
        let mut target = vec![0; len];
        volume.read_file(ino, 0, &mut target)?;
        Ok(target)
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> vfs::Result<Attr> {
        let ino = nid(ino)?;
        let mut volume = self.volume()?;
        volume.link(ino, nid(parent)?, name)?;
        self.attr_of(&mut volume, ino)
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> vfs::Result<()> {
        Ok(self.volume()?.unlink(nid(parent)?, name)?)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> vfs::Result<()> {
        Ok(self.volume()?.rmdir(nid(parent)?, name)?)
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
        Ok(self.volume()?.rename(from, to, flags)?)
    }

    fn open(&self, ino: Ino) -> vfs::Result<()> {
        let ino = nid(ino)?;
        let mut volume = self.volume()?;
        volume.inode(ino)?;
        volume.users.entry(ino).or_default().opens += 1;
        Ok(())
    }

    fn release(&self, ino: Ino) {
        let (Ok(ino), Ok(mut volume)) = (nid(ino), self.volume()) else { return };
        let Some(users) = volume.users.get_mut(&ino) else { return };
        users.opens = users.opens.saturating_sub(1);
        if users.opens > 0 {
            return;
        }
        volume.users.remove(&ino);
        if volume.orphans.contains(&ino) && volume.check_writable().is_ok() {
            // The inode stays an orphan if this fails, and the next mount frees it.
            let _ = volume.evict(ino);
        }
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> vfs::Result<usize> {
        let ino = nid(ino)?;
        let mut volume = self.volume()?;
        match volume.kind_of(ino)? {
            FileKind::Regular => Ok(volume.read_file(ino, offset, buf)?),
            FileKind::Directory => Err(Errno::ISDIR.into()),
            _ => Err(Errno::INVAL.into()),
        }
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> vfs::Result<usize> {
        let ino = nid(ino)?;
        let mut volume = self.volume()?;
        volume.begin_change()?;
        let written = match volume.kind_of(ino)? {
            FileKind::Regular => volume.write_file(ino, offset, data)?,
            FileKind::Directory => return Err(Errno::ISDIR.into()),
            _ => return Err(Errno::INVAL.into()),
        };
        if volume.pages.over_dirty_limit() {
            drop(volume);
            // This write is in memory whatever comes of it; a failed file's fsync will tell.
            let _ = self.write_back_files();
        }
        Ok(written)
    }

    /// `fdatasync` does the same: every write changes the inode's times, and recovery wants the
    /// inode after the data anyway.
    fn fsync(&self, ino: Ino, _datasync: bool) -> vfs::Result<()> {
        Ok(fsync::execute(self, nid(ino)?)?)
    }

    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> vfs::Result<()> {
        Ok(self.volume()?.fallocate(nid(ino)?, mode, offset, len)?)
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
        Ok(self.volume()?.set_xattr(nid(ino)?, name, Some(value), mode)?)
    }

    fn listxattr(&self, ino: Ino) -> vfs::Result<Vec<Vec<u8>>> {
        Ok(self.volume()?.list_xattrs(nid(ino)?)?)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> vfs::Result<()> {
        Ok(self.volume()?.set_xattr(nid(ino)?, name, None, XattrMode::Replace)?)
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
        let mut volume = self.volume()?;
        if volume.options.read_only {
            return Ok(());
        }
        volume.write_back_all()?;
        Ok(volume.write_checkpoint(Reason::Sync)?)
    }

    fn unmount(&self) -> vfs::Result<()> {
        let mut volume = self.volume()?;
        let written = if volume.options.read_only { Ok(()) } else { volume.leave() };
        volume.health = Health::Gone;
        Ok(written?)
    }
}
