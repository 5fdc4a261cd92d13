//! The calls: each triggers the faults that wait for it, goes to the current volume, and is noted.

use vfs::kind::Volume;
use vfs::{
    Attr, DirEntry, Errno, FallocateMode, FileKind, FileSystem, Ino, NewInode, RenameFlags, Result,
    Seek, SetAttr, StatFs, XattrMode,
};

use super::faults::Call;
use super::{At, Harness, Present};

/// Attributes that users set; times that follow from a read or a write are not worth a report.
fn is_change(set: &SetAttr) -> bool {
    set.perm.is_some() || set.uid.is_some() || set.gid.is_some() || set.size.is_some()
}

impl Harness {
    /// Calls the volume about an inode.
    pub(super) fn on<T>(&self, ino: Ino, call: impl FnOnce(&dyn Volume) -> Result<T>) -> Result<T> {
        self.with(|volume| {
            self.notes.lock().enter(ino)?;
            call(volume)
        })
    }

    /// Calls the volume to change an inode: in a range of bytes, or something else of it.
    pub(super) fn change<T>(
        &self,
        ino: Ino,
        range: Option<(u64, u64)>,
        call: impl FnOnce(&dyn Volume) -> Result<T>,
    ) -> Result<T> {
        let range = range.map(|(offset, len)| offset..offset.saturating_add(len));
        self.with(|volume| {
            let mut notes = self.notes.lock();
            notes.enter(ino)?;
            // Before it, or a cut in between would not be known to have taken it; and after it,
            // because an fsync in between may have missed it.
            notes.changed(ino, range.clone());
            drop(notes);
            let done = call(volume);
            self.notes.lock().changed(ino, range);
            done
        })
    }

    /// Calls the volume to make an inode.
    fn made(
        &self,
        parent: Ino,
        name: &[u8],
        call: impl FnOnce(&dyn Volume) -> Result<Attr>,
    ) -> Result<Attr> {
        self.on(parent, |volume| {
            let attr = call(volume)?;
            Ok(self.notes.lock().added(parent, name, attr))
        })
    }

    fn remove(
        &self,
        parent: Ino,
        name: &[u8],
        call: impl FnOnce(&dyn Volume) -> Result<()>,
    ) -> Result<()> {
        self.on(parent, |volume| {
            call(volume)?;
            self.notes.lock().removed(parent, name);
            Ok(())
        })
    }

    fn write_with(
        &self,
        ino: Ino,
        (offset, data): (u64, &[u8]),
        call: impl FnOnce(&dyn Volume) -> Result<usize>,
    ) -> Result<usize> {
        let range = (offset, data.len() as u64);
        let event = self.event(Call::Write, At::Inode(ino), Some(range));
        self.around(event.as_ref(), || {
            event.iter().try_for_each(|event| self.tear(ino, event, data))?;
            self.change(ino, Some(range), call)
        })
    }

    /// An fsync, through a handle if that is known.
    pub(super) fn fsync_by(&self, ino: Ino, handle: Option<u64>, datasync: bool) -> Result<()> {
        let event = self.event(Call::Fsync, At::Inode(ino), None);
        self.around(event.as_ref(), || {
            event.iter().for_each(|event| self.faults.lock().fsynced(event));
            self.with(|volume| {
                let covered = self.notes.lock().cover(ino, handle)?;
                volume.fsync(ino, datasync).inspect_err(|_| self.notes.lock().uncover(covered))
            })
        })
    }

    fn attr(&self, attr: Attr) -> Attr {
        self.notes.lock().shown(attr)
    }
}

impl FileSystem for Harness {
    fn root(&self) -> Ino {
        self.root_ino
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.on(parent, |volume| {
            let attr = volume.lookup(parent, name)?;
            Ok(self.notes.lock().found(parent, name, attr))
        })
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.on(ino, |volume| volume.getattr(ino)).map(|attr| self.attr(attr))
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        let change = || match is_change(set) {
            true => self.change(ino, None, |volume| volume.setattr(ino, set)),
            false => self.on(ino, |volume| volume.setattr(ino, set)),
        };
        let attr = match set.size {
            Some(size) => self.observed(Call::Truncate, At::Inode(ino), Some((size, 0)), change)?,
            None => change()?,
        };
        Ok(self.attr(attr))
    }

