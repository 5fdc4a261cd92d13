//! POSIX by inode number.

use std::sync::atomic::Ordering;

use vfs::{
    Attr, DirEntry, Errno, FallocateMode, FileKind, FileSystem, Ino, NewInode, RenameFlags, Result,
    Seek, SetAttr, StatFs, XattrMode,
};

use super::{Pmfs, ROOT, mark};
use crate::commit::Change;
use crate::inode::node::Inode;
use crate::ondisk::BLOCK;
use crate::ondisk::superblock::CLEAN;

/// How many entries `readdir` takes out at a time while the directory is locked.
const READDIR_BATCH: usize = 128;

impl Pmfs {
    /// Up to a batch of entries behind cookie `from`.
    fn list(&self, ino: Ino, from: u64) -> Result<Vec<DirEntry>> {
        let _gate = self.enter()?;
        let node = self.node(ino)?;
        let dir = node.lock.read();
        dir.check_dir()?;
        let dots = [(1, b".".as_slice(), ino), (2, b"..", dir.raw.parent.get())];
        let dots = dots.into_iter().filter(|dot| dot.0 > from).map(|(next, name, ino)| DirEntry {
            name: name.to_vec(),
            ino,
            kind: FileKind::Directory,
            next,
        });
        let names = dir.index.list(from).map(|(next, ino, kind, name)| DirEntry {
            name: name.to_vec(),
            ino,
            kind,
            next,
        });
        Ok(dots.chain(names).take(READDIR_BATCH).collect())
    }

    fn set_attributes(&self, inode: &mut Inode, set: &SetAttr) -> Result<()> {
        inode.kind()?;
        if set.size.is_some() {
            inode.check_file()?;
        }
        let mut raw = inode.raw;
        match set.size {
            Some(_) => raw.touch_data(),
            None => raw.touch_ctime(),
        }
        let mut xattrs = None;
        if let Some(perm) = set.perm {
            raw.set_perm(perm);
            xattrs = self.chmod_acl(inode, perm)?;
        }
        raw.uid = set.uid.map_or(raw.uid, Into::into);
        raw.gid = set.gid.map_or(raw.gid, Into::into);
        if let Some(time) = set.atime {
            raw.set_atime(time);
        }
        if let Some(time) = set.mtime {
            raw.set_mtime(time);
        }
        if let Some(time) = set.ctime {
            raw.set_ctime(time);
        }
        let mut change = Change::new(&*self.pm);
        let staged =
            xattrs.map(|all| self.stage_xattrs(&mut change, &mut raw, &all)).transpose()?;
        let _done = match set.size {
            Some(size) => self.truncate(inode, change, raw, size)?,
            None => self.commit_raw(inode, change, raw)?,
        };
        if let Some(staged) = staged {
            self.swap_xattrs(inode, staged);
        }
        Ok(())
    }
}

impl FileSystem for Pmfs {
    fn root(&self) -> Ino {
        ROOT
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let _gate = self.enter()?;
        loop {
            let (ino, _) = self.look(parent, name)?;
            // The name may have gone meanwhile; then there may be another.
            let Some(nodes) = self.nodes(&[parent, ino])? else { continue };
            let Some(node) = nodes.last() else { continue };
            match node.lock.read().attr(ino) {
                Err(Errno::NOENT) => {}
                attr => return Ok(attr?),
            }
        }
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        let _gate = self.enter()?;
        Ok(self.node(ino)?.lock.read().attr(ino)?)
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        let _gate = self.change()?;
        let node = self.node(ino)?;
        let mut inode = node.lock.write();
        self.set_attributes(&mut inode, set)?;
        Ok(inode.attr(ino)?)
    }

