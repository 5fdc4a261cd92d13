//! Inodes: their fields, their maps and the blocks that these claim, and the bitmap of inodes.

use std::mem::offset_of;

use super::claims::Owner;
use super::{Checker, Seen};
use crate::blocks::{Blocks, Kind};
use crate::error::Result;
use crate::inode::cached::Inode;
use crate::inode::xattr;
use crate::ondisk::checksum::Checksums;
use crate::ondisk::extent::Node;
use crate::ondisk::features::Incompat;
use crate::ondisk::group::{INODE_UNINIT, RawGroupDesc};
use crate::ondisk::indirect::{DIRECT, number};
use crate::ondisk::inode::{Flags, RawInode};
use crate::ondisk::xattr::header;
use crate::ondisk::{FsBlock, Group, Ino, RESIZE_INO, ROOT_INO, bitmap, le32};
use vfs::FileKind;

/// An inode while its map is followed.
struct Walk<'a> {
    inode: &'a Inode,
    owner: Owner,
    /// The block behind the last one that is written.
    end: u64,
}

impl Checker {
    /// Checks all inodes.
    pub(super) fn inodes(&mut self, groups: &[Option<RawGroupDesc>]) -> Result<()> {
        for (group, raw) in (0..).zip(groups) {
            let Some(raw) = raw else { continue };
            let (found, dirs) = (raw.used_dirs(), self.inodes_of(group, raw)?);
            let place = format!("group {group}");
            self.notes.compare(place, "group_desc.bg_used_dirs_count", found, dirs);
        }
        Ok(())
    }

    /// Checks the inodes of a group and its count of free ones. Returns how many are directories.
    fn inodes_of(&mut self, group: Group, raw: &RawGroupDesc) -> Result<u32> {
        let each = self.reader.sb.inodes_per_group;
        let place = format!("group {group}");
        let has_unused = self.reader.sb.checksums != Checksums::None;
        let never = has_unused && raw.has(INODE_UNINIT);
        let (used, bits) = match never {
            true => (0, None),
            false => {
                let unused = if has_unused { raw.itable_unused() } else { 0 };
                let read = self.reader.block(raw.inode_bitmap(), Kind::Bitmap);
                (each.saturating_sub(unused), self.notes.sound(&*place, read)?)
            }
        };
        let (mut free, dirs) = (0, self.counts.dirs);
        for index in 0..each {
            let ino = self.reader.sb.ino_of(group, index);
            let is_used = (index < used && self.inode(ino)?) || self.is_reserved(ino);
            free += u32::from(!is_used);
            let marked = bits.as_ref().map(|bits| bitmap::test(&bits[..], index));
            if let Some(marked) = marked.filter(|marked| *marked != is_used) {
                let found = format!("inode {ino} {}", u8::from(marked));
                self.notes.add(&*place, "inode bitmap", found, u8::from(!marked));
            }
        }
        self.counts.free_inodes += u64::from(free);
        self.notes.compare(&*place, "group_desc.bg_free_inodes_count", raw.free_inodes(), free);
        Ok((self.counts.dirs - dirs) as u32)
    }

    /// Whether the volume keeps this inode for itself.
    pub(super) fn is_reserved(&self, ino: Ino) -> bool {
        ino < self.reader.sb.first_ino && ino != ROOT_INO
    }

