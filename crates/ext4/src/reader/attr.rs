//! What stat(2) says of an inode.

use vfs::{Attr, FileKind};

use super::Reader;
use super::inode::Inode;
use crate::ondisk::inode::Flags;

impl Reader {
    /// Attributes. Contents in the inode count as blocks, so that nobody takes the file for a hole
    /// (`ext4_file_getattr`).
    pub(crate) fn attr(&self, inode: &Inode) -> Attr {
        let attr = inode.raw.attr(inode.ino, inode.kind, self.sb.block_size);
        let is_inline =
            inode.kind == FileKind::Regular && inode.flags().contains(Flags::INLINE_DATA);
        let inline = if is_inline { attr.size.div_ceil(512) } else { 0 };
        Attr { blocks: attr.blocks + inline, ..attr }
    }
}
