//! Where the blocks of a file are: extents, or the older map.

use super::Reader;
use super::blocks::Buf;
use super::inode::Inode;
use crate::error::Result;
use crate::ondisk::extent::{self, Extent, Found, HOLE_END, Node};
use crate::ondisk::indirect::{Path, number};
use crate::ondisk::inode::Flags;
use crate::ondisk::{FileBlock, FsBlock};

/// Where a block of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nowhere: it reads as zeroes.
    Hole,
    /// There is a block for it, but it reads as zeroes.
    Unwritten(FsBlock),
    /// In this block.
    At(FsBlock),
}

/// A block of a file and those that follow it in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Where the first one is.
    pub(crate) place: Place,
    /// How many; 1 or more.
    pub(crate) len: u64,
}

impl Reader {
    /// Where `block` of a file is, and how many follow it there.
    pub(crate) fn locate(&self, inode: &Inode, block: FileBlock) -> Result<Run> {
        if inode.flags().contains(Flags::EXTENTS) {
            self.locate_extent(inode, block)
        } else {
            self.locate_indirect(inode, block)
        }
    }

    fn locate_extent(&self, inode: &Inode, block: FileBlock) -> Result<Run> {
        let mut end = HOLE_END;
        let mut held: Buf;
        let mut node = Node::parse(&inode.raw.block, None, inode.at)?;
        loop {
            let (child, below) = match node.look(block, end) {
                Found::Extent(extent) => {
                    self.check_blocks(extent.start, extent.len.into(), "extent.ee_start")?;
                    return Ok(within(&extent, block));
                }
                Found::Hole(end) => {
                    return Ok(Run { place: Place::Hole, len: end - u64::from(block) });
                }
                Found::Below { child, end } => (child, end),
            };
            let depth = node.depth - 1;
            held = self.extent_block(inode, child)?;
            node = Node::parse(&held, Some(depth), child)?;
            end = below;
        }
    }

    /// A node of the extent tree below the root.
    pub(crate) fn extent_block(&self, inode: &Inode, at: FsBlock) -> Result<Buf> {
        let block = self.block(at, "extent_idx.ei_leaf")?;
        if let Some(seed) = inode.seed {
            extent::verify(&block, seed, at)?;
        }
        Ok(block)
    }

    fn locate_indirect(&self, inode: &Inode, block: FileBlock) -> Result<Run> {
        let size = self.sb.block_size;
        let Some(path) = Path::to(block, size) else {
            return Ok(Run { place: Place::Hole, len: (1 << 32) - u64::from(block) });
        };
        let slots = path.slots();
        let mut held: Buf;
        let mut numbers: &[u8] = &inode.raw.block;
        for (depth, slot) in slots.iter().enumerate() {
            let found = number(numbers, *slot);
            let is_last = depth + 1 == slots.len();
            if found == 0 {
                return Ok(Run { place: Place::Hole, len: path.rest(depth, size) });
            }
            if is_last {
                let len = self.following(numbers, *slot, depth, found);
                self.check_blocks(found, len, "inode.i_block")?;
                return Ok(Run { place: Place::At(found), len });
            }
            held = self.block(found, "inode.i_block")?;
            numbers = &held;
        }
        Ok(Run { place: Place::Hole, len: 1 })
    }

    /// How many numbers from `slot` on, which is `first`, are of adjacent blocks.
    fn following(&self, numbers: &[u8], slot: u32, depth: usize, first: FsBlock) -> u64 {
        let slots =
            if depth == 0 { crate::ondisk::indirect::DIRECT } else { self.sb.block_size / 4 };
        let mut len = 1;
        while slot + (len as u32) < slots && number(numbers, slot + len as u32) == first + len {
            len += 1;
        }
        len
    }
}

/// The part of `extent` from `block` on.
fn within(extent: &Extent, block: FileBlock) -> Run {
    let skipped = block - extent.block;
    let start = extent.start + u64::from(skipped);
    let place = if extent.unwritten { Place::Unwritten(start) } else { Place::At(start) };
    Run { place, len: (extent.len - skipped).into() }
}
