//! Group descriptors (`struct ext4_group_desc`, 32 bytes, 64 with the feature `64bit`).

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::{Checksums, compare, crc16, crc32c};
use super::{FsBlock, Group};
use crate::error::Result;

/// `EXT4_BG_INODE_UNINIT`: inode bitmap and table were never written.
pub const INODE_UNINIT: u16 = 1;
/// `EXT4_BG_BLOCK_UNINIT`: the block bitmap was never written.
pub const BLOCK_UNINIT: u16 = 2;
/// `EXT4_BG_INODE_ZEROED`: the inode table is zeroes where it was not used.
pub const INODE_ZEROED: u16 = 4;

/// Byte of `bg_checksum`.
const CHECKSUM_AT: usize = 0x1e;

/// `struct ext4_group_desc`, 64 bytes. The upper half is zero where descriptors have 32 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names; the accessors say what they are")]
pub struct RawGroupDesc {
    pub block_bitmap_lo: U32,
    pub inode_bitmap_lo: U32,
    pub inode_table_lo: U32,
    pub free_blocks_count_lo: U16,
    pub free_inodes_count_lo: U16,
    pub used_dirs_count_lo: U16,
    pub flags: U16,
    pub exclude_bitmap_lo: U32,
    pub block_bitmap_csum_lo: U16,
    pub inode_bitmap_csum_lo: U16,
    pub itable_unused_lo: U16,
    pub checksum: U16,
    pub block_bitmap_hi: U32,
    pub inode_bitmap_hi: U32,
    pub inode_table_hi: U32,
    pub free_blocks_count_hi: U16,
    pub free_inodes_count_hi: U16,
    pub used_dirs_count_hi: U16,
    pub itable_unused_hi: U16,
    pub exclude_bitmap_hi: U32,
    pub block_bitmap_csum_hi: U16,
    pub inode_bitmap_csum_hi: U16,
    pub reserved: U32,
}
const _: () = assert!(size_of::<RawGroupDesc>() == 64);
const _: () = assert!(std::mem::offset_of!(RawGroupDesc, checksum) == CHECKSUM_AT);
const _: () = assert!(std::mem::offset_of!(RawGroupDesc, block_bitmap_hi) == 0x20);

impl RawGroupDesc {
    halves! {
        /// Block of the block bitmap.
        block_bitmap set_block_bitmap block_bitmap_lo block_bitmap_hi: FsBlock, u32;
        /// Block of the inode bitmap.
        inode_bitmap set_inode_bitmap inode_bitmap_lo inode_bitmap_hi: FsBlock, u32;
        /// First block of the inode table.
        inode_table set_inode_table inode_table_lo inode_table_hi: FsBlock, u32;
        /// Free clusters.
        free_clusters set_free_clusters free_blocks_count_lo free_blocks_count_hi: u32, u16;
        /// Free inodes.
        free_inodes set_free_inodes free_inodes_count_lo free_inodes_count_hi: u32, u16;
        /// Directories.
        used_dirs set_used_dirs used_dirs_count_lo used_dirs_count_hi: u32, u16;
        /// Inodes at the end of the table that were never used.
        itable_unused set_itable_unused itable_unused_lo itable_unused_hi: u32, u16;
        /// Checksum of the block bitmap. Descriptors of 32 bytes have its lower half.
        block_bitmap_csum set_block_bitmap_csum block_bitmap_csum_lo block_bitmap_csum_hi: u32, u16;
        /// Checksum of the inode bitmap. Descriptors of 32 bytes have its lower half.
        inode_bitmap_csum set_inode_bitmap_csum inode_bitmap_csum_lo inode_bitmap_csum_hi: u32, u16;
    }

    /// The descriptor in the first `size` bytes of `bytes`; zero where they are too short.
    pub fn read(bytes: &[u8], size: u32) -> Self {
        let mut raw = Self::new_zeroed();
        let bytes = bytes.get(..size as usize).unwrap_or(bytes);
        let len = bytes.len().min(size_of::<Self>());
        raw.as_mut_bytes()[..len].copy_from_slice(&bytes[..len]);
        raw
    }

    /// Writes the first `size` bytes, 32 or 64, to the start of `out`.
    pub fn emit(&self, out: &mut [u8], size: u32) {
        let len = (size as usize).min(size_of::<Self>()).min(out.len());
        out[..len].copy_from_slice(&self.as_bytes()[..len]);
    }

    /// Whether all of these flags are set.
    pub fn has(&self, flags: u16) -> bool {
        self.flags.get() & flags == flags
    }

    /// The right `bg_checksum` of `group` (`ext4_group_desc_csum`); `None` without checksums.
    pub fn right_checksum(&self, checksums: Checksums, group: Group, size: u32) -> Option<u16> {
        let bytes = &self.as_bytes()[..(size as usize).min(size_of::<Self>())];
        let (front, behind) = (&bytes[..CHECKSUM_AT], &bytes[CHECKSUM_AT + 2..]);
        match checksums {
            Checksums::None => None,
            // The field itself is left out.
            Checksums::Descriptors(state) => {
                Some(crc16(crc16(crc16(state, &group.to_le_bytes()), front), behind))
            }
            // The field itself counts as zero.
            Checksums::Metadata(seed) => {
                let state = crc32c(crc32c(seed, &group.to_le_bytes()), front);
                Some(crc32c(crc32c(state, &[0; 2]), behind) as u16)
            }
        }
    }

    /// Sets `bg_checksum`. Do this last.
    pub fn seal(&mut self, checksums: Checksums, group: Group, size: u32) {
        self.checksum = self.right_checksum(checksums, group, size).unwrap_or(0).into();
    }

    /// Fails if `bg_checksum` is wrong in the descriptor read from block `at`.
    pub fn verify(&self, checksums: Checksums, group: Group, size: u32, at: FsBlock) -> Result<()> {
        let Some(right) = self.right_checksum(checksums, group, size) else { return Ok(()) };
        compare("group_desc.bg_checksum", at, self.checksum.get().into(), right.into())
    }
}
