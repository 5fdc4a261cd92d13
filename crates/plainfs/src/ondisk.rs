//! The structures on the drive, and where they are: superblock, bitmap, inode table, data.
//!
//! ```text
//! block 0      1 …           … data                          … blocks
//! superblock | block bitmap | inode table, 16 to a block | data
//! ```

use drive::{BLOCK_SIZE, Lba};
use vfs::kind::Finding;
use vfs::{FileKind, Timespec};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(crate) const MAGIC: [u8; 8] = *b"plainfs\x01";
/// Longest label in bytes.
pub(crate) const LABEL_MAX: usize = 64;
/// The root directory. 0 in a directory entry means that the entry is not used.
pub(crate) const ROOT: u32 = 1;

/// Pointers of an inode to contents, and to blocks of pointers.
const DIRECT: usize = 34;
const INDIRECT: usize = 16;
/// Pointers in an indirect block.
pub(crate) const POINTERS: usize = BLOCK_SIZE / size_of::<U32>();
pub(crate) const INODES_PER_BLOCK: usize = BLOCK_SIZE / size_of::<RawInode>();
/// Bits in a block of the bitmap.
pub(crate) const BITS: u64 = BLOCK_SIZE as u64 * 8;
/// Blocks for each inode: files of 32 KiB fill both at the same time.
const BLOCKS_PER_INODE: u64 = 8;
/// In a second.
const NANOS: i64 = 1_000_000_000;
/// Smallest volume in blocks.
pub(crate) const BLOCKS_MIN: u64 = 64;

/// Largest file in pages, a little over 64 MiB. The indirect blocks count as the pages behind.
pub(crate) const PAGES_MAX: u64 = (DIRECT + INDIRECT * POINTERS) as u64;
pub(crate) const FILE_MAX: u64 = PAGES_MAX * BLOCK_SIZE as u64;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawSuperblock {
    pub(crate) magic: [u8; 8],
    pub(crate) blocks: U64,
    pub(crate) inodes: U32,
    /// 1 after an unmount, 0 from the first write on.
    pub(crate) clean: U32,
    pub(crate) uuid: [u8; 16],
    pub(crate) label: [u8; LABEL_MAX],
}

/// An inode. It is free if its `mode` is 0.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
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
    pub(crate) pointers: [U32; DIRECT + INDIRECT],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawEntry {
    pub(crate) ino: U32,
    pub(crate) len: U16,
    pub(crate) reserved: U16,
    pub(crate) name: [u8; 256],
}

const _: () = assert!(size_of::<RawSuperblock>() == 104);
const _: () = assert!(size_of::<RawInode>() == 256);
const _: () = assert!(size_of::<RawEntry>() == 264);

/// Where everything is; a function of the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) blocks: u64,
    pub(crate) inodes: u32,
    /// First block of the inode table; the bitmap begins at 1.
    pub(crate) table: Lba,
    /// First block of the data.
    pub(crate) data: Lba,
}

impl Geometry {
    /// That of a volume of so many blocks; `None` if it is too small or has no room in 32 bits.
    pub(crate) fn of(blocks: u64) -> Option<Self> {
        if blocks < BLOCKS_MIN || u32::try_from(blocks).is_err() {
            return None;
        }
        let table_blocks = (blocks / BLOCKS_PER_INODE).div_ceil(INODES_PER_BLOCK as u64);
        let table = 1 + blocks.div_ceil(BITS);
        let inodes = u32::try_from(table_blocks * INODES_PER_BLOCK as u64).ok()?;
        Some(Self { blocks, inodes, table, data: table + table_blocks })
    }

    /// Blocks a file may have.
    pub(crate) fn data_blocks(&self) -> u64 {
        self.blocks - self.data
    }
}

/// The finding that inode `number` holds a value it must not.
pub(crate) fn wrong(
    number: u32,
    what: &'static str,
    found: impl ToString,
    allowed: impl ToString,
) -> Finding {
    Finding::new(format!("inode {number}"), what, found, allowed)
}

impl RawInode {
    pub(crate) fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(self.mode.get())
    }

    pub(crate) fn perm(&self) -> u16 {
        (self.mode.get() & 0o7777) as u16
    }

    /// What is wrong with the values of one in use, pointers excepted.
    pub(crate) fn check(&self, number: u32) -> Result<FileKind, Finding> {
        let (mode, size) = (self.mode.get(), self.size.get());
        let Some(kind) = self.kind().filter(|_| mode <= 0o177_777) else {
            return Err(wrong(number, "mode", format!("{mode:#o}"), "a type and permissions"));
        };
        if self.nlink.get() == 0 {
            return Err(wrong(number, "link count", 0, "at least 1"));
        }
        let entry = size_of::<RawEntry>() as u64;
        let (fits, allowed) = match kind {
            FileKind::Regular => (size <= FILE_MAX, "no more than a file can have"),
            FileKind::Directory => (size <= FILE_MAX && size % entry == 0, "whole entries"),
            FileKind::Symlink => ((1..vfs::path::PATH_MAX as u64).contains(&size), "1 to 4095"),
            _ => (size == 0, "0"),
        };
        if !fits {
            return Err(wrong(number, "size", size, allowed));
        }
        Ok(kind)
    }
}

/// The page that pointer `i` of an inode is for.
pub(crate) fn page_of(i: usize) -> u64 {
    if i < DIRECT { i as u64 } else { PAGES_MAX + (i - DIRECT) as u64 }
}

/// The first page of those whose pointers are in the indirect block that counts as `page`.
pub(crate) fn first_below(page: u64) -> u64 {
    DIRECT as u64 + (page - PAGES_MAX) * POINTERS as u64
}

/// The indirect block that has the pointer to `page`; the inode has that of others.
pub(crate) fn indirect_of(page: u64) -> Option<u64> {
    let behind = page.checked_sub(DIRECT as u64)?;
    Some(PAGES_MAX + behind / POINTERS as u64)
}

pub(crate) fn nanos(time: Timespec) -> U64 {
    let nanos = time.secs.saturating_mul(NANOS).saturating_add(time.nanos.into());
    nanos.cast_unsigned().into()
}

pub(crate) fn time(raw: U64) -> Timespec {
    let nanos = raw.get().cast_signed();
    Timespec { secs: nanos.div_euclid(NANOS), nanos: nanos.rem_euclid(NANOS) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_follow_one_another_and_leave_room_for_data() {
        for blocks in [BLOCKS_MIN, 1000, BITS, BITS + 1, 1 << 20, u64::from(u32::MAX)] {
            let geometry = Geometry::of(blocks).expect("it fits");
            assert!((geometry.table - 1) * BITS >= blocks);
            let inodes = (geometry.data - geometry.table) * INODES_PER_BLOCK as u64;
            assert_eq!(inodes, u64::from(geometry.inodes));
            assert!(geometry.data_blocks() > blocks / 2, "{geometry:?}");
        }
        assert_eq!(Geometry::of(BLOCKS_MIN - 1), None);
        assert_eq!(Geometry::of(1 << 32), None);
    }
}