    /// Checks inode `ino`. Returns whether it is in use.
    fn inode(&mut self, ino: Ino) -> Result<bool> {
        let (bytes, at) = self.reader.inode_bytes(ino)?;
        // Whatever the rest of it says.
        let links = le32(&bytes, offset_of!(RawInode, links_count)) & 0xffff;
        if links == 0 && !self.orphans.contains(&ino) {
            return Ok(false);
        }
        let place = format!("inode {ino}");
        let raw = RawInode::read(&bytes, at);
        let Some(raw) = self.notes.sound(&*place, raw)? else { return Ok(true) };
        // Those that the volume keeps for itself have no type.
        if raw.kind().is_none() && self.is_reserved(ino) {
            return Ok(true);
        }
        let read = self.reader.read_inode(ino);
        let Some(inode) = self.notes.sound(&*place, read)? else { return Ok(true) };
        let seen = Seen { kind: inode.kind(), links, named: 0, reached: false };
        self.inodes.insert(ino, seen);
        match inode.kind() {
            FileKind::Directory => self.counts.dirs += 1,
            _ => self.counts.files += 1,
        }
        self.contents(&inode)?;
        Ok(true)
    }

    /// Checks an inode's map, attributes, size and count of blocks.
    fn contents(&mut self, inode: &Inode) -> Result<()> {
        let place = format!("inode {}", inode.ino);
        let mut walk = Walk { inode, owner: Owner::default(), end: 0 };
        let walked = self.map(&mut walk);
        self.notes.sound(&*place, walked)?;
        let attributes = self.attributes(&mut walk);
        self.notes.sound(&*place, attributes)?;
        if inode.kind() == FileKind::Symlink {
            self.notes.sound(&*place, self.reader.read_link(inode))?;
        }
        let sb = &self.reader.sb;
        let per_cluster = u64::from(sb.block_size / 512) * u64::from(sb.cluster_ratio);
        // Values in inodes of their own count for all who share them.
        if !sb.incompat.contains(Incompat::EA_INODE) && inode.ino != RESIZE_INO {
            let (found, right) = (inode.raw.sectors(sb.block_size), walk.owner.clusters);
            self.notes.compare(&*place, "inode.i_blocks", found, right * per_cluster);
        }
        self.size(inode, walk.end);
        Ok(())
    }

    fn size(&mut self, inode: &Inode, end: u64) {
        let block_size = u64::from(self.reader.sb.block_size);
        let size = inode.raw.size();
        let is_behind = inode.flags().intersects(Flags::VERITY | Flags::INLINE_DATA);
        let wrong = match inode.kind() {
            FileKind::Directory => size != end * block_size,
            FileKind::Regular => size.div_ceil(block_size) < end && inode.ino != RESIZE_INO,
            _ => false,
        };
        if wrong && !is_behind {
            let allowed = format!("{} or more", end * block_size);
            self.notes.add(format!("inode {}", inode.ino), "inode.i_size", size, allowed);
        }
    }

    /// Follows an inode's map.
    fn map(&mut self, walk: &mut Walk<'_>) -> Result<()> {
        let inode = walk.inode;
        let has_map = match inode.kind() {
            FileKind::Regular | FileKind::Directory => true,
            FileKind::Symlink => !inode.is_fast_symlink(&self.reader.sb),
            _ => false,
        };
        if !has_map || inode.flags().contains(Flags::INLINE_DATA) {
            return Ok(());
        }
        if inode.flags().contains(Flags::EXTENTS) {
            return self.extents(walk, &Node::parse(&inode.raw.block, None, inode.at)?);
        }
        if inode.ino == RESIZE_INO {
            // Below its only number are the blocks reserved for descriptors, claimed already.
            return match number(&inode.raw.block, DIRECT + 1) {
                0 => Ok(()),
                at => self.claim_node(walk, at).map(drop),
            };
        }
        let (each, mut first) = (u64::from(self.reader.sb.block_size / 4), 0);
        for slot in 0..DIRECT + 3 {
            let at = number(&inode.raw.block, slot);
            let level = (slot + 1).saturating_sub(DIRECT);
            if at != 0 {
                self.indirect(walk, at, level, first)?;
            }
            first += each.pow(level);
        }
        Ok(())
    }

