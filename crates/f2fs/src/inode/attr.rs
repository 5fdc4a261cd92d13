//! Attributes: from the inode to `struct stat` and back.

use vfs::{Attr, FileKind, SetAttr, Timespec, acl};
use zerocopy::little_endian::{U32, U64};

use crate::error::{Result, is_unreadable};
use crate::inode::see::{InodeView, See};
use crate::mount::engine::Engine;
use crate::mount::quota::Owner;
use crate::ondisk::Nid;
use crate::ondisk::inode::{FileFlags, Inline, RawInode};

/// 512-byte units in a block.
const SECTORS_PER_BLOCK: u64 = 8;
/// Bytes in one of them.
const SECTOR: u64 = 512;

fn time(secs: U64, nanos: U32) -> Timespec {
    Timespec { secs: secs.get().cast_signed(), nanos: nanos.get().min(999_999_999) }
}

/// `st_blocks` as Linux counts it (`f2fs_getattr`): the inode's own block does not count, but
/// contents inside the inode count as the sectors they fill.
fn sectors(inode: InodeView<'_>) -> u64 {
    let inside = match inode.file_kind() {
        FileKind::Regular => inode.inline().intersects(Inline::DATA | Inline::DENTRY),
        _ => inode.inline().contains(Inline::DENTRY),
    };
    let inline = if inside { inode.size.get().div_ceil(SECTOR) } else { 0 };
    inode.blocks.get().saturating_sub(1).saturating_mul(SECTORS_PER_BLOCK).saturating_add(inline)
}

fn set(secs: &mut U64, nanos: &mut U32, time: Timespec) {
    secs.set(time.secs.cast_unsigned());
    nanos.set(time.nanos);
}

impl RawInode {
    /// Sets the access time.
    pub(crate) fn set_atime(&mut self, time: Timespec) {
        set(&mut self.atime, &mut self.atime_nsec, time);
    }

    /// Takes note of a write that ended at `end`.
    pub(crate) fn wrote(&mut self, end: u64, now: Timespec) {
        if end > self.size.get() {
            self.size.set(end);
        }
        self.set_mtime(now);
        self.set_ctime(now);
    }

    /// Sets the time of the last change of contents.
    pub(crate) fn set_mtime(&mut self, time: Timespec) {
        set(&mut self.mtime, &mut self.mtime_nsec, time);
    }

    /// Sets the time of the last change of the inode.
    pub(crate) fn set_ctime(&mut self, time: Timespec) {
        set(&mut self.ctime, &mut self.ctime_nsec, time);
    }
}

/// Reading attributes.
pub(crate) trait Stat: See {
    /// `stat` of an inode.
    fn attr(&mut self, ino: Nid) -> Result<Attr, Self::Error> {
        let target = self.encrypted_target(ino)?;
        let size = self.view(self.engine().top_inode(ino))?.size.get();
        let lazy = self.engine().lazy_atimes.get(&ino).copied();
        let overwritten = self.overwritten(ino)?;
        let inode = self.view(ino)?;
        let size = target.map_or(size, |target| target.len() as u64);
        let crtime = inode.crtime().map_or(Timespec::default(), |(secs, nanos)| Timespec {
            secs: secs.cast_signed(),
            nanos: nanos.min(999_999_999),
        });
        let has_slots_free =
            !matches!(inode.file_kind(), FileKind::BlockDevice | FileKind::CharDevice);
        let atime = time(inode.atime, inode.atime_nsec);
        Ok(Attr {
            ino: ino.into(),
            kind: inode.file_kind(),
            perm: inode.mode.get() & 0o7777,
            nlink: inode.links.get(),
            uid: inode.uid.get(),
            gid: inode.gid.get(),
            rdev: if has_slots_free { 0 } else { inode.rdev(&inode.layout()) },
            size,
            blocks: sectors(inode),
            atime: lazy.unwrap_or(atime),
            mtime: overwritten.unwrap_or_else(|| time(inode.mtime, inode.mtime_nsec)),
            ctime: overwritten.unwrap_or_else(|| time(inode.ctime, inode.ctime_nsec)),
            crtime,
            generation: inode.generation.get(),
        })
    }
}

impl<S: See> Stat for S {}

impl Engine {
    /// Sets the access time in memory only. It reaches the drive with the inode's next write or the
    /// next checkpoint (`lazytime`).
    pub(crate) fn touch_atime(&mut self, ino: Nid, time: Timespec) -> Result<()> {
        if !self.raw_inode(ino)?.file_flags().contains(FileFlags::NOATIME)
            && self.check_writable().is_ok()
        {
            self.lazy_atimes.insert(ino, time);
        }
        Ok(())
    }

    /// Whether it is time for a checkpoint because of the access times that wait: each changes a
    /// node then.
    pub(crate) fn has_excess_atimes(&self) -> bool {
        self.inodes.would_be_many_changed(self.lazy_atimes.len())
    }

    /// Puts the waiting access times into their inodes.
    pub(crate) fn settle_atimes(&mut self) -> Result<()> {
        let mut waiting: Vec<_> = std::mem::take(&mut self.lazy_atimes).into_iter().collect();
        waiting.sort_unstable_by_key(|(ino, _)| *ino);
        for (ino, time) in waiting {
            match self.inode_mut(ino) {
                Ok(inode) => inode.set_atime(time),
                // The time is lost, but it keeps nothing else from the drive.
                Err(error) if is_unreadable(&error) => self.note(&error),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Changes attributes.
    pub(crate) fn set_attr(&mut self, ino: Nid, change: &SetAttr) -> Result<()> {
        self.check_may_set(ino, change)?;
        if change.uid.is_some() || change.gid.is_some() {
            let inode = self.inode(ino)?;
            let (uid, gid) =
                (change.uid.unwrap_or(inode.uid.get()), change.gid.unwrap_or(inode.gid.get()));
            let to = Owner::new(uid, gid, inode.projid().unwrap_or(0));
            drop(inode);
            self.move_quota(ino, to, true)?;
            let inode = self.inode_mut(ino)?;
            inode.uid.set(uid);
            inode.gid.set(gid);
        }
        let now = self.clock.now();
        if let Some(size) = change.size {
            let inode = self.inode(ino)?;
            match inode.file_kind() {
                FileKind::Regular => {}
                FileKind::Directory => return Err(vfs::Errno::ISDIR.into()),
                _ => return Err(vfs::Errno::INVAL.into()),
            }
            drop(inode);
            self.check_unsealed(ino)?;
            self.check_not_atomic(ino)?;
            self.resize(ino, size)?;
            self.inode_mut(ino)?.set_mtime(now);
        }
        let inode = self.inode_mut(ino)?;
        if let Some(perm) = change.perm {
            let kind = inode.mode.get() & !0o7777;
            inode.mode.set(kind | perm & 0o7777);
        }
        if let Some(atime) = change.atime {
            self.lazy_atimes.remove(&ino);
            let inode = self.inode_mut(ino)?;
            inode.set_atime(atime);
        }
        let inode = self.inode_mut(ino)?;
        if let Some(mtime) = change.mtime {
            inode.set_mtime(mtime);
        }
        inode.set_ctime(change.ctime.unwrap_or(now));
        change.perm.map_or(Ok(()), |perm| acl::chmod(self, ino.into(), perm))
    }
}
