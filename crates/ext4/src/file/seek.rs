//! The search for data and holes (`ext4_llseek`). Blocks that were never written are a hole, unless
//! memory has something for them.

use std::ops::Range;

use drive::BLOCK_SIZE;
use vfs::op::look;
use vfs::{Errno, Seek};

use crate::error::Result;
use crate::file::map::file_block;
use crate::file::read_write::check_regular;
use crate::inode::cached::{Inode, Shard};
use crate::inode::map::{self, Mapped};
use crate::mount::engine::Engine;
use crate::mount::want::Step;
use crate::ondisk::Ino;

const PAGE: u64 = BLOCK_SIZE as u64;

impl Engine {
    /// `SEEK_DATA` and `SEEK_HOLE`.
    pub(crate) fn seek(&self, ino: Ino, offset: u64, seek: Seek) -> Result<u64> {
        look(self, ino.into(), |shard| {
            let inode = &shard.inode(ino)?.inode;
            check_regular(inode)?;
            if offset >= inode.size {
                return Err(Errno::NXIO.into());
            }
            let pages = offset / PAGE..inode.size.div_ceil(PAGE);
            match (self.next(shard, ino, inode, pages, seek)?, seek) {
                (Some(page), _) => Ok((page * PAGE).clamp(offset, inode.size)),
                (None, Seek::Hole) => Ok(inode.size),
                (None, Seek::Data) => Err(Errno::NXIO.into()),
            }
        })
    }

    /// The first page in `pages` that is data, or a hole.
    fn next(
        &self,
        shard: &Shard,
        ino: Ino,
        inode: &Inode,
        pages: Range<u64>,
        seek: Seek,
    ) -> Step<Option<u64>> {
        let mut at = pages.start;
        while at < pages.end {
            let (end, is_written) = match map::find(self, inode, file_block(at)?)? {
                Mapped::Extent(extent) => (extent.end(), !extent.unwritten),
                Mapped::Hole(end) => (end, false),
            };
            let end = end.min(pages.end);
            let found = match (seek, is_written) {
                (Seek::Data, true) => Some(at),
                (Seek::Data, false) => shard.pages.dirty_in(ino.into(), at..end).next(),
                (Seek::Hole, true) => None,
                (Seek::Hole, false) => {
                    let mut dirty = shard.pages.dirty_in(ino.into(), at..end);
                    let clean = |page: &u64| dirty.next() != Some(*page);
                    (at..end).find(clean)
                }
            };
            if found.is_some() {
                return Ok(found);
            }
            at = end;
        }
        Ok(None)
    }
}
