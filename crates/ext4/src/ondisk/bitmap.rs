//! Bitmaps of blocks (clusters) and inodes: one bit each, lowest bit of a byte first.
//!
//! A bitmap fills a block. Bits behind the last block or inode of the group are 1. The checksum
//! covers only as many bytes as a full group needs.

use std::ops::Range;

use super::checksum::crc32c;

/// Whether bit `at` is set. Bits behind the end count as set, so they are never allocated.
pub fn test(bits: &[u8], at: u32) -> bool {
    bits.get(at as usize / 8).is_none_or(|byte| byte >> (at % 8) & 1 == 1)
}

/// Sets bit `at`; ignored behind the end.
pub fn set(bits: &mut [u8], at: u32) {
    if let Some(byte) = bits.get_mut(at as usize / 8) {
        *byte |= 1 << (at % 8);
    }
}

/// Clears bit `at`; ignored behind the end.
pub fn clear(bits: &mut [u8], at: u32) {
    if let Some(byte) = bits.get_mut(at as usize / 8) {
        *byte &= !(1 << (at % 8));
    }
}

/// Sets the bits of `range`, whole bytes at once.
pub fn set_range(bits: &mut [u8], range: Range<u32>) {
    let mut at = range.start;
    while at < range.end {
        if at.is_multiple_of(8) && range.end - at >= 8 {
            if let Some(byte) = bits.get_mut(at as usize / 8) {
                *byte = 0xff;
            }
            at += 8;
        } else {
            set(bits, at);
            at += 1;
        }
    }
}

/// How many of the first `count` bits are 0.
pub fn count_free(bits: &[u8], count: u32) -> u32 {
    let whole = bits.get(..count as usize / 8).unwrap_or(bits);
    let free: u32 = whole.iter().map(|byte| byte.count_zeros()).sum();
    let rest = (count / 8 * 8..count).filter(|at| !test(bits, *at)).count();
    free + rest as u32
}

/// The first 0 among the bits of `range`.
pub fn first_free(bits: &[u8], range: Range<u32>) -> Option<u32> {
    let mut at = range.start;
    while at < range.end {
        let byte = at as usize / 8;
        if at.is_multiple_of(64) && bits.get(byte..byte + 8) == Some(&[0xff; 8]) {
            at += 64;
        } else if at.is_multiple_of(8) && bits.get(byte) == Some(&0xff) {
            at += 8;
        } else if test(bits, at) {
            at += 1;
        } else {
            return Some(at);
        }
    }
    None
}

/// The checksum of a bitmap with `count` bits per group (`ext4_block_bitmap_csum`,
/// `ext4_inode_bitmap_csum`). Old descriptors keep only its lower half.
pub fn checksum(seed: u32, bits: &[u8], count: u32) -> u32 {
    crc32c(seed, bits.get(..count as usize / 8).unwrap_or(bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_set_counted_and_found() {
        let mut bits = [0; 8];
        set_range(&mut bits, 3..37);
        assert_eq!(bits, [0xf8, 0xff, 0xff, 0xff, 0x1f, 0, 0, 0]);
        assert_eq!(
            (count_free(&bits, 64), count_free(&bits, 43), count_free(&bits, 3)),
            (30, 9, 3)
        );
        assert_eq!(first_free(&bits, 3..64), Some(37));
        assert_eq!(first_free(&bits, 3..37), None);
        clear(&mut bits, 20);
        assert_eq!(first_free(&bits, 3..64), Some(20));
        assert!(test(&bits, 64), "nothing behind the end is free");
    }
}
