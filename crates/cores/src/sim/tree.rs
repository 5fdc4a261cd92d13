//! The runnable cores as a tournament: the core with the lowest clock is at the root.
//!
//! A node holds the lower key of its two children, so a change costs one walk to the root over a
//! flat array, and finding the winner costs nothing. A key is `(clock, tie)`; ties are random.

use crate::Nanos;

/// A clock, a random tie and the core, from the highest bits to the lowest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(u128);

impl Key {
    /// Later than every key: the core has nothing to run.
    pub(super) const IDLE: Key = Key(u128::MAX);

    pub(super) fn new(clock: Nanos, tie: u32, core: u32) -> Key {
        Key(u128::from(clock) << 64 | u128::from(tie) << 32 | u128::from(core))
    }

    pub(super) fn clock(self) -> Nanos {
        (self.0 >> 64) as Nanos
    }

    pub(super) fn core(self) -> usize {
        self.0 as u32 as usize
    }
}

pub(super) struct Tree {
    /// The root is node 1, node `i` has the children `2i` and `2i + 1`, the leaves come last.
    nodes: Vec<Key>,
    leaves: usize,
}

impl Tree {
    pub(super) fn new(cores: usize) -> Tree {
        let leaves = cores.next_power_of_two();
        Tree { nodes: vec![Key::IDLE; 2 * leaves], leaves }
    }

    /// The lowest key, [`Key::IDLE`] if no core is runnable.
    pub(super) fn first(&self) -> Key {
        self.nodes[1]
    }

    pub(super) fn set(&mut self, core: usize, key: Key) {
        let mut node = self.leaves + core;
        self.nodes[node] = key;
        while node > 1 {
            let lower = self.nodes[node].min(self.nodes[node ^ 1]);
            node /= 2;
            if self.nodes[node] == lower {
                break;
            }
            self.nodes[node] = lower;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_key_wins_and_leaves() {
        for cores in [1, 2, 3, 24, 192] {
            let mut tree = Tree::new(cores);
            assert!(tree.first() == Key::IDLE);
            for core in 0..cores {
                let clock = (core as u64 * 7919) % 193;
                tree.set(core, Key::new(clock, 5, core as u32));
            }
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
