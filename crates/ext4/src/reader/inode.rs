//! Inodes in memory, in shards with a lock each.

use std::sync::Arc;

use cores::{Mutex, Rank};
use rustc_hash::FxHashMap;
use vfs::{Attr, FileKind};

use super::Reader;
use crate::blocks::{Blocks, Kind};
use crate::error::{Error, Result};
use crate::inode::cached::Inode;
use crate::ondisk::inode::Flags;
use crate::ondisk::{FsBlock, Ino};

/// Neighbouring numbers are in different shards, so files made one after the other share none.
const SHARDS: usize = 256;

impl Inode {
    /// Whether its contents are encrypted.
    pub(crate) fn check_readable(&self) -> Result<()> {
        if self.flags().contains(Flags::ENCRYPT) {
            return Err(Error::unsupported(format!("encrypt (inode {})", self.ino)));
        }
        Ok(())
    }

    /// Fails with what POSIX says of a file that must be a directory.
    pub(crate) fn check_directory(&self) -> Result<()> {
        match self.kind() {
            FileKind::Directory => Ok(()),
            _ => Err(vfs::Errno::NOTDIR.into()),
        }
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
        let block = self.block(at, Kind::Table)?;
        Ok((block[byte..byte + self.sb.inode_size as usize].into(), at))
    }

    /// Inode `ino`, which is in use, without keeping it.
    pub(crate) fn inode_uncached(&self, ino: Ino) -> Result<Inode> {
        let inode = self.read_inode(ino)?;
        if inode.links() == 0 {
            return Err(inode.corrupt("inode.i_links_count", 0, "an inode in use"));
        }
        Ok(inode)
    }

    /// Inode `ino`, which may have lost its last name.
    pub(crate) fn read_inode(&self, ino: Ino) -> Result<Inode> {
        let (bytes, at) = self.inode_bytes(ino)?;
        let inode = Inode::parse(&self.sb, ino, &bytes, at)?;
        self.check_size(&inode)?;
        Ok(inode)
    }

    /// Attributes. Contents in the inode count as blocks, so that nobody takes the file for a hole
    /// (`ext4_file_getattr`).
    pub(crate) fn attr(&self, inode: &Inode) -> Attr {
        let attr = inode.attr(0, self.sb.block_size);
        let is_inline =
            attr.kind == FileKind::Regular && inode.flags().contains(Flags::INLINE_DATA);
        let inline = if is_inline { attr.size.div_ceil(512) } else { 0 };
        Attr { blocks: attr.blocks + inline, ..attr }
    }

    /// Fails if the inode's size is more than it can be.
    fn check_size(&self, inode: &Inode) -> Result<()> {
        let blocks = inode.size.div_ceil(self.sb.block_size.into());
        let most = match inode.kind() {
            // A directory has no holes.
            FileKind::Directory => self.sb.blocks,
            FileKind::Symlink => 1,
            _ => 1 << 32,
        };
        if blocks > most {
            return Err(inode.corrupt("inode.i_size", inode.size, format!("{most} blocks")));
        }
        Ok(())
    }
}
