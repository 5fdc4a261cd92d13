//! Records of single files: what iJournaling and Grouped fsync write for one fsync (Park and Shin,
//! "iJournaling", section 3). The layout is ours; JBD2 has none.
//!
//! A record is header blocks, the images of nodes of extent trees, and a commit block. The header
//! holds one entry for each inode: the inode, the transaction that changed it last, its new name,
//! and where its images belong. All
//! header blocks and images are one sum, which the header and the commit block both carry; so a
//! record of which the drive has lost anything is none. The magic is not JBD2's: its recovery takes
//! no block of a record for one of the log.
//!
//! Behind the areas of records is one block for the [floors](Floors).

use drive::Block;
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::areas::areas_max;
use super::header::Tid;
use super::{crc32c, crc32c_without};
use crate::transaction::Id;

/// First bytes of a header and of a commit block.
const MAGIC: u32 = 0x5374_7264;
const HEADER: u32 = 3;
const COMMIT: u32 = 4;
const FLOORS: u32 = 5;
/// The inode was made in a transaction that is not committed.
const IS_NEW: u16 = 1;

/// What a header and a commit block begin with, 40 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRecord {
    r_magic: U32,
    r_kind: U32,
    r_reserved: U32,
    /// Blocks of the record, without its commit block.
    r_blocks: U32,
    /// Newer records have larger ones.
    r_sub: U64,
    /// Bytes of the header with its entries.
    r_bytes: U32,
    r_images: U32,
    /// Of the header blocks, without this field, and the images.
    r_sum: U32,
    /// Of a commit block itself, without this field.
    r_own_sum: U32,
}

/// What an entry begins with, 24 bytes: inode, name, homes of images and sums of data follow.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    e_ino: U32,
    /// Directory of the name.
    e_parent: U32,
    e_flags: U16,
    e_name_len: U16,
    e_inode_len: U16,
    e_images: U16,
    /// The transaction that changed the inode last, and its area.
    e_tid: U32,
    e_area: U16,
    e_sums: U16,
}

/// The checksum of a block of a file's data, 16 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSum {
    s_block: U64,
    s_len: U32,
    s_sum: U32,
}

/// What the block of floors begins with, 16 bytes. A number for each area follows.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawFloors {
    f_magic: U32,
    f_kind: U32,
    f_count: U32,
    /// Of the block, without this field.
    f_sum: U32,
}

const FLOORS_SUM_AT: usize = std::mem::offset_of!(RawFloors, f_sum);
const SUM_AT: usize = std::mem::offset_of!(RawRecord, r_sum);
const OWN_SUM_AT: usize = std::mem::offset_of!(RawRecord, r_own_sum);
const _: () = assert!(size_of::<RawRecord>() == 40 && size_of::<RawEntry>() == 24);
const _: () = assert!(size_of::<RawFloors>() == 16 && size_of::<RawSum>() == 16);

/// What a block of a file's data begins with, by its checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataSum {
    /// Where the block is.
    pub block: u64,
    /// Bytes of it that the file has.
    pub len: u32,
    sum: u32,
}

impl DataSum {
    /// Of the first `len` bytes of block `block`, which has these contents.
    pub fn of(block: u64, len: u32, bytes: &[u8]) -> Self {
        let len = len.min(bytes.len() as u32);
        Self { block, len, sum: crc32c(!0, &bytes[..len as usize]) }
    }

    /// Whether these contents begin in the same way.
    pub fn holds_for(&self, bytes: &[u8]) -> bool {
        *self == Self::of(self.block, self.len, bytes)
    }
}

/// What a record says of one inode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Its number.
    pub ino: u32,
    /// The transaction that changed it last, or that made a directory. Once that is committed and
    /// valid, the entry does not count.
    pub of: Id,
    /// It was made in a transaction that is not committed: `parent` and `name` are where.
    pub is_new: bool,
    /// The directory that has its name.
    pub parent: u32,
    /// Its name.
    pub name: Box<[u8]>,
    /// The inode as the file system writes it.
    pub inode: Box<[u8]>,
    /// Nodes of its extent tree that are not committed, by the block they belong to.
    pub images: Vec<(u64, Block)>,
    /// Data that may reach the drive after the record: without it, the entry does not count.
    pub sums: Vec<DataSum>,
    /// There is data that `sums` does not have, which must be flushed ahead of the record. Not on
    /// the drive.
    pub needs_flush: bool,
}

/// A record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The order of records.
    pub sub: u64,
    /// Its inodes. A directory comes before what is in it.
    pub entries: Vec<Entry>,
}

