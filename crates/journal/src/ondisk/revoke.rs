//! Revoke blocks: blocks whose images up to this transaction no longer count
//! (`jbd2_journal_revoke_header_t`, 16 bytes, then block numbers).

use super::header::{BlockType, Tid, emit as emit_header};
use super::{TAIL, seal_tail};
use crate::ondisk::superblock::Incompat;

/// Bytes of `jbd2_journal_revoke_header_t`.
const HEADER: usize = 16;
/// `r_count`: bytes in use, the header included.
const COUNT_AT: usize = 12;

fn record(incompat: Incompat) -> usize {
    if incompat.contains(Incompat::BIT64) { 8 } else { 4 }
}

fn tail(incompat: Incompat) -> usize {
    if incompat.has_sums() { TAIL } else { 0 }
}

/// Block numbers that fit a block of `block_size` bytes.
pub fn records_per_block(incompat: Incompat, block_size: usize) -> usize {
    (block_size - HEADER - tail(incompat)) / record(incompat)
}

/// The block numbers of a revoke block. The error is its `r_count`, if that cannot be.
pub fn parse(block: &[u8], incompat: Incompat) -> Result<impl Iterator<Item = u64> + '_, u32> {
    let count = &block[COUNT_AT..HEADER];
    let count = u32::from_be_bytes(count.try_into().expect("four bytes"));
    let max = block.len() - tail(incompat);
    if count as usize > max {
        return Err(count);
    }
    let records = block.get(HEADER..count as usize).unwrap_or_default();
    let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    Ok(records.chunks_exact(record(incompat)).map(number))
}

/// Fills `block` with `homes`, at most [`records_per_block`]. With `seed`, it gets a checksum.
pub fn emit(block: &mut [u8], tid: Tid, homes: &[u64], incompat: Incompat, seed: u32) {
    block.fill(0);
    emit_header(block, BlockType::Revoke, tid);
    let record = record(incompat);
    let count = (HEADER + homes.len() * record) as u32;
    block[COUNT_AT..HEADER].copy_from_slice(&count.to_be_bytes());
    for (slot, home) in block[HEADER..].chunks_exact_mut(record).zip(homes) {
        slot.copy_from_slice(&home.to_be_bytes()[8 - record..]);
    }
    if incompat.has_sums() {
        seal_tail(seed, block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for incompat in [Incompat::empty(), Incompat::BIT64 | Incompat::CSUM_V3] {
            let homes: Vec<u64> = (0..records_per_block(incompat, 1024) as u64).collect();
            let mut block = [0; 1024];
            emit(&mut block, Tid(3), &homes, incompat, 5);
            assert!(parse(&block, incompat).unwrap().eq(homes));
        }
    }

    #[test]
    fn a_count_behind_the_block_is_an_error() {
        let mut block = [0; 1024];
        block[COUNT_AT..HEADER].copy_from_slice(&1025_u32.to_be_bytes());
        assert_eq!(parse(&block, Incompat::empty()).map(|_| ()), Err(1025));
    }
}
