//! The bytes of a new volume: superblock, descriptors, bitmaps, the first inodes and their files.
//!
//! A pure function of [`Plan`] and options; `mod.rs` writes the result.

use std::ops::Range;

use journal::ondisk::header::MAGIC as JOURNAL_MAGIC;
use journal::ondisk::superblock::RawSuperblock as RawJournal;
use vfs::{FileKind, Timespec};
use zerocopy::{FromZeros, IntoBytes};

use super::geometry;
use super::options::MkfsOptions;
use super::place::{File, Plan};
use super::tree::{self, Tree};
use crate::error::Result;
use crate::ondisk::checksum::Checksums;
use crate::ondisk::dirent;
use crate::ondisk::features::{Compat, Incompat};
use crate::ondisk::group::{BLOCK_UNINIT, INODE_UNINIT, INODE_ZEROED};
use crate::ondisk::inode::{self, EXTRA_ISIZE, Flags, GOOD_OLD_SIZE, RawInode};
use crate::ondisk::superblock::RawSuperblock;
use crate::ondisk::{
    FIRST_INO, FsBlock, Group, Ino, JOURNAL_INO, RESIZE_INO, ROOT_INO, SUPERBLOCK_OFFSET, bitmap,
    orphan,
};

/// The inode that once had the bad blocks.
const BAD_INO: Ino = 1;
const LOST_FOUND_INO: Ino = FIRST_INO;
const ORPHAN_INO: Ino = FIRST_INO + 1;
const LOST_FOUND: &[u8] = b"lost+found";
/// `JBD2_SUPERBLOCK_V2`.
const JOURNAL_V2: u32 = 4;
/// What a block of the resize inode's map is the second level of: slots in the inode behind which
/// it comes.
const DOUBLE_SLOT: usize = 13;

/// Takes a block, and where it goes.
type Put<'a> = dyn FnMut(FsBlock, &[u8]) -> Result<()> + 'a;

/// A volume that exists only in memory so far.
pub(super) struct Image<'a> {
    options: &'a MkfsOptions,
    /// Counts and checksums of its descriptors are right.
    plan: Plan,
    /// The first superblock, but for [`Image::superblock`].
    raw: RawSuperblock,
}

impl<'a> Image<'a> {
    /// Describes `plan`. `zeroed` says that inode tables read as zeroes, or will.
    pub(super) fn new(options: &'a MkfsOptions, plan: Plan, zeroed: bool) -> Self {
        let raw = plan.sb.raw.clone();
        let mut image = Self { options, plan, raw };
        image.count(zeroed);
        image.set_journal();
        image
    }

    fn size(&self) -> usize {
        self.plan.sb.block_size as usize
    }

    fn seed(&self, ino: Ino) -> Option<u32> {
        self.plan.sb.checksums.inode_seed(ino, 0)
    }

    /// Sets the counts, flags and checksums of all descriptors, and the counts of the superblock.
    fn count(&mut self, zeroed: bool) {
        let (used, inodes) = (self.plan.inodes(), self.plan.sb.inodes_per_group);
        let mut free_blocks = 0;
        for group in 0..self.plan.sb.groups {
            let free = self.plan.free(group) as u32;
            let bitmaps = [self.block_bitmap(group), self.inode_bitmap(group)];
            let sb = &self.plan.sb;
            let desc = &mut self.plan.groups[group as usize];
            let unused = inodes - if group == 0 { used } else { 0 };
            desc.set_free_clusters(free);
            desc.set_free_inodes(unused);
            desc.set_used_dirs(if group == 0 { 2 } else { 0 });
            if sb.checksums != Checksums::None {
                desc.set_itable_unused(unused);
            }
            // Without checksums no group can wait for its table to be zeroed.
            if zeroed || sb.checksums == Checksums::None {
                desc.flags = (desc.flags.get() | INODE_ZEROED).into();
            }
            if let Some(seed) = sb.checksums.seed() {
                let [blocks, inode_bits] = bitmaps;
                let sum = |bits: Option<Vec<u8>>, count| {
                    bits.map_or(0, |bits| bitmap::checksum(seed, &bits, count))
                };
                desc.set_block_bitmap_csum(sum(blocks, sb.blocks_per_group));
                desc.set_inode_bitmap_csum(sum(inode_bits, inodes));
            }
            desc.seal(sb.checksums, group, sb.desc_size);
            free_blocks += u64::from(free);
        }
        self.raw.set_free_blocks_count(free_blocks);
        self.raw.free_inodes_count = (self.raw.inodes_count.get() - used).into();
        self.raw.overhead_clusters = (self.plan.overhead() as u32).into();
    }

