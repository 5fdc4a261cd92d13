//! Fast commits: what changed since the last commit, as tags with values (`fs/ext4/fast_commit.h`).
//! Little-endian, unlike the rest of the journal, since ext4 writes them and not JBD2.
//!
//! A tag never crosses a block. A commit ends with a tail, which fills its block; its checksum,
//! which begins at 0, covers all since the tail before. The first commit on top of a transaction
//! begins with a head that names the next one.

use std::ops::Range;

use drive::Block;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::crc32c;
use super::header::Tid;
use crate::error::{Error, Result};

/// `EXT4_FC_TAG_*`
mod tag {
    pub(super) const ADD_RANGE: u16 = 1;
    pub(super) const DEL_RANGE: u16 = 2;
    pub(super) const CREAT: u16 = 3;
    pub(super) const LINK: u16 = 4;
    pub(super) const UNLINK: u16 = 5;
    pub(super) const INODE: u16 = 6;
    pub(super) const PAD: u16 = 7;
    pub(super) const TAIL: u16 = 8;
    pub(super) const HEAD: u16 = 9;
}

/// `struct ext4_fc_tl`, 4 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTag {
    fc_tag: U16,
    fc_len: U16,
}

/// `struct ext4_fc_add_range`, 16 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawAddRange {
    fc_ino: U32,
    fc_ex: [u8; EXTENT],
}

/// `struct ext4_fc_del_range`, 12 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawDelRange {
    fc_ino: U32,
    fc_lblk: U32,
    fc_len: U32,
}

/// `struct ext4_fc_dentry_info`, 8 bytes; the name follows.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawName {
    fc_parent_ino: U32,
    fc_ino: U32,
}

/// `struct ext4_fc_head` and `struct ext4_fc_tail`, 8 bytes: features and the transaction; the
/// transaction and the checksum.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEnd(U32, U32);

/// Bytes of an extent (`struct ext4_extent`).
pub const EXTENT: usize = 12;
/// Bytes of the smallest inode (`EXT4_GOOD_OLD_INODE_SIZE`).
const INODE_MIN: usize = 128;
const NAME_MAX: usize = 255;
const TAG: usize = size_of::<RawTag>();
const TAIL: usize = size_of::<RawEnd>();

const _: () = {
    assert!(TAG == 4 && TAIL == 8 && size_of::<RawName>() == 8);
    assert!(size_of::<RawAddRange>() == 16 && size_of::<RawDelRange>() == 12);
};

/// What happened to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// A new inode has it.
    Create,
    /// An inode has got it, too.
    Link,
    /// The inode has lost it.
    Unlink,
}

/// One change. Each says what is true afterwards, so applying it twice does no harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// File `ino` has this extent, as it is written in an inode.
    AddRange {
        /// The file.
        ino: u32,
        /// `struct ext4_extent`
        extent: [u8; EXTENT],
    },
    /// File `ino` has a hole of `count` blocks from `block` on.
    DelRange {
        /// The file.
        ino: u32,
        /// First block of the file.
        block: u32,
        /// How many.
        count: u32,
    },
    /// A name of inode `ino`.
    Name {
        /// What happened to it.
        how: Naming,
        /// The directory.
        parent: u32,
        /// The inode.
        ino: u32,
        /// The name.
        name: Box<[u8]>,
    },
    /// Inode `ino`, without its extents and what is behind its fields.
    Inode {
        /// Its number.
        ino: u32,
        /// Its fields, 128 bytes or more.
        raw: Box<[u8]>,
    },
}

/// A tag of the area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tag {
    /// A change.
    Change(Change),
    /// The rest of the block is not used.
    Pad,
    /// The end of a commit on top of the transaction before `tid`.
    Tail {
        /// The transaction that was running.
        tid: Tid,
        /// `fc_crc`
        sum: u32,
    },
    /// The beginning of the first commit.
    Head {
        /// `fc_features`; none is known.
        features: u32,
        /// The transaction that was running.
        tid: Tid,
    },
}

