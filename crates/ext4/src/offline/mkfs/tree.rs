//! The extent tree of a file that never changes: as few nodes as there can be.

use crate::ondisk::extent::{self, Extent, Index};
use crate::ondisk::inode::I_BLOCK_SIZE;
use crate::ondisk::{FileBlock, FsBlock};

/// Slots of a root, which is in the inode.
const ROOT_SLOTS: usize = 4;

/// The root, and each node with the block it goes to.
pub(super) struct Tree {
    pub(super) root: [u8; I_BLOCK_SIZE],
    pub(super) nodes: Vec<(FsBlock, Vec<u8>)>,
}

/// How many nodes outside the inode `extents` extents need.
pub(super) fn nodes_for(extents: usize, block_size: u32) -> usize {
    let each = slots(block_size);
    let (mut level, mut nodes) = (extents, 0);
    while level > ROOT_SLOTS {
        level = level.div_ceil(each);
        nodes += level;
    }
    nodes
}

/// Slots of a node that fills a block.
fn slots(block_size: u32) -> usize {
    extent::capacity(&vec![0; block_size as usize]).into()
}

/// The tree of `extents`, whose nodes go to `blocks`, as many as [`nodes_for`] says. `seed` is that
/// of the inode, if nodes have checksums.
pub(super) fn build(
    extents: &[Extent],
    blocks: &[FsBlock],
    block_size: u32,
    seed: Option<u32>,
) -> Tree {
    let mut tree = Tree { root: [0; I_BLOCK_SIZE], nodes: Vec::new() };
    if extents.len() <= ROOT_SLOTS {
        extent::emit_leaf(&mut tree.root, extents);
        return tree;
    }
    let mut blocks = blocks.iter().copied();
    let mut push = |block: FileBlock, emit: &dyn Fn(&mut [u8])| {
        let mut bytes = vec![0; block_size as usize];
        emit(&mut bytes);
        seed.inspect(|seed| extent::seal(&mut bytes, *seed));
        let child = blocks.next().expect("as many as `nodes_for` says");
        tree.nodes.push((child, bytes));
        Index { block, child }
    };
    let each = slots(block_size);
    let leaves = extents.chunks(each);
    let mut level: Vec<Index> =
        leaves.map(|all| push(all[0].block, &|bytes| extent::emit_leaf(bytes, all))).collect();
    let mut depth = 1;
    while level.len() > ROOT_SLOTS {
        let inner = level.chunks(each);
        let above = inner
            .map(|all| push(all[0].block, &|bytes| extent::emit_inner(bytes, depth, all)))
            .collect();
        level = above;
        depth += 1;
    }
    extent::emit_inner(&mut tree.root, depth, &level);
    tree
}
