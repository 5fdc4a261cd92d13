//! Where the blocks of a file are: looking them up in its extent tree.

use drive::Block;
use vfs::Errno;

use crate::error::Error;
use crate::inode::cached::Inode;
use crate::mount::want::{Kind, Step};
use crate::ondisk::extent::{Extent, Found, HOLE_END, Node};
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{FileBlock, FsBlock};

/// Metadata blocks as an operation sees them.
pub(crate) trait Blocks {
    /// The volume's superblock.
    fn sb(&self) -> &Superblock;

    /// The block `at`, if it is in memory.
    fn block(&self, at: FsBlock, kind: Kind) -> Step<Block>;
}

/// What a block of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapped {
    /// Part of this extent.
    Extent(Extent),
    /// Part of a hole, which ends before this block.
    Hole(u64),
}

/// What `block` of the file is.
pub(crate) fn find(blocks: &impl Blocks, inode: &Inode, block: FileBlock) -> Step<Mapped> {
    if !inode.has_extents() {
        return Err(Error::unsupported("files without extents").into());
    }
    let (mut depth, mut at, mut end) = (None, 0, HOLE_END);
    let mut node_block;
    let mut bytes: &[u8] = &inode.raw.block;
    loop {
        let node = Node::parse(bytes, depth, at)?;
        match node.look(block, end) {
            Found::Extent(extent) => {
                check_extent(blocks.sb(), &extent, at)?;
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

/// Blocks of page `page` of a file that are holes.
pub(crate) fn holes_in(blocks: &impl Blocks, inode: &Inode, page: u64) -> Step<u64> {
    let each = blocks.sb().blocks_per_page();
    let (mut at, end, mut holes) = (page * each, (page + 1) * each, 0);
    while at < end {
        let block = file_block(at)?;
        at = match find(blocks, inode, block)? {
            Mapped::Extent(extent) => extent.end(),
            Mapped::Hole(next) => {
                holes += next.min(end) - at;
                next
            }
        };
    }
    Ok(holes)
}

/// Number of a file's block; larger ones are `EFBIG`.
pub(crate) fn file_block(index: u64) -> Step<FileBlock> {
    FileBlock::try_from(index).map_err(|_| Error::Posix(Errno::FBIG).into())
}

fn check_extent(sb: &Superblock, extent: &Extent, at: FsBlock) -> Step<()> {
    if sb.holds(extent.start, extent.len.into()) {
        return Ok(());
    }
    let found = format!("{} blocks from {:#x}", extent.len, extent.start);
    Err(Error::corrupt("extent.ee_start", at, found, "blocks of the volume").into())
}

impl Mapped {
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