impl Tag {
    /// The tag at the start of `bytes`, and how many of them it takes. `None` if there is none, or
    /// its length is wrong (`ext4_fc_value_len_isvalid`).
    fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let (raw, rest) = RawTag::read_from_prefix(bytes).ok()?;
        let value = rest.get(..raw.fc_len.get().into())?;
        let end = || RawEnd::read_from_prefix(value).ok().map(|(end, _)| (end.0.get(), end.1));
        let tag = match raw.fc_tag.get() {
            tag::ADD_RANGE => {
                let raw = RawAddRange::read_from_bytes(value).ok()?;
                Self::Change(Change::AddRange { ino: raw.fc_ino.get(), extent: raw.fc_ex })
            }
            tag::DEL_RANGE => {
                let raw = RawDelRange::read_from_bytes(value).ok()?;
                let (ino, block, count) = (raw.fc_ino.get(), raw.fc_lblk.get(), raw.fc_len.get());
                Self::Change(Change::DelRange { ino, block, count })
            }
            tag::CREAT => Self::Change(name(Naming::Create, value)?),
            tag::LINK => Self::Change(name(Naming::Link, value)?),
            tag::UNLINK => Self::Change(name(Naming::Unlink, value)?),
            tag::INODE => {
                let (ino, raw) = U32::read_from_prefix(value).ok()?;
                let raw = Some(raw).filter(|raw| raw.len() >= INODE_MIN)?;
                Self::Change(Change::Inode { ino: ino.get(), raw: raw.into() })
            }
            tag::PAD => Self::Pad,
            tag::TAIL => end().map(|(tid, sum)| Self::Tail { tid: Tid(tid), sum: sum.get() })?,
            tag::HEAD if value.len() == TAIL => {
                end().map(|(features, tid)| Self::Head { features, tid: Tid(tid.get()) })?
            }
            _ => return None,
        };
        Some((tag, TAG + value.len()))
    }

    /// The tags of a block of the area, each with where it is, up to the first that is none.
    pub fn all(block: &[u8]) -> impl Iterator<Item = (Range<usize>, Self)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let (tag, len) = Self::parse(block.get(at..)?)?;
            at += len;
            Some((at - len..at, tag))
        })
    }
}

fn name(how: Naming, value: &[u8]) -> Option<Change> {
    let (raw, name) = RawName::read_from_prefix(value).ok()?;
    let name = Some(name).filter(|name| (1..=NAME_MAX).contains(&name.len()))?;
    let (parent, ino) = (raw.fc_parent_ino.get(), raw.fc_ino.get());
    Some(Change::Name { how, parent, ino, name: name.into() })
}

impl Change {
    fn emit(&self, out: &mut Vec<u8>) {
        let mut put = |tag: u16, parts: [&[u8]; 2]| {
            let len = (parts[0].len() + parts[1].len()) as u16;
            out.extend_from_slice(RawTag { fc_tag: tag.into(), fc_len: len.into() }.as_bytes());
            parts.into_iter().for_each(|part| out.extend_from_slice(part));
        };
        match self {
            Self::AddRange { ino, extent } => put(tag::ADD_RANGE, [&ino.to_le_bytes(), extent]),
            Self::DelRange { ino, block, count } => {
                let (fc_ino, fc_lblk) = ((*ino).into(), (*block).into());
                let raw = RawDelRange { fc_ino, fc_lblk, fc_len: (*count).into() };
                put(tag::DEL_RANGE, [raw.as_bytes(), &[]]);
            }
            Self::Name { how, parent, ino, name } => {
                let tag = match how {
                    Naming::Create => tag::CREAT,
                    Naming::Link => tag::LINK,
                    Naming::Unlink => tag::UNLINK,
                };
                let raw = RawName { fc_parent_ino: (*parent).into(), fc_ino: (*ino).into() };
                put(tag, [raw.as_bytes(), name]);
            }
            Self::Inode { ino, raw } => put(tag::INODE, [&ino.to_le_bytes(), raw]),
        }
    }
}

/// The blocks, of `size` bytes, of one fast commit of `changes` while transaction `tid` runs. The
/// `first` one on top of a transaction has a head. `None` if a change is longer than a block: an
/// inode may be as long.
pub fn emit(changes: &[Change], tid: Tid, first: bool, size: usize) -> Option<Vec<Block>> {
    let mut writer = Writer { blocks: vec![Vec::with_capacity(size)], size, sum: 0 };
    if first {
        writer.add(&end(tag::HEAD, TAIL, RawEnd(0.into(), tid.0.into())));
    }
    let mut bytes = Vec::new();
    for change in changes {
        bytes.clear();
        change.emit(&mut bytes);
        if bytes.len() + TAG > size {
            return None;
        }
        writer.add(&bytes);
    }
    Some(writer.finish(tid))
}

