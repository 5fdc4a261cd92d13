//! The reference file system: POSIX in memory, written to be read rather than to be fast.
//!
//! Tests compare the real file systems with it. So where POSIX.1-2024 leaves a choice, it does what
//! Linux does, down to which errno comes first; where Linux leaves the choice to the file system,
//! it does what F2FS does. Everything is in B-trees under one lock; nothing is ever lost, so
//! `fsync` has nothing to do. Deliberately left to the caller, as [`FileSystem`] says: permission
//! checks, and clearing of set-id bits.

mod data;
mod names;
mod node;
mod state;
mod xattr;

use std::ops::Range;

use cores::{Mutex, MutexGuard, Rank};

use crate::kind::{PageAt, Recovery, Volume};
use crate::path::NAME_MAX;
use crate::{
    Attr, DirEntry, Errno, FallocateMode, FileKind, FileSystem, Ino, NewInode, RenameFlags, Result,
    Seek, SetAttr, StatFs, XattrMode,
};
use data::BLOCK;
use node::Body;
use state::{ROOT, State};

/// How many entries `readdir` takes out at a time while it holds the lock.
const READDIR_BATCH: usize = 128;
/// The capacity of `MemFs::new`. Only pages that are written take memory.
const CAPACITY_DEFAULT: u64 = 64 << 30;

/// An in-memory [`FileSystem`]. See the module's header.
pub struct MemFs {
    state: Mutex<State>,
}

impl MemFs {
    /// How many hard links an inode may have, as on ext4; one more is `EMLINK`.
    pub const LINK_MAX: u32 = 65_000;
    /// Largest size of a file in bytes; beyond it is `EFBIG`.
    pub const FILE_SIZE_MAX: u64 = data::FILE_SIZE_MAX;

    /// An empty file system of 64 GiB. The root belongs to root, with permissions 0755.
    pub fn new() -> Self {
        Self::with_capacity(CAPACITY_DEFAULT)
    }

    /// An empty file system with room for `bytes` in 4 KiB pages.
    pub fn with_capacity(bytes: u64) -> Self {
        Self { state: Mutex::ranked(Rank::Inode, "memfs", State::new(bytes / BLOCK)) }
    }

    /// The same, but reading does not change access times. For a file system that keeps its tree in
    /// one of these and whose caller reports reads ([`Volume::touch_atime`]).
    #[must_use]
    pub fn without_atime(self) -> Self {
        self.state.lock().marks_access = false;
        self
    }

    fn state(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state.lock();
        if state.unmounted { Err(Errno::IO.into()) } else { Ok(state) }
    }
}

impl Default for MemFs {
    fn default() -> Self {
        Self::new()
    }
}

impl Volume for MemFs {
    fn recovery(&self) -> Recovery {
        Recovery { clean: true, ..Recovery::default() }
    }

    fn pages(
        &self,
        ino: Ino,
        range: Range<u64>,
        see: &mut dyn FnMut(u64, PageAt<'_>),
    ) -> Result<bool> {
        // Shown without the lock, as in `readdir`.
        let written = self.state()?.file(ino)?.written(range);
        written.iter().for_each(|(page, block)| see(*page, PageAt::Memory(block)));
        Ok(true)
    }
}

impl FileSystem for MemFs {
    fn root(&self) -> Ino {
        ROOT
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let state = self.state()?;
        let ino = state.lookup(parent, name)?;
        state.attr(ino)
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.state()?.attr(ino)
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        let mut state = self.state()?;
        if let Some(size) = set.size {
            state.truncate(ino, size)?;
        }
        let node = state.node_mut(ino)?;
        node.perm = set.perm.map_or(node.perm, |perm| perm & 0o7777);
        node.uid = set.uid.unwrap_or(node.uid);
        node.gid = set.gid.unwrap_or(node.gid);
        node.atime = set.atime.unwrap_or(node.atime);
        node.mtime = set.mtime.unwrap_or(node.mtime);
        node.touch_ctime();
        node.ctime = set.ctime.unwrap_or(node.ctime);
        state.attr(ino)
    }

    fn make(&self, parent: Ino, name: &[u8], new: &NewInode<'_>) -> Result<Attr> {
        let (kind, rdev) = (new.kind, new.rdev);
        let body = match kind {
            FileKind::Directory => Body::Dir(node::Dir::new(parent)),
            FileKind::Symlink => Body::Link(new.target.to_vec()),
            FileKind::Regular => Body::File(data::FileData::default()),
            _ => Body::Device { kind, rdev },
        };
        self.state()?.make(parent, name, body, new.perm, new.creator)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        match &self.state()?.node(ino)?.body {
            Body::Link(target) => Ok(target.clone()),
            _ => Err(Errno::INVAL.into()),
        }
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.state()?.link(ino, parent, name)
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.state()?.unlink(parent, name)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.state()?.rmdir(parent, name)
    }

    fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        self.state()?.rename((parent, name), (new_parent, new_name), flags)
    }

    fn open(&self, ino: Ino) -> Result<()> {
        self.state()?.node_mut(ino)?.opens += 1;
        Ok(())
    }

    fn release(&self, ino: Ino) {
        self.state.lock().release(ino);
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.state()?.read(ino, offset, buf)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        self.state()?.write(ino, offset, data)
    }

    fn fsync(&self, ino: Ino, _datasync: bool) -> Result<()> {
        match self.state()?.node(ino)?.body {
            Body::File(_) | Body::Dir(_) => Ok(()),
            Body::Link(_) | Body::Device { .. } => Err(Errno::INVAL.into()),
        }
    }

    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        self.state()?.fallocate(ino, mode, offset, len)
    }

    fn lseek(&self, ino: Ino, offset: u64, seek: Seek) -> Result<u64> {
        self.state()?.file(ino)?.seek(offset, seek)
    }

    fn readdir(&self, ino: Ino, from: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        let mut from = from;
        loop {
            // `emit` is called without the lock, so that it may call back.
            let batch = self.state()?.list(ino, from, READDIR_BATCH)?;
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
        self.state()?.node(ino)?.xattr(name)
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.state()?.node_mut(ino)?.set_xattr(name, value, mode)
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        Ok(self.state()?.node(ino)?.xattrs.keys().cloned().collect())
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.state()?.node_mut(ino)?.remove_xattr(name)
    }

    fn statfs(&self) -> Result<StatFs> {
        let state = self.state()?;
        let free = state.pages_max.saturating_sub(state.pages);
        Ok(StatFs {
            block_size: BLOCK as u32,
            blocks: state.pages_max,
            blocks_free: free,
            blocks_available: free,
            files: state.pages_max,
            files_free: state.pages_max.saturating_sub(state.nodes.len() as u64),
            name_max: NAME_MAX as u32,
        })
    }

    fn sync(&self) -> Result<()> {
        self.state().map(|_| ())
    }

    fn unmount(&self) -> Result<()> {
        self.state()?.unmounted = true;
        Ok(())
    }
}