    fn make(&self, parent: Ino, name: &[u8], new: &NewInode<'_>) -> Result<Attr> {
        let _gate = self.change()?;
        self.make_named(parent, name, new)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let _gate = self.enter()?;
        let node = self.node(ino)?;
        let inode = node.lock.read();
        if inode.kind()? != FileKind::Symlink {
            return Err(Errno::INVAL.into());
        }
        let size = inode.raw.size.get();
        if size > BLOCK {
            return Err(Errno::UCLEAN.into());
        }
        let mut target = vec![0; size as usize];
        self.read_inode(&inode, 0, &mut target);
        Ok(target)
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        let _gate = self.change()?;
        self.link_inode(ino, parent, name)
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let _gate = self.change()?;
        self.remove(parent, name, false)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        match name {
            b"." => return Err(Errno::INVAL.into()),
            b".." => return Err(Errno::NOTEMPTY.into()),
            _ => {}
        }
        let _gate = self.change()?;
        self.remove(parent, name, true)
    }

    fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        self.rename_name((parent, name), (new_parent, new_name), flags)
    }

    fn open(&self, ino: Ino) -> Result<()> {
        let _gate = self.enter()?;
        let node = self.node(ino)?;
        // Locked, so that it is not being freed.
        let inode = node.lock.read();
        inode.kind()?;
        self.inodes.open(ino);
        Ok(())
    }

    fn release(&self, ino: Ino) {
        let Ok(_gate) = self.enter() else { return };
        if !self.inodes.close(ino) {
            return;
        }
        let Ok(node) = self.node(ino) else { return };
        let mut inode = node.lock.write();
        let unused = inode.raw.links.get() == 0 && !inode.is_free() && !self.inodes.is_open(ino);
        if unused && !self.options.read_only {
            let mut raw = inode.raw;
            raw.mode = 0.into();
            if self.commit_raw(&mut inode, Change::new(&*self.pm), raw).is_ok() {
                self.free_inode(&mut inode, ino);
            }
        }
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let _gate = self.enter()?;
        self.read_file(ino, offset, buf)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        let _gate = self.change()?;
        self.write_file(ino, offset, data)
    }

    /// Everything is durable already, as far as the medium can tell.
    fn fsync(&self, ino: Ino, _datasync: bool) -> Result<()> {
        let _gate = self.enter()?;
        match self.node(ino)?.lock.read().kind()? {
            FileKind::Regular | FileKind::Directory => {}
            _ => return Err(Errno::INVAL.into()),
        }
        self.pm.sync().map_err(|_| Errno::IO.into())
    }

    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        let _gate = self.change()?;
        self.allocate_file(ino, mode, offset, len)
    }

    fn lseek(&self, ino: Ino, offset: u64, seek: Seek) -> Result<u64> {
        let _gate = self.enter()?;
        self.seek_file(ino, offset, seek)
    }

    fn readdir(&self, ino: Ino, from: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        let mut from = from;
        loop {
            // `emit` is called without a lock, so that it may call back.
            let batch = self.list(ino, from)?;
            let Some(last) = batch.last() else { return Ok(()) };
            from = last.next;
            for entry in batch {
                if !emit(entry) {
                    return Ok(());
                }
            }
        }
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let _gate = self.enter()?;
        self.xattr(ino, name)
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let _gate = self.change()?;
        self.set_xattr(ino, name, value, mode)
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let _gate = self.enter()?;
        self.xattr_names(ino)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let _gate = self.change()?;
        self.remove_xattr(ino, name)
    }

    fn statfs(&self) -> Result<StatFs> {
        let _gate = self.enter()?;
        let free = self.space.free();
        Ok(StatFs {
            block_size: BLOCK as u32,
            blocks: self.space.total(),
            blocks_free: free,
            blocks_available: free.saturating_sub(self.space.reserve()),
            files: self.numbers.total(),
            files_free: self.numbers.free(),
            name_max: vfs::path::NAME_MAX as u32,
        })
    }

    fn sync(&self) -> Result<()> {
        let _gate = self.enter()?;
        self.pm.sync().map_err(|_| Errno::IO.into())
    }

    fn unmount(&self) -> Result<()> {
        let mut gate = self.gate.write();
        if !std::mem::replace(&mut *gate, false) {
            return Err(Errno::IO.into());
        }
        if !self.options.read_only && !self.damaged.load(Ordering::Relaxed) {
            mark(&*self.pm, CLEAN);
            self.pm.sync().map_err(|_| Errno::IO)?;
        }
        Ok(())
    }
}