    /// Follows a block of numbers `level` levels above the file's blocks, the first of which is
    /// block `first` of the file.
    fn indirect(&mut self, walk: &mut Walk<'_>, at: FsBlock, level: u32, first: u64) -> Result<()> {
        if level == 0 {
            walk.end = walk.end.max(first + 1);
            return self.claim(walk, at, 1).map(drop);
        }
        if !self.claim_node(walk, at)? {
            return Ok(());
        }
        let each = self.reader.sb.block_size / 4;
        let span = u64::from(each).pow(level - 1);
        let block = self.reader.block(at, Kind::Numbers)?;
        for slot in 0..each {
            let below = number(&block[..], slot);
            if below != 0 {
                self.indirect(walk, below, level - 1, first + u64::from(slot) * span)?;
            }
        }
        Ok(())
    }

    /// Follows a node of the extent tree.
    fn extents(&mut self, walk: &mut Walk<'_>, node: &Node<'_>) -> Result<()> {
        if node.depth == 0 {
            for extent in node.extents() {
                self.claim(walk, extent.start, extent.len.into())?;
                if !extent.unwritten {
                    walk.end = walk.end.max(extent.end());
                }
            }
            return Ok(());
        }
        for index in node.indexes() {
            if !self.claim_node(walk, index.child)? {
                continue;
            }
            let block = self.reader.block(index.child, Kind::Extents(walk.inode.seed))?;
            let block = self.reader.sb.bytes(&block);
            let below = Node::parse(block, Some(node.depth - 1), index.child)?;
            let first = below.index(0).map(|first| first.block);
            if first != Some(index.block) {
                let place = format!("inode {}", walk.inode.ino);
                let allowed = first.map_or("no slot".into(), |first| first.to_string());
                self.notes.add(place, "extent_idx.ei_block", index.block, allowed);
            }
            self.extents(walk, &below)?;
        }
        Ok(())
    }

    /// As [`Checker::claim`], of a block of the map, which may lie between parts of one cluster.
    fn claim_node(&mut self, walk: &mut Walk<'_>, at: FsBlock) -> Result<bool> {
        let last = walk.owner.last.take();
        let claimed = self.claim(walk, at, 1);
        walk.owner.last = last;
        claimed
    }

    /// Claims blocks for an inode. False if some of them are claimed already.
    fn claim(&mut self, walk: &mut Walk<'_>, start: FsBlock, count: u64) -> Result<bool> {
        self.reader.sb.check_blocks(start, count, "block of a file", start)?;
        let twice = self.claims.inode(&self.reader.sb, &mut walk.owner, start, count);
        if let Some(block) = twice {
            let found = format!("block {block}, which is claimed already");
            let place = format!("inode {}", walk.inode.ino);
            self.notes.add(place, "block of a file", found, "a block of its own");
        }
        Ok(twice.is_none())
    }

    /// Checks an inode's attributes, and claims their block for the first who has it.
    fn attributes(&mut self, walk: &mut Walk<'_>) -> Result<()> {
        let inode = walk.inode;
        xattr::check(&self.reader, inode)?;
        let at = inode.raw.file_acl();
        if at == 0 {
            return Ok(());
        }
        let block = self.reader.block(at, Kind::Xattrs)?;
        walk.owner.clusters += 1;
        let refcount = header(&block[..], at)?.refcount.get();
        let shared = self.shared.entry(at).or_insert((refcount, 0));
        shared.1 += 1;
        if shared.1 == 1 {
            let twice = self.claims.inode(&self.reader.sb, &mut Owner::default(), at, 1);
            if twice.is_some() {
                return Err(inode.corrupt("inode.i_file_acl", at, "a block of its own"));
            }
        }
        Ok(())
    }

    /// Compares the counts of attribute blocks with how many inodes have them.
    pub(super) fn shares(&mut self) {
        let mut shared: Vec<_> = self.shared.iter().collect();
        shared.sort_unstable();
        for (at, (count, users)) in shared {
            self.notes.compare(format!("block {at}"), "xattr_header.h_refcount", count, users);
        }
    }
}
