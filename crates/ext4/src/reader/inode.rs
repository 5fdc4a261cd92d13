//! Inodes in memory, in shards with a lock each.

use std::sync::Arc;

use cores::{Mutex, Rank};
use rustc_hash::FxHashMap;
use vfs::FileKind;

use super::Reader;
use crate::error::{Error, Result};
use crate::ondisk::inode::{self, Flags, RawInode};
use crate::ondisk::{FsBlock, Ino};

/// Neighbouring numbers are in different shards, so files made one after the other share none.
const SHARDS: usize = 256;

/// An inode, checked.
pub(crate) struct Inode {
    /// Its number.
    pub(crate) ino: Ino,
    /// Its fields.
    pub(crate) raw: RawInode,
    /// Its type.
    pub(crate) kind: FileKind,
    /// All its bytes, as many as `s_inode_size`.
    pub(crate) bytes: Box<[u8]>,
    /// The block of the inode table from which it was read.
    pub(crate) at: FsBlock,
    /// What its structures' checksums start from, if the volume has checksums.
    pub(crate) seed: Option<u32>,
}

impl Inode {
    /// `i_flags`.
    pub(crate) fn flags(&self) -> Flags {
        self.raw.flags()
    }

    /// Whether its contents are encrypted.
    pub(crate) fn check_readable(&self) -> Result<()> {
        if self.flags().contains(Flags::ENCRYPT) {
            return Err(Error::unsupported(format!("encrypt (inode {})", self.ino)));
        }
        Ok(())
    }

    /// Fails with what POSIX says of a file that must be a directory.
    pub(crate) fn check_directory(&self) -> Result<()> {
        match self.kind {
            FileKind::Directory => Ok(()),
            _ => Err(vfs::Errno::NOTDIR.into()),
        }
    }

    /// Something about this inode that no ext4 writes.
    #[cold]
    pub(crate) fn corrupt(
        &self,
        field: &'static str,
        found: impl std::fmt::Display,
        allowed: impl ToString,
    ) -> Error {
        Error::corrupt(field, self.at, format!("{found} in inode {}", self.ino), allowed)
    }
}

/// The inodes that share a lock.
type Shard = FxHashMap<Ino, Arc<Inode>>;

/// Inodes that were read. They do not change.
pub(crate) struct Inodes {
    /// By number; each protects its inodes. Nothing is read from the drive under it.
    shards: Box<[Mutex<Shard>]>,
    /// Inodes in a shard. A full one is emptied.
    each: usize,
}

impl Inodes {
    /// Room for about `bytes`.
    pub(crate) fn new(bytes: u64) -> Self {
        let shard = |key| Mutex::ranked(Rank::Inode, "ext4 inodes", Shard::default()).keyed(key);
        let each = bytes / SHARDS as u64 / 1024;
        Self {
            shards: (0..SHARDS as u64).map(shard).collect(),
            each: usize::try_from(each).unwrap_or(usize::MAX).max(8),
        }
    }

    fn get(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.shards[ino as usize % SHARDS].lock().get(&ino).cloned()
    }

    fn put(&self, inode: Arc<Inode>) {
        let mut shard = self.shards[inode.ino as usize % SHARDS].lock();
        if shard.len() >= self.each {
            shard.clear();
        }
        shard.insert(inode.ino, inode);
    }
}

impl Reader {
    /// Inode `ino`, which is in use.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        if let Some(inode) = self.inodes.get(ino) {
            return Ok(inode);
        }
        let inode = Arc::new(self.inode_uncached(ino)?);
        self.inodes.put(inode.clone());
        Ok(inode)
    }

    /// The bytes of inode `ino` and the block they are in, whatever they say.
    pub(crate) fn inode_bytes(&self, ino: Ino) -> Result<(Box<[u8]>, FsBlock)> {
        let place = self.sb.inode_place(ino)?;
        let table = self.group(place.group)?.inode_table();
        let (at, byte) = self.sb.inode_at(table, place.index);
        let block = self.block(at, "inode table")?;
        let bytes = block.get(byte..byte + self.sb.inode_size as usize).unwrap_or_default();
        Ok((bytes.into(), at))
    }

    /// Inode `ino`, which is in use, without keeping it.
    pub(crate) fn inode_uncached(&self, ino: Ino) -> Result<Inode> {
        let inode = self.read_inode(ino)?;
        if inode.raw.links_count.get() == 0 {
            return Err(inode.corrupt("inode.i_links_count", 0, "an inode in use"));
        }
        Ok(inode)
    }

    /// Inode `ino`, which may have lost its last name.
    pub(crate) fn read_inode(&self, ino: Ino) -> Result<Inode> {
        let (bytes, at) = self.inode_bytes(ino)?;
        let raw = RawInode::read(&bytes, at)?;
        let seed = self.sb.checksums.inode_seed(ino, raw.generation.get());
        if let Some(seed) = seed {
            inode::verify(&bytes, seed, ino, at)?;
        }
        let Some(kind) = raw.kind() else {
            let found = format!("{:#o} in inode {ino}", raw.mode.get());
            return Err(Error::corrupt("inode.i_mode", at, found, "a type of file"));
        };
        let inode = Inode { ino, raw, kind, bytes, at, seed };
        self.check_size(&inode)?;
        Ok(inode)
    }

    /// Fails if the inode's size is more than it can be.
    fn check_size(&self, inode: &Inode) -> Result<()> {
        let size = inode.raw.size();
        let blocks = size.div_ceil(self.sb.block_size.into());
        let most = match inode.kind {
            // A directory has no holes.
            FileKind::Directory => self.sb.blocks,
            FileKind::Symlink => 1,
            _ => 1 << 32,
        };
        if blocks > most {
            return Err(inode.corrupt("inode.i_size", size, format!("{most} blocks")));
        }
        Ok(())
    }
}
