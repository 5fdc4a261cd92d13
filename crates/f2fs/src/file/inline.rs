//! Small files inside their inode (`inline.c`), and the step out of it.

use drive::{BLOCK_SIZE, Block};
use queue::WriteSet;
use vfs::Ino;

use crate::alloc::gc::Hands;
use crate::error::Result;
use crate::file::writeback::WritePages;
use crate::mount::engine::Engine;
use crate::ondisk::Nid;
use crate::ondisk::inode::Inline;
use crate::ondisk::sit::LogType;

impl Engine {
    /// Whether the file's contents are in its inode.
    pub(crate) fn has_inline_data(&mut self, ino: Nid) -> Result<bool> {
        Ok(self.raw_inode(ino)?.inline().contains(Inline::DATA))
    }

    /// Writes inline contents that fit.
    pub(crate) fn write_inline(&mut self, ino: Nid, offset: usize, data: &[u8]) -> Result<()> {
        let range = self.layout(ino)?.inline_range();
        let area = &mut self.node_mut(ino, ino)?[range];
        area[offset..offset + data.len()].copy_from_slice(data);
        let inode = self.inode_mut(ino)?;
        inode.set_inline(inode.inline() | Inline::DATA_EXIST);
        Ok(())
    }

    /// Zeroes inline contents from `size` on.
    pub(crate) fn truncate_inline(&mut self, ino: Nid, size: usize) -> Result<()> {
        let range = self.layout(ino)?.inline_range();
        if let Some(tail) = self.node_mut(ino, ino)?[range].get_mut(size..) {
            tail.fill(0);
        }
        if size == 0 {
            let inode = self.inode_mut(ino)?;
            inode.set_inline(inode.inline() - Inline::DATA_EXIST);
        }
        Ok(())
    }

    /// Moves inline contents to a block of their own.
    ///
    /// The block is written before the inode can be: otherwise a checkpoint in between would make
    /// an inode durable that has given up its contents for a block that never came
    /// (`f2fs_convert_inline_page`).
    pub(crate) fn convert_inline_data(&mut self, ino: Nid) -> Result<()> {
        let inode = self.inode(ino)?;
        let layout = inode.layout;
        let mut page = [0; BLOCK_SIZE];
        let contents = &inode.block()[layout.inline_range()];
        let has_data = inode.inline().contains(Inline::DATA_EXIST) && inode.size.get() > 0;
        page[..contents.len()].copy_from_slice(contents);
        drop(inode);
        if has_data {
            // Slot 0 is not part of the inline area: taking the block first can still fail cleanly.
            self.reserve_block(ino, 0)?;
        }
        self.node_mut(ino, ino)?[layout.inline_range()].fill(0);
        let raw = self.inode_mut(ino)?;
        raw.set_inline(raw.inline() - Inline::DATA - Inline::DATA_EXIST);
        if has_data {
            self.inodes.of(ino).pages.insert_dirty(Ino::from(ino), 0, Block::new(page));
            let mut set = WriteSet::default();
            let written = self.write_page(ino, 0, LogType::HotData.into(), &mut set);
            self.finish(set, written)?;
        }
        Ok(())
    }
}
