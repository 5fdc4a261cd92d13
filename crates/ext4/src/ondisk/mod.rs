//! The disk format: one file per structure, and the only place that names offsets.
//!
//! Each file has the raw bytes as a packed little-endian `zerocopy` type, with its size proven at
//! compile time, and beside it the checks that turn them into values that the engine trusts. Names
//! are those of the kernel's `fs/ext4/ext4.h`. Blocks are slices, because a file system block has
//! 1, 2 or 4 KiB. Nothing here does I/O.

/// Fields in two halves: the getter and the setter of each.
macro_rules! halves {
    ($($(#[$doc:meta])* $get:ident $set:ident $lo:ident $hi:ident: $value:ty, $half:ty;)*) => {
        $(
            $(#[$doc])*
            pub fn $get(&self) -> $value {
                <$value>::from(self.$hi.get()) << <$half>::BITS | <$value>::from(self.$lo.get())
            }
            $(#[$doc])*
            pub fn $set(&mut self, value: $value) {
                self.$lo = (value as $half).into();
                self.$hi = ((value >> <$half>::BITS) as $half).into();
            }
        )*
    };
}

pub mod bitmap;
pub mod checksum;
pub mod dirent;
pub mod error;
pub mod extent;
pub mod features;
pub mod group;
pub mod hash;
pub mod htree;
pub mod indirect;
pub mod inode;
pub mod orphan;
pub mod superblock;
pub mod xattr;

use crate::error::{Error, Result};

/// `EXT4_SUPER_MAGIC`.
pub const MAGIC: u16 = 0xef53;
/// Byte of the first superblock on the volume.
pub const SUPERBLOCK_OFFSET: usize = 1024;
/// The root directory's inode.
pub const ROOT_INO: Ino = 2;
/// The inode that owns the blocks kept for a larger descriptor table.
pub const RESIZE_INO: Ino = 7;
/// The journal's inode.
pub const JOURNAL_INO: Ino = 8;
/// The first inode that is not reserved, in revision 0 and by default.
pub const FIRST_INO: Ino = 11;
/// Longest file name in bytes.
pub const NAME_MAX: usize = 255;
/// `EXT4_LINK_MAX`: a directory that would have more has 1 link from then on.
pub const LINK_MAX: u32 = 65_000;

/// Number of an inode, from 1.
pub type Ino = u32;
/// Number of a block of the file system on the volume.
pub type FsBlock = u64;
/// Number of a block of a file.
pub type FileBlock = u32;
/// Number of a block group.
pub type Group = u32;

/// The number of 32 bits at byte `at`; 0 behind the end.
pub(crate) fn le32(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Fails unless `field`, which was read from block `at`, is sound.
#[inline]
pub(crate) fn ensure(
    is_sound: bool,
    field: &'static str,
    at: FsBlock,
    found: impl ToString,
    allowed: impl ToString,
) -> Result<()> {
    if is_sound { Ok(()) } else { Err(Error::corrupt(field, at, found, allowed)) }
}
