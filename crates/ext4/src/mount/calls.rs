//! What a mounted ext4 answers to POSIX.

use vfs::{
    Attr, DirEntry, Errno, FallocateMode, FileKind, FileSystem, Ino, InodeFlags, NewInode,
    RenameFlags, Seek, SetAttr, StatFs, XattrMode,
};

use crate::dir::entries;
use crate::dir::list::{Listed, emit_all, list};
use crate::error::Result;
use crate::inode::cached::Cached;
use crate::inode::symlink::target;
use crate::mount::draft::ino as narrow;
use crate::mount::engine::Engine;
use crate::mount::fs::Ext4;
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{NAME_MAX, ROOT_INO};

/// Longest target of a symbolic link: it fits a block with its NUL.
fn symlink_max(sb: &Superblock) -> usize {
    sb.block_size as usize - 1
}

impl Ext4 {
    fn find(&self, parent: u32, name: &[u8]) -> Result<u32> {
        let (found, seen) = self.engine.look(parent.into(), |shard| {
            let inode = &shard.inode(parent)?.inode;
            match inode.kind() {
                FileKind::Directory if inode.links() == 0 => return Err(Errno::NOENT.into()),
                FileKind::Directory if name.len() > NAME_MAX => {
                    return Err(Errno::NAMETOOLONG.into());
                }
                FileKind::Directory => {}
                _ => return Err(Errno::NOTDIR.into()),
            }
            if let Some(known) = shard.names.get(parent, name) {
                return Ok((known, None));
            }
            let found = entries::find(&*self.engine, inode, name)?;
            let found = found.ok_or(Errno::NOENT)?.ino;
            Ok((found, Some((shard.names.changes(), shard.names.has_room()))))
        })?;
        // Exclusive access holds others up, so where there is no room few names try to get in.
        if let Some((changes, has_room)) = seen
            && !matches!(name, b"." | b"..")
            && (has_room || cores::now().is_multiple_of(64))
        {
            self.engine.inodes.own(parent.into()).names.insert(parent, name, found, changes);
        }
        Ok(found)
    }

    /// Writes back what is about to replace another file (`auto_da_alloc`).
    fn write_ahead(&self, from: (u32, &[u8]), to: (u32, &[u8])) {
        if self.engine.auto_da_alloc
            && let Ok(moved) = self.find(from.0, from.1)
            && self.find(to.0, to.1).is_ok()
        {
            self.engine.write_ahead(moved);
        }
    }

    /// Makes a change of a directory's names durable, if its flags say so (`IS_DIRSYNC`).
    fn names_changed(&self, dir: Ino) -> vfs::Result<()> {
        self.commit_if(dir, InodeFlags::SYNC | InodeFlags::DIRSYNC)
    }

    /// Makes a change of an inode durable, if its flags say so (`IS_SYNC`).
    pub(super) fn inode_changed(&self, ino: Ino) -> vfs::Result<()> {
        self.commit_if(ino, InodeFlags::SYNC)
    }

    /// Makes the last change of an inode with any of these flags durable.
    fn commit_if(&self, ino: Ino, flags: InodeFlags) -> vfs::Result<()> {
        let number = narrow(ino)?;
        let changed = {
            let shard = self.engine.inodes.look(ino);
            let cached = shard.inodes.get(&number);
            let asks = |cached: &&Cached| cached.inode.protection().intersects(flags);
            cached.filter(asks).map(|cached| cached.id)
        };
        match changed {
            Some(id) => Ok(self.engine.commit_inode(number, id)?),
            None => Ok(()),
        }
    }

    /// Frees an inode that lost its last name, unless it is open. If that fails, the inode stays an
    /// orphan, which the next mount frees: its name is gone all the same (`ext4_evict_inode`).
    fn clear_up(&self, ino: u32) {
        let is_left = {
            let shard = self.engine.inodes.look(ino.into());
            shard.inodes.get(&ino).is_some_and(|cached| cached.inode.links() == 0)
        };
        if is_left && !self.engine.opens.is_open(ino.into()) {
            let _ = self.engine.evict(ino);
        }
    }

    fn entries(&self, dir: u32, from: u64) -> Result<Listed> {
        let engine = &*self.engine;
        engine.look(dir.into(), |shard| {
            let inode = &shard.inode(dir)?.inode;
            match inode.kind() {
                FileKind::Directory if inode.links() == 0 => Err(Errno::NOENT.into()),
                FileKind::Directory => list(engine, inode, from),
                _ => Err(Errno::NOTDIR.into()),
            }
        })
    }

    fn usable(&self) -> vfs::Result<&Engine> {
        self.engine.check_usable()?;
        Ok(&self.engine)
    }
}

