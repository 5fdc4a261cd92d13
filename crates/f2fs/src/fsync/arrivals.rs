//! The roll-forward chain on its way to the drive: which fsyncs' nodes have arrived.
//!
//! Recovery follows the node log and stops at the first node that is missing, so an fsync is
//! durable only when all nodes ahead of its own are, also those of other fsyncs
//! (`f2fs_wait_on_node_pages_writeback` with its sequence number).
//!
//! Invariant: places are given out in the order of the log, with the logs locked, and each is given
//! back as soon as the drive has answered. So an fsync waits here for nothing but the drive.

use std::collections::VecDeque;

use cores::{Condvar, Mutex, Rank};
use vfs::Errno;

use crate::error::Result;

/// The places of all fsyncs of a mount.
pub(crate) struct Arrivals {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    /// The nodes of all places before this one have arrived.
    first: u64,
    /// For each place from there on, whether its nodes have arrived.
    has_arrived: VecDeque<bool>,
    /// A node was not written. The chain ends there, and no later node counts.
    broken: bool,
    /// How many fsyncs sleep here.
    waiting: u32,
}

/// An fsync's place in the chain. If it is dropped before the drive has answered, the chain is
/// broken, because its nodes may not have been written.
pub(crate) struct Arrival<'a> {
    arrivals: &'a Arrivals,
    number: u64,
}

impl Default for Arrivals {
    fn default() -> Self {
        let state = Mutex::ranked(Rank::Chain, "f2fs chain", State::default());
        Self { state, arrived: Condvar::new() }
    }
}

impl State {
    /// Records the drive's answer for the nodes of this place.
    fn answered(&mut self, number: u64, written: bool) {
        self.broken |= !written;
        if let Some(has_arrived) = self.has_arrived.get_mut((number - self.first) as usize) {
            *has_arrived = true;
        }
        while self.has_arrived.front() == Some(&true) {
            self.has_arrived.pop_front();
            self.first += 1;
        }
    }
}

impl Arrivals {
    /// Gives the next place to nodes that are about to be submitted.
    pub(crate) fn announce(&self) -> Arrival<'_> {
        let mut state = self.state.lock();
        let number = state.first + state.has_arrived.len() as u64;
        state.has_arrived.push_back(false);
        Arrival { arrivals: self, number }
    }
}

impl Arrival<'_> {
    /// Records the drive's answer for the nodes of this place. With `in_order`, also sleeps until
    /// all nodes ahead of them have arrived, and fails if one never will.
    pub(crate) fn arrive(self, written: bool, in_order: bool) -> Result<()> {
        let (arrivals, number) = (self.arrivals, self.number);
        std::mem::forget(self);
        let mut state = arrivals.state.lock();
        state.answered(number, written);
        if state.waiting > 0 {
            arrivals.arrived.notify_all();
        }
        while in_order && !state.broken && state.first < number {
            state.waiting += 1;
            arrivals.arrived.wait(&mut state);
            state.waiting -= 1;
        }
        if state.broken { Err(Errno::IO.into()) } else { Ok(()) }
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        self.arrivals.state.lock().answered(self.number, false);
        self.arrivals.arrived.notify_all();
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
            let arrivals = Arc::new(Arrivals::default());
            let first = arrivals.announce();
            let other = arrivals.clone();
            let waiter = cores::spawn("second", Some(1), move || {
                other.announce().arrive(true, true).unwrap();
                cores::now()
            });
            cores::sleep(5_000_000);
            let arrived = cores::now();
            first.arrive(true, true).unwrap();
            assert!(waiter.join() >= arrived);
            arrivals.announce().arrive(true, true).unwrap();
        });
    }

    #[test]
    fn what_stands_behind_a_node_that_was_not_written_fails() {
        on_cores(|| {
            let arrivals = Arrivals::default();
            let (first, second) = (arrivals.announce(), arrivals.announce());
            drop(first);
            second.arrive(true, true).unwrap_err();
        });
    }
}
