//! The null file system behind our crate `fuse`.

use std::path::Path;
use std::sync::Arc;

use vfs::{
    Attr, Creator, DirEntry, Errno, FallocateMode, FileKind, FileSystem, Ino, RenameFlags, Result,
    Seek, SetAttr, StatFs, Timespec, XattrMode,
};

use crate::null::{self, FILE_SIZE, ROOT, THREADS};

struct Null;

fn attr(ino: Ino) -> Attr {
    let is_root = ino == ROOT;
    Attr {
        ino,
        kind: if is_root { FileKind::Directory } else { FileKind::Regular },
        perm: 0o777,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: if is_root { 0 } else { FILE_SIZE },
        blocks: 0,
        atime: Timespec::default(),
        mtime: Timespec::default(),
        ctime: Timespec::default(),
        crtime: Timespec::default(),
        generation: 0,
    }
}

fn nothing<T>() -> Result<T> {
    Err(Errno::NOSYS.into())
}

impl FileSystem for Null {
    fn root(&self) -> Ino {
        ROOT
    }
    fn lookup(&self, _: Ino, name: &[u8]) -> Result<Attr> {
        Ok(attr(null::inode_of(name).ok_or(Errno::NOENT)?))
    }
    fn getattr(&self, ino: Ino) -> Result<Attr> {
        Ok(attr(ino))
    }
    fn write(&self, _: Ino, _: u64, data: &[u8]) -> Result<usize> {
        null::keep(data.len(), |pages| pages.copy_from_slice(data));
        Ok(data.len())
    }
    fn fsync(&self, _: Ino, _: bool) -> Result<()> {
        Ok(())
    }
    fn open(&self, _: Ino) -> Result<()> {
        Ok(())
    }
    fn release(&self, _: Ino) {}
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    fn unmount(&self) -> Result<()> {
        Ok(())
    }
    fn setattr(&self, ino: Ino, _: &SetAttr) -> Result<Attr> {
        Ok(attr(ino))
    }
    fn mknod(&self, _: Ino, _: &[u8], _: FileKind, _: u16, _: u64, _: Creator) -> Result<Attr> {
        nothing()
    }
    fn mkdir(&self, _: Ino, _: &[u8], _: u16, _: Creator) -> Result<Attr> {
        nothing()
    }
    fn symlink(&self, _: Ino, _: &[u8], _: &[u8], _: Creator) -> Result<Attr> {
        nothing()
    }
    fn readlink(&self, _: Ino) -> Result<Vec<u8>> {
        nothing()
    }
    fn link(&self, _: Ino, _: Ino, _: &[u8]) -> Result<Attr> {
        nothing()
    }
    fn unlink(&self, _: Ino, _: &[u8]) -> Result<()> {
        nothing()
    }
    fn rmdir(&self, _: Ino, _: &[u8]) -> Result<()> {
        nothing()
    }
    fn rename(&self, _: Ino, _: &[u8], _: Ino, _: &[u8], _: RenameFlags) -> Result<()> {
        nothing()
    }
    fn read(&self, _: Ino, _: u64, _: &mut [u8]) -> Result<usize> {
        nothing()
    }
    fn fallocate(&self, _: Ino, _: FallocateMode, _: u64, _: u64) -> Result<()> {
        nothing()
    }
    fn lseek(&self, _: Ino, _: u64, _: Seek) -> Result<u64> {
        nothing()
    }
    fn readdir(&self, _: Ino, _: u64, _: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        nothing()
    }
    // A write takes capabilities away, if there are any.
    fn getxattr(&self, _: Ino, _: &[u8]) -> Result<Vec<u8>> {
        Err(Errno::NODATA.into())
    }
    fn setxattr(&self, _: Ino, _: &[u8], _: &[u8], _: XattrMode) -> Result<()> {
        nothing()
    }
    fn listxattr(&self, _: Ino) -> Result<Vec<Vec<u8>>> {
        nothing()
    }
    fn removexattr(&self, _: Ino, _: &[u8]) -> Result<()> {
        nothing()
    }
    fn statfs(&self) -> Result<StatFs> {
        nothing()
    }
}

/// Mounts on `point` and serves until it is unmounted.
pub(crate) fn serve(point: &Path, options: &str) {
    let options = format!("noacl,threads={THREADS},{options}");
    let (options, _) = fuse::MountOptions::parse(&options).expect("options of ours");
    let session = fuse::Session::start(Arc::new(Null), None, Path::new("null"), point, &options);
    session.expect("a mount").wait().expect("a connection");
}