impl Record {
    fn header_bytes(&self) -> usize {
        let len = |entry: &Entry| {
            let homes = 8 * entry.images.len() + size_of::<RawSum>() * entry.sums.len();
            size_of::<RawEntry>() + entry.inode.len() + entry.name.len() + homes
        };
        size_of::<RawRecord>() + self.entries.iter().map(len).sum::<usize>()
    }

    fn images(&self) -> impl Iterator<Item = &Block> {
        self.entries.iter().flat_map(|entry| entry.images.iter().map(|(_, image)| image))
    }

    /// Blocks of `size` bytes that it takes in an area, with its commit block.
    pub fn blocks(&self, size: usize) -> u32 {
        (self.header_bytes().div_ceil(size) + self.images().count() + 1) as u32
    }

    /// Its blocks of `size` bytes but the last one, and the commit block.
    pub fn emit(&self, size: usize, seed: u32) -> (Vec<Block>, Block) {
        let bytes = self.header_bytes();
        let mut raw = RawRecord {
            r_magic: MAGIC.into(),
            r_kind: HEADER.into(),
            r_reserved: 0.into(),
            r_blocks: (self.blocks(size) - 1).into(),
            r_sub: self.sub.into(),
            r_bytes: (bytes as u32).into(),
            r_images: (self.images().count() as u32).into(),
            r_sum: 0.into(),
            r_own_sum: 0.into(),
        };
        let mut header = Vec::with_capacity(bytes.next_multiple_of(size));
        header.extend_from_slice(raw.as_bytes());
        self.entries.iter().for_each(|entry| entry.emit(&mut header));
        header.resize(bytes.next_multiple_of(size), 0);
        let sum = sum_of(seed, &header, self.images(), size);
        header[SUM_AT..SUM_AT + 4].copy_from_slice(&sum.to_be_bytes());
        let mut blocks: Vec<_> = header.chunks(size).map(Block::from_prefix).collect();
        blocks.extend(self.images().cloned());
        (raw.r_kind, raw.r_sum) = (COMMIT.into(), sum.into());
        raw.r_own_sum = crc32c_without(seed, raw.as_bytes(), OWN_SUM_AT).into();
        (blocks, Block::from_prefix(raw.as_bytes()))
    }

    /// How many blocks the record has that begins with `block`, its commit block included. `None`
    /// if none begins there.
    pub fn blocks_from(block: &[u8]) -> Option<u32> {
        let (raw, _) = RawRecord::read_from_prefix(block).ok()?;
        let is_header = raw.r_magic.get() == MAGIC && raw.r_kind.get() == HEADER;
        raw.r_blocks.get().checked_add(1).filter(|blocks| is_header && *blocks > 1)
    }

    /// Whether `block` is the commit block of the record that begins with `header`, as far as they
    /// say themselves.
    pub fn is_commit_of(block: &[u8], header: &[u8]) -> bool {
        let raw =
            |block| RawRecord::read_from_prefix(block).ok().map(|(raw, _): (RawRecord, _)| raw);
        let (Some(commit), Some(header)) = (raw(block), raw(header)) else { return false };
        let is_of = RawRecord { r_kind: COMMIT.into(), r_own_sum: commit.r_own_sum, ..header };
        commit.as_bytes() == is_of.as_bytes()
    }

    /// The record in `blocks` of `size` bytes, as many as [`Record::blocks_from`] says. `None` if
    /// it is not complete.
    pub fn parse(blocks: &[Block], size: usize, seed: u32) -> Option<Self> {
        let (commit, blocks) = blocks.split_last()?;
        let (raw, _) = RawRecord::read_from_prefix(&blocks.first()?[..]).ok()?;
        let images_from = blocks.len().checked_sub(raw.r_images.get() as usize)?;
        let (header, images) = blocks.split_at(images_from);
        let mut bytes = Vec::with_capacity(header.len() * size);
        header.iter().for_each(|block| bytes.extend_from_slice(&block[..size]));
        if bytes.len() < size_of::<RawRecord>() {
            return None;
        }
        bytes[SUM_AT..SUM_AT + 4].fill(0);
        let sum = sum_of(seed, &bytes, images.iter(), size);
        let mut expected = RawRecord { r_kind: COMMIT.into(), r_own_sum: 0.into(), ..raw };
        expected.r_own_sum = crc32c_without(seed, expected.as_bytes(), OWN_SUM_AT).into();
        let is_complete = sum == raw.r_sum.get() && commit[..40] == *expected.as_bytes();
        let entries = bytes.get(size_of::<RawRecord>()..raw.r_bytes.get() as usize)?;
        let entries = is_complete.then(|| parse_entries(entries, images, size))??;
        Some(Self { sub: raw.r_sub.get(), entries })
    }
}

