//! Schedules that no clock would make: threads lose their core at points chosen by seed.
//!
//! In virtual time a race shows only if the two sides happen to meet within the nanoseconds
//! between two steps. So a preempted machine takes the core away for a while wherever a thread
//! charges time, which it does at every lock, line and wait. How often and for how long differs
//! from seed to seed by orders of magnitude: many short gaps find what needs many threads to mix. A
//! few gaps, each longer than all the others need, find what needs one thread to stand still (the
//! bounded preemptions of PCT, Burckhardt et al., ASPLOS'10).

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use crate::Nanos;

/// Points between two preemptions: on average 2 to 2^`GAP_BITS` of them.
const GAP_BITS: u32 = 12;

/// A preemption takes up to 2^`LENGTH_BITS` nanoseconds: about a time slice at the most.
const LENGTH_BITS: u32 = 22;

/// The last of a bounded number of preemptions comes within 2^`POINT_BITS` points: about as many as
/// a short run of a few threads has.
const POINT_BITS: u32 = 12;

/// A preemption of a bounded number takes so long: more than a short run.
const LONG: Nanos = 1_000_000_000;

/// Where threads of a machine lose their cores.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Preempted {
    Never,
    /// Again and again, for a while.
    Often,
    /// So many times, for longer than anything else takes.
    AtMost(u32),
}

/// When the next thread loses its core.
pub(super) struct Preempt {
    chance: Xoshiro256PlusPlus,
    gap_bits: u32,
    /// 0 if each preemption is a long one.
    length_bits: u32,
    /// Preemptions left.
    times: u32,
    /// Points until then.
    left: u64,
}

impl Preempt {
    pub(super) fn new(preempted: Preempted, seed: u64) -> Option<Self> {
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (gap_bits, length_bits, times) = match preempted {
            Preempted::Never => return None,
            Preempted::Often => {
                let gap_bits = 1 + chance.next_u32() % GAP_BITS;
                (gap_bits, 4 + chance.next_u32() % (LENGTH_BITS - 3), u32::MAX)
            }
            // Points of all magnitudes, because the length of the run is not known.
            Preempted::AtMost(times) => (1 + chance.next_u32() % POINT_BITS, 0, times),
        };
        let mut preempt = Self { chance, gap_bits, length_bits, times, left: 0 };
        preempt.left = preempt.below(preempt.gap_bits + 1);
        Some(preempt)
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
        if self.times == 0 {
            return 0;
        }
        self.times -= 1;
        self.left = self.below(self.gap_bits + 1);
        if self.length_bits == 0 { LONG } else { self.below(self.length_bits) }
    }
}
