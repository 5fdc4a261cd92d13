//! Extent trees (`struct ext4_extent_header`, `ext4_extent`, `ext4_extent_idx`, 12 bytes each).
//!
//! The root is the inode's `i_block`, 60 bytes; every other node fills a block, with a checksum
//! behind its last slot.

use std::ops::Range;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::{compare, crc32c};
use super::{FileBlock, FsBlock, ensure, le32};
use crate::error::{Error, Result};

/// `EXT4_EXT_MAGIC`.
pub const MAGIC: u16 = 0xf30a;
/// Deepest tree: `EXT4_MAX_EXTENT_DEPTH`.
pub const DEPTH_MAX: u16 = 5;
/// Longest extent, in blocks. Longer ones are unwritten ones, by the excess.
pub const LEN_MAX: u16 = 32_768;
/// Longest unwritten extent: `EXT_UNWRITTEN_MAX_LEN`.
pub const UNWRITTEN_LEN_MAX: u16 = LEN_MAX - 1;
/// Bytes of a header and of every slot.
pub const SLOT: usize = 12;

/// `struct ext4_extent_header`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawHeader {
    /// [`MAGIC`].
    pub magic: U16,
    /// Slots in use.
    pub entries: U16,
    /// Slots there are.
    pub max: U16,
    /// Levels below this node; 0 for a leaf.
    pub depth: U16,
    /// Unused.
    pub generation: U32,
}

/// `struct ext4_extent`, a slot of a leaf.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawExtent {
    /// First block of the file.
    pub block: U32,
    /// Blocks; [`LEN_MAX`] more for an unwritten extent.
    pub len: U16,
    /// Upper bits of the first block of the volume.
    pub start_hi: U16,
    /// Lower bits of the first block of the volume.
    pub start_lo: U32,
}

/// `struct ext4_extent_idx`, a slot of an inner node.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawIndex {
    /// First block of the file below it.
    pub block: U32,
    /// Lower bits of the child's block.
    pub leaf_lo: U32,
    /// Upper bits of the child's block.
    pub leaf_hi: U16,
    /// Unused.
    pub unused: U16,
}
const _: () = assert!(size_of::<RawHeader>() == SLOT);
const _: () = assert!(size_of::<RawExtent>() == SLOT);
const _: () = assert!(size_of::<RawIndex>() == SLOT);

/// Adjacent blocks of a file that are adjacent on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First block of the file.
    pub block: FileBlock,
    /// Blocks, 1..=32768.
    pub len: u32,
    /// First block of the volume.
    pub start: FsBlock,
    /// Allocated, but reads as zeroes.
    pub unwritten: bool,
}

impl Extent {
    /// The block behind its last one. It may be 2^32.
    pub fn end(&self) -> u64 {
        u64::from(self.block) + u64::from(self.len)
    }

    /// Its blocks of the file.
    pub fn range(&self) -> Range<u64> {
        self.block.into()..self.end()
    }

    /// Its blocks of the volume.
    pub fn home(&self) -> Range<FsBlock> {
        self.start..self.start + u64::from(self.len)
    }

    /// Where block `index` of the file is, if it is one of these.
    pub fn at(&self, index: u64) -> Option<FsBlock> {
        self.range().contains(&index).then(|| self.start + (index - u64::from(self.block)))
    }

    /// What it has of blocks `range` of the file. The two have at least one in common.
    #[must_use]
    pub fn part(&self, range: Range<u64>) -> Self {
        let (block, end) = (range.start.max(self.block.into()), range.end.min(self.end()));
        let start = self.start + (block - u64::from(self.block));
        Self { block: block as FileBlock, len: (end - block) as u32, start, ..*self }
    }
}

impl From<RawExtent> for Extent {
    fn from(raw: RawExtent) -> Self {
        let (len, unwritten) = match raw.len.get() {
            len @ 0..=LEN_MAX => (len, false),
            len => (len - LEN_MAX, true),
        };
        let start = u64::from(raw.start_hi.get()) << 32 | u64::from(raw.start_lo.get());
        Self { block: raw.block.get(), len: len.into(), start, unwritten }
    }
}

impl From<Extent> for RawExtent {
    fn from(extent: Extent) -> Self {
        let len = extent.len as u16 + if extent.unwritten { LEN_MAX } else { 0 };
        Self {
            block: extent.block.into(),
            len: len.into(),
            start_hi: ((extent.start >> 32) as u16).into(),
            start_lo: (extent.start as u32).into(),
        }
    }
}

/// A child of an inner node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index {
    /// First block of the file below it.
    pub block: FileBlock,
    /// Block of the child.
    pub child: FsBlock,
}

impl From<RawIndex> for Index {
    fn from(raw: RawIndex) -> Self {
        let child = u64::from(raw.leaf_hi.get()) << 32 | u64::from(raw.leaf_lo.get());
        Self { block: raw.block.get(), child }
    }
}