impl Entry {
    fn emit(&self, out: &mut Vec<u8>) {
        let raw = RawEntry {
            e_ino: self.ino.into(),
            e_parent: self.parent.into(),
            e_flags: if self.is_new { IS_NEW } else { 0 }.into(),
            e_name_len: (self.name.len() as u16).into(),
            e_inode_len: (self.inode.len() as u16).into(),
            e_images: (self.images.len() as u16).into(),
            e_tid: self.of.tid.0.into(),
            e_area: self.of.area.into(),
            e_sums: (self.sums.len() as u16).into(),
        };
        out.extend_from_slice(raw.as_bytes());
        out.extend_from_slice(&self.inode);
        out.extend_from_slice(&self.name);
        self.images.iter().for_each(|(home, _)| out.extend_from_slice(&home.to_be_bytes()));
        for DataSum { block, len, sum } in &self.sums {
            let (s_block, s_len, s_sum) = ((*block).into(), (*len).into(), (*sum).into());
            out.extend_from_slice(RawSum { s_block, s_len, s_sum }.as_bytes());
        }
    }
}

/// The last valid transaction of each area of the log when the power failed; one where the log had
/// no areas. An entry counts if the transaction that it is of is behind that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Floors(pub Vec<Tid>);

impl Floors {
    /// Whether what a record says of transaction `of` counts. What is of an area that the log did
    /// not have is left from another mount.
    pub fn are_below(&self, of: Id) -> bool {
        self.0.get(usize::from(of.area)).is_some_and(|floor| of.tid.is_after(*floor))
    }

    /// As a block of `size` bytes.
    pub fn emit(&self, size: usize) -> Vec<u8> {
        let raw = RawFloors {
            f_magic: MAGIC.into(),
            f_kind: FLOORS.into(),
            f_count: (self.0.len() as u32).into(),
            f_sum: 0.into(),
        };
        let mut block = raw.as_bytes().to_vec();
        self.0.iter().for_each(|floor| block.extend_from_slice(&floor.0.to_be_bytes()));
        block.resize(size, 0);
        let sum = crc32c_without(!0, &block, FLOORS_SUM_AT);
        block[FLOORS_SUM_AT..FLOORS_SUM_AT + 4].copy_from_slice(&sum.to_be_bytes());
        block
    }

    /// Those in `block`, if it has any.
    pub fn parse(block: &[u8]) -> Option<Self> {
        let (raw, rest) = RawFloors::read_from_prefix(block).ok()?;
        let count = raw.f_count.get() as usize;
        let is_good = raw.f_magic.get() == MAGIC
            && raw.f_kind.get() == FLOORS
            && raw.f_sum.get() == crc32c_without(!0, block, FLOORS_SUM_AT)
            && (1..=areas_max(block.len())).contains(&count);
        let floors = rest.chunks_exact(4).take(count);
        let floor = |bytes: &[u8]| Some(Tid(u32::from_be_bytes(bytes.try_into().ok()?)));
        is_good.then(|| floors.map(floor).collect::<Option<_>>().map(Self))?
    }
}

/// The sum of header blocks, whose own field for it is zero, and of images.
fn sum_of<'a>(
    seed: u32,
    header: &[u8],
    images: impl Iterator<Item = &'a Block>,
    size: usize,
) -> u32 {
    images.fold(crc32c(seed, header), |sum, image| crc32c(sum, &image[..size]))
}

fn parse_entries(mut bytes: &[u8], mut images: &[Block], size: usize) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let (raw, rest) = RawEntry::read_from_prefix(bytes).ok()?;
        let (inode, rest) = rest.split_at_checked(raw.e_inode_len.get().into())?;
        let (name, rest) = rest.split_at_checked(raw.e_name_len.get().into())?;
        let count = usize::from(raw.e_images.get());
        let (homes, rest) = rest.split_at_checked(8 * count)?;
        let sums = size_of::<RawSum>() * usize::from(raw.e_sums.get());
        let (sums, rest) = rest.split_at_checked(sums)?;
        let sums = sums.chunks_exact(size_of::<RawSum>()).map(|bytes| parse_sum(bytes, size));
        let (here, others) = images.split_at_checked(count)?;
        (bytes, images) = (rest, others);
        let homes =
            homes.chunks_exact(8).map(|home| home.iter().fold(0, |n, b| n << 8 | u64::from(*b)));
        entries.push(Entry {
            ino: raw.e_ino.get(),
            of: Id { area: raw.e_area.get(), tid: Tid(raw.e_tid.get()) },
            is_new: raw.e_flags.get() & IS_NEW != 0,
            parent: raw.e_parent.get(),
            name: name.into(),
            inode: inode.into(),
            images: homes.zip(here.iter().cloned()).collect(),
            sums: sums.collect::<Option<_>>()?,
            needs_flush: false,
        });
    }
    Some(entries)
}

