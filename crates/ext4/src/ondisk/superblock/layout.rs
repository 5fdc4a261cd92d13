//! Where things are: groups, descriptors, backups, inodes (`balloc.c`, `super.c: descriptor_loc`).

use std::ops::Range;

use drive::{BLOCK_SIZE, Block};

use super::Superblock;
use crate::error::{Error, Result};
use crate::ondisk::features::{Compat, Incompat, RoCompat};
use crate::ondisk::group::RawGroupDesc;
use crate::ondisk::{FsBlock, Group, Ino, SUPERBLOCK_OFFSET, bitmap};

/// Where an inode is: its group, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodePlace {
    /// Its group.
    pub group: Group,
    /// Its number in the group, from 0.
    pub index: u32,
}

impl Superblock {
    /// The block that has the first superblock: block 1 iff blocks have 1 KiB.
    pub fn super_block(&self) -> FsBlock {
        u64::from(self.block_size == 1024)
    }

    /// The bytes of a block in memory.
    pub fn bytes<'b>(&self, block: &'b Block) -> &'b [u8] {
        &block[..self.block_size as usize]
    }

    /// As [`Superblock::bytes`], to change them.
    pub fn bytes_mut<'b>(&self, block: &'b mut Block) -> &'b mut [u8] {
        &mut block.make_mut()[..self.block_size as usize]
    }

    /// Blocks of a file in a page.
    pub fn blocks_per_page(&self) -> u64 {
        BLOCK_SIZE as u64 / u64::from(self.block_size)
    }

    /// Where in its block the superblock begins.
    pub fn super_byte(&self) -> usize {
        SUPERBLOCK_OFFSET % self.block_size as usize
    }

    /// Largest file: 2^32 - 1 blocks; without `huge_file`, as many units of 512 bytes
    /// (`ext4_max_size`).
    pub fn size_max(&self) -> u64 {
        let size = u64::from(self.block_size);
        let blocks = match self.ro_compat.contains(RoCompat::HUGE_FILE) {
            true => u64::from(u32::MAX),
            false => u64::from(u32::MAX) / (size / 512),
        };
        blocks * size
    }

    /// `s_first_data_block`: where group 0 begins.
    pub fn first_data_block(&self) -> FsBlock {
        self.raw.first_data_block.get().into()
    }

    /// First block of `group`.
    pub fn group_start(&self, group: Group) -> FsBlock {
        self.first_data_block() + u64::from(group) * u64::from(self.blocks_per_group)
    }

    /// Blocks of `group`; the last one may be shorter.
    pub fn group_blocks(&self, group: Group) -> Range<FsBlock> {
        let start = self.group_start(group);
        start..(start + u64::from(self.blocks_per_group)).min(self.blocks)
    }

    /// The group of a block, which is on the volume and not before the first group.
    pub fn group_of(&self, block: FsBlock) -> Group {
        (block.saturating_sub(self.first_data_block()) / u64::from(self.blocks_per_group)) as Group
    }

    /// The bit of `block` in its group's bitmap.
    pub fn cluster_of(&self, block: FsBlock) -> u32 {
        let distance = block.saturating_sub(self.first_data_block());
        (distance % u64::from(self.blocks_per_group)) as u32 / self.cluster_ratio
    }

    /// Whether `count` blocks from `start` are on the volume, behind the superblock.
    pub fn holds(&self, start: FsBlock, count: u64) -> bool {
        start > self.super_block() && start.checked_add(count).is_some_and(|end| end <= self.blocks)
    }

    /// Fails if `count` blocks from `start`, which a `structure` in block `at` names, are not on
    /// the volume.
    pub fn check_blocks(
        &self,
        start: FsBlock,
        count: u64,
        structure: &'static str,
        at: FsBlock,
    ) -> Result<()> {
        if self.holds(start, count) {
            return Ok(());
        }
        let found = format!("{count} blocks from {start}");
        let allowed = format!("{}..{}", self.super_block() + 1, self.blocks);
        Err(Error::corrupt(structure, at, found, allowed))
    }

    /// Whether `group` begins with a copy of the superblock (`ext4_bg_has_super`).
    pub fn has_super(&self, group: Group) -> bool {
        if group == 0 {
            return true;
        }
        if self.compat.contains(Compat::SPARSE_SUPER2) {
            return self.raw.backup_bgs.iter().any(|backup| backup.get() == group);
        }
        if group == 1 || !self.ro_compat.contains(RoCompat::SPARSE_SUPER) {
            return true;
        }
        [3, 5, 7].into_iter().any(|base| is_power_of(group, base))
    }

    /// Group descriptors in a block.
    pub fn descs_per_block(&self) -> u32 {
        self.block_size / self.desc_size
    }

    /// Blocks of all group descriptors.
    pub fn desc_blocks(&self) -> u32 {
        self.groups.div_ceil(self.descs_per_block())
    }

    /// The meta group (as many groups as a block has descriptors) from which on descriptors are in
    /// the groups themselves; all are in front of it without `meta_bg`.
    fn first_meta_bg(&self) -> u32 {
        if self.incompat.contains(Incompat::META_BG) {
            self.raw.first_meta_bg.get()
        } else {
            u32::MAX
        }
    }

    /// The block that has the descriptor of `group`, and the byte in it.
    pub fn desc_place(&self, group: Group) -> (FsBlock, usize) {
        let each = self.descs_per_block();
        let (nr, byte) = (group / each, (group % each) as usize * self.desc_size as usize);
        if nr < self.first_meta_bg() {
            return (self.super_block() + 1 + u64::from(nr), byte);
        }
        let first = nr * each;
        let mut block = self.group_start(first) + u64::from(self.has_super(first));
        // With clusters, group 0 begins with a block in front of the superblock's.
        if self.block_size == 1024 && nr == 0 && self.first_data_block() == 0 {
            block += 1;
        }
        (block, byte)
    }

    /// Blocks that files can have, used or not: all but the metadata that the volume was made with
    /// (`ext4_calculate_overhead`). mke2fs stores how much that is; where an old one did not, the
    /// journal is not counted.
    pub fn user_blocks(&self) -> u64 {
        let stored = u64::from(self.raw.overhead_clusters.get()) * u64::from(self.cluster_ratio);
        let each = 2 + u64::from(self.table_blocks());
        let made = || -> u64 {
            (0..self.groups).map(|group| each + u64::from(self.base_meta_blocks(group))).sum()
        };
        self.blocks.saturating_sub(if stored > 0 { stored } else { made() })
    }

    /// Blocks at the start of `group` that have copies of the superblock, descriptors, and blocks
    /// reserved for more descriptors (`ext4_num_base_meta_blocks`).
    pub fn base_meta_blocks(&self, group: Group) -> u32 {
        let each = self.descs_per_block();
        let mut blocks = u32::from(self.has_super(group));
        if group / each < self.first_meta_bg() {
            if blocks > 0 {
                let table = self.desc_blocks().min(self.first_meta_bg());
                blocks += table + u32::from(self.raw.reserved_gdt_blocks.get());
            }
        } else if matches!(group % each, 0 | 1) || group % each == each - 1 {
            blocks += 1;
        }
        // Its boot block belongs to group 0, if groups begin there.
        blocks + u32::from(group == 0 && self.first_data_block() < self.super_block())
    }

    /// Blocks of a group's inode table.
    pub fn table_blocks(&self) -> u32 {
        (u64::from(self.inodes_per_group) * u64::from(self.inode_size))
            .div_ceil(self.block_size.into()) as u32
    }

    /// Where the block bitmap, the inode bitmap and the inode table of the group with this
    /// descriptor begin, and how many blocks they have. Whether they are on the volume is not
    /// checked.
    pub fn parts_of(&self, desc: &RawGroupDesc) -> [(FsBlock, u64); 3] {
        let table = (desc.inode_table(), self.table_blocks().into());
        [(desc.block_bitmap(), 1), (desc.inode_bitmap(), 1), table]
    }

    /// The checksum of a bitmap with `count` bits per group as its descriptor has `stored` it, and
    /// the right one. The same without checksums.
    pub fn bitmap_checksums(&self, bits: &[u8], count: u32, stored: u32) -> (u32, u32) {
        let Some(seed) = self.checksums.seed() else { return (0, 0) };
        let kept = if self.desc_size > 32 { !0 } else { 0xffff };
        (stored & kept, bitmap::checksum(seed, bits, count) & kept)
    }

    /// Where inode `ino` is. Fails if there is no such number.
    pub fn inode_place(&self, ino: Ino) -> Result<InodePlace> {
        let count = self.raw.inodes_count.get();
        match ino.checked_sub(1).filter(|index| *index < count) {
            Some(index) => Ok(InodePlace {
                group: index / self.inodes_per_group,
                index: index % self.inodes_per_group,
            }),
            None => Err(Error::corrupt("inode number", 0_u32, ino, format!("1..={count}"))),
        }
    }

    /// The block of the group's inode table (whose first block is `table`) that has inode `index`,
    /// and the byte in it.
    pub fn inode_at(&self, table: FsBlock, index: u32) -> (FsBlock, usize) {
        let byte = u64::from(index) * u64::from(self.inode_size);
        let size = u64::from(self.block_size);
        (table + byte / size, (byte % size) as usize)
    }

    /// The first inode of a group in the same block of the table as inode `index`.
    pub fn first_beside(&self, index: u32) -> u32 {
        index - index % self.inodes_per_block()
    }

    /// The blocks of a group's inode table, by their number in it, from the first one behind its
    /// `used` inodes to that of inode `index`.
    pub fn unused_table(&self, used: u32, index: u32) -> std::ops::Range<u32> {
        let inodes = self.inodes_per_block();
        let end = index / inodes + 1;
        used.div_ceil(inodes).min(end)..end
    }

    /// Inodes in a block of the table.
    pub fn inodes_per_block(&self) -> u32 {
        self.block_size / self.inode_size
    }

    /// The number of inode `index` of `group`.
    pub fn ino_of(&self, group: Group, index: u32) -> Ino {
        group.wrapping_mul(self.inodes_per_group).wrapping_add(index).wrapping_add(1)
    }
}

fn is_power_of(mut number: u32, base: u32) -> bool {
    while number > 1 && number.is_multiple_of(base) {
        number /= base;
    }
    number == 1
}
