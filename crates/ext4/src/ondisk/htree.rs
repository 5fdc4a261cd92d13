//! Hash trees of directories (`struct dx_root`, `dx_node`, `dx_entry`).
//!
//! Block 0 of the directory is the root. It begins with records for `.` and `..`, the second of
//! which covers the rest of the block; inner nodes begin with one free record over the whole block.
//! So to code that knows no trees, they are blocks without names. Leaves are ordinary blocks.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::{compare, crc32c};
use super::dirent::RawDirent;
use super::{FileBlock, FsBlock, ensure, le32};
use crate::error::{Error, Result};

/// Byte of the root at which its information begins.
const INFO_AT: usize = 24;
/// Byte of the root's first entry.
const ROOT_AT: usize = INFO_AT + size_of::<RawInfo>();
/// Byte of an inner node's first entry.
const NODE_AT: usize = 8;
/// Bytes of an entry, and of the tail.
const ENTRY: usize = 8;
/// Block numbers have 28 bits.
const BLOCK_MASK: u32 = 0x0fff_ffff;

/// `struct dx_root_info`, 8 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawInfo {
    /// 0.
    pub reserved_zero: U32,
    /// Version of the hash; see [`super::hash`].
    pub hash_version: u8,
    /// 8.
    pub info_length: u8,
    /// Levels of nodes between the root and the leaves.
    pub indirect_levels: u8,
    /// 0.
    pub unused_flags: u8,
}

/// `struct dx_entry`, 8 bytes. The first of a node has limit and count in place of the hash
/// (`struct dx_countlimit`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    hash: U32,
    block: U32,
}

/// `struct dx_countlimit`, 4 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawCountLimit {
    limit: U16,
    count: U16,
}
const _: () = assert!(size_of::<RawInfo>() == 8 && size_of::<RawEntry>() == ENTRY);

/// One child of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Lowest hash below it; bit 0 if names with this hash are also below the child in front of it.
    pub hash: u32,
    /// Block of the directory.
    pub block: FileBlock,
}

/// Which kind of block of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Block 0.
    Root,
    /// An inner node.
    Node,
}

impl Place {
    fn first(self) -> usize {
        match self {
            Self::Root => ROOT_AT,
            Self::Node => NODE_AT,
        }
    }

    /// Which kind of block this seems to be, if it is part of a tree (`get_dx_countlimit`). Whether
    /// a free block is an inner node cannot be told.
    pub fn of(block: &[u8]) -> Option<Self> {
        let (first, rest) = RawDirent::ref_from_prefix(block).ok()?;
        if usize::from(first.rec_len.get()) == block.len() {
            return Some(Self::Node);
        }
        let (second, _) = RawDirent::ref_from_prefix(rest.get(4..)?).ok()?;
        let (info, _) = RawInfo::ref_from_prefix(block.get(INFO_AT..)?).ok()?;
        let is_root = first.rec_len.get() == 12
            && usize::from(second.rec_len.get()) == block.len() - 12
            && info.reserved_zero.get() == 0
            && info.info_length == 8;
        is_root.then_some(Self::Root)
    }
}

/// How many entries a node with blocks of `block_size` bytes has room for (`dx_root_limit`,
/// `dx_node_limit`).
pub fn limit(place: Place, block_size: usize, checksums: bool) -> u16 {
    let room = (block_size - place.first()) / ENTRY;
    (room - usize::from(checksums)) as u16
}

/// The root's information, read from block `at`. `deepest` is the most levels allowed: 1, or 2 with
/// the feature `large_dir`.
pub fn info(block: &[u8], deepest: u8, at: FsBlock) -> Result<RawInfo> {
    let info = block.get(INFO_AT..).and_then(|rest| RawInfo::read_from_prefix(rest).ok());
    let Some((info, _)) = info.filter(|_| Place::of(block) == Some(Place::Root)) else {
        return Err(Error::corrupt("dx_root", at, 0, "'.', '..' and 8 bytes of information"));
    };
    let (flags, levels) = (info.unused_flags, info.indirect_levels);
    ensure(flags & 1 == 0, "dx_root_info.unused_flags", at, flags, "0")?;
    let allowed = "1, 2 with large_dir";
    ensure(levels <= deepest, "dx_root_info.indirect_levels", at, levels, allowed)?;
    Ok(info)
}

/// A valid root or inner node, to read: its counts agree with its size, and its hashes are in
/// order.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    entries: &'a [RawEntry],
}

impl<'a> Node<'a> {
    /// The node in `block`, read from block `at`.
    pub fn parse(block: &'a [u8], place: Place, checksums: bool, at: FsBlock) -> Result<Self> {
        let is_node = Place::of(block) == Some(place);
        ensure(is_node, "dx_node.fake", at, 0, "a record over the whole block")?;
        let rest = &block[place.first()..];
        let (counts, _) = RawCountLimit::ref_from_prefix(rest)
            .map_err(|_| Error::corrupt("dx_countlimit", at, 0, "4 bytes"))?;
        let (found, count) = (counts.limit.get(), counts.count.get());
        let fits = found == limit(place, block.len(), checksums);
        ensure(fits, "dx_countlimit.limit", at, found, "what there is room for")?;
        let fits = (1..=found).contains(&count);
        ensure(fits, "dx_countlimit.count", at, count, "1 to the limit")?;
        let entries = <[RawEntry]>::ref_from_bytes(&rest[..usize::from(count) * ENTRY])
            .map_err(|_| Error::corrupt("dx_entry", at, count, "8 bytes each"))?;
        let ordered = entries[1..].is_sorted_by_key(|entry| entry.hash.get());
        ensure(ordered, "dx_entry.hash", at, count, "hashes in order")?;
        Ok(Self { entries })
    }

