//! The search for data and holes (`ext4_llseek`). Blocks that were never written are a hole, unless
//! memory has something for them.

use std::ops::Range;

use vfs::{Errno, Seek};

use crate::error::Result;
use crate::file::map::{dirty_among, file_block};
use crate::file::read_write::check_regular;
use crate::inode::cached::{Inode, Shard};
use crate::inode::map::{self, Mapped};
use crate::mount::engine::Engine;
use crate::mount::want::Step;
use crate::ondisk::Ino;

impl Engine {
    /// `SEEK_DATA` and `SEEK_HOLE`.
    pub(crate) fn seek(&self, ino: Ino, offset: u64, seek: Seek) -> Result<u64> {
        self.look(ino.into(), |shard| {
            let inode = &shard.inode(ino)?.inode;
            check_regular(inode)?;
            if offset >= inode.size {
                return Err(Errno::NXIO.into());
            }
            let size = u64::from(self.sb.block_size);
            let blocks = offset / size..inode.size.div_ceil(size);
            match (self.next(shard, ino, inode, blocks, seek)?, seek) {
                (Some(block), _) => Ok((block * size).clamp(offset, inode.size)),
                (None, Seek::Hole) => Ok(inode.size),
                (None, Seek::Data) => Err(Errno::NXIO.into()),
            }
        })
    }

    /// The first of `blocks` that is data, or a hole.
    fn next(
        &self,
        shard: &Shard,
        ino: Ino,
        inode: &Inode,
        blocks: Range<u64>,
        seek: Seek,
    ) -> Step<Option<u64>> {
        let mut at = blocks.start;
        while at < blocks.end {
            let (end, is_written) = match map::find(self, inode, file_block(at)?)? {
                Mapped::Extent(extent) => (extent.end(), !extent.unwritten),
                Mapped::Hole(end) => (end, false),
            };
            let end = end.min(blocks.end);
            let found = match (seek, is_written) {
                (Seek::Data, true) => Some(at),
                (Seek::Data, false) => {
                    dirty_among(self, shard, ino, &(at..end)).next().map(|dirty| dirty.start)
                }
                (Seek::Hole, true) => None,
                (Seek::Hole, false) => {
                    let mut clean = at;
                    for dirty in dirty_among(self, shard, ino, &(at..end)) {
                        if dirty.start > clean {
                            break;
                        }
                        clean = dirty.end;
                    }
                    (clean < end).then_some(clean)
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