fn end(tag: u16, len: usize, end: RawEnd) -> [u8; TAG + TAIL] {
    let raw = RawTag { fc_tag: tag.into(), fc_len: (len as u16).into() };
    let mut bytes = [0; TAG + TAIL];
    bytes[..TAG].copy_from_slice(raw.as_bytes());
    bytes[TAG..].copy_from_slice(end.as_bytes());
    bytes
}

/// Puts tags into blocks (`ext4_fc_reserve_space`).
struct Writer {
    blocks: Vec<Vec<u8>>,
    /// Bytes of a block.
    size: usize,
    sum: u32,
}

impl Writer {
    fn put(&mut self, bytes: &[u8]) {
        self.sum = crc32c(self.sum, bytes);
        self.blocks.last_mut().expect("one at least").extend_from_slice(bytes);
    }

    /// Bytes used of the last block, in which there is room now for `len` bytes and for an empty
    /// pad behind them.
    fn make_room(&mut self, len: usize) -> usize {
        let used = self.blocks.last().map_or(0, Vec::len);
        if used + len + TAG <= self.size {
            return used;
        }
        let rest = self.size - used - TAG;
        let raw = RawTag { fc_tag: tag::PAD.into(), fc_len: (rest as u16).into() };
        self.put(raw.as_bytes());
        self.put(&Block::zeroed()[..rest]);
        self.blocks.push(Vec::with_capacity(self.size));
        0
    }

    fn add(&mut self, bytes: &[u8]) {
        self.make_room(bytes.len());
        self.put(bytes);
    }

    /// Adds the tail, which takes the rest of its block.
    fn finish(mut self, tid: Tid) -> Vec<Block> {
        let used = self.make_room(TAG + TAIL);
        let tail = end(tag::TAIL, self.size - used - TAG, RawEnd(tid.0.into(), 0.into()));
        // The checksum covers the tail up to itself.
        self.put(&tail[..TAG + 4]);
        let sum = self.sum.to_le_bytes();
        self.put(&sum);
        self.blocks.iter().map(|block| Block::from_prefix(block)).collect()
    }
}

/// The fast commits of an area, read block by block (`ext4_fc_replay_scan`).
pub struct Scan {
    tid: Tid,
    sum: u32,
    is_begun: bool,
    /// Changes since the last tail.
    open: Vec<Change>,
    found: Vec<Change>,
}

impl Scan {
    /// Those that count if `tid` is the first transaction that is not committed.
    pub fn new(tid: Tid) -> Self {
        Self { tid, sum: 0, is_begun: false, open: Vec::new(), found: Vec::new() }
    }

    /// Takes the next block; false if no commit goes on behind it. What is not complete, or of
    /// another transaction, ends the area. Fails if a head wants features that are not known.
    pub fn block(&mut self, block: &[u8]) -> Result<bool> {
        let mut end = 0;
        for (range, tag) in Tag::all(block) {
            let is_head = matches!(tag, Tag::Head { .. });
            if !self.is_begun && !is_head {
                return Ok(false);
            }
            match tag {
                Tag::Head { tid, .. } if tid != self.tid => return Ok(false),
                Tag::Head { features, .. } if features != 0 => {
                    let what = format!("fast commits with features {features:#x}");
                    return Err(Error::unsupported(what));
                }
                Tag::Head { .. } => self.is_begun = true,
                Tag::Change(change) => self.open.push(change),
                Tag::Pad => {}
                Tag::Tail { tid, sum } => {
                    let right = crc32c(self.sum, &block[range.start..range.start + TAG + 4]);
                    if tid != self.tid || sum != right {
                        return Ok(false);
                    }
                    self.sum = 0;
                    self.found.append(&mut self.open);
                    end = range.end;
                    continue;
                }
            }
            end = range.end;
            self.sum = crc32c(self.sum, &block[range]);
        }
        Ok(self.is_begun && end + TAG > block.len())
    }

