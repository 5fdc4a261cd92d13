//! Groups: their descriptors first; their bitmaps and counts last, when all claims are known.

use super::Checker;
use crate::blocks::{Blocks, Kind};
use crate::dir::entries::block_count;
use crate::error::Result;
use crate::inode::cached::Inode;
use crate::inode::map;
use crate::ondisk::checksum::compare;
use crate::ondisk::features::{Compat, Incompat};
use crate::ondisk::group::{BLOCK_UNINIT, INODE_UNINIT, RawGroupDesc};
use crate::ondisk::inode::RawInode;
use crate::ondisk::superblock::STATE_CLEAN;
use crate::ondisk::{FsBlock, Group, bitmap, ensure, orphan};

/// What a descriptor points to, in the order of `Superblock::parts_of`.
const PARTS: [&str; 3] =
    ["group_desc.bg_block_bitmap", "group_desc.bg_inode_bitmap", "group_desc.bg_inode_table"];

/// Whether all bits of a bitmap behind the first `count` are set.
fn has_padding(bits: &[u8], count: u32) -> bool {
    bitmap::first_free(bits, count..bits.len() as u32 * 8).is_none()
}

impl Checker {
    /// Checks all descriptors and claims the volume's own blocks. `None` stands for a descriptor
    /// whose pointers cannot be followed.
    pub(super) fn groups(&mut self) -> Result<Vec<Option<RawGroupDesc>>> {
        let mut groups = Vec::new();
        for group in 0..self.reader.sb.groups {
            let place = format!("group {group}");
            let start = self.reader.sb.group_start(group);
            for block in start..start + u64::from(self.reader.sb.base_meta_blocks(group)) {
                self.claim_own(group, block, "superblock or descriptors");
            }
            let (raw, at) = self.reader.raw_group(group)?;
            let sb = &self.reader.sb;
            let parts = PARTS.into_iter().zip(sb.parts_of(&raw));
            self.notes.sound(&*place, raw.verify(sb.checksums, group, sb.desc_size, at))?;
            let mut usable = true;
            for (what, (start, count)) in parts {
                let on_volume = self.reader.sb.check_blocks(start, count, what, at);
                if self.notes.sound(&*place, on_volume)?.is_none() {
                    usable = false;
                    continue;
                }
                (start..start + count).for_each(|at| self.claim_own(group, at, what));
            }
            groups.push(usable.then_some(raw));
        }
        self.mmp_block()?;
        Ok(groups)
    }

    /// The block in which a host says that it has the volume mounted (`s_mmp_block`).
    fn mmp_block(&mut self) -> Result<()> {
        if !self.reader.sb.incompat.contains(Incompat::MMP) {
            return Ok(());
        }
        let (at, what) = (self.reader.sb.raw.mmp_block.get(), "superblock.s_mmp_block");
        let on_volume = self.reader.sb.check_blocks(at, 1, what, at);
        if self.notes.sound("superblock", on_volume)?.is_some() {
            self.claim_own(self.reader.sb.group_of(at), at, what);
        }
        Ok(())
    }

    fn claim_own(&mut self, group: Group, block: FsBlock, what: &'static str) {
        // The volume's structures may lie in one cluster.
        let is_new = self.claims.volume(&self.reader.sb, block);
        if !is_new && self.reader.sb.cluster_ratio == 1 {
            let found = format!("block {block}, which is claimed already");
            self.notes.add(format!("group {group}"), what, found, "a block of its own");
        }
    }

    /// Compares bitmaps and counts of all groups with what was claimed.
    pub(super) fn bitmaps(&mut self, groups: &[Option<RawGroupDesc>]) -> Result<()> {
        for (group, raw) in (0..).zip(groups) {
            let Some(raw) = raw else { continue };
            let checked = self.block_bitmap(group, raw).and(self.inode_bitmap_padding(raw));
            self.notes.sound(format!("group {group}"), checked)?;
        }
        Ok(())
    }

