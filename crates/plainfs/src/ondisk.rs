//! The structures on the drive: a superblock, a map that says whose each block is, then inodes and
//! contents.
//!
//! An inode has a block of its own, and the address of that block is its number. Nothing points to
//! contents: the map says which block is which page of which inode. Directories and symbolic links
//! have contents like files.

use std::ops::Range;

use drive::{BLOCK_SIZE, Lba};
use vfs::Timespec;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(crate) const MAGIC: [u8; 8] = *b"plainfs\x02";
/// Smallest volume.
pub(crate) const BLOCKS_MIN: u64 = 64;
/// Entries in a block of the map.
pub(crate) const OWNERS: u64 = (BLOCK_SIZE / size_of::<RawOwner>()) as u64;
/// In a second.
const NANOS: i64 = 1_000_000_000;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawSuperblock {
    pub(crate) magic: [u8; 8],
    pub(crate) blocks: U64,
    /// 1 after an unmount, 0 after any other write.
    pub(crate) clean: U64,
}

impl RawSuperblock {
    /// The blocks behind the map, of which the first is the root. `None` if there are too few.
    pub(crate) fn data(&self) -> Option<Range<Lba>> {
        let blocks = self.blocks.get();
        (blocks >= BLOCKS_MIN).then(|| 1 + blocks.div_ceil(OWNERS)..blocks)
    }
}

/// Whose a block is.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawOwner {
    /// An inode, or 0: the block is free.
    pub(crate) inode: U64,
    /// 0 is the inode itself, 1 the first page of its contents.
    pub(crate) slot: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawInode {
    pub(crate) mode: U32,
    pub(crate) nlink: U32,
    pub(crate) uid: U32,
    pub(crate) gid: U32,
    pub(crate) rdev: U64,
    pub(crate) size: U64,
    /// Nanoseconds since 1970, signed.
    pub(crate) atime: U64,
    pub(crate) mtime: U64,
    pub(crate) ctime: U64,
}

/// Appends a directory entry: inode, length of the name, name.
pub(crate) fn push_entry(bytes: &mut Vec<u8>, inode: Lba, name: &[u8]) {
    bytes.extend_from_slice(&inode.to_le_bytes());
    bytes.push(name.len() as u8);
    bytes.extend_from_slice(name);
}

/// The next directory entry, and what follows it. `None` if the bytes end before it does.
pub(crate) fn next_entry(bytes: &[u8]) -> Option<(Lba, &[u8], &[u8])> {
    let (inode, rest) = U64::read_from_prefix(bytes).ok()?;
    let (len, rest) = rest.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(*len))?;
    Some((inode.get(), name, rest))
}

pub(crate) fn nanos(time: Timespec) -> U64 {
    let nanos = time.secs.saturating_mul(NANOS).saturating_add(time.nanos.into());
    nanos.cast_unsigned().into()
}

pub(crate) fn time(raw: U64) -> Timespec {
    let nanos = raw.get().cast_signed();
    Timespec { secs: nanos.div_euclid(NANOS), nanos: nanos.rem_euclid(NANOS) as u32 }
}
