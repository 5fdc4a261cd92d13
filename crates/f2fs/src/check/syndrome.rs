//! Finds the single wrong bit of a block from its checksum.
//!
//! A CRC is linear: flipping a bit changes the checksum by a value that depends only on the bit's
//! place. So if just one bit is wrong, the difference between the stored and the computed checksum
//! tells which.

use std::sync::OnceLock;

use crate::ondisk::{BLOCK_SIZE, crc32};

/// What flipping each bit of a block does to its checksum, sorted by that change.
fn table() -> &'static [(u32, u16)] {
    static TABLE: OnceLock<Vec<(u32, u16)>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table = Vec::with_capacity(8 * BLOCK_SIZE);
        for bit in 0..8_u16 {
            let mut effect = crc32(0, &[1 << bit]);
            for byte in (0..BLOCK_SIZE as u16).rev() {
                table.push((effect, 8 * byte + bit));
                effect = crc32(effect, &[0]);
            }
        }
        table.sort_unstable();
        table
    })
}

/// Byte and mask of the one bit of a block whose flip changes the block's checksum by
/// `difference`.
pub(super) fn bit_of(difference: u32) -> Option<(usize, u8)> {
    let table = table();
    let at = table.binary_search_by_key(&difference, |(effect, _)| *effect).ok()?;
    let (_, bit) = table[at];
    Some((usize::from(bit / 8), 1 << (bit % 8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_is_found() {
        let mut block: Vec<u8> = (0..BLOCK_SIZE).map(|i| (i * 31 % 251) as u8).collect();
        let right = crc32(77, &block);
        for byte in (0..BLOCK_SIZE).step_by(101) {
            for mask in [1, 0x10, 0x80] {
                block[byte] ^= mask;
                assert_eq!(bit_of(right ^ crc32(77, &block)), Some((byte, mask)));
                block[byte] ^= mask;
            }
        }
        assert_eq!(bit_of(0), None);
    }
}
