//! The node address table: where each node is (`struct f2fs_nat_entry`, 9 bytes, 455 a block).
//!
//! Two copies of each table block lie in neighbouring segments; a bit in the checkpoint's version
//! bitmap names the valid one.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::superblock::Superblock;
use super::{BLOCKS_PER_SEGMENT, BlockAddr, NULL_ADDR, Nid, bits, block_view};

/// Entries in a block.
pub const ENTRIES_PER_BLOCK: usize = 455;

/// `struct f2fs_nat_entry`, 9 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawNatEntry {
    /// See [`NatEntry::version`].
    pub version: u8,
    /// See [`NatEntry::ino`].
    pub ino: U32,
    /// See [`NatEntry::addr`].
    pub block_addr: U32,
}
const _: () = assert!(size_of::<RawNatEntry>() == 9);

/// `struct f2fs_nat_block`, 4096 bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawNatBlock {
    /// Entries; that of `nid` is number `nid % 455`.
    pub entries: [RawNatEntry; ENTRIES_PER_BLOCK],
    unused: u8,
}
block_view!(RawNatBlock);

/// One entry, decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NatEntry {
    /// Counts how often this node number was freed; summaries of data repeat it.
    pub version: u8,
    /// Inode the node belongs to.
    pub ino: Nid,
    /// Where the node is; `NULL_ADDR` = free, `NEW_ADDR` = not written yet.
    pub addr: BlockAddr,
}

impl NatEntry {
    /// Whether the node number is unused.
    pub fn is_free(&self) -> bool {
        self.addr == NULL_ADDR
    }
}

impl From<RawNatEntry> for NatEntry {
    fn from(raw: RawNatEntry) -> Self {
        Self { version: raw.version, ino: raw.ino.get(), addr: raw.block_addr.get() }
    }
}

impl From<NatEntry> for RawNatEntry {
    fn from(entry: NatEntry) -> Self {
        Self { version: entry.version, ino: U32::new(entry.ino), block_addr: U32::new(entry.addr) }
    }
}

impl RawNatBlock {
    /// Entry of `nid`, which must belong to this block.
    pub fn entry(&self, nid: Nid) -> NatEntry {
        self.entries[nid as usize % ENTRIES_PER_BLOCK].into()
    }

    /// Stores the entry of `nid`.
    pub fn set_entry(&mut self, nid: Nid, entry: NatEntry) {
        self.entries[nid as usize % ENTRIES_PER_BLOCK] = entry.into();
    }
}

/// Table block that holds the entry of `nid`.
pub fn block_index(nid: Nid) -> u32 {
    nid / ENTRIES_PER_BLOCK as u32
}

/// Where table block `index` is now, by the checkpoint's version bitmap.
pub fn block_addr(sb: &Superblock, version_bitmap: &[u8], index: u32) -> BlockAddr {
    let first = sb.nat_blkaddr
        + index / BLOCKS_PER_SEGMENT * (2 * BLOCKS_PER_SEGMENT)
        + index % BLOCKS_PER_SEGMENT;
    if bits::msb::test(version_bitmap, index as usize) { first + BLOCKS_PER_SEGMENT } else { first }
}
