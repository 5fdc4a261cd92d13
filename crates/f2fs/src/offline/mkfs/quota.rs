//! Quota files of a fresh volume, in the kernel's "vfs v1" format (`fs/quota/quotaio_v2.h`,
//! `quota_tree.h`), with the usage of a single owner.
//!
//! There are six blocks of 1 KiB: the header, a tree of four levels, and one block with one entry.
//! Each level is indexed by a byte of the id, the highest first.

use drive::Block;

use crate::ondisk::BLOCK_SIZE;

/// Bytes of a quota block.
const QUOTA_BLOCK: usize = 1024;
/// Quota blocks in a file with one entry.
const QUOTA_BLOCKS: usize = 6;
/// Bytes of the file.
pub(super) const SIZE: u64 = (QUOTA_BLOCKS * QUOTA_BLOCK) as u64;
/// F2FS blocks of the file.
pub(super) const BLOCKS: u32 = SIZE.div_ceil(BLOCK_SIZE as u64) as u32;
/// Header of a data block, `struct qt_disk_dqdbheader`.
const DATA_HEADER: usize = 16;
/// A week, the grace time of both limits.
const GRACE_SECONDS: u32 = 7 * 24 * 60 * 60;

/// What a quota file counts by. The number is its place in the superblock's `qf_ino`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuotaType {
    User = 0,
    Group = 1,
    Project = 2,
}

impl QuotaType {
    fn magic(self) -> u32 {
        match self {
            Self::User => 0xd9c0_1f11,
            Self::Group => 0xd9c0_1927,
            Self::Project => 0xd9c0_3f14,
        }
    }
}

/// The blocks of the file in which `id` has `inodes` inodes and `bytes` bytes.
pub(super) fn blocks(kind: QuotaType, id: u32, inodes: u64, bytes: u64) -> Vec<Block> {
    let mut file = vec![0; BLOCKS as usize * BLOCK_SIZE];
    let mut put = |at: usize, word: u32| {
        if let Some(field) = file.get_mut(at..at + 4) {
            field.copy_from_slice(&word.to_le_bytes());
        }
    };
    // `v2_disk_dqheader`, then `v2_disk_dqinfo`: grace times, flags, blocks, free block and entry.
    let data = QUOTA_BLOCKS as u32 - 1;
    let header = [kind.magic(), 1, GRACE_SECONDS, GRACE_SECONDS, 0, data + 1, 0, data];
    for (i, word) in header.into_iter().enumerate() {
        put(4 * i, word);
    }
    for (block, index) in (1..).zip(id.to_be_bytes()) {
        put(block * QUOTA_BLOCK + 4 * usize::from(index), block as u32 + 1);
    }
    let block = data as usize * QUOTA_BLOCK;
    // Next and previous free block, then the number of entries, 16 bits.
    put(block + 8, 1);
    // `v2r1_disk_dqblk`: id, pad, then 64-bit limits, inodes, limits, bytes, times; no limits.
    let entry = block + DATA_HEADER;
    put(entry, id);
    put(entry + 24, inodes as u32);
    put(entry + 48, bytes as u32);
    file.chunks_exact(BLOCK_SIZE).map(Block::from_prefix).collect()
}
