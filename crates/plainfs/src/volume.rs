//! A mounted volume: POSIX is [`MemFs`]'s part, durability this one's.

use std::ops::Range;

use cores::{Mutex, MutexGuard, Rank};
use vfs::kind::{PageAt, Recovery, Volume};
use vfs::{
    Attr, DirEntry, Errno, FallocateMode, FileKind, FileSystem, Ino, MemFs, NewInode, RenameFlags,
    Result, Seek, SetAttr, StatFs, XattrMode,
};

use crate::disk::Disk;
use crate::store::{store, store_all};

/// A mounted volume.
pub(crate) struct Plain {
    memory: MemFs,
    /// Map and drive. Locked by every change, so that what is written is of one instant. Reads use
    /// `memory` without this lock.
    disk: Mutex<Disk>,
    read_only: bool,
    /// It was unmounted cleanly before this mount.
    was_clean: bool,
}

impl Plain {
    pub(crate) fn new(memory: MemFs, disk: Disk, read_only: bool) -> Self {
        let was_clean = disk.superblock.clean == 1;
        Self { memory, disk: Mutex::ranked(Rank::Gate, "plainfs", disk), read_only, was_clean }
    }

    fn change(&self) -> Result<MutexGuard<'_, Disk>> {
        if self.read_only { Err(Errno::ROFS.into()) } else { Ok(self.disk.lock()) }
    }

    /// As [`Plain::change`], if there is room for one more inode.
    fn add(&self) -> Result<MutexGuard<'_, Disk>> {
        match self.memory.statfs()?.files_free {
            0 => Err(Errno::NOSPC.into()),
            _ => self.change(),
        }
    }

    fn no_xattrs(&self) -> Result<()> {
        Err(Errno::OPNOTSUPP.into())
    }

    /// Writes all there is.
    fn write_all(&self, disk: &mut Disk) -> Result<()> {
        store_all(disk, &self.memory)?;
        disk.write(false)
    }
}

/// Calls that memory answers, with what is held meanwhile.
macro_rules! in_memory {
    ($(($($held:ident)?) fn $name:ident(&self $(, $arg:ident: $type:ty)*) $(-> $result:ty)?;)*) => {
        $(fn $name(&self $(, $arg: $type)*) $(-> $result)? {
            $(let _held = self.$held()?;)?
            self.memory.$name($($arg),*)
        })*
    };
}

impl Volume for Plain {
    fn recovery(&self) -> Recovery {
        Recovery { clean: self.was_clean, ..Recovery::default() }
    }

    fn options(&self) -> String {
        if self.read_only { "ro".into() } else { String::new() }
    }

    in_memory! {
        () fn pages(&self, ino: Ino, range: Range<u64>, see: &mut dyn FnMut(u64, PageAt<'_>))
            -> Result<bool>;
    }
}

impl FileSystem for Plain {
    in_memory! {
        () fn root(&self) -> Ino;
        () fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr>;
        () fn getattr(&self, ino: Ino) -> Result<Attr>;
        (add) fn make(&self, parent: Ino, name: &[u8], new: &NewInode<'_>) -> Result<Attr>;
        () fn readlink(&self, ino: Ino) -> Result<Vec<u8>>;
        (change) fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr>;
        (change) fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()>;
        (change) fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()>;
        (change) fn rename(&self, parent: Ino, name: &[u8], to: Ino, new: &[u8], how: RenameFlags)
            -> Result<()>;
        () fn open(&self, ino: Ino) -> Result<()>;
        () fn statfs(&self) -> Result<StatFs>;
        () fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize>;
        () fn lseek(&self, ino: Ino, offset: u64, seek: Seek) -> Result<u64>;
        () fn readdir(&self, ino: Ino, from: u64, emit: &mut dyn FnMut(DirEntry) -> bool)
            -> Result<()>;
        (no_xattrs) fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>>;
        (no_xattrs) fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode)
            -> Result<()>;
        () fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>>;
        (no_xattrs) fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()>;
        () fn release(&self, ino: Ino);
        (change) fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr>;
        (change) fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize>;
        (change) fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64)
            -> Result<()>;
    }

    /// A file: its blocks that changed, its inode, the map, and a FLUSH. Its name may be lost.
    fn fsync(&self, ino: Ino, datasync: bool) -> Result<()> {
        self.memory.fsync(ino, datasync)?;
        if self.read_only {
            return Ok(());
        }
        let mut disk = self.disk.lock();
        let attr = self.memory.getattr(ino)?;
        if attr.kind == FileKind::Directory {
            self.write_all(&mut disk)?;
        } else if attr.nlink > 0 {
            match store(&mut disk, &self.memory, ino) {
                // What was removed may still have the space.
                Err(error) if error.errno() == Errno::NOSPC => self.write_all(&mut disk)?,
                stored => stored.and_then(|()| disk.write(false))?,
            }
        }
        disk.flush()
    }

    fn sync(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        let mut disk = self.disk.lock();
        self.write_all(&mut disk)?;
        disk.flush()
    }

    fn unmount(&self) -> Result<()> {
        self.sync()?;
        if !self.read_only {
            let mut disk = self.disk.lock();
            disk.write(true)?;
            disk.flush()?;
        }
        self.memory.unmount()
    }
}
