//! Inodes: read, checked, and kept in memory.

use std::sync::Arc;

use vfs::{Attr, FileKind};

use super::Reader;
use crate::blocks::{Blocks, Kind};
use crate::error::{Error, Result};
use crate::inode::cached::Inode;
use crate::ondisk::inode::Flags;
use crate::ondisk::{FsBlock, Ino};

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

impl Reader {
    /// Inode `ino`, which is in use.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        if let Some(inode) = self.inodes.get(ino.into()) {
            return Ok(inode);
        }
        let inode = Arc::new(self.inode_uncached(ino)?);
        self.inodes.put(ino.into(), inode.clone());
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