    /// Children; 1 or more.
    #[expect(clippy::len_without_is_empty, reason = "a node is never empty")]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Child `at`. The first has hash 0.
    pub fn entry(&self, at: usize) -> Option<Entry> {
        let raw = self.entries.get(at)?;
        let hash = if at == 0 { 0 } else { raw.hash.get() };
        Some(Entry { hash, block: raw.block.get() & BLOCK_MASK })
    }

    /// All children.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        (0..self.len()).filter_map(|at| self.entry(at))
    }

    /// The last child whose names may have `hash`.
    pub fn find(&self, hash: u32) -> usize {
        self.entries[1..].partition_point(|entry| entry.hash.get() <= hash)
    }
}

/// Writes the root's information.
pub fn emit_info(block: &mut [u8], hash_version: u8, levels: u8) {
    let info = RawInfo {
        reserved_zero: 0.into(),
        hash_version,
        info_length: 8,
        indirect_levels: levels,
        unused_flags: 0,
    };
    block[INFO_AT..ROOT_AT].copy_from_slice(info.as_bytes());
}

/// Writes a node's entries, as many as there is room for, with the counts.
pub fn emit_entries(block: &mut [u8], place: Place, checksums: bool, entries: &[Entry]) {
    let limit = limit(place, block.len(), checksums);
    let rest = &mut block[place.first()..];
    let entries = &entries[..entries.len().min(limit.into())];
    for (room, entry) in rest.chunks_exact_mut(ENTRY).zip(entries) {
        let raw = RawEntry { hash: entry.hash.into(), block: entry.block.into() };
        room.copy_from_slice(raw.as_bytes());
    }
    let counts = RawCountLimit { limit: limit.into(), count: (entries.len() as u16).into() };
    rest[..4].copy_from_slice(counts.as_bytes());
}

/// The byte of the tail (a reserved word and the checksum) behind `limit` entries, and the right
/// checksum (`ext4_dx_csum`): of the entries in use, not of all there is room for.
fn right_checksum(block: &[u8], place: Place, seed: u32) -> Option<(usize, u32)> {
    let first = place.first();
    let (counts, _) = RawCountLimit::ref_from_prefix(block.get(first..)?).ok()?;
    let tail = first + usize::from(counts.limit.get()) * ENTRY;
    let used = first + usize::from(counts.count.get()) * ENTRY;
    let reserved = block.get(tail..tail + 4)?;
    block.get(tail + 4..tail + 8)?;
    let state = crc32c(crc32c(seed, block.get(..used)?), reserved);
    Some((tail + 4, crc32c(state, &[0; 4])))
}

/// Sets the checksum of a root or an inner node (`ext4_dx_csum_set`). `seed` is that of the
/// directory.
pub fn seal(block: &mut [u8], place: Place, seed: u32) {
    if let Some((at, right)) = right_checksum(block, place, seed) {
        block[at..at + 4].copy_from_slice(&right.to_le_bytes());
    }
}

/// Fails if the checksum of a root or an inner node, read from block `at`, is wrong. `seed` is that
/// of the directory.
pub fn verify(block: &[u8], place: Place, seed: u32, at: FsBlock) -> Result<()> {
    let Some((tail, right)) = right_checksum(block, place, seed) else {
        return Err(Error::corrupt("dx_countlimit", at, "no room for a checksum", "less"));
    };
    compare("dx_tail.dt_checksum", at, le32(block, tail), right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ondisk::dirent;

    fn root() -> Vec<u8> {
        let mut block = vec![0; 4096];
        dirent::emit(&mut block, 0, 12, 2, 2, b".");
        dirent::emit(&mut block, 12, 4084, 2, 2, b"..");
        emit_info(&mut block, 1, 0);
        let entries = [(0, 1), (0x100, 2), (0x301, 3)].map(|(hash, block)| Entry { hash, block });
        emit_entries(&mut block, Place::Root, true, &entries);
        block
    }

    #[test]
    fn limits_are_the_kernels() {
        let both = |size| [Place::Root, Place::Node].map(|place| limit(place, size, true));
        assert_eq!((both(4096), both(1024)), ([507, 510], [123, 126]));
        assert_eq!(limit(Place::Root, 4096, false), 508);
    }

    #[test]
    fn trees_round_trip_and_are_searched() {
        let mut block = root();
        seal(&mut block, Place::Root, 3);
        verify(&block, Place::Root, 3, 0).unwrap();
        assert_eq!(info(&block, 1, 0).unwrap().hash_version, 1);
        let node = Node::parse(&block, Place::Root, true, 0).unwrap();
        assert_eq!([0, 0xff, 0x100, 0x300, 0x302].map(|hash| node.find(hash)), [0, 0, 1, 1, 2]);
        assert_eq!(node.entry(2), Some(Entry { hash: 0x301, block: 3 }));
        block[40] ^= 1;
        verify(&block, Place::Root, 3, 0).unwrap_err();
    }

    #[test]
    fn wrong_counts_and_orders_are_corrupt() {
        for (byte, value) in [(32, 0), (34, 0), (35, 2), (40, 0xff)] {
            let mut block = root();
            block[byte] = value;
            if byte == 40 {
                block[41..44].fill(0xff);
            }
            assert!(Node::parse(&block, Place::Root, true, 0).is_err(), "{byte}");
        }
        let mut block = root();
        block[30] = 2;
        assert!(info(&block, 1, 0).is_err() && info(&block, 2, 0).is_ok());
    }
}
