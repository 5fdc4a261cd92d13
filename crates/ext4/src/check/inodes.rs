//! Inodes: their fields, their maps and the blocks that these claim, and the bitmap of inodes.

use super::claims::Owner;
use super::{Checker, Seen};
use crate::blocks::{Blocks, Kind};
use crate::error::Result;
use crate::inode::cached::Inode;
use crate::inode::xattr;
use crate::ondisk::extent::{DEPTH_MAX, Node};
use crate::ondisk::features::Incompat;
use crate::ondisk::group::{INODE_UNINIT, RawGroupDesc};
use crate::ondisk::indirect::{DIRECT, number};
use crate::ondisk::inode::{Flags, RawInode};
use crate::ondisk::xattr::header;
use crate::ondisk::{FsBlock, Group, Ino, RESIZE_INO, ROOT_INO, bitmap};
use vfs::FileKind;

/// What the map of a file has.
#[derive(Default)]
struct Mapped {
    owner: Owner,
    /// The block behind the last one that is written.
    end: u64,
}

impl Checker {
    /// Checks all inodes.
    pub(super) fn inodes(&mut self, groups: &[Option<RawGroupDesc>]) -> Result<()> {
        for (group, raw) in (0..).zip(groups) {
            let Some(raw) = raw else { continue };
            let dirs = self.inodes_of(group, raw)?;
            if raw.used_dirs() != dirs {
                let what = "group_desc.bg_used_dirs_count";
                self.find(format!("group {group}"), what, raw.used_dirs(), dirs);
            }
        }
        Ok(())
    }

    /// Checks the inodes of a group and its count of free ones. Returns how many are directories.
    fn inodes_of(&mut self, group: Group, raw: &RawGroupDesc) -> Result<u32> {
        let each = self.reader.sb.inodes_per_group;
        let place = format!("group {group}");
        let has_unused = self.reader.sb.checksums != crate::ondisk::checksum::Checksums::None;
        let unused = if has_unused { raw.itable_unused().min(each) } else { 0 };
        let never = has_unused && raw.has(INODE_UNINIT);
        let bits = match never {
            true => None,
            false => {
                let read = self.reader.block(raw.inode_bitmap(), Kind::Bitmap);
                self.sound(&*place, read)?
            }
        };
        let (mut free, mut dirs) = (0, 0);
        for index in 0..each {
            let ino = self.reader.sb.ino_of(group, index);
            let is_used = if never || index >= each - unused { false } else { self.inode(ino)? };
            let is_reserved = ino < self.reader.sb.first_ino && ino != ROOT_INO;
            free += u32::from(!is_used && !is_reserved);
            dirs += u32::from(
                self.inodes.get(&ino).is_some_and(|seen| seen.kind == FileKind::Directory),
            );
            let marked = bits.as_ref().is_some_and(|bits| bitmap::test(&bits[..], index));
            if bits.is_some() && marked != (is_used || is_reserved) {
                let found = format!("inode {ino} {}", u8::from(marked));
                self.find(&*place, "inode bitmap", found, u8::from(!marked));
            }
        }
        self.counts.free_inodes += u64::from(free);
        if raw.free_inodes() != free {
            self.find(&*place, "group_desc.bg_free_inodes_count", raw.free_inodes(), free);
        }
        Ok(dirs)
    }

    /// Checks inode `ino`. Returns whether it is in use.
    fn inode(&mut self, ino: Ino) -> Result<bool> {
        let (bytes, at) = self.reader.inode_bytes(ino)?;
        let links =
            bytes.get(0x1a..0x1c).map_or(0, |links| u16::from_le_bytes([links[0], links[1]]));
        if links == 0 && !self.orphans.contains(&ino) {
            return Ok(false);
        }
        let place = format!("inode {ino}");
        // Those that the volume keeps for itself have no type.
        let parsed = RawInode::read(&bytes, at);
        let Some(raw) = self.sound(&*place, parsed)? else { return Ok(true) };
        if raw.kind().is_none() && ino < self.reader.sb.first_ino && ino != ROOT_INO {
            return Ok(true);
        }
        let read = self.reader.read_inode(ino);
        let Some(inode) = self.sound(&*place, read)? else { return Ok(true) };
        let seen = Seen { kind: inode.kind(), links: links.into(), named: 0, reached: false };
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
        let mut mapped = Mapped::default();
        let walked = self.map(inode, &mut mapped);
        self.sound(&*place, walked)?;
        let attributes = self.attributes(inode, &mut mapped.owner);
        self.sound(&*place, attributes)?;
        if inode.kind() == FileKind::Symlink {
            let target = self.reader.read_link(inode);
            self.sound(&*place, target)?;
        }
        let sb = &self.reader.sb;
        let per_cluster = u64::from(sb.block_size / 512) * u64::from(sb.cluster_ratio);
        let (found, right) =
            (inode.raw.sectors(sb.block_size), mapped.owner.clusters * per_cluster);
        // Values in inodes of their own count for all who share them.
        let shares = sb.incompat.contains(Incompat::EA_INODE);
        if found != right && !shares && inode.ino != RESIZE_INO {
            self.find(&*place, "inode.i_blocks", found, right);
        }
        self.size(inode, mapped.end);
        Ok(())
    }

    fn size(&mut self, inode: &Inode, end: u64) {
        let block_size = u64::from(self.reader.sb.block_size);
        let size = inode.raw.size();
        let is_behind = inode.flags().intersects(Flags::VERITY | Flags::INLINE_DATA);
        let wrong = match inode.kind() {
            FileKind::Directory if !is_behind => size != end * block_size,
            FileKind::Regular if !is_behind && inode.ino != RESIZE_INO => {
                size.div_ceil(block_size) < end
            }
            _ => false,
        };
        if wrong {
            let allowed = format!("{} or more", end * block_size);
            self.find(format!("inode {}", inode.ino), "inode.i_size", size, allowed);
        }
    }

