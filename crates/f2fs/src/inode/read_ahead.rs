//! Reading a file's nodes ahead of its contents (`f2fs_ra_node_pages`).

use crate::alloc::gc::piece::read_all;
use crate::error::Result;
use crate::inode::mapping::Mapping;
use crate::mount::engine::Engine;
use crate::ondisk::node::{NodePath, RawIndirectNode};
use crate::ondisk::{Nid, is_data_addr};

impl Engine {
    /// If block `index` is the first of a direct node that is not cached, as in a sequential read,
    /// reads that node and those behind it, all at once. Nodes that cannot be read are left out;
    /// their users read them again and get the error.
    pub(crate) fn read_nodes_ahead(&mut self, ino: Nid, index: u64) -> Result<()> {
        let most = self.inodes.clean_nodes_max() / 4;
        let most = most.min(self.knobs.ra_node_pages as usize);
        let addrs = self.layout(ino)?.addr_counts();
        let Some(path) = NodePath::of(index, addrs) else { return Ok(()) };
        // Two direct nodes hang on the inode itself.
        if path.level < 2 || path.slots[path.level] != 0 || most < 2 {
            return Ok(());
        }
        let mut parent = ino;
        for depth in 0..path.level - 1 {
            parent = self.child(ino, parent, &path, depth)?;
            if parent == 0 {
                return Ok(());
            }
        }
        let from = usize::from(path.slots[path.level - 1]);
        let node = self.node_at(parent, ino, path.node_offsets[path.level - 1])?;
        let nids = RawIndirectNode::of(&node.block).nid[from..].iter().take(most);
        let nids: Vec<Nid> = nids.map(|nid| nid.get()).filter(|nid| *nid != 0).collect();
        if nids.first().is_none_or(|first| self.has_node(ino, *first)) {
            return Ok(());
        }
        self.read_nodes_together(nids.into_iter().map(|nid| (ino, nid)))
    }

    /// Reads these inodes of a directory's entries all at once (`readdir_ra`): a caller that lists
    /// names often asks for attributes next.
    pub(crate) fn read_inodes_ahead(&mut self, inos: &[Nid]) -> Result<()> {
        let most = self.inodes.clean_nodes_max() / 4;
        self.read_nodes_together(inos.iter().take(most).map(|ino| (*ino, *ino)))
    }

    /// Reads those of these nodes, each with its inode, that are not cached.
    fn read_nodes_together(&mut self, nodes: impl Iterator<Item = (Nid, Nid)>) -> Result<()> {
        let mut wanted = Vec::new();
        for (ino, nid) in nodes {
            if !self.sb.is_node_id(nid) || self.has_node(ino, nid) {
                continue;
            }
            let entry = self.nat.get_mut().get(&self.io, nid)?;
            let at_rest = is_data_addr(entry.addr) && !self.io.is_in_flight(entry.addr);
            if at_rest && self.sb.in_main(entry.addr) {
                wanted.push((ino, nid, entry.addr));
            }
        }
        let read = read_all(self.io.queue(), wanted.iter().map(|(.., addr)| *addr).collect());
        self.io.keep_ahead(read);
        for (ino, nid, _) in wanted {
            drop(self.load_node(ino, nid));
        }
        self.io.forget_ahead();
        Ok(())
    }
}