impl From<Index> for RawIndex {
    fn from(index: Index) -> Self {
        Self {
            block: index.block.into(),
            leaf_lo: (index.child as u32).into(),
            leaf_hi: ((index.child >> 32) as u16).into(),
            unused: 0.into(),
        }
    }
}

/// A valid node, to read: its slots are in order and do not overlap.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    /// Levels below this node; 0 for a leaf.
    pub depth: u16,
    slots: &'a [u8],
}

/// What a node says of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is in this extent.
    Extent(Extent),
    /// It is in a hole, which ends before this block.
    Hole(u64),
    /// The child knows, which may end with a hole up to `end`.
    Below {
        /// The child's block.
        child: FsBlock,
        /// As in [`Node::look`].
        end: u64,
    },
}

/// Where the last hole of a file ends.
pub const HOLE_END: u64 = 1 << 32;

impl<'a> Node<'a> {
    /// The node in `bytes` (`i_block` or a block), read from block `at`. `depth` is what its parent
    /// says; `None` for a root.
    pub fn parse(bytes: &'a [u8], depth: Option<u16>, at: FsBlock) -> Result<Self> {
        let (header, rest) = RawHeader::ref_from_prefix(bytes).map_err(|_| {
            Error::corrupt("extent_header", at, bytes.len() as u16, "12 bytes or more")
        })?;
        let magic = header.magic.get();
        ensure(magic == MAGIC, "extent_header.eh_magic", at, magic, "0xf30a")?;
        let (found, allowed) = (header.depth.get(), "one less than above, up to 5");
        let fits = depth.is_none_or(|depth| depth == found) && found <= DEPTH_MAX;
        ensure(fits, "extent_header.eh_depth", at, found, allowed)?;
        let (entries, max) = (header.entries.get(), header.max.get());
        let fits = (1..=rest.len() / SLOT).contains(&max.into());
        ensure(fits, "extent_header.eh_max", at, max, "as many as there is room for")?;
        let fits = entries <= max && (entries > 0 || found == 0);
        ensure(fits, "extent_header.eh_entries", at, entries, "1 (0 in a leaf) to eh_max")?;
        let node = Self { depth: found, slots: &rest[..usize::from(entries) * SLOT] };
        node.check_order(at)?;
        Ok(node)
    }

    fn check_order(&self, at: FsBlock) -> Result<()> {
        let mut end = 0_u64;
        if self.depth == 0 {
            for extent in self.extents() {
                if u64::from(extent.block) < end || extent.len == 0 || extent.end() > 1 << 32 {
                    let found = format!("{} blocks from {}", extent.len, extent.block);
                    let allowed = format!("1 or more from {end}");
                    return Err(Error::corrupt("extent.ee_block", at, found, allowed));
                }
                end = extent.end();
            }
            return Ok(());
        }
        for index in self.indexes() {
            ensure(u64::from(index.block) >= end, "extent_idx.ei_block", at, index.block, end)?;
            end = u64::from(index.block) + 1;
        }
        Ok(())
    }

    /// The extents of a leaf.
    pub fn extents(&self) -> impl DoubleEndedIterator<Item = Extent> + ExactSizeIterator + 'a {
        slots::<RawExtent>(self.slots).iter().copied().map(Extent::from)
    }

    /// The children of an inner node.
    pub fn indexes(&self) -> impl DoubleEndedIterator<Item = Index> + ExactSizeIterator + 'a {
        slots::<RawIndex>(self.slots).iter().copied().map(Index::from)
    }

    /// The slot of the last extent or child that does not begin behind `block`.
    pub fn find(&self, block: FileBlock) -> Option<usize> {
        // Both kinds of slots begin with the block.
        slots::<RawIndex>(self.slots)
            .partition_point(|slot| slot.block.get() <= block)
            .checked_sub(1)
    }

    /// What the node says of `block`. `end` is where the hole ends that the node itself ends with:
    /// where its right neighbour begins.
    pub fn look(&self, block: FileBlock, end: u64) -> Found {
        let slot = self.find(block);
        let next = slot.map_or(0, |slot| slot + 1);
        if self.depth == 0 {
            let extent = slot.and_then(|slot| self.extent(slot));
            return match extent.filter(|extent| u64::from(block) < extent.end()) {
                Some(extent) => Found::Extent(extent),
                None => Found::Hole(self.extent(next).map_or(end, |next| next.block.into())),
            };
        }
        let end = self.index(next).map_or(end, |next| next.block.into());
        match slot.and_then(|slot| self.index(slot)) {
            Some(Index { child, .. }) => Found::Below { child, end },
            None => Found::Hole(end),
        }
    }

    /// The extent in slot `at` of a leaf.
    pub fn extent(&self, at: usize) -> Option<Extent> {
        slots::<RawExtent>(self.slots).get(at).copied().map(Extent::from)
    }

    /// The child in slot `at` of an inner node.
    pub fn index(&self, at: usize) -> Option<Index> {
        slots::<RawIndex>(self.slots).get(at).copied().map(Index::from)
    }
}

fn slots<T: FromBytes + Immutable + KnownLayout + Unaligned>(bytes: &[u8]) -> &[T] {
    <[T]>::ref_from_bytes(bytes).unwrap_or(&[])
}