    /// Follows an inode's map.
    fn map(&mut self, inode: &Inode, mapped: &mut Mapped) -> Result<()> {
        let has_map = match inode.kind() {
            FileKind::Regular | FileKind::Directory => true,
            FileKind::Symlink => !inode.is_fast_symlink(&self.reader.sb),
            _ => false,
        };
        if !has_map || inode.flags().contains(Flags::INLINE_DATA) {
            return Ok(());
        }
        if inode.flags().contains(Flags::EXTENTS) {
            return self.extents(inode, &inode.raw.block, None, inode.at, mapped);
        }
        if inode.ino == RESIZE_INO {
            // Below its only number are the blocks reserved for descriptors, claimed already.
            return match number(&inode.raw.block, DIRECT + 1) {
                0 => Ok(()),
                at => self.claim_node(inode, mapped, at).map(drop),
            };
        }
        for slot in 0..DIRECT + 3 {
            let at = number(&inode.raw.block, slot);
            let level = (slot + 1).saturating_sub(DIRECT);
            let first = match level {
                0 | 1 => slot.into(),
                _ => {
                    let each = u64::from(self.reader.sb.block_size / 4);
                    u64::from(DIRECT) + (1..level).map(|level| each.pow(level)).sum::<u64>()
                }
            };
            if at != 0 {
                self.indirect(inode, at, level, first, mapped)?;
            }
        }
        Ok(())
    }

    /// Follows a block of numbers `level` levels above the file's blocks, the first of which is
    /// block `first` of the file.
    fn indirect(
        &mut self,
        inode: &Inode,
        at: FsBlock,
        level: u32,
        first: u64,
        mapped: &mut Mapped,
    ) -> Result<()> {
        if level == 0 {
            mapped.end = mapped.end.max(first + 1);
            return self.claim(inode, mapped, at, 1).map(drop);
        }
        if !self.claim_node(inode, mapped, at)? {
            return Ok(());
        }
        let each = self.reader.sb.block_size / 4;
        let span = u64::from(each).pow(level - 1);
        let block = self.reader.block(at, Kind::Numbers)?;
        for slot in 0..each {
            let below = number(&block[..], slot);
            if below != 0 {
                self.indirect(inode, below, level - 1, first + u64::from(slot) * span, mapped)?;
            }
        }
        Ok(())
    }

    /// Follows a node of the extent tree.
    fn extents(
        &mut self,
        inode: &Inode,
        bytes: &[u8],
        depth: Option<u16>,
        at: FsBlock,
        mapped: &mut Mapped,
    ) -> Result<()> {
        let node = Node::parse(bytes, depth, at)?;
        debug_assert!(node.depth <= DEPTH_MAX);
        if node.depth == 0 {
            for extent in node.extents() {
                self.claim(inode, mapped, extent.start, extent.len.into())?;
                if !extent.unwritten {
                    mapped.end = mapped.end.max(extent.end());
                }
            }
            return Ok(());
        }
        for index in node.indexes() {
            if !self.claim_node(inode, mapped, index.child)? {
                continue;
            }
            let block = self.reader.block(index.child, Kind::Extents(inode.seed))?;
            let block = self.reader.sb.bytes(&block);
            let below = Node::parse(block, Some(node.depth - 1), index.child)?;
            let first = below.index(0).map(|first| first.block);
            if first != Some(index.block) {
                let found = first.map_or("no slot".into(), |first| first.to_string());
                self.find(
                    format!("inode {}", inode.ino),
                    "extent_idx.ei_block",
                    index.block,
                    found,
                );
            }
            self.extents(inode, block, Some(node.depth - 1), index.child, mapped)?;
        }
        Ok(())
    }

    /// As [`Checker::claim`], of a block of the map, which may lie between parts of one cluster.
    fn claim_node(&mut self, inode: &Inode, mapped: &mut Mapped, at: FsBlock) -> Result<bool> {
        let last = mapped.owner.last.take();
        let claimed = self.claim(inode, mapped, at, 1);
        mapped.owner.last = last;
        claimed
    }

    /// Claims blocks for an inode. False if some of them are claimed already.
    fn claim(
        &mut self,
        inode: &Inode,
        mapped: &mut Mapped,
        start: FsBlock,
        count: u64,
    ) -> Result<bool> {
        self.reader.sb.check_blocks(start, count, "block of a file", start)?;
        let twice = self.claims.inode(&self.reader.sb, &mut mapped.owner, start, count);
        if let Some(block) = twice {
            let found = format!("block {block}, which is claimed already");
            let place = format!("inode {}", inode.ino);
            self.find(place, "block of a file", found, "a block of its own");
        }
        Ok(twice.is_none())
    }

    /// Checks an inode's attributes, and claims their block for the first who has it.
    fn attributes(&mut self, inode: &Inode, owner: &mut Owner) -> Result<()> {
        xattr::check(&self.reader, inode)?;
        let at = inode.raw.file_acl();
        if at == 0 {
            return Ok(());
        }
        let block = self.reader.block(at, Kind::Xattrs)?;
        owner.clusters += 1;
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
        let mut wrong: Vec<_> =
            self.shared.iter().filter(|(_, (count, users))| count != users).collect();
        wrong.sort_unstable();
        let wrong: Vec<_> = wrong.into_iter().map(|(at, counts)| (*at, *counts)).collect();
        for (at, (count, users)) in wrong {
            self.find(format!("block {at}"), "xattr_header.h_refcount", count, users);
        }
    }
}
