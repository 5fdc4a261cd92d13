//! Commit blocks (`struct commit_header`, 60 bytes).

use std::time::Duration;

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::crc32c_without;
use super::header::{BlockType, RawHeader, Tid, emit as emit_header};

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
};

/// When the transaction of this commit block was committed, in seconds and nanoseconds since 1970.
pub fn time(block: &[u8]) -> (u64, u32) {
    RawCommit::read_from_prefix(block)
        .map_or((0, 0), |(raw, _)| (raw.h_commit_sec.get(), raw.h_commit_nsec.get()))
}

/// Whether the block's own checksum is right.
pub fn is_sound(block: &[u8], seed: u32) -> bool {
    let sum = crc32c_without(seed, block, CHECKSUM_AT);
    block[CHECKSUM_AT..CHECKSUM_AT + 4] == sum.to_be_bytes()
}

/// Fills `block` as the commit block of `tid`. With `seed`, it gets its checksum.
pub fn emit(block: &mut [u8], tid: Tid, time: Duration, seed: Option<u32>) {
    block.fill(0);
    emit_header(block, BlockType::Commit, tid);
    let at = std::mem::offset_of!(RawCommit, h_commit_sec);
    block[at..at + 8].copy_from_slice(&time.as_secs().to_be_bytes());
    block[at + 8..at + 12].copy_from_slice(&time.subsec_nanos().to_be_bytes());
    if let Some(seed) = seed {
        let sum = crc32c_without(seed, block, CHECKSUM_AT);
        block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_be_bytes());
    }
}
