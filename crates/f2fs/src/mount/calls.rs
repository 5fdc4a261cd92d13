//! POSIX on top of a mounted volume.

use vfs::file::Write;
use vfs::{
    Attr, DirEntry, Errno, FallocateMode, FileKind, FileSystem, Health, Ino, RenameFlags, Seek,
    SetAttr, StatFs, WriteBack, XattrMode,
};

use crate::F2fs;
use crate::alloc::gc::OPERATION_PAGES;
use crate::dir::entries::Names;
use crate::dir::namei::{NameIn, NewInode};
use crate::error::Result;
use crate::file::read_write::Next;
use crate::fsync;
use crate::inode::attr::Stat;
use crate::inode::protected::Protected;
use crate::inode::see::See;
use crate::mount::engine::Engine;
use crate::mount::fs::nid;
use crate::mount::iostat::Moved;
use crate::ondisk::{BLOCK_SIZE, NAME_MAX, Nid};

/// Evaluates `$look` under the shared lock, and on a cache miss with the volume locked exclusively.
macro_rules! seen {
    ($fs:expr, $volume:ident => $look:expr) => {
        match $fs.glance(|$volume| $look)? {
            Some(seen) => Ok(seen),
            None => {
                let $volume = &mut *$fs.unseen()?;
                Ok($look?)
            }
        }
    };
}

/// A write that is in memory.
pub(crate) struct InMemory {
    /// The file to which it went: during an atomic write, that which lies over the file.
    pub(crate) to: Nid,
    /// Bytes written.
    pub(crate) len: usize,
    /// Whether it is to be durable at once.
    pub(crate) is_sync: bool,
    /// Whether it is time to write back.
    when: WriteBack,
}

impl F2fs {
    /// Writes as much as one operation may write.
    pub(crate) fn write_some(&self, ino: Nid, offset: u64, data: &[u8]) -> Result<usize> {
        let done = self.write_in_memory(ino, offset, data)?;
        match done.is_sync {
            true => fsync::execute(self, ino, false)?,
            false => self.write_back_in_time(done.when, done.to, offset),
        }
        Ok(done.len)
    }

