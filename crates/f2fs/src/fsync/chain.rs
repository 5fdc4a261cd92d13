//! The roll-forward chain on its way to the drive: which fsyncs' nodes have arrived.
//!
//! Recovery follows the node log and stops at the first node that is missing, so an fsync is durable
//! only when the nodes ahead of its own are there too, whoever wrote them
//! (`f2fs_wait_on_node_pages_writeback` with its sequence number).
//!
//! Invariant: places are given out in the order of the log, under the hold of the volume that
//! submits the nodes, and whoever has a place gives it back as soon as the drive has answered. So
//! nobody waits here for anything but the drive.

use std::collections::BTreeSet;

use cores::{Condvar, Mutex};
use vfs::Errno;

use crate::error::Result;

/// The places of all fsyncs of a mount.
pub(crate) struct Chain {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    /// The place the next fsync gets.
    next: u64,
    /// Places whose nodes the drive has not answered for.
    missing: BTreeSet<u64>,
    /// A node was not written: the chain ends there, and nothing behind it counts.
    broken: bool,
    /// Fsyncs asleep here.
    waiting: u32,
}

/// An fsync's place in the chain. Dropped before the drive has answered, it breaks the chain: what
/// became of its nodes is not known.
pub(crate) struct Place<'a> {
    chain: &'a Chain,
    number: u64,
    is_answered: bool,
}

impl Default for Chain {
    fn default() -> Self {
        Self { state: Mutex::named("f2fs chain", State::default()), arrived: Condvar::new() }
    }
}

impl Chain {
    /// The next place, for nodes that are about to be submitted.
    pub(crate) fn take_place(&self) -> Place<'_> {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.missing.insert(number);
        Place { chain: self, number, is_answered: false }
    }
}

impl Place<'_> {
    /// The drive has answered for the nodes of this place.
    pub(crate) fn answered(&mut self, written: bool) {
        let mut state = self.chain.state.lock();
        state.missing.remove(&self.number);
        state.broken |= !written;
        if state.waiting > 0 {
            self.chain.arrived.notify_all();
        }
        self.is_answered = true;
    }

    /// Sleeps until all nodes ahead of this place have arrived; fails if one never will.
    pub(crate) fn wait_for_those_ahead(self) -> Result<()> {
        let mut state = self.chain.state.lock();
        while !state.broken && state.missing.first().is_some_and(|first| *first < self.number) {
            state.waiting += 1;
            self.chain.arrived.wait(&mut state);
            state.waiting -= 1;
        }
        if state.broken { Err(Errno::IO.into()) } else { Ok(()) }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.answered(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cores::{Machine, Profile};

    use super::*;

    fn on_cores(test: impl FnOnce() + 'static) {
        let profile = Profile::named("xeon-4116").unwrap();
        Machine::simulated(&profile, 1).run(test).unwrap();
    }

    #[test]
    fn nobody_returns_before_what_is_ahead_has_arrived() {
        on_cores(|| {
            let chain = Arc::new(Chain::default());
            let mut first = chain.take_place();
            let other = chain.clone();
            let waiter = cores::spawn("second", Some(1), move || {
                let mut second = other.take_place();
                second.answered(true);
                second.wait_for_those_ahead().unwrap();
                cores::now()
            });
            cores::sleep(5_000_000);
            let arrived = cores::now();
            first.answered(true);
            assert!(waiter.join() >= arrived);
        });
    }

    #[test]
    fn what_stands_behind_a_node_that_was_not_written_fails() {
        on_cores(|| {
            let chain = Chain::default();
            let (first, mut second) = (chain.take_place(), chain.take_place());
            drop(first);
            second.answered(true);
            second.wait_for_those_ahead().unwrap_err();
        });
    }
}
