//! One file: its inode, its node tree, the blocks they point to, its extended attributes.

use drive::Block;
use vfs::FileKind;

use super::segments::Owner;
use super::{Checker, Place};
use crate::ondisk::inode::{Inline, InodeLayout, RawExtent, RawInodeBlock};
use crate::ondisk::nat::NatEntry;
use crate::ondisk::node::first_index_of;
use crate::ondisk::node::{RawDirectNode, RawIndirectNode, RawNodeFooter, XATTR_NODE_OFFSET};
use crate::ondisk::{BLOCK_SIZE, BlockAddr, NEW_ADDR, NIDS_PER_BLOCK, NULL_ADDR, Nid};
use crate::ondisk::{SYMLINK_MAX, bits, xattr};

/// Where the five trees below an inode begin: node offset, and levels of indirect nodes.
const TREES: [(u32, u32); 5] =
    [(1, 0), (2, 0), (3, 1), (4 + NIDS_PER_BLOCK, 1), (5 + 2 * NIDS_PER_BLOCK, 2)];

/// An inode that passed its own checks.
pub(super) struct Opened {
    pub block: Block,
    pub layout: InodeLayout,
    pub addr: BlockAddr,
    nat: NatEntry,
}

impl Opened {
    pub(super) fn raw(&self) -> &RawInodeBlock {
        RawInodeBlock::of(&self.block)
    }
}

/// A file being walked.
struct Walk {
    ino: Nid,
    addrs_in_inode: u32,
    /// As `i_blocks` counts.
    blocks: u64,
    extent: RawExtent,
    /// Blocks that lie where the extent says.
    extent_hits: u32,
    /// Directories only: blocks by index.
    dir_blocks: Option<Vec<(u64, BlockAddr)>>,
}

impl Checker {
    /// Reads and checks inode `ino`, which the caller has marked as reached.
    pub(super) fn open_inode(&mut self, ino: Nid) -> Option<Opened> {
        self.report.inodes += 1;
        let (nat, block) = self.open_node(ino, ino, 0)?;
        let checked = RawInodeBlock::of(&block).check(&self.volume.sb, ino, nat.addr);
        let layout = self.keep(|| Place::Inode { ino }, checked)?;
        Some(Opened { block, layout, addr: nat.addr, nat })
    }

    /// Claims and reads node `nid`, which has to be the one at `node_offset` of inode `ino`.
    fn open_node(&mut self, nid: Nid, ino: Nid, node_offset: u32) -> Option<(NatEntry, Block)> {
        self.report.nodes += 1;
        let looked_up = self.volume.nat(nid);
        let nat = self.keep(|| Place::Nat { nid }, looked_up)?;
        if nat.ino != ino {
            self.find(Place::Nat { nid }, "ino", nat.ino, ino);
        }
        let owner = Owner { nid, version: 0, slot: 0, is_node: true };
        if !self.claim(nat.addr, owner) {
            return None;
        }
        let read = self.volume.read(nat.addr);
        let block = self.keep(|| Place::Node { nid }, read)?;
        let footer = RawNodeFooter::of(&block);
        let checked = footer.check(nid, ino, nat.addr);
        self.keep(|| Place::Node { nid }, checked)?;
        if footer.node_offset() != node_offset {
            self.find(Place::Node { nid }, "node offset", footer.node_offset(), node_offset);
            return None;
        }
        Some((nat, block))
    }

    /// Claims everything below an inode. For a directory, its blocks by index.
    pub(super) fn walk_file(&mut self, ino: Nid, opened: &Opened) -> Vec<(u64, BlockAddr)> {
        let raw = opened.raw();
        let kind = raw.i.kind();
        let inline = raw.i.inline().intersects(Inline::DATA | Inline::DENTRY);
        let mut walk = Walk {
            ino,
            addrs_in_inode: opened.layout.addrs(),
            blocks: 1,
            extent: raw.i.ext,
            extent_hits: 0,
            dir_blocks: (kind == Some(FileKind::Directory)).then(Vec::new),
        };
        let has_blocks =
            matches!(kind, Some(FileKind::Regular | FileKind::Directory | FileKind::Symlink));
        if has_blocks && !inline {
            let slots = opened.layout.slot(0)..opened.layout.slot(opened.layout.addrs() as usize);
            let addrs = raw.i.addr[slots].iter().map(|addr| addr.get());
            self.walk_slots(&mut walk, ino, opened.nat.version, 0, addrs);
            for ((offset, levels), nid) in TREES.into_iter().zip(&raw.i.nid) {
                self.walk_node(&mut walk, nid.get(), offset, levels);
            }
        }
        if let Some(node) = self.check_xattrs(ino, opened) {
            walk.blocks += node;
        }
        self.check_file(opened, &walk);
        walk.dir_blocks.unwrap_or_default()
    }

