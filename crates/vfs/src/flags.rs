//! What the flags of inodes forbid (`FS_IOC_SETFLAGS`), as Linux's generic layer has it:
//! `may_create`, `may_delete`, `notify_change`, `xattr_permission`, `vfs_fallocate`.
//!
//! The layer that knows users decides who may set a flag. Once it is set, what it forbids holds for
//! all users. A function here answers for the flags of one inode; `EPERM` is its only error.

use crate::{Errno, FallocateMode, InodeFlags, SetAttr};

impl InodeFlags {
    fn forbid(self, flags: Self) -> Result<(), Errno> {
        if self.intersects(flags) { Err(Errno::PERM) } else { Ok(()) }
    }

    /// Fails if the attributes and the size of the inode may not change, and it may not get more
    /// names.
    pub fn check_changeable(self) -> Result<(), Errno> {
        self.forbid(Self::IMMUTABLE | Self::APPEND)
    }

    /// Fails if no name may be added to the directory.
    pub fn check_may_add(self) -> Result<(), Errno> {
        self.forbid(Self::IMMUTABLE)
    }

    /// Fails if no name of an inode with the flags `ino` may be removed from the directory.
    pub fn check_may_remove(self, ino: Self) -> Result<(), Errno> {
        self.check_changeable()?;
        ino.check_changeable()
    }

    /// Fails if the file may not be written. Append-only is enforced at open, as in the kernel's
    /// VFS (`may_open`): writes from a page cache come in whole pages.
    pub fn check_may_write(self) -> Result<(), Errno> {
        self.forbid(Self::IMMUTABLE)
    }

    /// Fails if the attributes may not change in this way. Appending to a file changes its times.
    pub fn check_may_set(self, change: &SetAttr) -> Result<(), Errno> {
        match change {
            SetAttr { perm: None, uid: None, gid: None, size: None, .. } => self.check_may_write(),
            _ => self.check_changeable(),
        }
    }

    /// Fails if `fallocate` may not do this.
    pub fn check_may_fallocate(self, mode: FallocateMode) -> Result<(), Errno> {
        let plain = (mode - FallocateMode::KEEP_SIZE).is_empty();
        self.forbid(if plain { Self::IMMUTABLE } else { Self::IMMUTABLE | Self::APPEND })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_forbid_what_they_say() {
        let (none, append, fixed) = (InodeFlags::NODUMP, InodeFlags::APPEND, InodeFlags::IMMUTABLE);
        let all = |check: fn(InodeFlags) -> Result<(), Errno>| {
            [none, append, fixed].map(|flags| check(flags).is_ok())
        };
        assert_eq!(all(InodeFlags::check_changeable), [true, false, false]);
        assert_eq!(all(InodeFlags::check_may_add), [true, true, false]);
        assert_eq!(all(InodeFlags::check_may_write), [true, true, false]);
        assert_eq!(all(|dir| dir.check_may_remove(InodeFlags::empty())), [true, false, false]);
        assert_eq!(all(|ino| InodeFlags::empty().check_may_remove(ino)), [true, false, false]);
        let size = |flags: InodeFlags| {
            flags.check_may_set(&SetAttr { size: Some(1), ..SetAttr::default() })
        };
        assert_eq!(all(size), [true, false, false]);
        assert_eq!(all(|flags| flags.check_may_set(&SetAttr::default())), [true, true, false]);
        assert_eq!(
            all(|flags| flags.check_may_fallocate(FallocateMode::KEEP_SIZE)),
            [true, true, false]
        );
        let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
        let answers = [append, fixed].map(|flags| flags.check_may_fallocate(punch));
        assert_eq!(answers, [Err(Errno::PERM); 2]);
    }
}
