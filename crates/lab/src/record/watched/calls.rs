//! The calls: each is done in memory and becomes a step.

use vfs::ops::Op;
use vfs::{
    Attr, DirEntry, Errno, FallocateMode, FileKind, FileSystem, Ino, NewInode, RenameFlags, Result,
    Seek, SetAttr, StatFs, XattrMode,
};

use super::{Watched, text};

impl FileSystem for Watched {
    fn root(&self) -> Ino {
        self.fs.root()
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.fs.lookup(parent, name)
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.fs.getattr(ino)
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        let mut noted = self.noted();
        let path = noted.path(ino)?;
        let attr = self.fs.setattr(ino, set)?;
        if set.uid.or(set.gid).is_some() {
            noted.tree.push(Op::Chown { path: path.clone(), uid: attr.uid, gid: attr.gid });
        }
        if let Some(perm) = set.perm {
            noted.tree.push(Op::Chmod { path: path.clone(), perm });
        }
        if let Some(size) = set.size {
            noted.tree.push(Op::Truncate { path, size });
        }
        Ok(attr)
    }

    fn make(&self, parent: Ino, name: &[u8], new: &NewInode<'_>) -> Result<Attr> {
        let NewInode { kind, perm, rdev, target, .. } = *new;
        if matches!(kind, FileKind::CharDevice | FileKind::BlockDevice) {
            return Err(Errno::PERM.into());
        }
        let mut noted = self.noted();
        let (path, target) = (noted.child(parent, name)?, text(target)?);
        let attr = self.fs.make(parent, name, new)?;
        noted.made(attr.ino, &path, kind == FileKind::Directory, |path| match kind {
            FileKind::Regular => Op::Create { path, perm },
            FileKind::Directory => Op::Mkdir { path, perm },
            FileKind::Symlink => Op::Symlink { target, path },
            _ => Op::Mknod { path, kind, perm, rdev },
        });
        Ok(attr)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.fs.readlink(ino)
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        let mut noted = self.noted();
        let (from, path) = (noted.path(ino)?, noted.child(parent, name)?);
        if let Some((dir, stand_in)) = noted.nameless.get(&ino) {
            self.fs.rename(*dir, stand_in, parent, name, RenameFlags::NOREPLACE)?;
            noted.nameless.remove(&ino);
            noted.tree.rename(&from, &path);
            return self.fs.getattr(ino);
        }
        let attr = self.fs.link(ino, parent, name)?;
        noted.tree.link(&from, &path);
        Ok(attr)
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let mut noted = self.noted();
        let path = noted.child(parent, name)?;
        self.fs.unlink(parent, name)?;
        noted.tree.unlink(&path, false);
        Ok(())
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let mut noted = self.noted();
        let path = noted.child(parent, name)?;
        self.fs.rmdir(parent, name)?;
        noted.tree.unlink(&path, true);
        Ok(())
    }

    fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        // A script's renames have no other.
        if !RenameFlags::NOREPLACE.contains(flags) {
            return Err(Errno::INVAL.into());
        }
        let mut noted = self.noted();
        let (from, path) = (noted.child(parent, name)?, noted.child(new_parent, new_name)?);
        self.fs.rename(parent, name, new_parent, new_name, flags)?;
        noted.tree.rename(&from, &path);
        Ok(())
    }

    fn open(&self, ino: Ino) -> Result<()> {
        let mut noted = self.noted();
        self.fs.open(ino)?;
        if let Some(&id) = noted.ids.get(&ino) {
            noted.tree.open(id);
        }
        Ok(())
    }

    fn release(&self, ino: Ino) {
        let mut noted = self.noted();
        if let Some((dir, stand_in)) = noted.nameless.remove(&ino)
            && let Ok(path) = noted.path(ino)
            && self.fs.unlink(dir, &stand_in).is_ok()
        {
            noted.tree.unlink(&path, false);
        }
        self.fs.release(ino);
        if let Some(&id) = noted.ids.get(&ino) {
            noted.tree.close(id);
        }
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.fs.read(ino, offset, buf)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        let len = data.len() as u64;
        self.on(
            ino,
            |fs| fs.write(ino, offset, data),
            |path, noted| Op::Write { path, offset, len, seed: self.keep(noted, data) },
        )
    }

    fn fsync(&self, ino: Ino, datasync: bool) -> Result<()> {
        let path = self.noted().path(ino)?;
        self.check_sync(&path)?;
        self.on(
            ino,
            |fs| fs.fsync(ino, datasync),
            |path, _| if datasync { Op::Fdatasync { path } } else { Op::Fsync { path } },
        )
    }

    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        let moves = FallocateMode::COLLAPSE_RANGE | FallocateMode::INSERT_RANGE;
        if mode.intersects(moves) {
            return Err(Errno::OPNOTSUPP.into());
        }
        self.on(
            ino,
            |fs| fs.fallocate(ino, mode, offset, len),
            |path, _| Op::Fallocate { path, mode, offset, len },
        )
    }

    fn lseek(&self, ino: Ino, offset: u64, seek: Seek) -> Result<u64> {
        self.fs.lseek(ino, offset, seek)
    }

    fn readdir(&self, ino: Ino, from: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        self.fs.readdir(ino, from, emit)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.fs.getxattr(ino, name)
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let (len, known) = (value.len() as u64, text(name)?);
        self.on(
            ino,
            |fs| fs.setxattr(ino, name, value, mode),
            |path, noted| {
                let mode = XattrMode::Set;
                Op::SetXattr { path, name: known, len, seed: self.keep(noted, value), mode }
            },
        )
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.fs.listxattr(ino)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let known = text(name)?;
        self.on(
            ino,
            |fs| fs.removexattr(ino, name),
            |path, _| Op::RemoveXattr { path, name: known },
        )
    }

    fn statfs(&self) -> Result<StatFs> {
        self.fs.statfs()
    }

    fn sync(&self) -> Result<()> {
        self.check_sync("/")?;
        let mut noted = self.noted();
        self.fs.sync()?;
        noted.tree.push(Op::Sync);
        Ok(())
    }

    fn unmount(&self) -> Result<()> {
        self.fs.unmount()
    }
}