    /// A node below the inode and what is below it; `levels` deep, at most two.
    fn walk_node(&mut self, walk: &mut Walk, nid: Nid, offset: u32, levels: u32) {
        if nid == 0 || !self.reach(nid) {
            return;
        }
        walk.blocks += 1;
        let Some((nat, block)) = self.open_node(nid, walk.ino, offset) else { return };
        if levels == 0 {
            let first = first_index_of(offset, walk.addrs_in_inode).unwrap_or_default();
            let addrs = RawDirectNode::of(&block).addr.iter().map(|addr| addr.get());
            return self.walk_slots(walk, nid, nat.version, first, addrs);
        }
        // The nodes of a child's tree, the child included, stand before the next child.
        let step = if levels == 1 { 1 } else { NIDS_PER_BLOCK + 1 };
        for (child, i) in RawIndirectNode::of(&block).nid.iter().zip(0..) {
            self.walk_node(walk, child.get(), offset + 1 + i * step, levels - 1);
        }
    }

    fn walk_slots(
        &mut self,
        walk: &mut Walk,
        nid: Nid,
        version: u8,
        first: u64,
        addrs: impl Iterator<Item = BlockAddr>,
    ) {
        for (slot, addr) in addrs.enumerate() {
            if addr == NULL_ADDR {
                continue;
            }
            walk.blocks += 1;
            if addr == NEW_ADDR {
                self.report.blocks += 1;
                continue;
            }
            let index = first + slot as u64;
            let owner = Owner { nid, version, slot: slot as u16, is_node: false };
            walk.extent_hits += u32::from(in_extent(&walk.extent, index, addr));
            if self.claim(addr, owner)
                && let Some(blocks) = &mut walk.dir_blocks
            {
                blocks.push((index, addr));
            }
        }
    }

    /// Marks a node number as reached; `false`, with a finding, if it is out of range or was.
    pub(super) fn reach(&mut self, nid: Nid) -> bool {
        if !self.volume.sb.is_node_id(nid) {
            let allowed = format!("3..{}", self.volume.sb.max_nid());
            self.find(Place::Node { nid }, "number", nid, allowed);
            return false;
        }
        if bits::lsb::set(&mut self.nids_reached, nid as usize) {
            self.find(Place::Node { nid }, "parents", "several", "one");
            return false;
        }
        true
    }

    /// Checks the attributes; how many nodes they take.
    fn check_xattrs(&mut self, ino: Nid, opened: &Opened) -> Option<u64> {
        let raw = opened.raw();
        let nid = raw.i.xattr_nid.get();
        let inline = raw.i.inline().contains(Inline::XATTR);
        let area = if inline { opened.layout.xattr_range() } else { 0..0 };
        let mut buffer = opened.block[area].to_vec();
        let mut nodes = 0;
        if nid != 0 && self.reach(nid) {
            nodes = 1;
            let (_, block) = self.open_node(nid, ino, XATTR_NODE_OFFSET)?;
            buffer.extend_from_slice(&block[..xattr::NODE_CAPACITY]);
        }
        let parsed = xattr::parse(&buffer, opened.addr.into()).map(drop);
        self.keep(|| Place::Inode { ino }, parsed);
        Some(nodes)
    }

    fn check_file(&mut self, opened: &Opened, walk: &Walk) {
        let (place, i) = (Place::Inode { ino: walk.ino }, &opened.raw().i);
        if i.blocks.get() != walk.blocks {
            self.find(place.clone(), "i_blocks", i.blocks.get(), walk.blocks);
        }
        if walk.extent_hits != walk.extent.len.get() {
            let found = format!("{} blocks", walk.extent.len);
            self.find(place.clone(), "i_ext", found, format!("{} of them", walk.extent_hits));
        }
        let size = i.size.get();
        if i.kind() == Some(FileKind::Symlink) && !(1..=SYMLINK_MAX as u64).contains(&size) {
            self.find(place.clone(), "i_size of a symbolic link", size, "1..=4095");
        }
        let inline = i.inline();
        if inline.contains(Inline::DATA) && !inline.contains(Inline::DATA_EXIST) {
            let junk = opened.block[opened.layout.inline_range()].iter().any(|&b| b != 0);
            if junk {
                self.find(place, "inline data without DATA_EXIST", "some", "zeroes");
            }
        } else if let Some(blocks) = &walk.dir_blocks {
            let last = blocks.last().map_or(0, |(index, _)| index + 1);
            if last.saturating_mul(BLOCK_SIZE as u64) > size {
                let allowed = format!("{last} blocks or more");
                self.find(place, "i_size of a directory", size, allowed);
            }
        }
    }

    /// A file without a name: claims it all, checks the link count, enters no directory.
    pub(super) fn visit_unnamed(&mut self, ino: Nid, links: u32, what: &'static str) {
        if !self.reach(ino) {
            return;
        }
        let Some(opened) = self.open_inode(ino) else { return };
        let found = opened.raw().i.links.get();
        if found != links {
            self.find(Place::Inode { ino }, what, format!("{found} links"), links);
        }
        self.walk_file(ino, &opened);
    }
}

/// Whether the extent says that block `index` of the file is at `addr`.
fn in_extent(extent: &RawExtent, index: u64, addr: BlockAddr) -> bool {
    let offset = index.checked_sub(extent.fofs.get().into());
    let offset = offset.filter(|&offset| offset < u64::from(extent.len.get()));
    offset.is_some_and(|offset| u64::from(extent.blk.get()) + offset == u64::from(addr))
}
