//! A mounted volume: POSIX is [`MemFs`]'s part, durability this one's.

use std::ops::Range;

use cores::{Mutex, MutexGuard};
use serde_json::{Map, Value, json};
use vfs::kind::{PageAt, Recovery, Volume};
use vfs::{
    Attr, Creator, DirEntry, Errno, FallocateMode, FileKind, FileSystem, Ino, MemFs, RenameFlags,
    Result, Seek, SetAttr, StatFs, XattrMode,
};

use crate::disk::Disk;
use crate::ondisk::FILE_MAX;
use crate::tree;

/// A mounted volume.
pub(crate) struct Plain {
    memory: MemFs,
    /// Tables and drive. Held by whoever changes anything, so that what is written is of one
    /// instant. Whoever only looks asks `memory`.
    disk: Mutex<Disk>,
    read_only: bool,
    /// It was unmounted cleanly before this mount.
    was_clean: bool,
}

impl Plain {
    pub(crate) fn new(memory: MemFs, disk: Disk, read_only: bool) -> Self {
        let was_clean = disk.superblock.clean == 1;
        Self { memory, disk: Mutex::named("plainfs", disk), read_only, was_clean }
    }

    fn change(&self) -> Result<MutexGuard<'_, Disk>> {
        if self.read_only {
            return Err(Errno::ROFS.into());
        }
        Ok(self.disk.lock())
    }

    /// As [`Plain::change`], if there is room for one more inode.
    fn add(&self) -> Result<MutexGuard<'_, Disk>> {
        let disk = self.change()?;
        match self.statfs_of(&disk)?.files_free {
            0 => Err(Errno::NOSPC.into()),
            _ => Ok(disk),
        }
    }

    fn no_xattrs(&self) -> Result<()> {
        Err(Errno::OPNOTSUPP.into())
    }

    fn statfs_of(&self, disk: &Disk) -> Result<StatFs> {
        let memory = self.memory.statfs()?;
        // On the drive, or only in memory as yet.
        let leaked = (disk.taken.len() - disk.stored.len()) as u64;
        let used = memory.files - memory.files_free + leaked;
        let files = u64::from(disk.geometry.inodes) - 1;
        Ok(StatFs { files, files_free: files.saturating_sub(used), ..memory })
    }

    /// Writes all there is.
    fn write_all(&self, disk: &mut Disk) -> Result<()> {
        tree::store_all(disk, &self.memory)?;
        disk.write()
    }
}

fn check_end(offset: u64, len: u64) -> Result<()> {
    if offset.saturating_add(len) > FILE_MAX { Err(Errno::FBIG.into()) } else { Ok(()) }
}

impl Volume for Plain {
    fn recovery(&self) -> Recovery {
        Recovery { clean: self.was_clean, ..Recovery::default() }
    }

    fn options(&self) -> String {
        if self.read_only { "ro".into() } else { String::new() }
    }

    fn status(&self) -> Map<String, Value> {
        let Ok(free) = self.statfs() else { return Map::new() };
        let status = [
            ("blocks", json!(free.blocks)),
            ("blocks_free", json!(free.blocks_free)),
            ("inodes", json!(free.files)),
            ("inodes_free", json!(free.files_free)),
        ];
        status.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
    }

    fn pages(
        &self,
        ino: Ino,
        range: Range<u64>,
        see: &mut dyn FnMut(u64, PageAt<'_>),
    ) -> Result<bool> {
        self.memory.pages(ino, range, see)
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

impl FileSystem for Plain {
    in_memory! {
        () fn root(&self) -> Ino;
        () fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr>;
        () fn getattr(&self, ino: Ino) -> Result<Attr>;
        (add) fn mknod(&self, parent: Ino, name: &[u8], kind: FileKind, perm: u16, rdev: u64,
            creator: Creator) -> Result<Attr>;
        (add) fn mkdir(&self, parent: Ino, name: &[u8], perm: u16, who: Creator) -> Result<Attr>;
        (add) fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], who: Creator)
            -> Result<Attr>;
        () fn readlink(&self, ino: Ino) -> Result<Vec<u8>>;
        (change) fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr>;
        (change) fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()>;
        (change) fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()>;
        (change) fn rename(&self, parent: Ino, name: &[u8], to: Ino, new: &[u8], how: RenameFlags)
            -> Result<()>;
        () fn open(&self, ino: Ino) -> Result<()>;
        () fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize>;
        () fn lseek(&self, ino: Ino, offset: u64, seek: Seek) -> Result<u64>;
        () fn readdir(&self, ino: Ino, from: u64, emit: &mut dyn FnMut(DirEntry) -> bool)
            -> Result<()>;
        (no_xattrs) fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>>;
        (no_xattrs) fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode)
            -> Result<()>;
        () fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>>;
        (no_xattrs) fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()>;
    }

    fn release(&self, ino: Ino) {
        // The last use of a file without names ends: a store must not meet it half gone.
        let _held = self.disk.lock();
        self.memory.release(ino);
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        check_end(set.size.unwrap_or(0), 0)?;
        let _held = self.change()?;
        self.memory.setattr(ino, set)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        check_end(offset, data.len() as u64)?;
        let _held = self.change()?;
        self.memory.write(ino, offset, data)
    }

    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        let grows = mode.contains(FallocateMode::INSERT_RANGE);
        let from = if grows { self.getattr(ino)?.size } else { offset };
        check_end(from, len)?;
        let _held = self.change()?;
        self.memory.fallocate(ino, mode, offset, len)
    }

    /// A file: its blocks that changed, its inode, the bitmap, and a FLUSH. Its name may be lost.
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
            match tree::store(&mut disk, &self.memory, ino) {
                // What was removed may still have the space.
                Err(error) if error.errno() == Errno::NOSPC => self.write_all(&mut disk)?,
                stored => stored.and_then(|()| disk.write())?,
            }
        }
        disk.flush()
    }

    fn statfs(&self) -> Result<StatFs> {
        self.statfs_of(&self.disk.lock())
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
        if !self.read_only {
            let mut disk = self.disk.lock();
            self.write_all(&mut disk)?;
            disk.mark_clean()?;
        }
        self.memory.unmount()
    }
}