    fn block_bitmap(&mut self, group: Group, raw: &RawGroupDesc) -> Result<()> {
        let Self { reader, notes, .. } = self;
        let (sb, place) = (&reader.sb, &*format!("group {group}"));
        let blocks = sb.group_blocks(group);
        let bits = ((blocks.end - blocks.start).div_ceil(sb.cluster_ratio.into())) as u32;
        let (claimed, by_inode) = self.claims.group(group);
        let free = bitmap::count_free(claimed, bits);
        self.counts.free_clusters += u64::from(free);
        notes.compare(place, "group_desc.bg_free_blocks_count", raw.free_clusters(), free);
        if raw.has(BLOCK_UNINIT) {
            if by_inode {
                notes.add(place, "group_desc.bg_flags", "BLOCK_UNINIT with files' blocks", 0);
            }
            return Ok(());
        }
        let block = reader.block(raw.block_bitmap(), Kind::Bitmap)?;
        let block = sb.bytes(&block);
        for bit in 0..bits {
            let (found, right) = (bitmap::test(block, bit), bitmap::test(claimed, bit));
            if found != right {
                let found = format!("bit {bit} {}", u8::from(found));
                notes.add(place, "block bitmap", found, u8::from(right));
            }
        }
        if !has_padding(block, bits) {
            notes.add(place, "block bitmap padding", "free bits behind the last", 1);
        }
        let stored = raw.block_bitmap_csum();
        let (found, right) = sb.bitmap_checksums(block, sb.clusters_per_group, stored);
        notes.compare(place, "group_desc.bg_block_bitmap_csum", found, right);
        Ok(())
    }

    /// The inode bitmap's end and its checksum; its bits are compared with the inodes.
    fn inode_bitmap_padding(&mut self, raw: &RawGroupDesc) -> Result<()> {
        if raw.has(INODE_UNINIT) {
            return Ok(());
        }
        let at = raw.inode_bitmap();
        let sb = &self.reader.sb;
        let block = self.reader.block(at, Kind::Bitmap)?;
        let block = sb.bytes(&block);
        ensure(has_padding(block, sb.inodes_per_group), "inode bitmap padding", at, 0, 1)?;
        let stored = raw.inode_bitmap_csum();
        let (found, right) = sb.bitmap_checksums(block, sb.inodes_per_group, stored);
        compare("group_desc.bg_inode_bitmap_csum", at, found, right)
    }

    /// The superblock's totals: those of a volume that was not unmounted are stale by design, and
    /// recovery has set them.
    pub(super) fn totals(&mut self) {
        let sb = &self.reader.sb;
        if sb.raw.state.get() & STATE_CLEAN == 0 {
            return;
        }
        let free_blocks = self.counts.free_clusters * u64::from(sb.cluster_ratio);
        let found = sb.raw.free_blocks_count();
        // The last cluster may be longer than the volume.
        if found.abs_diff(free_blocks) >= sb.cluster_ratio.into() {
            self.notes.add("superblock", "s_free_blocks_count", found, free_blocks);
        }
        let (found, right) = (sb.raw.free_inodes_count.get().into(), self.counts.free_inodes);
        self.notes.compare("superblock", "s_free_inodes_count", found, right);
    }

    /// Collects the orphans of the list and of the file.
    pub(super) fn find_orphans(&mut self) -> Result<()> {
        let mut next = self.reader.sb.raw.last_orphan.get();
        // With a journal to be replayed, the list may be of another time than the inodes.
        while next != 0 && self.orphans.insert(next) {
            let read = self.reader.inode_bytes(next);
            let raw = read.and_then(|(bytes, at)| RawInode::read(&bytes, at));
            next = self.notes.sound("orphan list", raw)?.map_or(0, |raw| raw.dtime.get());
        }
        let file = self.reader.sb.raw.orphan_file_inum.get();
        if file == 0 || !self.reader.sb.compat.contains(Compat::ORPHAN_FILE) {
            return Ok(());
        }
        let read = self.reader.inode(file);
        let Some(inode) = self.notes.sound("orphan file", read)? else { return Ok(()) };
        for block in 0..block_count(&self.reader.sb, &inode) {
            let found = self.orphan_block(&inode, block);
            self.notes.sound("orphan file", found)?;
        }
        Ok(())
    }

    fn orphan_block(&mut self, file: &Inode, block: u32) -> Result<()> {
        let (at, block) = map::block(&self.reader, file, block, Kind::Orphans(file.seed))?;
        let bytes = self.reader.sb.bytes(&block);
        self.orphans.extend(orphan::inos(bytes, at)?.map(|(_, ino)| ino));
        Ok(())
    }
}
