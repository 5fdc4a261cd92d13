//! One file: its inode, its node tree, the blocks to which they point, and its extended attributes.

use drive::Block;
use vfs::FileKind;
use zerocopy::little_endian::U32;

use super::mend::Copy;
use super::mend_inode::{Named, mend_inode};
use super::segments::{Claim, Owner};
use super::{Checker, Place, Remedy, Search};
use crate::ondisk::inode::{Inline, InodeLayout, RawExtent, RawInodeBlock};
use crate::ondisk::nat::NatEntry;
use crate::ondisk::node::{
    AddrCounts, RawDirectNode, RawIndirectNode, XATTR_NODE_OFFSET, first_index_of,
};
use crate::ondisk::sit::LogType;
use crate::ondisk::{
    BLOCK_SIZE, BlockAddr, COMPRESS_ADDR, NEW_ADDR, NIDS_PER_BLOCK, NULL_ADDR, Nid,
};
use crate::ondisk::{SYMLINK_MAX, xattr};

/// Where each of the five trees below an inode begins: node offset, and levels of indirect nodes.
const TREES: [(u32, u32); 5] =
    [(1, 0), (2, 0), (3, 1), (4 + NIDS_PER_BLOCK, 1), (5 + 2 * NIDS_PER_BLOCK, 2)];

/// An inode that passed its own checks.
pub(super) struct Opened {
    pub block: Block,
    pub layout: InodeLayout,
    pub addr: BlockAddr,
    nat: NatEntry,
    changed: bool,
}

impl Opened {
    pub(super) fn raw(&self) -> &RawInodeBlock {
        RawInodeBlock::of(&self.block)
    }

    /// The inode, to be changed. It is written only if something was mended.
    pub(super) fn change(&mut self) -> &mut RawInodeBlock {
        self.changed = true;
        RawInodeBlock::of_mut(self.block.make_mut())
    }
}

/// A file being walked.
struct Walk {
    ino: Nid,
    addrs: AddrCounts,
    /// Blocks in a cluster of a compressed file.
    cluster: Option<u16>,
    /// The heads of compressed clusters no longer use a block.
    released: bool,
    /// Counted as in `i_blocks`.
    blocks: u64,
    extent: RawExtent,
    /// How many blocks are where the extent says.
    extent_hits: u32,
    log: LogType,
    /// Index behind the last block.
    end: u64,
    /// Directories only: blocks by index.
    dir_blocks: Option<Vec<(u64, BlockAddr)>>,
    /// Quota files only: the same.
    quota_blocks: Option<Vec<(u64, BlockAddr)>>,
}

impl Walk {
    fn begins_cluster(&self, index: u64) -> bool {
        self.cluster.is_some_and(|blocks| index.is_multiple_of(blocks.into()))
    }
}

/// The slots of one node: the node, the version of its NAT entry, and the file block of the first
/// slot.
#[derive(Clone, Copy)]
struct Slots {
    nid: Nid,
    version: u8,
    first: u64,
}

impl Checker {
    /// Reads and checks inode `ino`, which the caller has marked as reached.
    pub(super) fn open_inode(&mut self, ino: Nid, named: Named<'_>) -> Option<Opened> {
        let (nat, mut block) = self.locate_node(ino, ino, 0)?;
        let mut layout = RawInodeBlock::of(&block).check(&self.volume.sb, ino, nat.addr);
        let mut changed = false;
        if self.mending() {
            let mut findings = Vec::new();
            let before = block.clone();
            let sb = &self.volume.sb;
            layout = mend_inode(&mut block, sb, ino, nat.addr, named, &mut findings);
            changed = before != block;
            self.add_all(findings);
        }
        let layout = self.keep(|| Place::Inode { ino }, layout)?;
        let nat = self.claim_node(ino, ino, nat, &block)?;
        self.report.inodes += 1;
        Some(Opened { block, layout, addr: nat.addr, nat, changed })
    }

    /// Ends the walk of inode `ino`, and notes what must change.
    pub(super) fn close_inode(&mut self, ino: Nid, opened: Opened) {
        if opened.changed {
            self.put_node(ino, ino, opened.block);
        }
    }

