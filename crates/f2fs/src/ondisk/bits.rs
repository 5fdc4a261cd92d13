//! Bitmaps. F2FS has both orders: most significant bit first in SIT maps and version bitmaps,
//! least significant first in directory blocks, nat_bits and `s_errors`.
//!
//! A bit beyond the map reads as clear and cannot be set, so no length from a drive can panic.

macro_rules! order {
    ($(#[$doc:meta])* $name:ident, $mask:expr, $word:ident, $leading:ident) => {
        $(#[$doc])*
        pub mod $name {
            const MASK: fn(usize) -> u8 = $mask;

            /// Whether bit `n` is set.
            pub fn test(map: &[u8], n: usize) -> bool {
                map.get(n / 8).is_some_and(|byte| byte & MASK(n) != 0)
            }

            /// Sets bit `n`; returns whether it was set before.
            pub fn set(map: &mut [u8], n: usize) -> bool {
                let Some(byte) = map.get_mut(n / 8) else { return false };
                let was = *byte & MASK(n) != 0;
                *byte |= MASK(n);
                was
            }

            /// Clears bit `n`; returns whether it was set before.
            pub fn clear(map: &mut [u8], n: usize) -> bool {
                let Some(byte) = map.get_mut(n / 8) else { return false };
                let was = *byte & MASK(n) != 0;
                *byte &= !MASK(n);
                was
            }

            /// Flips bit `n`; returns its new value.
            pub fn flip(map: &mut [u8], n: usize) -> bool {
                let Some(byte) = map.get_mut(n / 8) else { return false };
                *byte ^= MASK(n);
                *byte & MASK(n) != 0
            }

            /// First set bit in `from..to`.
            pub fn next_one(map: &[u8], from: usize, to: usize) -> Option<usize> {
                scan(map, from, to, 0)
            }

            /// First clear bit in `from..to`, within the map.
            pub fn next_zero(map: &[u8], from: usize, to: usize) -> Option<usize> {
                scan(map, from, to, !0)
            }

            /// First bit in `from..to` that differs from `invert`'s, eight bytes at a time.
            fn scan(map: &[u8], from: usize, to: usize, invert: u64) -> Option<usize> {
                let to = to.min(map.len() * 8);
                let mut at = from;
                while at < to {
                    let word = load(map, at / 64 * 8) ^ invert;
                    let hit = drop_below(word, at % 64);
                    if hit != 0 {
                        let n = at / 64 * 64 + hit.$leading() as usize;
                        return (n < to).then_some(n);
                    }
                    at = (at / 64 + 1) * 64;
                }
                None
            }

            fn load(map: &[u8], byte: usize) -> u64 {
                let tail = map.get(byte..).unwrap_or_default();
                let mut word = [0; 8];
                let n = tail.len().min(8);
                word[..n].copy_from_slice(&tail[..n]);
                u64::$word(word)
            }

            fn drop_below(word: u64, bits: usize) -> u64 {
                if MASK(0) == 1 { word & (!0 << bits) } else { word & (!0 >> bits) }
            }
        }
    };
}

order!(
    /// Bit `n` is `0x80 >> n % 8` of byte `n / 8`.
    msb, |n| 0x80 >> (n % 8), from_be_bytes, leading_zeros
);
order!(
    /// Bit `n` is `1 << n % 8` of byte `n / 8`.
    lsb, |n| 1 << (n % 8), from_le_bytes, trailing_zeros
);

/// Last set bit, most significant bit first.
pub fn msb_last_one(map: &[u8]) -> Option<usize> {
    let byte = map.iter().rposition(|byte| *byte != 0)?;
    Some(byte * 8 + 7 - map[byte].trailing_zeros() as usize)
}

/// How many bits are set.
pub fn count(map: &[u8]) -> u32 {
    let mut words = map.chunks_exact(8);
    let whole: u32 = words
        .by_ref()
        .filter_map(|w| w.try_into().ok())
        .map(|w| u64::from_ne_bytes(w).count_ones())
        .sum();
    whole + words.remainder().iter().map(|b| b.count_ones()).sum::<u32>()
}

#[cfg(test)]
mod tests {
    use super::{count, lsb, msb, msb_last_one};

    #[test]
    fn orders_differ_as_the_format_says() {
        let mut map = [0; 16];
        assert!(!msb::set(&mut map, 9));
        assert_eq!(map[1], 0x40);
        assert!(!lsb::set(&mut map, 16));
        assert_eq!(map[2], 1);
        assert_eq!(count(&map), 2);
        assert!(msb::clear(&mut map, 9) && !msb::test(&map, 9));
        assert!(!lsb::flip(&mut map, 16));
    }

    #[test]
    fn scans_agree_with_testing_each_bit() {
        let map: Vec<u8> = (0..27_u8).map(|i| i.wrapping_mul(37) & 0x5a).collect();
        for from in 0..220 {
            for to in [from, from + 1, from + 70, 214, 300] {
                let slow = |test: &dyn Fn(usize) -> bool| (from..to.min(216)).find(|&n| test(n));
                assert_eq!(msb::next_one(&map, from, to), slow(&|n| msb::test(&map, n)));
                assert_eq!(msb::next_zero(&map, from, to), slow(&|n| !msb::test(&map, n)));
                assert_eq!(lsb::next_one(&map, from, to), slow(&|n| lsb::test(&map, n)));
                assert_eq!(lsb::next_zero(&map, from, to), slow(&|n| !lsb::test(&map, n)));
            }
        }
    }

    #[test]
    fn the_last_one_is_the_last() {
        assert_eq!(msb_last_one(&[0; 9]), None);
        for last in 0..72 {
            let mut map = [0; 9];
            msb::set(&mut map, last / 2);
            msb::set(&mut map, last);
            assert_eq!(msb_last_one(&map), Some(last));
        }
    }

    #[test]
    fn beyond_the_map_nothing_happens() {
        let mut map = [0xff; 2];
        assert!(!msb::test(&map, 16) && !lsb::set(&mut map, 16) && !msb::clear(&mut map, 99));
        assert_eq!(msb::next_zero(&map, 0, 64), None);
    }
}
