//! The segment information table: which blocks of each segment are valid (`struct f2fs_sit_entry`,
//! 74 bytes, 55 a block). The second copy of the table follows the whole first one.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::superblock::Superblock;
use super::{BLOCKS_PER_SEGMENT, BlockAddr, SegNo, bits, block_view};
use crate::error::{Error, Result};

/// Entries in a block.
pub const ENTRIES_PER_BLOCK: usize = 55;
/// Bytes of a segment's bitmap.
pub const MAP_SIZE: usize = BLOCKS_PER_SEGMENT as usize / 8;

const COUNT_BITS: u32 = 10;

/// Temperature and content of a log, and of the segments that it fills. The number is the format's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum LogType {
    /// Directory entries.
    HotData = 0,
    /// Ordinary file data.
    WarmData = 1,
    /// Data that rarely changes, and data moved by the cleaner.
    ColdData = 2,
    /// Inodes and direct nodes of directories.
    HotNode = 3,
    /// Inodes and direct nodes of files, and xattr nodes.
    WarmNode = 4,
    /// Indirect nodes.
    ColdNode = 5,
}

impl LogType {
    /// All six, in the format's order.
    pub const ALL: [Self; 6] = [
        Self::HotData,
        Self::WarmData,
        Self::ColdData,
        Self::HotNode,
        Self::WarmNode,
        Self::ColdNode,
    ];

    /// The type a number stands for.
    pub fn from_raw(raw: u16) -> Option<Self> {
        Self::ALL.get(usize::from(raw)).copied()
    }

    /// Position in [`Self::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether segments of this type hold nodes.
    pub const fn is_node(self) -> bool {
        self as u8 >= Self::HotNode as u8
    }
}

/// `struct f2fs_sit_entry`, 74 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawSitEntry {
    /// Valid blocks in the low ten bits, type above.
    pub vblocks: U16,
    /// One bit for each block, most significant first.
    pub valid_map: [u8; MAP_SIZE],
    /// Age: how long the volume had been mounted in its life, in seconds.
    pub mtime: U64,
}
const _: () = assert!(size_of::<RawSitEntry>() == 74);

/// `struct f2fs_sit_block`, 4096 bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawSitBlock {
    /// Entries; that of `segno` is number `segno % 55`.
    pub entries: [RawSitEntry; ENTRIES_PER_BLOCK],
    unused: [u8; 26],
}
block_view!(RawSitBlock);

/// One entry, decoded: the count agrees with the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SitEntry {
    /// Log the segment belongs to.
    pub log: LogType,
    /// Valid blocks, 0..=512.
    pub valid: u16,
    /// One bit for each block, most significant first.
    pub map: [u8; MAP_SIZE],
    /// Age: how long the volume had been mounted in its life, in seconds.
    pub mtime: u64,
}

impl SitEntry {
    /// A segment without valid blocks.
    pub fn empty(log: LogType) -> Self {
        Self { log, valid: 0, map: [0; MAP_SIZE], mtime: 0 }
    }

    /// Whether block `offset` of the segment is valid.
    pub fn is_valid(&self, offset: usize) -> bool {
        bits::msb::test(&self.map, offset)
    }
}

impl RawSitEntry {
    /// Decodes and checks this entry, read from block `at` (0 for one in a journal).
    pub fn parse(&self, at: BlockAddr) -> Result<SitEntry> {
        let raw = self.vblocks.get();
        let log = LogType::from_raw(raw >> COUNT_BITS)
            .ok_or_else(|| Error::corrupt("sit_entry.type", at, raw >> COUNT_BITS, "0..=5"))?;
        let valid = raw & ((1 << COUNT_BITS) - 1);
        let counted = bits::count(&self.valid_map);
        if u32::from(valid) != counted {
            return Err(Error::corrupt("sit_entry.vblocks", at, valid, counted));
        }
        Ok(SitEntry { log, valid, map: self.valid_map, mtime: self.mtime.get() })
    }
}

impl From<&SitEntry> for RawSitEntry {
    fn from(entry: &SitEntry) -> Self {
        Self {
            vblocks: U16::new((entry.log as u16) << COUNT_BITS | entry.valid),
            valid_map: entry.map,
            mtime: U64::new(entry.mtime),
        }
    }
}

impl RawSitBlock {
    /// Raw entry of `segno`, which must belong to this block.
    pub fn entry(&self, segno: SegNo) -> &RawSitEntry {
        &self.entries[segno as usize % ENTRIES_PER_BLOCK]
    }

    /// Stores the entry of `segno`.
    pub fn set_entry(&mut self, segno: SegNo, entry: &SitEntry) {
        self.entries[segno as usize % ENTRIES_PER_BLOCK] = entry.into();
    }
}

/// Table block that holds the entry of `segno`.
pub fn block_index(segno: SegNo) -> u32 {
    segno / ENTRIES_PER_BLOCK as u32
}

/// Where table block `index` is now, by the checkpoint's version bitmap.
pub fn block_addr(sb: &Superblock, version_bitmap: &[u8], index: u32) -> BlockAddr {
    let second = bits::msb::test(version_bitmap, index as usize);
    sb.sit_blkaddr + index + if second { sb.sit_blocks() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_round_trip_and_checks() {
        let mut entry = SitEntry::empty(LogType::WarmNode);
        bits::msb::set(&mut entry.map, 0);
        bits::msb::set(&mut entry.map, 511);
        entry.valid = 2;
        let mut raw = RawSitEntry::from(&entry);
        assert_eq!(raw.vblocks.get(), 4 << 10 | 2);
        assert_eq!(raw.parse(7).unwrap(), entry);
        assert!(entry.is_valid(511) && !entry.is_valid(1));
        raw.vblocks.set(4 << 10 | 3);
        assert!(raw.parse(7).is_err());
        raw.vblocks.set(6 << 10 | 2);
        assert!(raw.parse(7).is_err());
    }
}