    /// Claims everything below an inode. Returns a directory's blocks, by index.
    pub(super) fn walk_file(&mut self, ino: Nid, opened: &mut Opened) -> Vec<(u64, BlockAddr)> {
        let raw = opened.raw();
        let kind = raw.i.kind();
        let is_dir = kind == Some(FileKind::Directory);
        let inline = raw.i.inline().intersects(Inline::DATA | Inline::DENTRY);
        let mut walk = Walk {
            ino,
            addrs: opened.layout.addr_counts(),
            cluster: opened.layout.cluster(),
            released: raw.i.inline().contains(Inline::COMPRESS_RELEASED),
            blocks: 1,
            extent: raw.i.ext,
            extent_hits: 0,
            log: if is_dir { LogType::HotData } else { LogType::WarmData },
            end: 0,
            dir_blocks: is_dir.then(Vec::new),
            quota_blocks: self.volume.sb.quota_inos.contains(&ino).then(Vec::new),
        };
        let has_blocks =
            matches!(kind, Some(FileKind::Regular | FileKind::Directory | FileKind::Symlink));
        if has_blocks && !inline {
            let range = opened.layout.slot(0)..opened.layout.slot(opened.layout.addrs() as usize);
            let addrs: Vec<_> = raw.i.addr[range.clone()].iter().map(|addr| addr.get()).collect();
            let nids = raw.i.nid.map(U32::get);
            let slots = Slots { nid: ino, version: opened.nat.version, first: 0 };
            for (slot, addr) in self.walk_slots(&mut walk, slots, &addrs) {
                opened.change().i.addr[range.start + slot].set(addr);
            }
            for (i, ((offset, levels), nid)) in TREES.into_iter().zip(nids).enumerate() {
                let kept = self.walk_node(&mut walk, nid, offset, levels);
                if kept != nid {
                    opened.change().i.nid[i].set(kept);
                }
            }
        }
        walk.blocks += self.check_xattrs(ino, opened);
        self.check_file(opened, &walk);
        match walk.quota_blocks {
            Some(blocks) => _ = self.quota.files.insert(ino, blocks),
            None => self.quota.count(&opened.raw().i, walk.blocks),
        }
        walk.dir_blocks.unwrap_or_default()
    }

    /// Walks a node below the inode, and everything below that, at most two `levels` deep. Returns
    /// the number that should stand in place of `nid`.
    fn walk_node(&mut self, walk: &mut Walk, nid: Nid, offset: u32, levels: u32) -> Nid {
        let nid = if nid == 0 { self.fsynced_child(walk.ino, offset) } else { nid };
        if nid == 0 {
            return 0;
        }
        let Some((nid, nat, mut block)) = self.open_child(walk.ino, nid, offset) else {
            return if self.mending() { 0 } else { nid };
        };
        walk.blocks += 1;
        let mut changed = false;
        if levels == 0 {
            let first = first_index_of(offset, walk.addrs).unwrap_or_default();
            let addrs = RawDirectNode::of(&block).addr.map(U32::get);
            let slots = Slots { nid, version: nat.version, first };
            let addrs = &addrs[..walk.addrs.node as usize];
            for (slot, addr) in self.walk_slots(walk, slots, addrs) {
                RawDirectNode::of_mut(block.make_mut()).addr[slot].set(addr);
                changed = true;
            }
        } else {
            // A child's whole tree, including the child, comes before the next child.
            let step = if levels == 1 { 1 } else { NIDS_PER_BLOCK + 1 };
            let nids = RawIndirectNode::of(&block).nid.map(U32::get);
            for (i, child) in (0..).zip(nids) {
                let kept = self.walk_node(walk, child, offset + 1 + i * step, levels - 1);
                if kept != child {
                    RawIndirectNode::of_mut(block.make_mut()).nid[i as usize].set(kept);
                    changed = true;
                }
            }
        }
        if changed {
            self.put_node(nid, walk.ino, block);
        }
        nid
    }

    /// Used without checkpoint and chain: a node that an fsync wrote and to which its parent does
    /// not point. 0 if there is none.
    fn fsynced_child(&self, ino: Nid, offset: u32) -> Nid {
        let hints = self.mend.as_ref().map(|mend| &mend.hints).filter(|_| !self.volume.has_sit);
        let found = hints.and_then(|hints| {
            let nid = hints.places.get(&(ino, offset)).filter(|nid| hints.fsynced.contains(nid));
            nid.filter(|nid| !self.is_reached_node(**nid))
        });
        found.copied().unwrap_or(0)
    }

