//! Inode flags (`FS_IOC_GETFLAGS`), what they forbid, and pinned files.
//!
//! The layer that knows users decides who may set a flag. What it forbids then is in [`vfs`].

use vfs::{Errno, FallocateMode, FileKind, InodeFlags, SetAttr};

use crate::error::{Error, Result};
use crate::inode::see::See;
use crate::mount::attributes::MAX_PIN_FAILURES;
use crate::mount::engine::Engine;
use crate::mount::options::AllocationMode;
use crate::ondisk::Nid;
use crate::ondisk::inode::{FileFlags, Inline};
use crate::ondisk::superblock::Features;

/// `FS_NOCOW_FL`, which is shown for a pinned file.
const NOCOW: u32 = 0x0080_0000;
/// `FS_INLINE_DATA_FL`.
const INLINE_DATA: u32 = 0x1000_0000;
/// `FS_ENCRYPT_FL` and `FS_VERITY_FL`: shown, never set here.
const SHOWN_ONLY: u32 = 0x800 | 0x10_0000;

/// `F2FS_SETTABLE_FS_FL`.
const SETTABLE: FileFlags = FileFlags::COMPR
    .union(FileFlags::SYNC)
    .union(FileFlags::IMMUTABLE)
    .union(FileFlags::APPEND)
    .union(FileFlags::NODUMP)
    .union(FileFlags::NOATIME)
    .union(FileFlags::NOCOMP)
    .union(FileFlags::DIRSYNC)
    .union(FileFlags::PROJINHERIT)
    .union(FileFlags::CASEFOLD);

/// Flags that a new inode of `kind` takes from its directory (`F2FS_FL_INHERITED`,
/// `f2fs_mask_flags`).
pub(crate) fn inherited(kind: FileKind) -> FileFlags {
    let all = FileFlags::SYNC
        | FileFlags::NODUMP
        | FileFlags::NOATIME
        | FileFlags::DIRSYNC
        | FileFlags::PROJINHERIT
        | FileFlags::NOCOMP;
    match kind {
        FileKind::Directory => all | FileFlags::CASEFOLD,
        FileKind::Regular => all - FileFlags::DIRSYNC - FileFlags::PROJINHERIT,
        _ => FileFlags::NODUMP | FileFlags::NOATIME,
    }
}

/// What the flags of inodes forbid; the rules are those of [`vfs::InodeFlags`].
pub(crate) trait Forbidden: See {
    fn protection(&mut self, ino: Nid) -> Result<InodeFlags, Self::Error> {
        Ok(InodeFlags::from_bits_truncate(self.view(ino)?.file_flags().bits()))
    }

    /// Fails if the attributes and the size of `ino` may not change, and it may not get more names.
    fn check_changeable(&mut self, ino: Nid) -> Result<(), Self::Error> {
        allowed(self.protection(ino)?.check_changeable())
    }

    /// Fails if no name may be added to `dir`.
    fn check_may_add(&mut self, dir: Nid) -> Result<(), Self::Error> {
        allowed(self.protection(dir)?.check_may_add())
    }

    /// Fails if the name of `ino` may not be removed from `dir`.
    fn check_may_remove(&mut self, dir: Nid, ino: Nid) -> Result<(), Self::Error> {
        let dir = self.protection(dir)?;
        allowed(dir.check_may_remove(self.protection(ino)?))
    }
}

fn allowed<E: From<Error>>(answer: Result<(), Errno>) -> Result<(), E> {
    answer.map_err(|errno| Error::from(errno).into())
}

impl<S: See> Forbidden for S {}

impl Engine {
    /// `FS_IOC_GETFLAGS`.
    pub(crate) fn flags(&mut self, ino: Nid) -> Result<u32> {
        let inode = self.raw_inode(ino)?;
        let mut flags = inode.file_flags() & (SETTABLE | FileFlags::INDEX);
        let inline = inode.inline();
        if inline.intersects(Inline::DATA | Inline::DENTRY) {
            flags |= FileFlags::from_bits_retain(INLINE_DATA);
        }
        if inline.contains(Inline::PIN_FILE) {
            flags |= FileFlags::from_bits_retain(NOCOW);
        }
        Ok(flags.bits())
    }

    /// `FS_IOC_SETFLAGS` (`f2fs_fileattr_set`). Flags that are only shown are accepted if
    /// unchanged; of the others, the settable ones are set.
    pub(crate) fn set_flags(&mut self, ino: Nid, bits: u32) -> Result<()> {
        let gettable = (SETTABLE | FileFlags::INDEX).bits() | NOCOW | INLINE_DATA | SHOWN_ONLY;
        if bits & !gettable != 0 {
            return Err(Errno::OPNOTSUPP.into());
        }
        let old = self.raw_inode(ino)?.file_flags();
        let new = FileFlags::from_bits_retain(bits) & SETTABLE;
        let changed = (old ^ new) & SETTABLE;
        if new.contains(FileFlags::COMPR | FileFlags::NOCOMP) {
            return Err(Errno::INVAL.into());
        }
        let compression = self.sb.features.contains(Features::COMPRESSION);
        if changed.contains(FileFlags::CASEFOLD) {
            self.check_may_fold(ino)?;
        }
        if changed.contains(FileFlags::COMPR) || changed.contains(FileFlags::NOCOMP) && !compression
        {
            return Err(Errno::OPNOTSUPP.into());
        }
        let now = self.clock.now();
        let inode = self.inode_mut(ino)?;
        inode.flags.set(((old - SETTABLE) | new).bits());
        inode.set_ctime(now);
        Ok(())
    }

