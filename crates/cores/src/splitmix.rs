//! Numbers made from seeds and places, where a generator with a state would be too much.
//!
//! What a seed decides must never change: drives after a power cut, new volumes and the bytes of
//! scripts are made from these numbers.

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): a bijection of 64-bit words.
#[inline]
pub fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// The first number of the generator SplitMix64 for this seed.
#[inline]
pub fn splitmix64(seed: u64) -> u64 {
    mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::SplitMix64;
    use rand_xoshiro::rand_core::{RngCore, SeedableRng};

    use super::*;

    #[test]
    fn it_is_the_generators_first_number() {
        for seed in [0, 1, 42, 1 << 63, u64::MAX - 1, u64::MAX] {
            assert_eq!(splitmix64(seed), SplitMix64::seed_from_u64(seed).next_u64(), "{seed:#x}");
        }
    }
}