    /// Opens the node at `offset` of inode `ino`. That is `nid` or, when mending, a node that a
    /// search has found for this place.
    fn open_child(&mut self, ino: Nid, nid: Nid, offset: u32) -> Option<(Nid, NatEntry, Block)> {
        let place = self.mend.as_ref().and_then(|mend| mend.hints.places.get(&(ino, offset)));
        if let Some(&other) = place.filter(|&&other| other != nid && !self.is_reached_node(other))
            && self.locate_quietly(nid, ino, offset).is_none()
            && let Some((nat, block)) = self.open_node(other, ino, offset)
        {
            self.reach(other);
            self.find(Place::Node { nid: other }, "pointer", nid, other);
            self.remedy(Remedy::Found);
            return Some((other, nat, block));
        }
        if !self.reach(nid) {
            self.remedy(Remedy::Cleared);
            self.want(Search::Everything);
            return None;
        }
        let opened = self.open_node(nid, ino, offset);
        if opened.is_none() && self.mending() {
            self.remedy(Remedy::Cleared);
            // Nothing is there, so some other pointer to this number may be right.
            crate::ondisk::bits::lsb::clear(&mut self.nids_reached, nid as usize);
        }
        opened.map(|(nat, block)| (nid, nat, block))
    }

    /// Checks the addresses in a node; returns those that must change.
    fn walk_slots(
        &mut self,
        walk: &mut Walk,
        slots: Slots,
        addrs: &[BlockAddr],
    ) -> Vec<(usize, BlockAddr)> {
        let mut changes = Vec::new();
        for (slot, &addr) in addrs.iter().enumerate() {
            if addr == NULL_ADDR {
                continue;
            }
            let index = slots.first + slot as u64;
            let is_head = addr == COMPRESS_ADDR && walk.begins_cluster(index);
            if is_head && walk.released {
                continue;
            }
            let kept = if addr == NEW_ADDR || is_head {
                self.report.blocks += 1;
                addr
            } else {
                self.walk_slot(walk, slots, slot as u16, addr)
            };
            if kept != addr {
                changes.push((slot, kept));
            }
            walk.blocks += u64::from(kept != NULL_ADDR);
            walk.end = walk.end.max(index + 1);
            walk.extent_hits += u32::from(in_extent(&walk.extent, index, kept));
        }
        changes
    }

    /// Claims the block in a slot; returns the address that should be there.
    fn walk_slot(
        &mut self,
        walk: &mut Walk,
        slots: Slots,
        slot: u16,
        addr: BlockAddr,
    ) -> BlockAddr {
        let owner = Owner::data(slots.nid, slots.version, slot, walk.log);
        let index = slots.first + u64::from(slot);
        if let Some(better) = self.better_block(slots.nid, slot, addr)
            && self.claim(better, owner) == Claim::Granted
        {
            let show = |addr: BlockAddr| format!("{addr:#x}");
            self.find(Place::Node { nid: slots.nid }, "address", show(addr), show(better));
            self.remedy(Remedy::Found);
            if let Some(blocks) = &mut walk.dir_blocks {
                blocks.push((index, better));
            }
            return better;
        }
        let claim = self.claim(addr, owner);
        if let Some(blocks) = walk.quota_blocks.as_mut().filter(|_| claim == Claim::Granted) {
            blocks.push((index, addr));
        }
        match (claim, &mut walk.dir_blocks) {
            (Claim::Granted, Some(blocks)) => blocks.push((index, addr)),
            (Claim::Granted, None) => {}
            _ if !self.mending() => {}
            (Claim::Taken, None) => {
                self.remedy(Remedy::Copied);
                self.want(Search::Strays);
                self.report.blocks += 1;
                if let Some(mend) = &mut self.mend {
                    mend.copies.push(Copy { ino: walk.ino, index, from: addr });
                }
                return NEW_ADDR;
            }
            _ => {
                self.remedy(Remedy::Cleared);
                self.want(Search::Strays);
                return NULL_ADDR;
            }
        }
        addr
    }

    /// If the slot points to a block that is not its own: a block to which nothing points and whose
    /// summary names this slot.
    fn better_block(&mut self, nid: Nid, slot: u16, addr: BlockAddr) -> Option<BlockAddr> {
        let stray = *self.mend.as_ref()?.hints.data.get(&(nid, slot))?;
        if stray == addr || self.is_reached(stray) {
            return None;
        }
        let own = self.volume.sb.in_main(addr)
            && !self.is_reached(addr)
            && self
                .summary_of(addr, false)
                .is_some_and(|s| s.nid.get() == nid && s.ofs_in_node.get() == slot);
        (!own).then_some(stray)
    }

