//! The table of areas: where each area's log lies in the ring, and where it begins. Ours, and there
//! only while the journal's superblock has [`Incompat::AREAS`](super::superblock::Incompat::AREAS).
//!
//! Two blocks of the ring take turns. A new version goes to the block of the older one and is
//! forced, so one of the two is whole at any time, on drives that tear writes too.

use std::ops::Range;

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::crc32c_without;
use super::header::{MAGIC, RawHeader, Tid};
use crate::error::{Error, Result};

/// Blocks at the beginning of the ring that hold the table.
pub const TABLES: u32 = 2;
/// Type of the table's block.
const KIND: u32 = 0x5a01;
const CHECKSUM_AT: usize = 0x1c;

/// The head of the table, 32 bytes. `h_sequence` is that of the journal's superblock.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTable {
    header: RawHeader,
    version: U64,
    count: U32,
    reserved: U32,
    checksum: U32,
}

/// An area in the table, 16 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawArea {
    first: U32,
    end: U32,
    start: U32,
    sequence: U32,
}

const _: () = {
    assert!(size_of::<RawTable>() == 32 && size_of::<RawArea>() == 16);
    assert!(std::mem::offset_of!(RawTable, checksum) == CHECKSUM_AT);
};

/// The part of the ring that an area has, and where its log begins in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its blocks.
    pub ring: Range<u32>,
    /// Where its oldest transaction begins.
    pub start: u32,
    /// Number of that transaction.
    pub sequence: Tid,
}

/// A version of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Counts up.
    pub version: u64,
    /// The areas, by their index.
    pub areas: Vec<Span>,
}

/// Areas that fit a table in a block of `block_size` bytes.
pub const fn areas_max(block_size: usize) -> usize {
    (block_size - size_of::<RawTable>()) / size_of::<RawArea>()
}

impl Table {
    /// Divides `ring` among `count` areas, whose first transactions are all `sequence`. What is
    /// left over belongs to none.
    pub fn divide(ring: Range<u32>, count: u16, sequence: Tid) -> Self {
        let first = ring.start + TABLES;
        let each = ring.end.saturating_sub(first) / u32::from(count.max(1));
        let span = |index: u32| {
            let start = first + index * each;
            Span { ring: start..start + each, start, sequence }
        };
        Self { version: 1, areas: (0..u32::from(count)).map(span).collect() }
    }

    /// The table in `bytes`, if it is one of the journal whose superblock has this `sequence`, and
    /// whole. Fails if its areas do not lie in `ring`, behind one another. `block` is where it was
    /// read.
    pub fn parse(
        bytes: &[u8],
        block: u64,
        ring: &Range<u32>,
        sequence: Tid,
    ) -> Result<Option<Self>> {
        let Ok((raw, rest)) = RawTable::read_from_prefix(bytes) else { return Ok(None) };
        let is_ours = raw.header.h_magic.get() == MAGIC
            && raw.header.h_blocktype.get() == KIND
            && raw.header.h_sequence.get() == sequence.0
            && raw.checksum.get() == crc32c_without(!0, bytes, CHECKSUM_AT);
        if !is_ours {
            return Ok(None);
        }
        let (count, max) = (raw.count.get() as usize, areas_max(bytes.len()));
        if !(1..=max).contains(&count) {
            return Err(Error::corrupt("areas.count", block, count, format!("1 to {max}")));
        }
        let (mut areas, mut from) = (Vec::with_capacity(count), ring.start + TABLES);
        for bytes in rest.chunks_exact(size_of::<RawArea>()).take(count) {
            let raw = RawArea::read_from_bytes(bytes).expect("its size");
            let (own, start) = (raw.first.get()..raw.end.get(), raw.start.get());
            if own.start < from || own.end > ring.end || !own.contains(&start) {
                let found = format!("{own:?} from {start}");
                let allowed = format!("blocks of {from}..{}", ring.end);
                return Err(Error::corrupt("areas", block, found, allowed));
            }
            from = own.end;
            areas.push(Span { ring: own, start, sequence: Tid(raw.sequence.get()) });
        }
        Ok(Some(Self { version: raw.version.get(), areas }))
    }

    /// Fills `block` with the table.
    pub fn emit(&self, block: &mut [u8], sequence: Tid) {
        block.fill(0);
        let raw = RawTable {
            header: RawHeader {
                h_magic: MAGIC.into(),
                h_blocktype: KIND.into(),
                h_sequence: sequence.0.into(),
            },
            version: self.version.into(),
            count: (self.areas.len() as u32).into(),
            reserved: 0.into(),
            checksum: 0.into(),
        };
        let (head, rest) = block.split_at_mut(size_of::<RawTable>());
        head.copy_from_slice(raw.as_bytes());
        for (slot, area) in rest.chunks_exact_mut(size_of::<RawArea>()).zip(&self.areas) {
            let raw = RawArea {
                first: area.ring.start.into(),
                end: area.ring.end.into(),
                start: area.start.into(),
                sequence: area.sequence.0.into(),
            };
            slot.copy_from_slice(raw.as_bytes());
        }
        let sum = crc32c_without(!0, block, CHECKSUM_AT);
        block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_be_bytes());
    }

    /// The block of the ring for this version.
    pub fn slot(&self, ring: &Range<u32>) -> u32 {
        ring.start + (self.version % u64::from(TABLES)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_comes_back_and_nothing_else_does() {
        let table = Table::divide(1..100, 4, Tid(9));
        assert_eq!(table.areas[3].ring, 75..99);
        let mut block = [0xee; 1024];
        table.emit(&mut block, Tid(9));
        let parse = |block: &[u8], ring| Table::parse(block, 0, ring, Tid(9));
        assert_eq!(parse(&block, &(1..100)).unwrap(), Some(table.clone()));
        assert!(parse(&block, &(1..90)).is_err(), "an area beyond the ring");
        assert_eq!(Table::parse(&block, 0, &(1..100), Tid(8)).unwrap(), None);
        for byte in 0..64 {
            let mut torn = block;
            torn[byte] ^= 1;
            assert_eq!(parse(&torn, &(1..100)).unwrap(), None, "byte {byte}");
        }
    }

    #[test]
    fn areas_that_overlap_are_an_error() {
        let mut table = Table::divide(1..100, 2, Tid(1));
        table.areas[1].ring.start -= 1;
        let mut block = [0; 1024];
        table.emit(&mut block, Tid(1));
        assert!(Table::parse(&block, 0, &(1..100), Tid(1)).is_err());
    }
}
