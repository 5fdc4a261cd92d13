//! JBD2's format: big-endian structures in blocks of the file system's size (`linux/jbd2.h`).
//!
//! Each file has one structure. Only these files know offsets.

pub mod areas;
pub mod commit;
pub mod descriptor;
pub mod fast;
pub mod header;
pub mod record;
pub mod revoke;
pub mod superblock;

/// JBD2's crc32c: the reflected Castagnoli polynomial without the inversion at the end, so that a
/// sum can be continued.
pub fn crc32c(state: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!state, bytes)
}

/// As [`crc32c`], over bytes whose four at `field` count as zero: a checksum that lies within what
/// it covers.
pub(crate) fn crc32c_without(state: u32, bytes: &[u8], field: usize) -> u32 {
    let state = crc32c(state, &bytes[..field]);
    crc32c(crc32c(state, &[0; 4]), &bytes[field + 4..])
}

/// The tail of descriptor and revoke blocks (`jbd2_journal_block_tail`, 4 bytes): the checksum of
/// the block.
pub(crate) const TAIL: usize = 4;

/// Whether the last four bytes of `block` are its checksum.
pub(crate) fn has_good_tail(seed: u32, block: &[u8]) -> bool {
    let (body, tail) = block.split_at(block.len() - TAIL);
    crc32c(crc32c(seed, body), &[0; TAIL]).to_be_bytes() == tail
}

/// Writes the checksum into the last four bytes of `block`.
pub(crate) fn seal_tail(seed: u32, block: &mut [u8]) {
    let (body, tail) = block.split_at_mut(block.len() - TAIL);
    tail.copy_from_slice(&crc32c(crc32c(seed, body), &[0; TAIL]).to_be_bytes());
}
