//! Cutting a file off: its blocks, and the nodes that pointed to nothing else
//! (`f2fs_truncate_inode_blocks`).

use crate::error::Result;
use crate::mount::engine::Engine;
use crate::ondisk::node::{NodePath, RawIndirectNode};
use crate::ondisk::{NIDS_PER_BLOCK, Nid};

/// A node below the inode: what it covers and where it stands.
#[derive(Clone, Copy)]
struct Subtree {
    nid: Nid,
    /// Levels between it and the data: 1 for a direct node.
    height: u32,
    /// First block of the file it covers.
    start: u64,
}

/// Heights of the five nodes an inode points to.
const HEIGHTS: [u32; 5] = [1, 1, 2, 2, 3];

impl Engine {
    /// Frees all blocks of the file from block `from` on, and all nodes only they needed.
    pub(crate) fn truncate_blocks(&mut self, ino: Nid, from: u64) -> Result<()> {
        let addrs = self.layout(ino)?.addr_counts();
        let mut start = u64::from(addrs.inode);
        if from < start {
            self.free_range(ino, from..start)?;
        }
        for (i, height) in HEIGHTS.into_iter().enumerate() {
            let nid = self.inode(ino)?.nid[i].get();
            let tree = Subtree { nid, height, start };
            start += addrs.coverage(height);
            if nid != 0 && start > from && self.truncate_subtree(ino, tree, from)? {
                self.set_child(ino, ino, i, 0)?;
            }
        }
        Ok(())
    }

    /// Frees what of `tree` lies at or behind `from`; true if the node itself is gone.
    fn truncate_subtree(&mut self, ino: Nid, tree: Subtree, from: u64) -> Result<bool> {
        let addrs = self.layout(ino)?.addr_counts();
        let coverage = addrs.coverage(tree.height);
        let path = NodePath::of(tree.start, addrs);
        // The first block's path names the node offset that belongs to every node on its way.
        let offset = path.map_or(0, |p| p.node_offsets[p.level + 1 - tree.height as usize]);
        self.node_at(tree.nid, ino, offset)?;
        if tree.height == 1 {
            self.free_range(ino, from.max(tree.start)..tree.start + coverage)?;
        } else {
            let child_span = addrs.coverage(tree.height - 1);
            let first = from.saturating_sub(tree.start) / child_span;
            for i in first as usize..NIDS_PER_BLOCK as usize {
                let nid = RawIndirectNode::of(&self.node(ino, tree.nid)?.block).nid[i].get();
                let start = tree.start + i as u64 * child_span;
                let child = Subtree { nid, height: tree.height - 1, start };
                if nid != 0 && self.truncate_subtree(ino, child, from)? {
                    self.set_child(ino, tree.nid, i, 0)?;
                }
            }
        }
        let empty = from <= tree.start;
        if empty {
            self.free_node(tree.nid, ino)?;
        }
        Ok(empty)
    }
}