/// Slots of a node in `bytes`: `i_block`, or a block, which keeps room for its checksum.
pub fn capacity(bytes: &[u8]) -> u16 {
    let room = bytes.len().saturating_sub(SLOT);
    (room / SLOT) as u16
}

/// Writes a leaf to `bytes` (`i_block` or a block). As many extents as fit; what is behind them
/// stays.
pub fn emit_leaf(bytes: &mut [u8], extents: &[Extent]) {
    emit(bytes, 0, extents.iter().map(|extent| RawExtent::from(*extent)));
}

/// Writes an inner node to `bytes` (`i_block` or a block).
pub fn emit_inner(bytes: &mut [u8], depth: u16, children: &[Index]) {
    emit(bytes, depth, children.iter().map(|index| RawIndex::from(*index)));
}

fn emit<T: IntoBytes + Immutable>(bytes: &mut [u8], depth: u16, slots: impl Iterator<Item = T>) {
    let max = capacity(bytes);
    let (header, rest) = bytes.split_at_mut(SLOT);
    let mut entries = 0;
    for (room, slot) in rest.chunks_exact_mut(SLOT).take(max.into()).zip(slots) {
        room.copy_from_slice(slot.as_bytes());
        entries += 1;
    }
    let raw = RawHeader {
        magic: MAGIC.into(),
        entries: entries.into(),
        max: max.into(),
        depth: depth.into(),
        generation: 0.into(),
    };
    header.copy_from_slice(raw.as_bytes());
}

/// The byte of the checksum of the node in `block`: behind its last slot.
fn checksum_at(block: &[u8]) -> Option<usize> {
    let (header, _) = RawHeader::ref_from_prefix(block).ok()?;
    let at = SLOT + SLOT * usize::from(header.max.get());
    (at + 4 <= block.len()).then_some(at)
}

/// Sets the checksum of the node in `block` (`ext4_extent_block_csum_set`). `seed` is that of the
/// inode.
pub fn seal(block: &mut [u8], seed: u32) {
    if let Some(at) = checksum_at(block) {
        let right = crc32c(seed, &block[..at]);
        block[at..at + 4].copy_from_slice(&right.to_le_bytes());
    }
}

/// Fails if the checksum of the node in `block`, read from block `at`, is wrong. `seed` is that of
/// the inode.
pub fn verify(block: &[u8], seed: u32, at: FsBlock) -> Result<()> {
    let Some(tail) = checksum_at(block) else {
        return Err(Error::corrupt("extent_header.eh_max", at, "no room for a checksum", "less"));
    };
    let right = crc32c(seed, &block[..tail]);
    compare("extent_tail.et_checksum", at, le32(block, tail), right)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENTS: [Extent; 2] = [
        Extent { block: 3, len: 2, start: 0x1_0000_0007, unwritten: false },
        Extent { block: 9, len: 32_767, start: 99, unwritten: true },
    ];

    #[test]
    fn leaves_round_trip_and_are_searched() {
        let mut root = [0; 60];
        emit_leaf(&mut root, &EXTENTS);
        let node = Node::parse(&root, None, 0).unwrap();
        assert_eq!(node.extents().collect::<Vec<_>>(), EXTENTS);
        assert_eq!(
            (node.find(2), node.find(3), node.find(8), node.find(9)),
            (None, Some(0), Some(0), Some(1))
        );
        assert_eq!(EXTENTS[1].end(), 32_776);
    }

    #[test]
    fn sealed_blocks_verify() {
        for (size, max) in [(1024, 84), (2048, 169), (4096, 340)] {
            let mut block = vec![0; size];
            assert_eq!(capacity(&block), max);
            emit_inner(&mut block, 1, &[Index { block: 0, child: 5 }]);
            seal(&mut block, 7);
            verify(&block, 7, 0).unwrap();
            let node = Node::parse(&block, Some(1), 0).unwrap();
            assert_eq!(node.index(0), Some(Index { block: 0, child: 5 }));
            block[13] ^= 1;
            verify(&block, 7, 0).unwrap_err();
        }
    }

    #[test]
    fn overlaps_and_wrong_headers_are_corrupt() {
        let mut root = [0; 60];
        emit_leaf(&mut root, &[EXTENTS[1], EXTENTS[0]]);
        assert!(Node::parse(&root, None, 0).is_err());
        emit_leaf(&mut root, &EXTENTS);
        assert!(Node::parse(&root, Some(1), 0).is_err(), "the wrong level");
        root[4] = 5;
        assert!(Node::parse(&root, None, 0).is_err(), "five slots in 60 bytes");
        emit_inner(&mut root, 1, &[]);
        assert!(Node::parse(&root, None, 0).is_err(), "an inner node without children");
        emit_leaf(&mut root, &[Extent { block: u32::MAX, len: 2, start: 1, unwritten: false }]);
        assert!(Node::parse(&root, None, 0).is_err(), "behind the last block of a file");
    }
}
