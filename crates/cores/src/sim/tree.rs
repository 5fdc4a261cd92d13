//! The cores as a tournament: the core that is due first is at the root.
//!
//! A node holds the lower of its two children's keys. So a change costs one walk to the root over a
//! flat array, and finding the winner costs nothing. Which core wins cannot be predicted, so the
//! walk has no branch to mispredict: it always goes all the way. A key is `(clock, tie)`; ties are
//! random.

use crate::Nanos;
use crate::profile::MAX_CORES;

/// A clock, a random tie and the core, from the highest bits to the lowest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(u128);

impl Key {
    /// Later than every other key: the core has nothing to run.
    pub(super) const IDLE: Key = Key(u128::MAX);

    pub(super) fn new(clock: Nanos, tie: u32, core: u32) -> Key {
        Key(u128::from(clock) << 64 | u128::from(tie) << 32 | u128::from(core))
    }

    pub(super) fn clock(self) -> Nanos {
        (self.0 >> 64) as Nanos
    }

    /// The lower of the two, without a branch.
    fn min_unpredictable(self, other: Key) -> Key {
        let other_is_lower = 0_u128.wrapping_sub(u128::from(other < self));
        Key(self.0 ^ ((self.0 ^ other.0) & other_is_lower))
    }

    /// The same key, but at `clock` if that is later.
    pub(super) fn not_before(self, clock: Nanos) -> Key {
        Key(self.0.max(u128::from(clock) << 64 | u128::from(self.0 as u64)))
    }

    pub(super) fn core(self) -> usize {
        self.0 as u32 as usize
    }
}

/// As many leaves as a machine may have cores, because a walk of constant length is straight code.
const LEAVES: usize = MAX_CORES;
const LEVELS: u32 = LEAVES.ilog2();
const _: () = assert!(LEAVES.is_power_of_two());

pub(super) struct Tree {
    /// The root is node 1, node `i` has the children `2i` and `2i + 1`, the leaves come last.
    nodes: Box<[Key; 2 * LEAVES]>,
}

impl Tree {
    pub(super) fn new() -> Tree {
        Tree { nodes: Box::new([Key::IDLE; 2 * LEAVES]) }
    }

    /// The lowest key, [`Key::IDLE`] if no core is runnable.
    pub(super) fn first(&self) -> Key {
        self.nodes[1]
    }

    pub(super) fn set(&mut self, core: usize, key: Key) {
        let mut node = LEAVES + core % LEAVES;
        let mut lower = key;
        self.nodes[node] = lower;
        for _ in 0..LEVELS {
            lower = lower.min_unpredictable(self.nodes[node ^ 1]);
            node /= 2;
            self.nodes[node] = lower;
        }
    }

    /// The lowest clock of all cores except `core`.
    pub(super) fn first_beside(&self, core: usize) -> Nanos {
        let mut node = LEAVES + core % LEAVES;
        let mut lowest = Nanos::MAX;
        for _ in 0..LEVELS {
            lowest = lowest.min(self.nodes[node ^ 1].clock());
            node /= 2;
        }
        lowest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_key_wins_and_leaves() {
        for cores in [1, 2, 3, 24, 192] {
            let mut tree = Tree::new();
            assert!(tree.first() == Key::IDLE);
            for core in 0..cores {
                let clock = (core as u64 * 7919) % 193;
                tree.set(core, Key::new(clock, 5, core as u32));
            }
            let others = (0..cores).map(|core| (core as u64 * 7919) % 193).filter(|&c| c > 0).min();
            assert_eq!(tree.first_beside(0), others.unwrap_or(Nanos::MAX));
            let mut clocks = Vec::new();
            while tree.first() != Key::IDLE {
                clocks.push(tree.first().clock());
                tree.set(tree.first().core(), Key::IDLE);
            }
            assert_eq!(clocks.len(), cores);
            assert!(clocks.is_sorted());
        }
    }
}