    /// Checks the attributes; returns how many nodes they take.
    fn check_xattrs(&mut self, ino: Nid, opened: &mut Opened) -> u64 {
        let nid = opened.raw().i.xattr_nid.get();
        let inline = opened.raw().i.inline().contains(Inline::XATTR);
        let area = if inline { opened.layout.xattr_range() } else { 0..0 };
        let mut buffer = opened.block[area.clone()].to_vec();
        let mut node = None;
        if nid != 0 {
            node = self.open_child(ino, nid, XATTR_NODE_OFFSET);
            if let Some((_, _, block)) = &node {
                buffer.extend_from_slice(&block[..xattr::NODE_CAPACITY]);
            }
            let kept = node.as_ref().map_or(0, |(nid, ..)| *nid);
            if kept != nid && self.mending() {
                opened.change().i.xattr_nid.set(kept);
            }
        }
        let parsed = xattr::parse(&buffer, opened.addr.into()).map(drop);
        if self.keep(|| Place::Inode { ino }, parsed).is_none() && self.mending() {
            xattr::cut_off_damage(&mut buffer);
            let (head, tail) = buffer.split_at(area.len());
            opened.change();
            opened.block.make_mut()[area].copy_from_slice(head);
            if let Some((nid, _, mut block)) = node.clone() {
                block.make_mut()[..tail.len()].copy_from_slice(tail);
                self.put_node(nid, ino, block);
            }
        }
        u64::from(node.is_some())
    }

    fn check_file(&mut self, opened: &mut Opened, walk: &Walk) {
        let (place, i) = (Place::Inode { ino: walk.ino }, &opened.raw().i);
        let (blocks, extent, size) = (i.blocks.get(), i.ext.len.get(), i.size.get());
        let (kind, inline) = (i.kind(), i.inline());
        if blocks != walk.blocks {
            self.find(place.clone(), "i_blocks", blocks, walk.blocks);
            opened.change().i.blocks.set(walk.blocks);
        }
        if walk.extent_hits != extent {
            let found = format!("{extent} blocks");
            self.find(place.clone(), "i_ext", found, format!("{} of them", walk.extent_hits));
            opened.change().i.ext.len.set(0);
        }
        let most = walk.addrs.max_blocks() * BLOCK_SIZE as u64;
        if kind == Some(FileKind::Regular) && size > most {
            self.find(place.clone(), "i_size", size, format!("0..={most}"));
            opened.change().i.size.set(walk.end * BLOCK_SIZE as u64);
        }
        if kind == Some(FileKind::Symlink) && !(1..=SYMLINK_MAX as u64).contains(&size) {
            self.find(place.clone(), "i_size of a symbolic link", size, "1..=4095");
        }
        if inline.contains(Inline::DATA) && !inline.contains(Inline::DATA_EXIST) {
            let junk = opened.block[opened.layout.inline_range()].iter().any(|&b| b != 0);
            if junk {
                self.find(place, "inline data without DATA_EXIST", "some", "zeroes");
                opened.change().i.set_inline(inline | Inline::DATA_EXIST);
            }
        } else if let Some(blocks) = &walk.dir_blocks {
            let last = blocks.last().map_or(0, |(index, _)| index + 1);
            let least = last.saturating_mul(BLOCK_SIZE as u64);
            if least > size {
                let allowed = format!("{last} blocks or more");
                self.find(place, "i_size of a directory", size, allowed);
                opened.change().i.size.set(least);
            }
        }
    }

    /// Visits a file without a name: claims all of it and checks the link count. Does not enter
    /// directories. `false` if there is no such file.
    pub(super) fn visit_unnamed(&mut self, ino: Nid, links: u32, what: &'static str) -> bool {
        if !self.reach(ino) {
            return false;
        }
        let Some(mut opened) = self.open_inode(ino, Named::default()) else { return false };
        let found = opened.raw().i.links.get();
        if found != links {
            self.find(Place::Inode { ino }, what, format!("{found} links"), links);
            opened.change().i.links.set(links);
        }
        self.walk_file(ino, &mut opened);
        self.close_inode(ino, opened);
        true
    }

    /// As [`Checker::locate_node`], but without findings or changes.
    fn locate_quietly(&mut self, nid: Nid, ino: Nid, offset: u32) -> Option<Block> {
        if !self.volume.sb.is_node_id(nid) || self.is_reached_node(nid) {
            return None;
        }
        let nat = self.volume.nat(nid).ok()?;
        self.probe(nat.addr, nid, ino, offset).ok()
    }
}

/// Whether the extent says that block `index` of the file is at `addr`.
fn in_extent(extent: &RawExtent, index: u64, addr: BlockAddr) -> bool {
    let offset = index.checked_sub(extent.fofs.get().into());
    let offset = offset.filter(|&offset| offset < u64::from(extent.len.get()));
    offset.is_some_and(|offset| u64::from(extent.blk.get()) + offset == u64::from(addr))
}
