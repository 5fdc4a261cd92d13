//! Blocks reserved for operations under the shared lock.
//!
//! An exclusive holder checks for free space before it changes anything
//! ([`crate::mount::engine::Engine::balance`]). Concurrent changes cannot check; they draw on a
//! credit: blocks that an exclusive holder has reserved, and counts as pending from then on. A
//! shard of inodes draws several at a time, so that the credit is seldom contended.

use cores::Line;

/// The most blocks that are reserved at a time.
const MOST: u64 = 16 * 1024;
/// How many blocks a shard draws at a time.
const SHARE: u64 = 32;

/// Blocks reserved and not yet handed out.
#[derive(Default)]
pub(crate) struct Credit {
    left: Line,
    /// How many were reserved, of which any number may have been used.
    promised: u64,
}

impl Credit {
    /// Blocks that concurrent changes may use at any time.
    pub(crate) fn promised(&self) -> u64 {
        self.promised
    }

    /// Whether so little is left that it is worthwhile to reserve more.
    pub(crate) fn is_low(&self) -> bool {
        self.left.load() < self.promised.clamp(8 * SHARE, MOST) / 8
    }

    /// Reserves `blocks`, up to [`MOST`]. Shares handed out before must have been taken back.
    pub(crate) fn promise(&mut self, blocks: u64) {
        self.promised = blocks.min(MOST);
        self.left.store(self.promised);
    }

    /// Adds a share to `purse`, so that it holds at least `blocks`; false if too little is left.
    pub(crate) fn hand_out(&self, purse: &mut u64, blocks: u64) -> bool {
        let share = SHARE.max(blocks);
        let mut left = self.left.load();
        while left >= share {
            match self.left.compare_exchange(left, left - share) {
                Ok(_) => {
                    *purse += share;
                    return true;
                }
                Err(now) => left = now,
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cores::{Machine, Profile};

    use super::*;

    #[test]
    fn no_more_is_handed_out_than_was_promised() {
        let profile = Profile::named("xeon-4116").unwrap();
        let test = || {
            let mut credit = Credit::default();
            credit.promise(40 * SHARE + 5);
            let credit = Arc::new(credit);
            let takers = (0..6).map(|core| {
                let credit = credit.clone();
                cores::spawn("taker", Some(core), move || {
                    let mut purse = 0;
                    while credit.hand_out(&mut purse, 1) {}
                    purse
                })
            });
            let takers: Vec<_> = takers.collect();
            let taken: u64 = takers.into_iter().map(cores::JoinHandle::join).sum();
            assert_eq!((taken, credit.is_low()), (40 * SHARE, true));
        };
        for seed in 0..100 {
            Machine::simulated(&profile, seed).preempted().run(test).unwrap();
        }
    }
}
