//! The `FileSystem` trait: POSIX by inode number, the shape FUSE needs.
//!
//! Every file system here implements it and everything above speaks only to it. Names are bytes.
//! Permission checks, `O_APPEND` and descriptors belong to the caller; a file system keeps an
//! unlinked inode alive as long as [`FileSystem::open`] has been called more often than
//! [`FileSystem::release`].

use crate::path::PATH_MAX;
use crate::{
    Attr, Creator, DirEntry, Errno, FallocateMode, FileKind, Ino, NewInode, RenameFlags, Result,
    Seek, SetAttr, StatFs, XattrMode,
};

/// A mounted file system. All methods may be called from any thread.
///
/// Errors are those of the Linux system call of the same name; a broken structure is `EUCLEAN`,
/// a wrong checksum `EBADMSG`, a failed transfer `EIO`, a full volume `ENOSPC`, a read-only one
/// `EROFS`.
///
/// ```
/// use vfs::{Creator, FileSystem, MemFs, SetAttr, path};
/// # fn main() -> vfs::Result<()> {
/// let fs = MemFs::new();
/// let dir = path::create_dir_all(&fs, b"var/log", 0o755, Creator::default())?.ino;
/// let file = fs.create(dir, b"today", 0o640, Creator::default())?.ino;
/// path::write_all(&fs, file, 0, b"a line\n")?;
/// fs.setattr(file, &SetAttr { size: Some(6), ..SetAttr::default() })?;
/// fs.fsync(file, false)?;
/// assert_eq!(path::read_to_vec(&fs, file)?, b"a line");
/// # Ok(())
/// # }
/// ```
pub trait FileSystem: Send + Sync {
    /// Inode of the root directory.
    fn root(&self) -> Ino;

    /// The inode that `name` stands for in `parent`.
    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr>;

    /// Attributes of `ino`.
    fn getattr(&self, ino: Ino) -> Result<Attr>;

    /// Changes attributes; a new size truncates or extends with a hole.
    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr>;

    /// Makes an inode of any kind under a name. Callers use the methods below, which check what is
    /// asked for.
    fn make(&self, parent: Ino, name: &[u8], new: &NewInode<'_>) -> Result<Attr>;

    /// Makes a node of any kind except directory and symlink. `perm` is after the umask.
    fn mknod(
        &self,
        parent: Ino,
        name: &[u8],
        kind: FileKind,
        perm: u16,
        rdev: u64,
        creator: Creator,
    ) -> Result<Attr> {
        let rdev = match kind {
            FileKind::Directory => return Err(Errno::PERM.into()),
            FileKind::Symlink => return Err(Errno::INVAL.into()),
            FileKind::CharDevice | FileKind::BlockDevice => rdev,
            FileKind::Regular | FileKind::Fifo | FileKind::Socket => 0,
        };
        self.make(parent, name, &NewInode { rdev, ..NewInode::plain(kind, perm, creator) })
    }

    /// Makes a regular file.
    fn create(&self, parent: Ino, name: &[u8], perm: u16, creator: Creator) -> Result<Attr> {
        self.mknod(parent, name, FileKind::Regular, perm, 0, creator)
    }

    /// Makes a directory.
    fn mkdir(&self, parent: Ino, name: &[u8], perm: u16, creator: Creator) -> Result<Attr> {
        self.make(parent, name, &NewInode::plain(FileKind::Directory, perm, creator))
    }

    /// Makes a symbolic link holding `target`.
    fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], creator: Creator) -> Result<Attr> {
        match target.len() {
            0 => return Err(Errno::NOENT.into()),
            PATH_MAX.. => return Err(Errno::NAMETOOLONG.into()),
            _ => {}
        }
        let new = NewInode { target, ..NewInode::plain(FileKind::Symlink, 0o777, creator) };
        self.make(parent, name, &new)
    }

    /// Target of a symbolic link.
    fn readlink(&self, ino: Ino) -> Result<Vec<u8>>;

    /// Gives `ino` another name.
    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr>;

    /// Removes a name, unless it is a directory's.
    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()>;

    /// Removes an empty directory.
    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()>;

    /// Moves a name. What is there already is replaced, unless `flags` forbid it.
    fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()>;

    /// Counts one more user of `ino`.
    fn open(&self, ino: Ino) -> Result<()>;

    /// Ends what [`FileSystem::open`] began; the last release frees an unlinked inode.
    fn release(&self, ino: Ino);

    /// Reads into `buf` from `offset`; short only at the end of the file.
    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Writes all of `data` at `offset`, extending the file as needed. Short only if it failed
    /// partway, for example because the volume filled up.
    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize>;

    /// As [`FileSystem::read`], of a file opened with `O_DIRECT`: what the drive has is read from
    /// there. Where that takes whole sectors, others fail with `EINVAL`. A file system that keeps
    /// everything in memory reads from there.
    fn read_direct(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.read(ino, offset, buf)
    }

    /// As [`FileSystem::write`], of a file opened with `O_DIRECT`: when this returns, the drive has
    /// the whole blocks among the data, which are not durable before an fsync. Whole sectors only,
    /// as in [`FileSystem::read_direct`].
    fn write_direct(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        self.write(ino, offset, data)
    }

    /// Makes the file durable; `datasync` leaves out what reading the data back does not need.
    fn fsync(&self, ino: Ino, datasync: bool) -> Result<()>;

    /// Allocates, punches or moves ranges.
    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> Result<()>;

    /// `SEEK_DATA` and `SEEK_HOLE`; `ENXIO` past the end.
    fn lseek(&self, ino: Ino, offset: u64, seek: Seek) -> Result<u64>;

    /// Passes the entries behind cookie `from` (0 = start; `.` and `..` included) to `emit`, until
    /// it returns false.
    fn readdir(&self, ino: Ino, from: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()>;

    /// Value of an extended attribute; `name` with its namespace prefix.
    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>>;

    /// Sets an extended attribute.
    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()>;

    /// Names of all extended attributes.
    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>>;

    /// Removes an extended attribute; `ENODATA` if it is not there.
    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()>;

    /// Space and inode counts.
    fn statfs(&self) -> Result<StatFs>;

    /// Makes everything durable, `syncfs(2)`.
    fn sync(&self) -> Result<()>;

    /// Syncs and leaves the medium marked clean. Afterwards every call fails with `EIO`.
    fn unmount(&self) -> Result<()>;

    /// Copies a range between files of this file system; returns how much was copied.
    fn copy_file_range(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        for ino in [from, to] {
            match self.getattr(ino)?.kind {
                FileKind::Regular => {}
                FileKind::Directory => return Err(Errno::ISDIR.into()),
                _ => return Err(Errno::INVAL.into()),
            }
        }
        if from_offset.checked_add(len).is_none() || to_offset.checked_add(len).is_none() {
            return Err(Errno::OVERFLOW.into());
        }
        // Linux cuts the range at the end of the file before it looks for an overlap.
        let len = len.min(self.getattr(from)?.size.saturating_sub(from_offset));
        if from == to && from_offset < to_offset + len && to_offset < from_offset + len {
            return Err(Errno::INVAL.into());
        }
        let mut buf = vec![0; 128 * 1024];
        let mut done = 0;
        while done < len {
            let want = buf.len().min(usize::try_from(len - done).unwrap_or(usize::MAX));
            let got = self.read(from, from_offset + done, &mut buf[..want])?;
            if got == 0 {
                break;
            }
            let written = self.write(to, to_offset + done, &buf[..got])?;
            done += written as u64;
            if written < got {
                break;
            }
        }
        Ok(done)
    }
}