    pub(crate) fn write_in_memory(&self, ino: Nid, offset: u64, data: &[u8]) -> Result<InMemory> {
        let mut write = Some(Write::new(offset, data));
        if let Some(when) = self.overwrite(ino, &mut write)? {
            return Ok(InMemory { to: ino, len: data.len(), is_sync: false, when });
        }
        let mut volume = self.change_alone()?;
        match volume.kind_of(ino)? {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Errno::ISDIR.into()),
            _ => return Err(Errno::INVAL.into()),
        }
        let is_sync = volume.check_may_write(ino)?;
        volume.check_unsealed(ino)?;
        let to = volume.begin_write(ino, offset, data.len())?;
        let len = write.map_or(Ok(0), |write| volume.write_file(to, write))?;
        let when = volume.inodes.pages().write_back();
        Ok(InMemory { to, len, is_sync, when })
    }

    /// Writes all of `data` by `write_some`, as much at once as one operation may write.
    fn write_all(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        write_some: fn(&Self, Nid, u64, &[u8]) -> Result<usize>,
    ) -> vfs::Result<usize> {
        let ino = nid(ino)?;
        let mut done = 0;
        loop {
            // More at once might not fit.
            let end = data.len().min(done + OPERATION_PAGES * BLOCK_SIZE);
            let written = write_some(self, ino, offset + done as u64, &data[done..end]);
            done += match written {
                Err(_) if done > 0 => return Ok(done),
                written => written?,
            };
            if done < end || end == data.len() {
                return Ok(done);
            }
        }
    }

    /// Writes back around `offset` of file `ino`, or wakes the flusher, if it is time. The caller's
    /// write is cached in any case; if write-back fails, the file's fsync reports it.
    fn write_back_in_time(&self, when: WriteBack, ino: Nid, offset: u64) {
        match when {
            WriteBack::Later => {}
            WriteBack::Soon => self.upkeep.kick(),
            WriteBack::Now => drop(self.write_back_around(ino, offset / BLOCK_SIZE as u64)),
        }
    }

    /// Reads the inodes that `readdir` has `listed`, unless all are cached. An inode that cannot be
    /// read fails when it is used.
    fn read_listed_ahead(&self, listed: &[Nid]) {
        let volume = self.look();
        let lacks = |ino: &Nid| volume.inodes.look(*ino).nodes.get(*ino).is_none();
        if volume.knobs.readdir_ra != 0 && listed.iter().any(lacks) {
            drop(volume);
            drop(self.lock().read_inodes_ahead(listed));
        }
    }

    /// Makes a call, and notes if it has met corruption (`f2fs_handle_error`).
    #[inline]
    fn heed<T>(&self, call: impl FnOnce() -> vfs::Result<T>) -> vfs::Result<T> {
        call().inspect_err(|error| {
            if error.is_corruption() {
                self.note_corruption(error);
            }
        })
    }

    #[cold]
    fn note_corruption(&self, error: &vfs::Error) {
        let mut volume = self.lock();
        volume.note_corruption();
        volume.report(&error.to_string());
    }

    pub(crate) fn attr_of(&self, volume: &mut Engine, ino: Nid) -> vfs::Result<Attr> {
        Ok(volume.attr(ino)?)
    }
}
impl FileSystem for F2fs {
    fn root(&self) -> Ino {
        3
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> vfs::Result<Attr> {
        self.heed(|| {
            let _span = cores::span(cores::Stage::PathLookup);
            let dir = nid(parent)?;
            seen!(self, volume => volume.find(dir, name).and_then(|found| volume.attr(found.ino)))
        })
    }

    fn getattr(&self, ino: Ino) -> vfs::Result<Attr> {
        self.heed(|| {
            let ino = nid(ino)?;
            seen!(self, volume => volume.attr(ino))
        })
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> vfs::Result<Attr> {
        self.heed(|| {
            let ino = nid(ino)?;
            let mut volume = self.change()?;
            volume.set_attr(ino, set)?;
            self.attr_of(&mut volume, ino)
        })
    }

    fn make(&self, parent: Ino, name: &[u8], new: &vfs::NewInode<'_>) -> vfs::Result<Attr> {
        self.heed(|| {
            let vfs::NewInode { kind, perm, rdev, target, creator } = *new;
            let new = NewInode { parent: nid(parent)?, name, kind, perm, rdev, creator };
            if kind != FileKind::Symlink
                && let Some(attr) = self.make_beside(&new)?
            {
                return Ok(attr);
            }
            let mut volume = self.change()?;
            let ino = match kind {
                FileKind::Symlink => volume.symlink(&new, target)?,
                _ => volume.make(&new)?,
            };
            self.attr_of(&mut volume, ino)
        })
    }

    fn readlink(&self, ino: Ino) -> vfs::Result<Vec<u8>> {
        self.heed(|| {
            let ino = nid(ino)?;
            let mut volume = self.volume()?;
            let inode = volume.inode(ino)?;
            if inode.file_kind() != FileKind::Symlink {
                return Err(Errno::INVAL.into());
            }
            let len = inode.size.get().min(BLOCK_SIZE as u64) as usize;
            drop(inode);
            if let Some(target) = volume.encrypted_target(ino)? {
                return Ok(target);
            }
            let mut target = vec![0; len];
            volume.read_file(ino, 0, &mut target)?;
            Ok(target)
        })
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> vfs::Result<Attr> {
        self.heed(|| {
            let ino = nid(ino)?;
            let mut volume = self.change()?;
            volume.link(ino, nid(parent)?, name)?;
            self.attr_of(&mut volume, ino)
        })
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> vfs::Result<()> {
        self.heed(|| {
            let at = NameIn { dir: nid(parent)?, name };
            if self.unlink_beside(at)?.is_some() {
                return Ok(());
            }
            Ok(self.change()?.unlink(at.dir, name)?)
        })
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> vfs::Result<()> {
        self.heed(|| Ok(self.change()?.rmdir(nid(parent)?, name)?))
    }

    fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> vfs::Result<()> {
        self.heed(|| {
            let from = NameIn { dir: nid(parent)?, name };
            let to = NameIn { dir: nid(new_parent)?, name: new_name };
            if self.rename_beside(from, to, flags)?.is_some() {
                return Ok(());
            }
            Ok(self.change()?.rename(from, to, flags)?)
        })
    }

    fn open(&self, ino: Ino) -> vfs::Result<()> {
        self.heed(|| {
            let ino = nid(ino)?;
            seen!(self, volume => {
                volume.check_readable(ino).map(|_| volume.engine().opens.open(ino.into()))
            })
        })
    }

    fn release(&self, ino: Ino) {
        if let Ok(ino) = nid(ino) {
            self.release_inode(ino);
        }
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> vfs::Result<usize> {
        self.heed(|| {
            let ino = nid(ino)?;
            let _span = cores::span(cores::Stage::Syscall);
            let mut done = 0;
            while let Some((len, next)) = self.glance_within(|volume| {
                volume.check_regular(ino)?;
                volume.read(ino, offset + done as u64, &mut buf[done..])
            })? {
                done += len;
                self.iostat.add(Moved::AppBufferedRead, len);
                match next {
                    Next::Done => return Ok(done),
                    Next::Read(reading) if self.read_into_cache(&reading) => {}
                    Next::Read(_) | Next::Hold => break,
                }
            }
            let (mut volume, mut holds) = (self.unseen()?, false);
            volume.check_regular(ino)?;
            loop {
                let part = volume.read_cached(ino, offset + done as u64, &mut buf[done..])?;
                self.iostat.add(Moved::AppBufferedRead, part.len);
                done += part.len;
                let Some(miss) = part.miss else { return Ok(done) };
                (volume, holds) = self.fetch(volume, miss, holds)?;
            }
        })
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> vfs::Result<usize> {
        self.heed(|| {
            let written = self.write_all(ino, offset, data, Self::write_some)?;
            self.iostat.add(Moved::AppBuffered, written);
            Ok(written)
        })
    }

    fn read_direct(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> vfs::Result<usize> {
        self.heed(|| match self.read_past_cache(nid(ino)?, offset, buf)? {
            Some(len) => {
                self.iostat.add(Moved::AppDirectRead, len);
                Ok(len)
            }
            None => self.read(ino, offset, buf),
        })
    }

    fn write_direct(&self, ino: Ino, offset: u64, data: &[u8]) -> vfs::Result<usize> {
        self.heed(|| {
            let written = self.write_all(ino, offset, data, Self::write_some_direct)?;
            self.iostat.add(Moved::AppDirect, written);
            Ok(written)
        })
    }

    /// `fdatasync` writes the same nodes: every write changes the inode's times, and recovery needs
    /// the inode after the data anyway. Only `ipu_policy` knows it.
    fn fsync(&self, ino: Ino, datasync: bool) -> vfs::Result<()> {
        self.heed(|| {
            let _span = cores::span(cores::Stage::Syscall);
            Ok(fsync::execute(self, nid(ino)?, datasync)?)
        })
    }

    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> vfs::Result<()> {
        self.heed(|| Ok(self.change()?.fallocate(nid(ino)?, mode, offset, len)?))
    }

    fn lseek(&self, ino: Ino, offset: u64, seek: Seek) -> vfs::Result<u64> {
        self.heed(|| Ok(self.volume()?.seek(nid(ino)?, offset, seek)?))
    }

    fn readdir(
        &self,
        ino: Ino,
        from: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> vfs::Result<()> {
        self.heed(|| {
            let ino = nid(ino)?;
            let (mut at, mut listed) = (from, Vec::new());
            let done: vfs::Result<()> = seen!(self, volume => {
                volume.read_dir(ino, at, &mut |entry| {
                    at = entry.next;
                    listed.extend(Nid::try_from(entry.ino));
                    emit(entry)
                })
            });
            self.read_listed_ahead(&listed);
            done
        })
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> vfs::Result<Vec<u8>> {
        self.heed(|| Ok(self.volume()?.get_xattr(nid(ino)?, name)?))
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> vfs::Result<()> {
        self.heed(|| Ok(self.change()?.set_xattr(nid(ino)?, name, Some(value), mode)?))
    }

    fn listxattr(&self, ino: Ino) -> vfs::Result<Vec<Vec<u8>>> {
        self.heed(|| Ok(self.volume()?.list_xattrs(nid(ino)?)?))
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> vfs::Result<()> {
        self.heed(|| Ok(self.change()?.set_xattr(nid(ino)?, name, None, XattrMode::Replace)?))
    }

    fn statfs(&self) -> vfs::Result<StatFs> {
        self.heed(|| {
            let mut volume = self.volume()?;
            let (blocks, free) = (volume.space.user_blocks(), volume.space.free_blocks());
            let nodes_free = u64::from(volume.nat.get_mut().available()).min(free);
            Ok(StatFs {
                block_size: BLOCK_SIZE as u32,
                blocks,
                blocks_free: free,
                blocks_available: volume.space.free_for_all(),
                files: u64::from(volume.space.used().nodes) + nodes_free,
                files_free: nodes_free,
                name_max: NAME_MAX as u32,
            })
        })
    }

    fn sync(&self) -> vfs::Result<()> {
        self.heed(|| {
            {
                let volume = self.volume()?;
                if volume.options.read_only {
                    return Ok(());
                }
                volume.check_writable()?;
            }
            // A file that cannot be written keeps nothing else from the drive.
            let written = self.write_back_files();
            let marked = self.write_checkpoint();
            Ok(written.and(marked)?)
        })
    }

    fn unmount(&self) -> vfs::Result<()> {
        let mut volume = self.settled();
        volume.check_usable()?;
        // Discards under way complete first.
        while volume.discards.are_under_way() {
            (volume, ()) = self.pause(volume, |_| drop(self.discarding.lock()));
        }
        let left = volume.options.read_only || volume.health == Health::Shutdown;
        let written = if left { Ok(()) } else { volume.leave() };
        volume.health = Health::Gone;
        Ok(written?)
    }
}