    /// The superblock's copy of the journal's inode, and the orphan file's number.
    fn set_journal(&mut self) {
        let Some(journal) = &self.plan.journal else {
            let mut compat = self.raw.compat();
            compat.remove(Compat::HAS_JOURNAL | Compat::ORPHAN_FILE);
            self.raw.feature_compat = compat.bits().into();
            return;
        };
        let root = self.tree(JOURNAL_INO, journal).root;
        let size = journal.len() * self.size() as u64;
        self.raw.journal_inum = JOURNAL_INO.into();
        self.raw.jnl_backup_type = 1;
        for (word, bytes) in self.raw.jnl_blocks.iter_mut().zip(root.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes).into();
        }
        self.raw.jnl_blocks[15] = ((size >> 32) as u32).into();
        self.raw.jnl_blocks[16] = (size as u32).into();
        if self.plan.orphans.is_some() {
            self.raw.orphan_file_inum = ORPHAN_INO.into();
        }
    }

    /// The superblock that `group` begins with, after `kib` KiB were written.
    pub(super) fn superblock(&self, group: Group, kib: u64) -> RawSuperblock {
        let mut raw = self.raw.clone();
        raw.block_group_nr = (group as u16).into();
        raw.kbytes_written = kib.into();
        if group > 0 {
            // A copy never counts as cleanly unmounted.
            raw.state = 0.into();
        }
        raw.seal();
        raw
    }

    /// The block of the first superblock, and the bytes from which it is there.
    pub(super) fn super_place(&self) -> (FsBlock, usize) {
        (self.plan.sb.super_block(), SUPERBLOCK_OFFSET % self.size())
    }

    /// The groups that begin with a copy of the superblock, and where.
    pub(super) fn backups(&self) -> impl Iterator<Item = (Group, FsBlock)> + '_ {
        let sb = &self.plan.sb;
        (1..sb.groups).filter(|group| sb.has_super(*group)).map(|g| (g, sb.group_start(g)))
    }

    /// Blocks of inode tables and journal whose old contents would be taken for ours.
    pub(super) fn to_zero(&self) -> impl Iterator<Item = Range<FsBlock>> + '_ {
        let table = u64::from(self.plan.sb.table_blocks());
        let has_flags = self.plan.sb.checksums != Checksums::None;
        let is_lazy = self.options.lazy_tables && has_flags;
        let tables = self.plan.groups.iter().filter(move |_| !is_lazy);
        let tables = tables.map(move |desc| desc.inode_table()..desc.inode_table() + table);
        let journal = self.plan.journal.as_ref().filter(|_| !self.options.lazy_journal);
        let journal = journal.into_iter().flat_map(|journal| &journal.extents);
        tables.chain(journal.map(|extent| extent.start..extent.start + u64::from(extent.len)))
    }

    /// All blocks but superblocks: `put` gets each with its place. Ends at the first error.
    pub(super) fn write(&self, put: &mut Put<'_>) -> Result<()> {
        self.write_descriptors(put)?;
        for group in 0..self.plan.sb.groups {
            let desc = &self.plan.groups[group as usize];
            if let Some(bits) = self.block_bitmap(group) {
                put(desc.block_bitmap(), &bits)?;
            }
            if let Some(bits) = self.inode_bitmap(group) {
                put(desc.inode_bitmap(), &bits)?;
            }
        }
        let table = self.plan.groups[0].inode_table();
        (table..).zip(self.inodes().chunks(self.size())).try_for_each(|(at, b)| put(at, b))?;
        self.write_directories(put)?;
        self.write_resize(put)?;
        self.write_journal(put)?;
        self.write_orphans(put)
    }

    /// Descriptors go where every group that has a copy expects them.
    fn write_descriptors(&self, put: &mut Put<'_>) -> Result<()> {
        let sb = &self.plan.sb;
        let each = sb.descs_per_block() as usize;
        for (nr, descs) in self.plan.groups.chunks(each).enumerate() {
            let mut bytes = vec![0; self.size()];
            for (out, desc) in bytes.chunks_mut(sb.desc_size as usize).zip(descs) {
                desc.emit(out, sb.desc_size);
            }
            let first = (nr * each) as Group;
            for at in self.copies_of_descriptors(first) {
                put(at, &bytes)?;
            }
        }
        Ok(())
    }

    /// Blocks that hold the descriptors of `first` and the groups behind it.
    fn copies_of_descriptors(&self, first: Group) -> Vec<FsBlock> {
        let sb = &self.plan.sb;
        let (place, _) = sb.desc_place(first);
        if !sb.incompat.contains(Incompat::META_BG) {
            let offset = place - sb.super_block();
            return std::iter::once(place)
                .chain(self.backups().map(|(_, at)| at + offset))
                .collect();
        }
        let last = first + sb.descs_per_block() - 1;
        let others = [first + 1, last].into_iter().filter(|group| *group < sb.groups);
        let others = others.map(|group| sb.group_start(group) + u64::from(sb.has_super(group)));
        std::iter::once(place).chain(others).collect()
    }

    /// The block bitmap of `group`; `None` if it is left uninitialized.
    fn block_bitmap(&self, group: Group) -> Option<Vec<u8>> {
        if self.plan.groups[group as usize].has(BLOCK_UNINIT) {
            return None;
        }
        let sb = &self.plan.sb;
        let mut bits = vec![0; self.size()];
        let blocks = sb.group_blocks(group);
        for part in self.plan.space.taken_in(blocks.clone()) {
            let bit = |block: FsBlock| (block - blocks.start) as u32;
            bitmap::set_range(&mut bits, bit(part.start)..bit(part.end));
        }
        let len = (blocks.end - blocks.start) as u32;
        bitmap::set_range(&mut bits, len..sb.block_size * 8);
        Some(bits)
    }

    /// The inode bitmap of `group`; `None` if it is left uninitialized.
    fn inode_bitmap(&self, group: Group) -> Option<Vec<u8>> {
        if self.plan.groups[group as usize].has(INODE_UNINIT) {
            return None;
        }
        let sb = &self.plan.sb;
        let mut bits = vec![0; self.size()];
        bitmap::set_range(&mut bits, 0..if group == 0 { self.plan.inodes() } else { 0 });
        bitmap::set_range(&mut bits, sb.inodes_per_group..sb.block_size * 8);
        Some(bits)
    }

    /// The blocks at the start of the first inode table that have inodes.
    fn inodes(&self) -> Vec<u8> {
        let (each, count) = (self.plan.sb.inode_size as usize, self.plan.inodes());
        let mut table = vec![0; (count as usize * each).next_multiple_of(self.size())];
        for (ino, bytes) in (1..=count).zip(table.chunks_mut(each)) {
            if let Some(raw) = self.inode(ino) {
                raw.emit(bytes);
            }
            self.seed(ino).inspect(|seed| inode::seal(bytes, *seed));
        }
        table
    }

    /// An inode; `None` for reserved ones without a use.
    fn inode(&self, ino: Ino) -> Option<RawInode> {
        let plan = &self.plan;
        match ino {
            BAD_INO => Some(self.times(RawInode::new_zeroed())),
            ROOT_INO => {
                let mut raw = self.file(ino, FileKind::Directory, 0o755, &plan.root);
                raw.links_count = 3.into();
                let (uid, gid) = self.options.root_owner;
                raw.set_uid(uid);
                raw.set_gid(gid);
                Some(raw)
            }
            RESIZE_INO => plan.resize.map(|block| self.resize_inode(block)),
            JOURNAL_INO => Some(self.file(ino, FileKind::Regular, 0o600, plan.journal.as_ref()?)),
            LOST_FOUND_INO => {
                let mut raw = self.file(ino, FileKind::Directory, 0o700, &plan.lost_found);
                raw.links_count = 2.into();
                Some(raw)
            }
            ORPHAN_INO => Some(self.file(ino, FileKind::Regular, 0o600, plan.orphans.as_ref()?)),
            _ => None,
        }
    }

    fn times(&self, mut raw: RawInode) -> RawInode {
        let now = Timespec { secs: self.options.time.cast_signed(), nanos: 0 };
        raw.set_atime(now);
        raw.set_ctime(now);
        raw.set_mtime(now);
        raw
    }

    fn new_inode(&self, kind: FileKind, mode: u32) -> RawInode {
        let mut raw = RawInode::new_zeroed();
        let has_more = self.plan.sb.inode_size as usize > GOOD_OLD_SIZE;
        raw.extra_isize = if has_more { EXTRA_ISIZE } else { 0 }.into();
        let mut raw = self.times(raw);
        if has_more {
            raw.set_crtime(raw.mtime());
        }
        raw.mode = ((kind.mode_bits() | mode) as u16).into();
        raw.links_count = 1.into();
        raw
    }

    fn file(&self, ino: Ino, kind: FileKind, mode: u32, file: &File) -> RawInode {
        let mut raw = self.new_inode(kind, mode);
        raw.flags = Flags::EXTENTS.bits().into();
        let blocks = file.len() + file.nodes.len() as u64;
        raw.set_sectors(blocks * (self.size() / 512) as u64, self.plan.sb.block_size);
        raw.set_size(file.len() * self.size() as u64);
        raw.block = self.tree(ino, file).root;
        raw
    }

    fn tree(&self, ino: Ino, file: &File) -> Tree {
        tree::build(&file.extents, &file.nodes, self.plan.sb.block_size, self.seed(ino))
    }

    fn write_directories(&self, put: &mut Put<'_>) -> Result<()> {
        for (ino, file) in [(ROOT_INO, &self.plan.root), (LOST_FOUND_INO, &self.plan.lost_found)] {
            for (nr, at) in file.blocks().enumerate() {
                put(at, &self.directory(ino, nr))?;
            }
        }
        Ok(())
    }

    /// Block `nr` of directory `ino`.
    fn directory(&self, ino: Ino, nr: usize) -> Vec<u8> {
        let (mut bytes, seed) = (vec![0; self.size()], self.seed(ino));
        let end = self.size() - if seed.is_some() { dirent::TAIL } else { 0 };
        let kind = FileKind::Directory.dirent_type();
        let dot = dirent::record_len(1);
        let is_root = ino == ROOT_INO;
        if nr == 0 {
            let two = if is_root { dirent::record_len(2) } else { end - dot };
            dirent::emit(&mut bytes, 0, dot, ino, kind, b".");
            dirent::emit(&mut bytes, dot, two, ROOT_INO, kind, b"..");
            if is_root {
                let at = dot + two;
                dirent::emit(&mut bytes, at, end - at, LOST_FOUND_INO, kind, LOST_FOUND);
            }
        } else {
            dirent::emit(&mut bytes, 0, end, 0, 0, b"");
        }
        if let Some(seed) = seed {
            dirent::emit_tail(&mut bytes);
            dirent::seal(&mut bytes, seed);
        }
        bytes
    }

    /// First of the blocks kept for more descriptors, and their count.
    fn reserved_gdt(&self) -> Range<FsBlock> {
        let sb = &self.plan.sb;
        let first = sb.super_block() + 1 + u64::from(sb.desc_blocks());
        first..first + u64::from(sb.raw.reserved_gdt_blocks.get())
    }

    /// The resize inode owns the blocks kept for more descriptors: each in group 0 is part of its
    /// map, which has those at the same place in the other groups.
    fn resize_inode(&self, block: FsBlock) -> RawInode {
        let mut raw = self.new_inode(FileKind::Regular, 0o600);
        let reserved = self.reserved_gdt();
        let blocks = 1 + (reserved.end - reserved.start) * (1 + self.backups().count() as u64);
        raw.set_sectors(blocks * (self.size() / 512) as u64, self.plan.sb.block_size);
        raw.set_size(geometry::resize_inode_size(self.options));
        raw.block[DOUBLE_SLOT * 4..][..4].copy_from_slice(&(block as u32).to_le_bytes());
        raw
    }

    fn write_resize(&self, put: &mut Put<'_>) -> Result<()> {
        let Some(block) = self.plan.resize else { return Ok(()) };
        let numbers = self.size() / 4;
        let mut double = vec![0; self.size()];
        for (nr, at) in (self.plan.sb.desc_blocks() as usize..).zip(self.reserved_gdt()) {
            put_number(&mut double, nr % numbers, at);
            let mut single = vec![0; self.size()];
            for (slot, (_, start)) in self.backups().enumerate().take(numbers) {
                put_number(&mut single, slot, start + at - self.plan.sb.super_block());
            }
            put(at, &single)?;
        }
        put(block, &double)
    }

    /// An empty log, without the checksums that the kernel turns on at the first mount.
    fn write_journal(&self, put: &mut Put<'_>) -> Result<()> {
        let Some(journal) = &self.plan.journal else { return Ok(()) };
        let mut raw = RawJournal::new_zeroed();
        raw.header.h_magic = JOURNAL_MAGIC.into();
        raw.header.h_blocktype = JOURNAL_V2.into();
        raw.s_blocksize = self.plan.sb.block_size.into();
        raw.s_maxlen = (journal.len() as u32).into();
        (raw.s_first, raw.s_sequence, raw.s_nr_users) = (1.into(), 1.into(), 1.into());
        raw.s_uuid = self.options.uuid;
        raw.s_num_fc_blks = geometry::fast_commit_blocks(&self.plan.sb).into();
        let mut bytes = vec![0; self.size()];
        bytes[..size_of::<RawJournal>()].copy_from_slice(raw.as_bytes());
        put(journal.extents[0].start, &bytes)?;
        let nodes = self.tree(JOURNAL_INO, journal).nodes;
        nodes.iter().try_for_each(|(at, bytes)| put(*at, bytes))
    }

    fn write_orphans(&self, put: &mut Put<'_>) -> Result<()> {
        let Some(file) = &self.plan.orphans else { return Ok(()) };
        let mut bytes = vec![0; self.size()];
        for at in file.blocks() {
            orphan::emit_empty(&mut bytes);
            self.seed(ORPHAN_INO).inspect(|seed| orphan::seal(&mut bytes, *seed, at));
            put(at, &bytes)?;
        }
        let nodes = self.tree(ORPHAN_INO, file).nodes;
        nodes.iter().try_for_each(|(at, bytes)| put(*at, bytes))
    }
}

fn put_number(block: &mut [u8], slot: usize, number: FsBlock) {
    block[slot * 4..][..4].copy_from_slice(&(number as u32).to_le_bytes());
}
