//! Commit blocks (`struct commit_header`, 60 bytes). In a journal with areas, behind that: the
//! transaction's stamp, and whom it names (ours).

use std::time::Duration;

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::crc32c_without;
use super::header::{BlockType, RawHeader, Tid, emit as emit_header};
use crate::transaction::{Id, Stamp};

/// Where the checksum is: `h_chksum[0]`.
const CHECKSUM_AT: usize = 0x10;

/// `struct commit_header`, 60 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names")]
pub struct RawCommit {
    pub header: RawHeader,
    pub h_chksum_type: u8,
    pub h_chksum_size: u8,
    pub h_padding: [u8; 2],
    pub h_chksum: [U32; 8],
    pub h_commit_sec: U64,
    pub h_commit_nsec: U32,
}

const _: () = {
    assert!(size_of::<RawCommit>() == 60);
    assert!(std::mem::offset_of!(RawCommit, h_chksum) == CHECKSUM_AT);
    assert!(std::mem::offset_of!(RawCommit, h_commit_sec) == 0x30);
    assert!(size_of::<RawChain>() == 16 && size_of::<RawMark>() == 8);
};

/// What no drive tears.
pub(crate) const SECTOR: usize = 512;

/// Where the chain begins: the first multiple of eight behind the kernel's fields.
const CHAIN_AT: usize = 0x40;

/// The head of a transaction's chain, 16 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawChain {
    stamp: U64,
    count: U32,
    reserved: U32,
}

/// A mark, 8 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawMark {
    area: U16,
    reserved: U16,
    tid: U32,
}

/// When a transaction was closed, and whom it names. An area has one mark at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The order among transactions of all areas.
    pub stamp: Stamp,
    /// Those that must be valid for this one to be.
    pub marks: Vec<Id>,
}

/// Marks that fit a commit block of `block_size` bytes.
pub const fn marks_max(block_size: usize) -> usize {
    (block_size - CHAIN_AT - size_of::<RawChain>()) / size_of::<RawMark>()
}

/// The link in a commit block. The error is the number of its marks, if that cannot be.
pub fn link(block: &[u8]) -> Result<Link, u32> {
    let Ok((raw, marks)) = RawChain::read_from_prefix(&block[CHAIN_AT..]) else { return Err(0) };
    let count = raw.count.get();
    let Some(marks) = marks.get(..count as usize * size_of::<RawMark>()) else {
        return Err(count);
    };
    let mark = |bytes: &[u8]| {
        let raw = RawMark::read_from_bytes(bytes).expect("its size");
        Id { area: raw.area.get(), tid: Tid(raw.tid.get()) }
    };
    let marks = marks.chunks_exact(size_of::<RawMark>()).map(mark).collect();
    Ok(Link { stamp: Stamp(raw.stamp.get()), marks })
}

fn emit_link(block: &mut [u8], link: &Link) {
    let count = (link.marks.len() as u32).into();
    let raw = RawChain { stamp: link.stamp.0.into(), count, reserved: 0.into() };
    let (head, rest) = block[CHAIN_AT..].split_at_mut(size_of::<RawChain>());
    head.copy_from_slice(raw.as_bytes());
    for (slot, mark) in rest.chunks_exact_mut(size_of::<RawMark>()).zip(&link.marks) {
        let raw = RawMark { area: mark.area.into(), reserved: 0.into(), tid: mark.tid.0.into() };
        slot.copy_from_slice(raw.as_bytes());
    }
}

/// When the transaction of this commit block was committed, in seconds and nanoseconds since 1970.
pub fn time(block: &[u8]) -> (u64, u32) {
    RawCommit::read_from_prefix(block)
        .map_or((0, 0), |(raw, _)| (raw.h_commit_sec.get(), raw.h_commit_nsec.get()))
}

/// Whether the block's own checksum is right. A cut may have torn it, so that behind its first
/// sector the log has older blocks: then it counts, for all else was durable before
/// (`jbd2_commit_block_csum_verify_partial`, which takes the kernel's fields alone).
pub fn is_sound(block: &[u8], seed: u32) -> bool {
    let is_sum = |block: &[u8]| {
        let sum = crc32c_without(seed, block, CHECKSUM_AT);
        block[CHECKSUM_AT..CHECKSUM_AT + 4] == sum.to_be_bytes()
    };
    is_sum(block) || {
        let mut first = block.to_vec();
        first[SECTOR..].fill(0);
        is_sum(&first)
    }
}

/// Fills `block` as the commit block of `tid`, with a `link` in a journal with areas. With `seed`,
/// it gets its checksum.
pub fn emit(block: &mut [u8], tid: Tid, time: Duration, link: Option<&Link>, seed: Option<u32>) {
    block.fill(0);
    emit_header(block, BlockType::Commit, tid);
    let at = std::mem::offset_of!(RawCommit, h_commit_sec);
    block[at..at + 8].copy_from_slice(&time.as_secs().to_be_bytes());
    block[at + 8..at + 12].copy_from_slice(&time.subsec_nanos().to_be_bytes());
    if let Some(link) = link {
        emit_link(block, link);
    }
    if let Some(seed) = seed {
        let sum = crc32c_without(seed, block, CHECKSUM_AT);
        block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_comes_back() {
        let mark = |n: usize| Id { area: n as u16, tid: Tid(n as u32 * 7) };
        for count in [0, 1, marks_max(SECTOR), marks_max(SECTOR) + 1, marks_max(1024)] {
            let link = Link { stamp: Stamp(1 << 40), marks: (0..count).map(mark).collect() };
            let mut block = [0xaa; 1024];
            emit(&mut block, Tid(3), Duration::from_secs(9), Some(&link), Some(5));
            assert!(is_sound(&block, 5));
            block[SECTOR..].fill(0xbb);
            let is_whole = count <= marks_max(SECTOR);
            assert_eq!(is_sound(&block, 5), is_whole, "{count} marks, torn");
            emit(&mut block, Tid(3), Duration::from_secs(9), Some(&link), Some(5));
            assert_eq!((super::link(&block), time(&block)), (Ok(link), (9, 0)));
        }
    }

    #[test]
    fn marks_behind_the_block_are_an_error() {
        let mut block = [0; 1024];
        let count = marks_max(1024) as u32 + 1;
        block[CHAIN_AT + 8..CHAIN_AT + 12].copy_from_slice(&count.to_be_bytes());
        assert_eq!(link(&block), Err(count));
    }
}
