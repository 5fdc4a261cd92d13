//! The bytes of a new volume: superblock, descriptors, bitmaps, the first inodes and their files.
//!
//! A pure function of [`Plan`]; `mod.rs` writes the result.

use std::ops::Range;

use journal::ondisk::header::MAGIC as JOURNAL_MAGIC;
use journal::ondisk::superblock::RawSuperblock as RawJournal;
use vfs::{FileKind, Timespec};
use zerocopy::{FromZeros, IntoBytes};

use super::geometry;
use super::place::{File, LOST_FOUND_INO, ORPHAN_INO, Plan};
use super::tree::{self, Tree};
use crate::error::Result;
use crate::ondisk::checksum::Checksums;
use crate::ondisk::dirent;
use crate::ondisk::extent::Extent;
use crate::ondisk::features::{Compat, Incompat};
use crate::ondisk::group::{BLOCK_UNINIT, INODE_UNINIT, INODE_ZEROED};
use crate::ondisk::inode::{self, EXTRA_ISIZE, Flags, GOOD_OLD_SIZE, RawInode};
use crate::ondisk::superblock::RawSuperblock;
use crate::ondisk::{FsBlock, Group, Ino, JOURNAL_INO, RESIZE_INO, ROOT_INO, bitmap, orphan};

/// The inode that once had the bad blocks.
const BAD_INO: Ino = 1;
const LOST_FOUND: &[u8] = b"lost+found";
/// `JBD2_SUPERBLOCK_V2`.
const JOURNAL_V2: u32 = 4;
/// What a block of the resize inode's map is the second level of: slots in the inode behind which
/// it comes.
const DOUBLE_SLOT: usize = 13;

/// Takes a block, and where it goes.
type Put<'a> = dyn FnMut(FsBlock, &[u8]) -> Result<()> + 'a;

