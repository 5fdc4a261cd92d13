//! Laying a whole file out in one piece, and the result.
//!
//! What can tear: nothing. Blocks move as the cleaner moves them: the old ones are not used again
//! before a checkpoint knows the new ones.

use vfs::kind::Defragmented;
use vfs::{Errno, FileKind, Ino};

use crate::F2fs;
use crate::error::Result;
use crate::inode::mapping::Mapping;
use crate::mount::engine::Engine;
use crate::mount::fs;
use crate::ondisk::sit::LogType;
use crate::ondisk::{BLOCK_SIZE, BLOCKS_PER_SEGMENT, Nid, is_data_addr};

impl F2fs {
    /// Moves the blocks of a regular file to where they lie side by side, as
    /// [`F2fs::defragment`] does, from the start of a section on. A file in as few pieces as
    /// segments stays as it is.
    pub fn defragment_file(&self, ino: Ino) -> Result<Defragmented> {
        let nid = fs::nid(ino)?;
        let (extents_before, blocks) = self.change()?.extents(nid)?;
        let mut extents_after = extents_before;
        if extents_before > blocks.div_ceil(BLOCKS_PER_SEGMENT.into()) {
            let size = {
                let mut volume = self.change()?;
                // The rest of the log's segment could be shorter than the file.
                let volume = &mut *volume;
                volume.logs.get_mut().start_afresh(
                    volume.segments.get_mut(),
                    &volume.io,
                    LogType::WarmData,
                )?;
                volume.raw_inode(nid)?.size.get()
            };
            self.defragment(ino, 0, size.next_multiple_of(BLOCK_SIZE as u64))?;
            self.write_checkpoint()?;
            extents_after = self.change()?.extents(nid)?.0;
        }
        Ok(Defragmented { extents_before, extents_after, blocks })
    }
}

impl Engine {
    /// How many extents and blocks of data a regular file has.
    fn extents(&mut self, ino: Nid) -> Result<(u64, u64)> {
        if self.kind_of(ino)? != FileKind::Regular {
            return Err(Errno::INVAL.into());
        }
        if self.has_inline_data(ino)? {
            return Ok((0, 0));
        }
        let end = self.raw_inode(ino)?.size.get().div_ceil(BLOCK_SIZE as u64);
        let (mut extents, mut blocks, mut next, mut from) = (0, 0, None, 0);
        while let Some(index) = self.next_allocated(ino, from..end, true)? {
            let addr = self.addr_of(ino, index)?;
            if is_data_addr(addr) {
                extents += u64::from(next != Some((index, addr)));
                blocks += 1;
                next = Some((index + 1, addr + 1));
            }
            from = index + 1;
        }
        Ok((extents, blocks))
    }
}