    fn make(&self, parent: Ino, name: &[u8], new: &NewInode<'_>) -> Result<Attr> {
        let make = || self.made(parent, name, |volume| volume.make(parent, name, new));
        let at = At::Name(parent, name);
        match new.kind {
            FileKind::Regular => self.observed(Call::Create, at, None, make),
            FileKind::Symlink => {
                self.observed(Call::Symlink, At::Target(new.target, (parent, name)), None, make)
            }
            _ => make(),
        }
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.on(ino, |volume| volume.readlink(ino))
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.observed(Call::Link, At::Linked(ino, (parent, name)), None, || {
            self.notes.lock().enter(ino)?;
            self.made(parent, name, |volume| volume.link(ino, parent, name))
        })
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.observed(Call::Unlink, At::Name(parent, name), None, || {
            self.remove(parent, name, |volume| volume.unlink(parent, name))
        })
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.remove(parent, name, |volume| volume.rmdir(parent, name))
    }

    fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        let (from, to) = ((parent, name), (new_parent, new_name));
        self.observed(Call::Rename, At::Moved(from, to), None, || {
            self.notes.lock().enter(new_parent)?;
            self.on(parent, |volume| {
                volume.rename(parent, name, new_parent, new_name, flags)?;
                self.notes.lock().renamed(from, to, flags);
                Ok(())
            })
        })
    }

    fn open(&self, ino: Ino) -> Result<()> {
        self.on(ino, |volume| {
            if self.notes.lock().hold(ino)
                && let Err(error) = volume.open(ino)
            {
                self.notes.lock().release(ino);
                return Err(error);
            }
            Ok(())
        })
    }

    fn release(&self, ino: Ino) {
        // There is nothing to release if there is no volume.
        let _ = self.with(|volume| {
            if self.notes.lock().release(ino) {
                volume.release(ino);
            }
            Ok(())
        });
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let range = (offset, buf.len() as u64);
        self.observed(Call::Read, At::Inode(ino), Some(range), || {
            self.on(ino, |volume| volume.read(ino, offset, buf))
        })
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        self.write_with(ino, (offset, data), |volume| volume.write(ino, offset, data))
    }

    fn read_direct(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let range = (offset, buf.len() as u64);
        self.observed(Call::Read, At::Inode(ino), Some(range), || {
            self.on(ino, |volume| volume.read_direct(ino, offset, buf))
        })
    }

    fn write_direct(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        self.write_with(ino, (offset, data), |volume| volume.write_direct(ino, offset, data))
    }

    fn fsync(&self, ino: Ino, datasync: bool) -> Result<()> {
        self.fsync_by(ino, None, datasync)
    }

    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        self.change(ino, None, |volume| volume.fallocate(ino, mode, offset, len))
    }

    fn lseek(&self, ino: Ino, offset: u64, seek: Seek) -> Result<u64> {
        self.on(ino, |volume| volume.lseek(ino, offset, seek))
    }

    fn readdir(&self, ino: Ino, from: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        self.on(ino, |volume| volume.readdir(ino, from, emit))
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.on(ino, |volume| volume.getxattr(ino, name))
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.change(ino, None, |volume| volume.setxattr(ino, name, value, mode))
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.on(ino, |volume| volume.listxattr(ino))
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.change(ino, None, |volume| volume.removexattr(ino, name))
    }

    fn statfs(&self) -> Result<StatFs> {
        self.with(|volume| volume.statfs())
    }

    fn sync(&self) -> Result<()> {
        self.with(|volume| {
            let covered = self.notes.lock().cover_all();
            volume.sync().inspect_err(|_| self.notes.lock().uncover(covered))
        })
    }

    fn unmount(&self) -> Result<()> {
        let mut present = self.present.write();
        drop(self.maintenance.lock().take());
        // Even if that fails: nothing may mount it again.
        match std::mem::replace(&mut *present, Present::Lost) {
            Present::Mounted(volume) | Present::Unmounted(volume) => {
                let unmounted = volume.unmount();
                *present = Present::Unmounted(volume);
                unmounted
            }
            Present::Lost => Err(Errno::IO.into()),
        }
    }

    /// The kernel then reads and writes instead, and faults meet each of these.
    fn copy_file_range(&self, _: Ino, _: u64, _: Ino, _: u64, _: u64) -> Result<u64> {
        Err(Errno::OPNOTSUPP.into())
    }
}