impl Plan<'_> {
    /// Sets what follows from the places. `zeroed` says that inode tables read as zeroes, or will.
    pub(super) fn finish(&mut self, zeroed: bool) {
        self.count(zeroed);
        self.set_journal();
    }

    fn size(&self) -> usize {
        self.sb.block_size as usize
    }

    fn seed(&self, ino: Ino) -> Option<u32> {
        self.sb.checksums.inode_seed(ino, 0)
    }

    /// Sets the counts, flags and checksums of all descriptors, and the counts of the superblock.
    fn count(&mut self, zeroed: bool) {
        let (used, inodes) = (self.inodes(), self.sb.inodes_per_group);
        let mut free_blocks = 0;
        for group in 0..self.sb.groups {
            let free = self.free(group) as u32;
            let bitmaps = [self.block_bitmap(group), self.inode_bitmap(group)];
            let sb = &self.sb;
            let desc = &mut self.groups[group as usize];
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
        self.sb.raw.set_free_blocks_count(free_blocks);
        self.sb.raw.free_inodes_count = (self.sb.raw.inodes_count.get() - used).into();
        self.sb.raw.overhead_clusters = (self.overhead() as u32).into();
    }

    /// The superblock's copy of the journal's inode, and the orphan file's number.
    fn set_journal(&mut self) {
        let Some(journal) = self.file(JOURNAL_INO) else {
            let mut compat = self.sb.raw.compat();
            compat.remove(Compat::HAS_JOURNAL | Compat::ORPHAN_FILE);
            self.sb.raw.feature_compat = compat.bits().into();
            return;
        };
        let root = self.tree(JOURNAL_INO, journal).root;
        let size = journal.len() * self.size() as u64;
        self.sb.raw.journal_inum = JOURNAL_INO.into();
        self.sb.raw.jnl_backup_type = 1;
        for (word, bytes) in self.sb.raw.jnl_blocks.iter_mut().zip(root.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes).into();
        }
        self.sb.raw.jnl_blocks[15] = ((size >> 32) as u32).into();
        self.sb.raw.jnl_blocks[16] = (size as u32).into();
        let orphans = self.file(ORPHAN_INO).map_or(0, |_| ORPHAN_INO);
        self.sb.raw.orphan_file_inum = orphans.into();
    }

    /// The superblock that `group` begins with, after `kib` KiB were written.
    pub(super) fn superblock(&self, group: Group, kib: u64) -> RawSuperblock {
        let mut raw = self.sb.raw.clone();
        raw.block_group_nr = (group as u16).into();
        raw.kbytes_written = kib.into();
        if group > 0 {
            // A copy never counts as cleanly unmounted.
            raw.state = 0.into();
        }
        raw.seal();
        raw
    }

    /// Blocks of inode tables and journal whose old contents would be taken for ours.
    pub(super) fn to_zero(&self) -> impl Iterator<Item = Range<FsBlock>> + '_ {
        let table = u64::from(self.sb.table_blocks());
        let has_flags = self.sb.checksums != Checksums::None;
        let is_lazy = self.options.lazy_tables && has_flags;
        let tables = self.groups.iter().filter(move |_| !is_lazy);
        let tables = tables.map(move |desc| desc.inode_table()..desc.inode_table() + table);
        let journal = self.file(JOURNAL_INO).filter(|_| !self.options.lazy_journal);
        let journal = journal.into_iter().flat_map(|journal| &journal.extents);
        tables.chain(journal.map(Extent::home))
    }

    /// All blocks but superblocks: `put` gets each with its place. Ends at the first error.
    pub(super) fn write(&self, put: &mut Put<'_>) -> Result<()> {
        self.write_descriptors(put)?;
        for (group, desc) in (0..).zip(&self.groups) {
            if let Some(bits) = self.block_bitmap(group) {
                put(desc.block_bitmap(), &bits)?;
            }
            if let Some(bits) = self.inode_bitmap(group) {
                put(desc.inode_bitmap(), &bits)?;
            }
        }
        let table = self.groups[0].inode_table();
        (table..).zip(self.inode_table().chunks(self.size())).try_for_each(|(at, b)| put(at, b))?;
        for (ino, file) in &self.files {
            match *ino {
                RESIZE_INO => self.write_resize(file, put)?,
                JOURNAL_INO => put(file.extents[0].start, &self.journal(file))?,
                ORPHAN_INO => file.blocks().try_for_each(|at| put(at, &self.orphans(at)))?,
                ino => (0..)
                    .zip(file.blocks())
                    .try_for_each(|(nr, at)| put(at, &self.directory(ino, nr)))?,
            }
            self.tree(*ino, file).nodes.iter().try_for_each(|(at, bytes)| put(*at, bytes))?;
        }
        Ok(())
    }

    /// Descriptors go where every group that has a copy expects them.
    fn write_descriptors(&self, put: &mut Put<'_>) -> Result<()> {
        let sb = &self.sb;
        let each = sb.descs_per_block() as usize;
        for (nr, descs) in self.groups.chunks(each).enumerate() {
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
        let sb = &self.sb;
        let (place, _) = sb.desc_place(first);
        let mut copies = vec![place];
        if sb.incompat.contains(Incompat::META_BG) {
            let others = [first + 1, first + sb.descs_per_block() - 1];
            let others = others.into_iter().filter(|group| *group < sb.groups);
            copies.extend(others.map(|at| sb.group_start(at) + u64::from(sb.has_super(at))));
        } else {
            copies.extend(self.backups().map(|(_, at)| at + place - sb.super_block()));
        }
        copies
    }

    /// The block bitmap of `group`; `None` if it is left uninitialized.
    fn block_bitmap(&self, group: Group) -> Option<Vec<u8>> {
        if self.groups[group as usize].has(BLOCK_UNINIT) {
            return None;
        }
        let sb = &self.sb;
        let mut bits = vec![0; self.size()];
        let blocks = sb.group_blocks(group);
        for part in self.space.taken_in(blocks.clone()) {
            let bit = |block: FsBlock| (block - blocks.start) as u32;
            bitmap::set_range(&mut bits, bit(part.start)..bit(part.end));
        }
        let len = (blocks.end - blocks.start) as u32;
        bitmap::set_range(&mut bits, len..sb.block_size * 8);
        Some(bits)
    }

    /// The inode bitmap of `group`; `None` if it is left uninitialized.
    fn inode_bitmap(&self, group: Group) -> Option<Vec<u8>> {
        if self.groups[group as usize].has(INODE_UNINIT) {
            return None;
        }
        let sb = &self.sb;
        let mut bits = vec![0; self.size()];
        bitmap::set_range(&mut bits, 0..if group == 0 { self.inodes() } else { 0 });
        bitmap::set_range(&mut bits, sb.inodes_per_group..sb.block_size * 8);
        Some(bits)
    }

    /// The blocks at the start of the first inode table that have inodes.
    fn inode_table(&self) -> Vec<u8> {
        let (each, count) = (self.sb.inode_size as usize, self.inodes());
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
        let mut raw = RawInode::new_zeroed();
        let now = Timespec { secs: self.options.time.cast_signed(), nanos: 0 };
        let has_more = self.sb.inode_size as usize > GOOD_OLD_SIZE && ino != BAD_INO;
        raw.extra_isize = if has_more { EXTRA_ISIZE } else { 0 }.into();
        raw.set_atime(now);
        raw.set_ctime(now);
        raw.set_mtime(now);
        if ino == BAD_INO {
            return Some(raw);
        }
        let file = self.file(ino)?;
        raw.set_crtime(now);
        let (kind, perm, links) = match ino {
            ROOT_INO => (FileKind::Directory, 0o755, 3),
            LOST_FOUND_INO => (FileKind::Directory, 0o700, 2),
            _ => (FileKind::Regular, 0o600, 1),
        };
        raw.mode = (kind.mode_bits() as u16 | perm).into();
        raw.links_count = links.into();
        if ino == ROOT_INO {
            let (uid, gid) = self.options.root_owner;
            raw.set_uid(uid);
            raw.set_gid(gid);
        }
        match ino {
            RESIZE_INO => self.map_resize(file, &mut raw),
            _ => self.map(ino, file, &mut raw),
        }
        Some(raw)
    }

    /// All other files have extents.
    fn map(&self, ino: Ino, file: &File, raw: &mut RawInode) {
        raw.flags = Flags::EXTENTS.bits().into();
        let blocks = file.len() + file.nodes.len() as u64;
        raw.set_sectors(blocks * (self.size() / 512) as u64, self.sb.block_size);
        raw.set_size(file.len() * self.size() as u64);
        raw.block = self.tree(ino, file).root;
    }

    fn tree(&self, ino: Ino, file: &File) -> Tree {
        tree::build(&file.extents, &file.nodes, self.sb.block_size, self.seed(ino))
    }

    /// Block `nr` of directory `ino`.
    fn directory(&self, ino: Ino, nr: u32) -> Vec<u8> {
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
        let sb = &self.sb;
        let first = sb.super_block() + 1 + u64::from(sb.desc_blocks());
        first..first + u64::from(sb.raw.reserved_gdt_blocks.get())
    }

    /// The resize inode owns the blocks kept for more descriptors: each in group 0 is part of its
    /// map, which has those at the same place in the other groups.
    fn map_resize(&self, file: &File, raw: &mut RawInode) {
        let reserved = self.reserved_gdt();
        let blocks = 1 + (reserved.end - reserved.start) * (1 + self.backups().count() as u64);
        raw.set_sectors(blocks * (self.size() / 512) as u64, self.sb.block_size);
        raw.set_size(geometry::resize_inode_size(self.options));
        put_number(&mut raw.block, DOUBLE_SLOT, file.extents[0].start);
    }

    fn write_resize(&self, file: &File, put: &mut Put<'_>) -> Result<()> {
        let numbers = self.size() / 4;
        let mut double = vec![0; self.size()];
        for (nr, at) in (self.sb.desc_blocks() as usize..).zip(self.reserved_gdt()) {
            put_number(&mut double, nr % numbers, at);
            let mut single = vec![0; self.size()];
            for (slot, (_, start)) in self.backups().enumerate().take(numbers) {
                put_number(&mut single, slot, start + at - self.sb.super_block());
            }
            put(at, &single)?;
        }
        put(file.extents[0].start, &double)
    }

    /// The first block of an empty log, without the checksums that the kernel turns on at the first
    /// mount.
    fn journal(&self, file: &File) -> Vec<u8> {
        let mut raw = RawJournal::new_zeroed();
        raw.header.h_magic = JOURNAL_MAGIC.into();
        raw.header.h_blocktype = JOURNAL_V2.into();
        raw.s_blocksize = self.sb.block_size.into();
        raw.s_maxlen = (file.len() as u32).into();
        (raw.s_first, raw.s_sequence, raw.s_nr_users) = (1.into(), 1.into(), 1.into());
        raw.s_uuid = self.options.uuid;
        raw.s_num_fc_blks = geometry::fast_commit_blocks(&self.sb).into();
        let mut bytes = vec![0; self.size()];
        bytes[..size_of::<RawJournal>()].copy_from_slice(raw.as_bytes());
        bytes
    }

    /// The block of the orphan file that goes to block `at`.
    fn orphans(&self, at: FsBlock) -> Vec<u8> {
        let mut bytes = vec![0; self.size()];
        orphan::emit_empty(&mut bytes);
        self.seed(ORPHAN_INO).inspect(|seed| orphan::seal(&mut bytes, *seed, at));
        bytes
    }
}

fn put_number(block: &mut [u8], slot: usize, number: FsBlock) {
    block[slot * 4..][..4].copy_from_slice(&(number as u32).to_le_bytes());
}
