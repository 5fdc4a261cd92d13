//! Schedules that no clock would make: threads lose their core at points chosen by seed.
//!
//! In virtual time a race shows only if the two sides happen to meet within the nanoseconds
//! between two steps. So a preempted machine takes the core away for a while wherever a thread
//! charges time, which it does at every lock, line and wait. How often and for how long differs
//! from seed to seed by orders of magnitude: a few long gaps find what needs one thread to stand
//! still (the bounded preemptions of PCT, Burckhardt et al., ASPLOS'10), many short ones what
//! needs many threads to mix.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use crate::Nanos;

/// Points between two preemptions: on average 2 to 2^`GAP_BITS` of them.
const GAP_BITS: u32 = 12;

/// A preemption takes up to 2^`LENGTH_BITS` nanoseconds: about a time slice at the most.
const LENGTH_BITS: u32 = 22;

/// When the next thread loses its core.
pub(super) struct Preempt {
    chance: Xoshiro256PlusPlus,
    gap_bits: u32,
    length_bits: u32,
    /// Points until then.
    left: u64,
}

impl Preempt {
    pub(super) fn new(seed: u64) -> Self {
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
        let gap_bits = 1 + chance.next_u32() % GAP_BITS;
        let length_bits = 4 + chance.next_u32() % (LENGTH_BITS - 3);
        let mut preempt = Self { chance, gap_bits, length_bits, left: 0 };
        preempt.left = preempt.below(preempt.gap_bits + 1);
        preempt
    }

    fn below(&mut self, bits: u32) -> u64 {
        self.chance.next_u64() >> (64 - bits)
    }

    /// For how long the running thread loses its core at this point.
    pub(super) fn pause(&mut self) -> Nanos {
        if self.left > 0 {
            self.left -= 1;
            return 0;
        }
        self.left = self.below(self.gap_bits + 1);
        self.below(self.length_bits)
    }
}
