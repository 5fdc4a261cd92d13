//! Seeded bytes: every block of every version differs, so a block in the wrong place shows.

use drive::{BLOCK_SIZE, Block};
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The generator for everything random in the lab.
#[derive(Clone, Debug)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    /// A stream of its own for each `(seed, stream)`.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mixed = seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
        Self(Xoshiro256PlusPlus::seed_from_u64(mixed))
    }

    /// Uniform in `0..bound`; 0 if `bound` is 0. The bias is below 2⁻⁶⁴ × bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform in `low..=high`.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }

    /// So many bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fill(&mut bytes);
        bytes
    }
}

/// The pattern of block `index`: its number in every 8 bytes, mixed with the seed.
pub(super) fn pattern(seed: u64, index: u64) -> Block {
    let mut page = [0; BLOCK_SIZE];
    let word = (seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes();
    for (i, chunk) in page.chunks_exact_mut(16).enumerate() {
        chunk[..8].copy_from_slice(&index.to_le_bytes());
        chunk[8..].copy_from_slice(&word);
        chunk[15] = i as u8;
    }
    Block::new(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_reproducible_and_differ() {
        assert_eq!(Rng::new(1, 2).bytes(32), Rng::new(1, 2).bytes(32));
        assert_ne!(Rng::new(1, 2).bytes(32), Rng::new(1, 3).bytes(32));
        assert_ne!(Rng::new(1, 2).bytes(32), Rng::new(2, 2).bytes(32));
    }

    #[test]
    fn bounds_hold() {
        let mut rng = Rng::new(7, 0);
        assert!((0..1000).all(|_| rng.below(10) < 10));
        assert!((0..1000).all(|_| (3..=5).contains(&rng.within(3, 5))));
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn blocks_of_the_pattern_differ() {
        assert_ne!(pattern(1, 0), pattern(1, 1));
        assert_ne!(pattern(1, 0), pattern(2, 0));
        assert!(pattern(0, 0).bytes() != &[0; BLOCK_SIZE]);
    }
}