    /// The changes of complete commits, in their order.
    pub fn end(self) -> Vec<Change> {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TID: Tid = Tid(7);
    const SIZES: [usize; 2] = [1024, 4096];

    fn emit(changes: &[Change], tid: Tid, first: bool, size: usize) -> Vec<Block> {
        super::emit(changes, tid, first, size).expect("room for each")
    }

    fn changes(count: u32) -> Vec<Change> {
        let of = |n: u32| {
            let name = |how| {
                let name = vec![b'a'; (n % 255 + 1) as usize].into();
                Change::Name { how, parent: 2, ino: n, name }
            };
            match n % 6 {
                0 => Change::AddRange { ino: n, extent: [n as u8; EXTENT] },
                1 => Change::DelRange { ino: n, block: 5, count: 1 << 20 },
                2 => name(Naming::Create),
                3 => name(Naming::Link),
                4 => name(Naming::Unlink),
                _ => Change::Inode { ino: n, raw: vec![n as u8; 160].into() },
            }
        };
        (0..count).map(of).collect()
    }

    fn scanned(blocks: &[Block], tid: Tid, size: usize) -> Vec<Change> {
        let mut scan = Scan::new(tid);
        for block in blocks {
            if !scan.block(&block[..size]).unwrap_or(false) {
                break;
            }
        }
        scan.end()
    }

    #[test]
    fn commits_come_back_in_their_order_whatever_their_length() {
        for (size, count) in
            SIZES.into_iter().flat_map(|size| (0..400).step_by(7).map(move |count| (size, count)))
        {
            let (one, two) = (changes(count), changes(count / 2));
            let mut blocks = emit(&one, TID, true, size);
            blocks.extend(emit(&two, TID, false, size));
            assert_eq!(scanned(&blocks, TID, size), [one, two].concat(), "{size}, {count}");
            assert_eq!(scanned(&blocks, TID.next(), size), []);
        }
    }

    #[test]
    fn a_commit_fills_its_blocks_to_the_end() {
        // Lengths of names one by one, so that each way of ending a block occurs.
        for (size, len) in SIZES.into_iter().flat_map(|size| (1..=255).map(move |n| (size, n))) {
            let name = |n: usize| Change::Name {
                how: Naming::Link,
                parent: 2,
                ino: n as u32,
                name: vec![b'x'; if n == 0 { len } else { 100 }].into(),
            };
            let changes: Vec<_> = (0..36).map(name).collect();
            let blocks = emit(&changes, TID, true, size);
            assert_eq!(scanned(&blocks, TID, size), changes, "{len}");
            for block in &blocks {
                let (range, _) = Tag::all(&block[..size]).last().unwrap();
                assert_eq!(range.end, size, "{len}");
            }
        }
    }

    /// As `ext4_fc_reserve_space` has it: with a pad's tag behind it.
    #[test]
    fn a_change_longer_than_a_block_has_no_commit() {
        let inode = |len: usize| Change::Inode { ino: 12, raw: vec![1; len].into() };
        let longest = inode(1024 - 3 * 4);
        let blocks = emit(std::slice::from_ref(&longest), TID, true, 1024);
        assert_eq!(scanned(&blocks, TID, 1024), [longest]);
        assert!(super::emit(&[inode(1024 - 2 * 4)], TID, true, 1024).is_none());
    }

    #[test]
    fn of_a_commit_that_is_not_complete_nothing_counts() {
        let (one, two) = (changes(20), changes(150));
        let first = emit(&one, TID, true, 4096);
        let second = emit(&two, TID, false, 4096);
        assert!(first.len() == 1 && second.len() > 2);
        for missing in 0..second.len() {
            let mut torn = [first.clone(), second.clone()].concat();
            torn[1 + missing] = emit(&changes(5), Tid(6), false, 4096).remove(0);
            assert_eq!(scanned(&torn, TID, 4096), one);
        }
        assert_eq!(scanned(&second, TID, 4096), [], "an area begins with a head");
    }

    #[test]
    fn each_byte_of_a_commit_counts() {
        let all = changes(40);
        let blocks = emit(&all, TID, true, 1024);
        // Behind the tail's checksum there is nothing.
        let (tail, _) = Tag::all(&blocks.last().unwrap()[..1024]).last().unwrap();
        for at in 0..blocks.len() {
            for byte in 0..1024 {
                let mut torn = blocks.clone();
                torn[at].make_mut()[byte] ^= 1 << (byte % 8);
                let is_rest = at + 1 == blocks.len() && byte >= tail.start + TAG + TAIL;
                let found = scanned(&torn, TID, 1024);
                assert_eq!(found.is_empty(), !is_rest, "block {at}, byte {byte}");
                assert!(found.is_empty() || found == all);
            }
        }
    }
}