    /// Fails unless `ino` can start or stop folding case: only an empty directory can.
    fn check_may_fold(&mut self, ino: Nid) -> Result<()> {
        if self.sb.casefold.is_none() {
            return Err(Errno::OPNOTSUPP.into());
        }
        if self.is_empty_dir(ino)? { Ok(()) } else { Err(Errno::NOTEMPTY.into()) }
    }

    /// Fails if `ino` may not be written. Whether every write to it must be durable before it
    /// returns.
    pub(crate) fn check_may_write(&mut self, ino: Nid) -> Result<bool> {
        let flags = self.protection(ino)?;
        flags.check_may_write()?;
        Ok(flags.contains(InodeFlags::SYNC))
    }

    /// Fails if the attributes of `ino` may not change in this way.
    pub(crate) fn check_may_set(&mut self, ino: Nid, change: &SetAttr) -> Result<()> {
        allowed(self.protection(ino)?.check_may_set(change))
    }

    /// Fails if `fallocate` may not do this to `ino`.
    pub(crate) fn check_may_fallocate(&mut self, ino: Nid, mode: FallocateMode) -> Result<()> {
        allowed(self.protection(ino)?.check_may_fallocate(mode))
    }

    /// Whether the blocks of `ino` must stay where they are.
    pub(crate) fn is_pinned(&mut self, ino: Nid) -> Result<bool> {
        Ok(self.raw_inode(ino)?.inline().contains(Inline::PIN_FILE))
    }

    /// `F2FS_IOC_SET_PIN_FILE`: once the file's blocks have a place, they are written there and
    /// never moved. Not possible where everything is a log. A file that was in the cleaner's way
    /// too often must be unpinned by its user before it can be pinned again.
    pub(crate) fn set_pinned(&mut self, ino: Nid, pin: bool) -> Result<()> {
        if self.kind_of(ino)? != FileKind::Regular {
            return Err(Errno::INVAL.into());
        }
        if pin && self.is_pinned(ino)? {
            return Ok(());
        }
        self.check_not_atomic(ino)?;
        if pin && self.options.mode == AllocationMode::Lfs {
            return Err(Errno::INVAL.into());
        }
        if pin && self.is_too_often_in_the_way(ino)? {
            return Err(Errno::AGAIN.into());
        }
        if pin && self.has_inline_data(ino)? {
            self.convert_inline_data(ino)?;
        }
        self.mark_pinned(ino, pin)?;
        if !pin && self.gc_failures(ino)? > 0 {
            self.inode_mut(ino)?.current_depth.set(0);
        }
        Ok(())
    }

    fn mark_pinned(&mut self, ino: Nid, pin: bool) -> Result<()> {
        if self.is_pinned(ino)? != pin {
            let inode = self.inode_mut(ino)?;
            let mut inline = inode.inline();
            inline.set(Inline::PIN_FILE, pin);
            inode.set_inline(inline);
            self.pinned_sections.clear();
        }
        Ok(())
    }

    /// `i_gc_failures`: in a regular file, the low half of this field.
    fn gc_failures(&mut self, ino: Nid) -> Result<u32> {
        Ok(self.raw_inode(ino)?.current_depth.get() & MAX_PIN_FAILURES)
    }

    fn is_too_often_in_the_way(&mut self, ino: Nid) -> Result<bool> {
        Ok(u64::from(self.gc_failures(ino)?) >= self.knobs.gc_pin_file_thresh)
    }

    /// How often cleaning could not move a block of the file, `F2FS_IOC_GET_PIN_FILE`.
    pub(crate) fn pin_failures(&mut self, ino: Nid) -> Result<u32> {
        if self.is_pinned(ino)? { self.gc_failures(ino) } else { Ok(0) }
    }

    /// Notes that foreground cleaning left a block of a pinned file where it is. After too many
    /// such failures the file is unpinned (`f2fs_pin_file_control`).
    pub(crate) fn count_pin_failure(&mut self, ino: Nid) -> Result<()> {
        if self.is_too_often_in_the_way(ino)? {
            return self.mark_pinned(ino, false);
        }
        let failures = self.gc_failures(ino)?;
        self.inode_mut(ino)?.current_depth.set((failures + 1).min(MAX_PIN_FAILURES));
        Ok(())
    }
}