fn parse_sum(bytes: &[u8], size: usize) -> Option<DataSum> {
    let raw = RawSum::read_from_bytes(bytes).ok()?;
    let (block, len, sum) = (raw.s_block.get(), raw.s_len.get(), raw.s_sum.get());
    (len as usize <= size).then_some(DataSum { block, len, sum })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u32 = 7;
    const SIZES: [usize; 3] = [1024, 2048, 4096];

    fn record() -> Record {
        let image = |n: u64| (1000 + n, Block::from_prefix(&n.to_le_bytes()));
        let entry = |ino: u32, images: u64| Entry {
            ino,
            of: Id { area: 3, tid: Tid(ino) },
            is_new: ino == 12,
            parent: 2,
            name: format!("file {ino}").into_bytes().into(),
            inode: vec![ino as u8; 256].into(),
            images: (0..images).map(image).collect(),
            sums: (0..images).map(|n| DataSum::of(n, 9 * n as u32, &[7; 1024])).collect(),
            needs_flush: false,
        };
        let entries = vec![entry(12, 2), entry(13, 0), entry(14, 3)];
        Record { sub: 1 << 40, entries }
    }

    fn blocks(record: &Record, size: usize) -> Vec<Block> {
        let (mut blocks, commit) = record.emit(size, SEED);
        blocks.push(commit);
        blocks
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for size in SIZES {
            let record = record();
            let blocks = blocks(&record, size);
            let parsed = |seed| Record::parse(&blocks, size, seed);
            assert_eq!(blocks.len() as u32, record.blocks(size));
            assert_eq!(Record::blocks_from(&blocks[0][..]), Some(record.blocks(size)));
            assert!(blocks.iter().all(|block| block[size..].iter().all(|byte| *byte == 0)));
            assert_eq!((parsed(SEED), parsed(SEED + 1)), (Some(record), None));
        }
    }

    /// Only an image says so: nothing is read beyond a block.
    #[test]
    fn data_longer_than_a_block_is_no_record() {
        let mut record = record();
        record.entries[0].sums = vec![DataSum::of(9, 2000, &[7; 4096])];
        for (size, is_one) in [(1024, false), (2048, true)] {
            let blocks = blocks(&record, size);
            assert_eq!(Record::parse(&blocks, size, SEED).is_some(), is_one);
        }
        assert!(!record.entries[0].sums[0].holds_for(&[7; 1024]));
    }

    /// Some bytes of each block.
    fn bytes(blocks: usize, size: usize) -> impl Iterator<Item = (usize, usize)> {
        (0..blocks)
            .flat_map(move |at| (0..size).step_by(97).chain(0..40).map(move |byte| (at, byte)))
    }

    #[test]
    fn a_record_of_which_a_byte_is_missing_is_none() {
        for size in SIZES {
            let whole = blocks(&record(), size);
            for (at, byte) in bytes(whole.len(), size) {
                let mut torn = whole.clone();
                torn[at].make_mut()[byte] ^= 1;
                // Behind what it says, a commit block has nothing.
                let is_padding = at + 1 == whole.len() && byte >= 40;
                let is_none = Record::parse(&torn, size, SEED).is_none();
                assert_eq!(is_none, !is_padding, "{size}, {at}: {byte}");
            }
            assert_eq!(Record::parse(&whole[..2], size, SEED), None);
            assert_eq!(Record::parse(&[], size, SEED), None);
        }
    }

    #[test]
    fn floors_come_back_and_say_what_counts() {
        let floors = Floors(vec![Tid(7), Tid(u32::MAX)]);
        let block = floors.emit(1024);
        assert_eq!(Floors::parse(&block[..]), Some(floors.clone()));
        let counts = |area, tid| floors.are_below(Id { area, tid: Tid(tid) });
        assert!(counts(0, 8) && counts(1, 0), "numbers go round");
        assert!(!counts(0, 7) && !counts(1, u32::MAX) && !counts(2, 9));
        for byte in 0..24 {
            let mut torn = block.clone();
            torn[byte] ^= 1;
            assert_eq!(Floors::parse(&torn[..]), None, "byte {byte}");
        }
    }

    #[test]
    fn a_long_record_has_several_header_blocks() {
        let mut record = record();
        record.entries = vec![record.entries[1].clone(); 40];
        for (size, headers) in [(1024, 12), (4096, 3)] {
            let blocks = blocks(&record, size);
            assert_eq!(blocks.len(), headers + 1);
            assert_eq!(Record::parse(&blocks, size, SEED), Some(record.clone()));
        }
    }
}
