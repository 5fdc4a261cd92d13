//! The superblock of a volume that is not mounted: read, and changed in place.

use std::sync::Arc;

use drive::{Blocks, Drive};
use queue::BlockQueue;
use zerocopy::IntoBytes;

use crate::error::Result;
use crate::ondisk::SUPERBLOCK_OFFSET;
use crate::ondisk::superblock::{RawSuperblock, SUPERBLOCK_SIZE, Superblock};
use crate::reader;

/// The first superblock of the volume on `drive`.
pub(crate) fn read(drive: &Arc<dyn Drive>) -> Result<Superblock> {
    reader::valid_superblock(&BlockQueue::new(drive.clone()))
}

/// Changes the first superblock, whose block no drive tears in a sector. Durable when this returns.
pub(crate) fn edit(
    drive: &Arc<dyn Drive>,
    change: impl FnOnce(&mut RawSuperblock),
) -> Result<Superblock> {
    let queue = BlockQueue::new(drive.clone());
    let mut block = queue.read_block(0)?;
    let mut raw = reader::valid_superblock(&queue)?.raw;
    change(&mut raw);
    raw.seal();
    let bytes = block.make_mut();
    bytes[SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE].copy_from_slice(raw.as_bytes());
    queue.write_blocks(0, Blocks::from_iter([block]), true)?;
    queue.flush()?;
    Superblock::parse(raw, 0)
}
