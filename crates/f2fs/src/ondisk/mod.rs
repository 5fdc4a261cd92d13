//! The disk format: one file per structure, and the only place that names offsets.
//!
//! Each file has the raw bytes as a packed little-endian `zerocopy` type, with size and offsets
//! proven at compile time, and beside it the checks that turn them into values that the engine
//! trusts. Names are those of the kernel's `include/linux/f2fs_fs.h`. Nothing here does I/O.

pub mod bits;
pub mod checkpoint;
pub mod compress;
pub mod curseg;
pub mod data_sums;
pub mod dentry;
pub mod encoding;
pub mod error;
pub mod feature;
pub mod hash;
pub mod inode;
pub mod nat;
pub mod nat_bits;
pub mod node;
pub mod node_sums;
pub mod orphan;
pub mod quota;
pub mod sit;
pub mod summary;
pub mod superblock;
pub mod xattr;

/// Bytes in a block.
pub const BLOCK_SIZE: usize = drive::BLOCK_SIZE;
/// Blocks in a segment; the only value the format knows.
pub const BLOCKS_PER_SEGMENT: u32 = 512;
/// Bytes in a segment.
pub const SEGMENT_SIZE: u64 = BLOCKS_PER_SEGMENT as u64 * BLOCK_SIZE as u64;
/// The address that stands for nothing: a hole, or an unused entry.
pub const NULL_ADDR: BlockAddr = 0;
/// The address of a block that is reserved and counted but not written yet.
pub const NEW_ADDR: BlockAddr = 0xffff_ffff;
/// What the first slot of a compressed cluster has instead of an address.
pub const COMPRESS_ADDR: BlockAddr = 0xffff_fffe;
/// Address slots in an inode, if it has no extra attributes and no inline xattrs.
pub const ADDRS_PER_INODE: u32 = 923;
/// Address slots in a direct node.
pub const ADDRS_PER_BLOCK: u32 = 1018;
/// Node slots in an indirect node.
pub const NIDS_PER_BLOCK: u32 = 1018;
/// `F2FS_SUPER_MAGIC`, also the seed of superblock and checkpoint checksums.
pub const MAGIC: u32 = 0xf2f5_2010;
/// Longest file name in bytes.
pub const NAME_MAX: usize = 255;
/// Longest target of a symbolic link in bytes: with its NUL it fills one block.
pub const SYMLINK_MAX: usize = BLOCK_SIZE - 1;
/// How many blocks the node tree below the inode can address.
pub const MAX_INDIRECT_BLOCKS: u64 = {
    let n = ADDRS_PER_BLOCK as u64;
    2 * n + 2 * n * n + n * n * n
};

/// Address of a block on the volume.
pub type BlockAddr = u32;
/// Number of a node; an inode's is its inode number.
pub type Nid = u32;
/// Number of a segment of the main area.
pub type SegNo = u32;

/// Whether `addr` names a block, rather than nothing or a reservation.
pub const fn is_data_addr(addr: BlockAddr) -> bool {
    addr != NULL_ADDR && addr < COMPRESS_ADDR
}

/// CRC-32 (polynomial 0xEDB88320, reflected) that continues from `seed`. Unlike the usual one, it
/// inverts neither at the start nor at the end: `f2fs_crc32`.
pub fn crc32(seed: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(!seed);
    hasher.update(bytes);
    !hasher.finalize()
}

/// Gives a raw type of the size of a block its views of a block's bytes. Neither can fail.
macro_rules! block_view {
    ($raw:ty) => {
        const _: () = assert!(size_of::<$raw>() == $crate::ondisk::BLOCK_SIZE);
        impl $raw {
            /// The block's bytes as this structure.
            pub fn of(bytes: &[u8; $crate::ondisk::BLOCK_SIZE]) -> &Self {
                zerocopy::transmute_ref!(bytes)
            }
            /// The block's bytes as this structure, to change.
            pub fn of_mut(bytes: &mut [u8; $crate::ondisk::BLOCK_SIZE]) -> &mut Self {
                zerocopy::transmute_mut!(bytes)
            }
        }
    };
}
pub(crate) use block_view;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_matches_the_kernel() {
        assert_eq!(crc32(0xffff_ffff, b"123456789"), 0x340b_c6d9);
        assert_eq!(crc32(MAGIC, b"123456789"), 0x1657_a0c3);
        assert_eq!(crc32(crc32(MAGIC, b"1234"), b"56789"), 0x1657_a0c3);
    }
}
