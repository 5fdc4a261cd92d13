//! A mounted volume, to copy from and to.

use vfs::{Attr, Creator, Errno, FileKind, FileSystem, Ino, Result, Seek, SetAttr, Timespec};

use super::{New, Sink, Source, Xattrs, join};
use crate::target::ImageVolume;

/// A file of a volume and the path that led to it.
pub(crate) struct Found {
    pub(crate) ino: Ino,
    pub(crate) path: Vec<u8>,
}

/// `ENXIO` says that there is no more data, or hole.
fn seek_in(fs: &dyn FileSystem, ino: Ino, offset: u64, seek: Seek) -> Result<Option<u64>> {
    match fs.lseek(ino, offset, seek) {
        Err(error) if error.errno() == Errno::NXIO => Ok(None),
        found => found.map(Some),
    }
}

impl Source for ImageVolume {
    type Node = Found;
    type File = Ino;

    fn show(&self, node: &Found) -> String {
        self.name_of(&node.path)
    }

    fn attr(&self, node: &Found) -> Result<Attr> {
        self.fs.getattr(node.ino)
    }

    fn identity(&self, _node: &Found, attr: &Attr) -> (u64, u64) {
        (0, attr.ino)
    }

    fn follow(&self, node: &Found) -> Result<Found> {
        let attr = vfs::path::resolve(&*self.fs, &node.path, true)?;
        Ok(Found { ino: attr.ino, path: node.path.clone() })
    }

    fn children(&self, node: &Found) -> Result<Vec<(Vec<u8>, Found)>> {
        let mut entries = vfs::path::read_dir(&*self.fs, node.ino)?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let child = |entry: vfs::DirEntry| {
            // A volume is foreign data: a name must not lead out of the destination.
            vfs::check_name(&entry.name).map_err(|_| Errno::UCLEAN)?;
            let path = join(&node.path, &entry.name);
            Ok((entry.name, Found { ino: entry.ino, path }))
        };
        entries.into_iter().map(child).collect()
    }

    fn target(&self, node: &Found) -> Result<Vec<u8>> {
        self.fs.readlink(node.ino)
    }

    fn xattrs(&self, node: &Found) -> Result<Xattrs> {
        let names = self.fs.listxattr(node.ino)?.into_iter();
        names.map(|name| self.fs.getxattr(node.ino, &name).map(|value| (name, value))).collect()
    }

    fn open(&self, node: &Found) -> Result<Ino> {
        Ok(node.ino)
    }

    fn read(&self, file: &Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.fs.read(*file, offset, buf)
    }

    fn seek(&self, file: &Ino, offset: u64, seek: Seek) -> Result<Option<u64>> {
        seek_in(&*self.fs, *file, offset, seek)
    }
}

impl Sink for ImageVolume {
    type Node = Ino;
    type File = Ino;

    fn show(&self, path: &[u8]) -> String {
        self.name_of(path)
    }

    fn look(&self, dir: &Ino, name: &[u8]) -> Result<Option<(Ino, FileKind)>> {
        match self.fs.lookup(*dir, name) {
            Ok(attr) => Ok(Some((attr.ino, attr.kind))),
            Err(error) if error.errno() == Errno::NOENT => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn make(&self, dir: &Ino, name: &[u8], new: &New<'_>) -> Result<Ino> {
        use rustix::process::{getegid, geteuid};
        let who = Creator { uid: geteuid().as_raw(), gid: getegid().as_raw() };
        let fs = &self.fs;
        let attr = match new {
            New::Directory => fs.mkdir(*dir, name, 0o700, who),
            New::File => fs.create(*dir, name, 0o600, who),
            New::Symlink(target) => fs.symlink(*dir, name, target, who),
            New::Special(kind, rdev) => fs.mknod(*dir, name, *kind, 0o600, *rdev, who),
        }?;
        Ok(attr.ino)
    }

    fn link(&self, node: &Ino, dir: &Ino, name: &[u8]) -> Result<()> {
        self.fs.link(*node, *dir, name).map(drop)
    }

    fn remove(&self, dir: &Ino, name: &[u8]) -> Result<()> {
        self.fs.unlink(*dir, name)
    }

    fn open(&self, node: &Ino) -> Result<Ino> {
        Ok(*node)
    }

    fn write(&self, file: &Ino, offset: u64, data: &[u8]) -> Result<()> {
        vfs::path::write_all(&*self.fs, *file, offset, data)
    }

    fn set_size(&self, file: &Ino, size: u64) -> Result<()> {
        self.set(*file, &SetAttr { size: Some(size), ..SetAttr::default() })
    }

    fn set_owner(&self, node: &Ino, uid: u32, gid: u32) -> Result<bool> {
        let owner = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
        self.set(*node, &owner).map(|()| true)
    }

    fn set_mode(&self, node: &Ino, perm: u16) -> Result<()> {
        self.set(*node, &SetAttr { perm: Some(perm), ..SetAttr::default() })
    }

    fn set_times(&self, node: &Ino, atime: Timespec, mtime: Timespec) -> Result<()> {
        let times = SetAttr { atime: Some(atime), mtime: Some(mtime), ..SetAttr::default() };
        self.set(*node, &times)
    }

    fn set_xattr(&self, node: &Ino, name: &[u8], value: &[u8]) -> Result<()> {
        self.fs.setxattr(*node, name, value, vfs::XattrMode::Set)
    }

    fn fsync(&self, node: &Ino) -> Result<()> {
        self.fs.fsync(*node, false)
    }

    fn is_gone(&self) -> bool {
        self.has_fallen()
    }
}

impl ImageVolume {
    fn set(&self, ino: Ino, set: &SetAttr) -> Result<()> {
        self.fs.setattr(ino, set).map(drop)
    }
}
