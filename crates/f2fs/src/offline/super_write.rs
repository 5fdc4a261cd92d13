//! Changing the superblock (`f2fs_commit_super`).
//!
//! What can tear: one copy. What orders it: the copy that is not in use is written and made stable
//! before the other is touched. Who repairs: a reader takes the first sound copy, so at every
//! moment the volume is as it was before or as it is afterwards.

use queue::BlockQueue;

use crate::error::Result;
use crate::ondisk::superblock::{COPIES, RawSuperblock, Superblock};

/// The superblock in use, raw. Afterwards both copies equal it.
pub(crate) fn read(queue: &BlockQueue) -> Result<(RawSuperblock, Superblock)> {
    let (sb, at) = Superblock::select(|addr| Ok(queue.read_block(addr.into())?))?;
    let block = queue.read_block(at.into())?;
    Ok((RawSuperblock::of(&block).clone(), sb))
}

/// Replaces the superblock with `raw`.
pub(crate) fn replace(queue: &BlockQueue, mut raw: RawSuperblock) -> Result<Superblock> {
    raw.seal();
    let block = raw.to_block();
    let sb = Superblock::parse(&block, 0)?;
    let (_, used) = Superblock::select(|addr| Ok(queue.read_block(addr.into())?))?;
    for copy in COPIES.into_iter().filter(|copy| *copy != used).chain([used]) {
        queue.flush()?;
        queue.write_blocks(copy.into(), vec![block.clone()], true)?;
        queue.flush()?;
    }
    Ok(sb)
}