impl FileSystem for Ext4 {
    fn root(&self) -> Ino {
        ROOT_INO.into()
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> vfs::Result<Attr> {
        let engine = self.usable()?;
        Ok(engine.attr(self.find(narrow(parent)?, name)?)?)
    }

    fn getattr(&self, ino: Ino) -> vfs::Result<Attr> {
        Ok(self.usable()?.attr(narrow(ino)?)?)
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> vfs::Result<Attr> {
        let number = narrow(ino)?;
        if let Some(size) = set.size {
            self.engine.set_size(number, size, set)?;
            self.inode_changed(ino)?;
        }
        let SetAttr { size, perm, uid, gid, atime, mtime, ctime } = *set;
        let others = perm.is_some() || uid.is_some() || gid.is_some() || ctime.is_some();
        if others || atime.is_some() || mtime.is_some() || size.is_none() {
            self.engine.set_attr(number, set)?;
        }
        Ok(self.engine.attr(number)?)
    }

    fn make(&self, parent: Ino, name: &[u8], new: &NewInode<'_>) -> vfs::Result<Attr> {
        if new.target.len() > symlink_max(&self.engine.sb) {
            return Err(Errno::NAMETOOLONG.into());
        }
        let attr = self.engine.make(narrow(parent)?, name, new)?;
        self.names_changed(parent)?;
        Ok(attr)
    }

    fn readlink(&self, ino: Ino) -> vfs::Result<Vec<u8>> {
        let (number, engine) = (narrow(ino)?, self.usable()?);
        Ok(engine.look(ino, |shard| target(engine, &shard.inode(number)?.inode))?)
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> vfs::Result<Attr> {
        let attr = self.engine.link(narrow(ino)?, narrow(parent)?, name)?;
        self.engine.opens.name(ino);
        self.names_changed(parent)?;
        Ok(attr)
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> vfs::Result<()> {
        let ino = self.engine.unlink(narrow(parent)?, name)?;
        self.names_changed(parent)?;
        self.clear_up(ino);
        Ok(())
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> vfs::Result<()> {
        let ino = self.engine.rmdir(narrow(parent)?, name)?;
        self.names_changed(parent)?;
        self.clear_up(ino);
        Ok(())
    }

    fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> vfs::Result<()> {
        let (from, to) = ((narrow(parent)?, name), (narrow(new_parent)?, new_name));
        self.write_ahead(from, to);
        let replaced = self.engine.rename(from, to, flags)?;
        self.names_changed(parent)?;
        self.names_changed(new_parent)?;
        replaced.into_iter().for_each(|replaced| self.clear_up(replaced));
        Ok(())
    }

    fn open(&self, ino: Ino) -> vfs::Result<()> {
        let (number, engine) = (narrow(ino)?, self.usable()?);
        let opened = engine.look(ino, |shard| {
            let links = shard.inode(number)?.inode.links();
            if links == 0 && !engine.opens.is_open(ino) {
                return Err(Errno::NOENT.into());
            }
            engine.opens.open(ino);
            Ok(())
        });
        Ok(opened?)
    }

    fn release(&self, ino: Ino) {
        let Ok(number) = narrow(ino) else { return };
        let was_cut = {
            let shard = self.engine.inodes.look(ino);
            shard.inodes.get(&number).is_some_and(|cached| cached.cut)
        };
        if was_cut {
            self.engine.write_ahead(number);
        }
        if self.engine.opens.release(ino) {
            self.clear_up(number);
        }
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> vfs::Result<usize> {
        let engine = self.usable()?;
        Ok(engine.heed(engine.read_file(narrow(ino)?, offset, buf))?)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> vfs::Result<usize> {
        Ok(self.engine.write_file(narrow(ino)?, offset, data)?)
    }

    fn read_direct(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> vfs::Result<usize> {
        Ok(self.usable()?.read_direct(narrow(ino)?, offset, buf)?)
    }

    fn write_direct(&self, ino: Ino, offset: u64, data: &[u8]) -> vfs::Result<usize> {
        Ok(self.engine.write_direct(narrow(ino)?, offset, data)?)
    }

    fn fsync(&self, ino: Ino, datasync: bool) -> vfs::Result<()> {
        Ok(self.engine.fsync(narrow(ino)?, datasync)?)
    }

    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> vfs::Result<()> {
        Ok(self.engine.fallocate(narrow(ino)?, mode, offset, len)?)
    }

    fn lseek(&self, ino: Ino, offset: u64, seek: Seek) -> vfs::Result<u64> {
        Ok(self.usable()?.seek(narrow(ino)?, offset, seek)?)
    }

    fn readdir(
        &self,
        ino: Ino,
        from: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> vfs::Result<()> {
        self.usable()?;
        let ino = narrow(ino)?;
        Ok(emit_all(from, emit, |from| self.entries(ino, from))?)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> vfs::Result<Vec<u8>> {
        Ok(self.usable()?.get_xattr(narrow(ino)?, name)?)
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> vfs::Result<()> {
        self.engine.set_xattr(narrow(ino)?, name, Some(value), mode)?;
        self.inode_changed(ino)
    }

    fn listxattr(&self, ino: Ino) -> vfs::Result<Vec<Vec<u8>>> {
        Ok(self.usable()?.list_xattrs(narrow(ino)?)?)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> vfs::Result<()> {
        self.engine.set_xattr(narrow(ino)?, name, None, XattrMode::Set)?;
        self.inode_changed(ino)
    }

    fn statfs(&self) -> vfs::Result<StatFs> {
        let engine = self.usable()?;
        let available = engine.room.left().saturating_sub(engine.sb.raw.r_blocks_count());
        Ok(StatFs {
            block_size: engine.sb.block_size,
            blocks: engine.sb.user_blocks(),
            blocks_free: engine.room.unpromised(),
            blocks_available: available,
            files: engine.sb.raw.inodes_count.get().into(),
            files_free: engine.groups.free_inodes(),
            name_max: NAME_MAX as u32,
        })
    }

    fn sync(&self) -> vfs::Result<()> {
        Ok(self.usable()?.sync_all()?)
    }

    fn unmount(&self) -> vfs::Result<()> {
        Ok(self.engine.unmount()?)
    }
}
