//! The search for data and holes (`ext4_llseek`). Blocks that were never written are a hole, unless
//! memory has something for them.

use std::ops::Range;

use vfs::{Errno, Seek};

use crate::blocks::{Blocks, Walked};
use crate::error::{Error, Result};
use crate::file::map::dirty_among;
use crate::file::read_write::check_regular;
use crate::inode::cached::Inode;
use crate::inode::map;
use crate::mount::engine::Engine;
use crate::ondisk::{FileBlock, Ino};

impl Engine {
    /// `SEEK_DATA` and `SEEK_HOLE`.
    pub(crate) fn seek(&self, ino: Ino, offset: u64, seek: Seek) -> Result<u64> {
        self.look(ino.into(), |shard| {
            let inode = &shard.inode(ino)?.inode;
            check_regular(inode)?;
            find(self, inode, offset, seek, |blocks| dirty_among(self, shard, ino, blocks))
        })
    }
}

/// The first byte from `offset` on that is data, or in a hole. `dirty` are the blocks among others
/// that memory has something for, in order.
pub(crate) fn find<B: Blocks, D: Iterator<Item = Range<u64>>>(
    blocks: &B,
    inode: &Inode,
    offset: u64,
    seek: Seek,
    dirty: impl Fn(Range<u64>) -> D,
) -> Walked<u64, B> {
    if offset >= inode.size {
        return Err(Error::Posix(Errno::NXIO).into());
    }
    let size = u64::from(blocks.sb().block_size);
    let last = inode.size.div_ceil(size);
    let mut at = offset / size;
    while at < last {
        let Ok(block) = FileBlock::try_from(at) else { break };
        let found = map::find(blocks, inode, block)?;
        let end = found.end().min(last);
        let is_written = found.written_at(block).is_some();
        let found = match (seek, is_written) {
            (Seek::Data, true) => Some(at),
            (Seek::Data, false) => dirty(at..end).next().map(|dirty| dirty.start),
            (Seek::Hole, true) => None,
            (Seek::Hole, false) => {
                let mut clean = at;
                for dirty in dirty(at..end) {
                    if dirty.start > clean {
                        break;
                    }
                    clean = dirty.end;
                }
                (clean < end).then_some(clean)
            }
        };
        if let Some(block) = found {
            return Ok((block * size).clamp(offset, inode.size));
        }
        at = end;
    }
    match seek {
        Seek::Hole => Ok(inode.size),
        Seek::Data => Err(Error::Posix(Errno::NXIO).into()),
    }
}
