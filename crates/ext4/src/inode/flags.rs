//! Inode flags as chattr(1) shows and sets them (`ext4_fileattr_get`, `ext4_fileattr_set`). What
//! they forbid is in [`vfs`].

use vfs::inode::Turn;
use vfs::{Errno, FileKind, InodeFlags};

use crate::error::{Error, Result};
use crate::inode::cached::Inode;
use crate::mount::engine::Engine;
use crate::ondisk::Ino;
use crate::ondisk::inode::Flags;

/// Flags that only chattr(1) and lsattr(1) know.
const MARKS: Flags = Flags::SECRM.union(Flags::UNRM).union(Flags::COMPR).union(Flags::NOTAIL);

/// `EXT4_FL_USER_MODIFIABLE`, as far as there is a use for it.
const MODIFIABLE: Flags = MARKS
    .union(Flags::SYNC)
    .union(Flags::IMMUTABLE)
    .union(Flags::APPEND)
    .union(Flags::NODUMP)
    .union(Flags::NOATIME)
    .union(Flags::JOURNAL_DATA)
    .union(Flags::DIRSYNC)
    .union(Flags::TOPDIR)
    .union(Flags::PROJINHERIT)
    .union(Flags::CASEFOLD);

/// Modifiable flags that cannot be changed here. To change that of extents, the kernel converts the
/// map of the blocks (`ext4_ext_migrate`, `ext4_ind_migrate`), where it can.
const FIXED: Flags = Flags::CASEFOLD.union(Flags::EXTENTS);

/// `EXT4_FL_USER_VISIBLE`.
const VISIBLE: Flags = MODIFIABLE
    .union(Flags::EXTENTS)
    .union(Flags::ENCRYPT)
    .union(Flags::INDEX)
    .union(Flags::VERITY)
    .union(Flags::INLINE_DATA);

/// `EXT4_FL_INHERITED`.
const INHERITED: Flags = MARKS
    .union(Flags::SYNC)
    .union(Flags::NODUMP)
    .union(Flags::NOATIME)
    .union(Flags::JOURNAL_DATA)
    .union(Flags::DIRSYNC)
    .union(Flags::PROJINHERIT)
    .union(Flags::CASEFOLD);

/// Those of `flags` that an inode of this kind can have (`ext4_mask_flags`).
fn masked(kind: FileKind, flags: Flags) -> Flags {
    let of_directories = Flags::DIRSYNC | Flags::TOPDIR | Flags::CASEFOLD | Flags::PROJINHERIT;
    match kind {
        FileKind::Directory => flags,
        FileKind::Regular => flags - of_directories,
        _ => flags & (Flags::NODUMP | Flags::NOATIME),
    }
}

/// Flags that a new inode of `kind` takes from its directory's `flags`.
pub(crate) fn inherited(kind: FileKind, flags: Flags) -> Flags {
    masked(kind, flags & INHERITED)
}

/// Those of an inode's flags that all file systems have.
pub(crate) fn common(flags: Flags) -> InodeFlags {
    InodeFlags::from_bits_truncate(flags.bits())
}

impl Flags {
    /// What `FS_IOC_GETFLAGS` shows.
    pub(crate) fn shown(self) -> u32 {
        (self & VISIBLE).bits()
    }
}

impl Inode {
    /// The flags that forbid something, or make calls wait.
    pub(crate) fn protection(&self) -> InodeFlags {
        common(self.raw.flags())
    }
}

impl Engine {
    /// `FS_IOC_GETFLAGS`.
    pub(crate) fn flags(&self, ino: Ino) -> Result<u32> {
        self.look(ino.into(), |shard| Ok(shard.inode(ino)?.inode.raw.flags().shown()))
    }

    /// The project that an inode is accounted to.
    pub(crate) fn project(&self, ino: Ino) -> Result<u32> {
        self.look(ino.into(), |shard| Ok(shard.inode(ino)?.inode.raw.projid.get()))
    }

    /// `FS_IOC_SETFLAGS`. Flags that are only shown are accepted and stay as they are, since
    /// chattr(1) sets what it has read.
    pub(crate) fn set_flags(&self, ino: Ino, bits: u32) -> Result<()> {
        let wanted = Flags::from_bits_retain(bits);
        if !VISIBLE.contains(wanted) {
            return Err(Errno::OPNOTSUPP.into());
        }
        let (wanted, fixed) = (wanted & MODIFIABLE, wanted & FIXED);
        let _turn = Turn::take(self, ino.into());
        let toggles_logging = self.look(ino.into(), |shard| {
            let inode = &shard.inode(ino)?.inode;
            let toggled = inode.raw.flags() ^ wanted;
            Ok(toggled.contains(Flags::JOURNAL_DATA) && inode.kind() == FileKind::Regular)
        })?;
        if toggles_logging {
            // What the log has must not come back over what is written in place from now on
            // (`ext4_change_inode_journal_flag`).
            self.flush_in_turn(ino)?;
            self.heed(self.journal.bring_home().map_err(Error::from))?;
        }
        self.change(&[ino.into()], 2, |draft| {
            let now = draft.now;
            let inode = draft.inode_mut(ino)?;
            let old = inode.raw.flags();
            if masked(inode.kind(), wanted) != wanted || (old & FIXED) != fixed {
                return Err(Errno::OPNOTSUPP.into());
            }
            // As long as it is immutable (`ext4_ioctl_check_immutable`).
            if (old & wanted).contains(Flags::IMMUTABLE) && (old & MODIFIABLE) != wanted {
                return Err(Errno::PERM.into());
            }
            inode.raw.flags = ((old - MODIFIABLE) | wanted).bits().into();
            inode.raw.set_ctime(now);
            Ok(())
        })
    }
}
