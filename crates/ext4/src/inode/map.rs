//! Where the blocks of a file are: looking them up in its extent tree.

use drive::Block;
use vfs::Errno;

use crate::blocks::{Blocks, Kind, Walked};
use crate::error::Error;
use crate::inode::cached::Inode;
use crate::mount::want::{Halt, Step};
use crate::ondisk::extent::{Extent, Found, HOLE_END, Node};
use crate::ondisk::{FileBlock, FsBlock};

/// What a block of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapped {
    /// Part of this extent.
    Extent(Extent),
    /// Part of a hole, which ends before this block.
    Hole(u64),
}

/// What `block` of the file is.
pub(crate) fn find<B: Blocks>(blocks: &B, inode: &Inode, block: FileBlock) -> Walked<Mapped, B> {
    if !inode.has_extents() {
        return blocks.find_indirect(inode, block);
    }
    let (mut depth, mut at, mut end) = (None, inode.at, HOLE_END);
    let mut node_block;
    let mut bytes: &[u8] = &inode.raw.block;
    loop {
        let node = Node::parse(bytes, depth, at)?;
        match node.look(block, end) {
            Found::Extent(extent) => {
                let len = extent.len.into();
                blocks.sb().check_blocks(extent.start, len, "extent.ee_start", at)?;
                return Ok(Mapped::Extent(extent));
            }
            Found::Hole(end) => return Ok(Mapped::Hole(end)),
            Found::Below { child, end: below } => {
                (depth, at, end) = (Some(node.depth - 1), child, below);
            }
        }
        node_block = blocks.block(at, Kind::Extents(inode.seed))?;
        bytes = blocks.sb().bytes(&node_block);
    }
}

/// Block `index` of a file that has no holes, whose blocks are of this `kind`.
pub(crate) fn block<B: Blocks>(
    blocks: &B,
    inode: &Inode,
    index: FileBlock,
    kind: Kind,
) -> Walked<(FsBlock, Block), B> {
    let Some(at) = find(blocks, inode, index)?.written_at(index) else {
        let found = format_args!("a hole at block {index}");
        return Err(inode.corrupt(kind.pointer(), found, "a block").into());
    };
    Ok((at, blocks.block(at, kind)?))
}

/// Blocks of page `page` of a file that are holes.
pub(crate) fn holes_in(blocks: &impl Blocks<Stop = Halt>, inode: &Inode, page: u64) -> Step<u64> {
    let each = blocks.sb().blocks_per_page();
    let (mut at, end, mut holes) = (page * each, (page + 1) * each, 0);
    while at < end {
        let block = file_block(at)?;
        let found = find(blocks, inode, block)?;
        if let Mapped::Hole(next) = found {
            holes += next.min(end) - at;
        }
        at = found.end();
    }
    Ok(holes)
}

/// Number of a file's block; larger ones are `EFBIG`.
pub(crate) fn file_block(index: u64) -> Step<FileBlock> {
    FileBlock::try_from(index).map_err(|_| Error::Posix(Errno::FBIG).into())
}

impl Mapped {
    /// The block behind the last one that is part of it.
    pub(crate) fn end(&self) -> u64 {
        match self {
            Self::Extent(extent) => extent.end(),
            Self::Hole(end) => *end,
        }
    }

    /// As [`Mapped::at`], if that has been written.
    pub(crate) fn written_at(&self, block: FileBlock) -> Option<FsBlock> {
        match self {
            Self::Extent(extent) if !extent.unwritten => self.at(block),
            _ => None,
        }
    }

    /// The block of the volume that `block`, which this was found for, is.
    pub(crate) fn at(&self, block: FileBlock) -> Option<FsBlock> {
        match self {
            Self::Extent(extent) => Some(extent.start + u64::from(block - extent.block)),
            Self::Hole(_) => None,
        }
    }
}
