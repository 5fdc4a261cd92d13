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

/// An fsync's place in the chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place(u64);

impl Default for Chain {
    fn default() -> Self {
        Self { state: Mutex::named("f2fs chain", State::default()), arrived: Condvar::new() }
    }
}

impl Chain {
    /// The next place, for nodes that are about to be submitted.
    pub(crate) fn take_place(&self) -> Place {
        let mut state = self.state.lock();
        let place = state.next;
        state.next += 1;
        state.missing.insert(place);
        Place(place)
    }

    /// The drive has answered for the nodes of `place`.
    pub(crate) fn answered(&self, place: Place, written: bool) {
        let mut state = self.state.lock();
        state.missing.remove(&place.0);
        state.broken |= !written;
        if state.waiting > 0 {
            self.arrived.notify_all();
        }
    }

    /// Sleeps until all nodes ahead of `place` have arrived; fails if one never will.
    pub(crate) fn wait_for_those_ahead(&self, place: Place) -> Result<()> {
        let mut state = self.state.lock();
        while !state.broken && state.missing.first().is_some_and(|first| *first < place.0) {
            state.waiting += 1;
            self.arrived.wait(&mut state);
            state.waiting -= 1;
        }
        if state.broken { Err(Errno::IO.into()) } else { Ok(()) }
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
            let (first, second) = (chain.take_place(), chain.take_place());
            let other = chain.clone();
            let waiter = cores::spawn("second", Some(1), move || {
                other.answered(second, true);
                other.wait_for_those_ahead(second).unwrap();
                cores::now()
            });
            cores::sleep(5_000_000);
            let arrived = cores::now();
            chain.answered(first, true);
            assert!(waiter.join() >= arrived);
        });
    }

    #[test]
    fn what_stands_behind_a_node_that_was_not_written_fails() {
        on_cores(|| {
            let chain = Chain::default();
            let (first, second) = (chain.take_place(), chain.take_place());
            chain.answered(first, false);
            chain.answered(second, true);
            chain.wait_for_those_ahead(second).unwrap_err();
        });
    }
}
