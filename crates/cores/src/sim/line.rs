//! What using a cache line costs: its transfer, and the wait for others who asked before.

use super::Sim;
use crate::Nanos;

/// Words in the set of cores that share a line: enough bits for the most cores that a profile may
/// have.
const SHARER_WORDS: usize = crate::profile::MAX_CORES / 64;

/// Where a line is on the machine that used it last.
#[derive(Default)]
pub(crate) struct LineState {
    machine: u64,
    /// The core that wrote it last.
    owner: Option<u32>,
    /// When all transfers requested so far are done.
    free_at: Nanos,
}

impl LineState {
    pub(crate) const fn new() -> LineState {
        LineState { machine: 0, owner: None, free_at: 0 }
    }

    /// Brings the line to the running core for a change. Returns when it is there.
    pub(crate) fn take(&mut self, sim: &Sim) -> Nanos {
        let core = sim.current_core();
        let end = self.fetch(sim, core, sim.now());
        self.owner = Some(core as u32);
        end
    }

    /// Brings the line to `core` from wherever it is, in turn. Returns when it is there.
    fn fetch(&mut self, sim: &Sim, core: usize, from: Nanos) -> Nanos {
        if self.machine != sim.id {
            *self = LineState { machine: sim.id, ..LineState::new() };
        }
        let owner = self.owner.map(|owner| owner as usize);
        self.free_at = self.free_at.max(from) + sim.profile.transfer(owner, core);
        self.free_at
    }

    /// Passes the line on to `core`, whose thread waits for it.
    pub(super) fn hand_to(&mut self, sim: &Sim, core: usize, from: Nanos) -> Nanos {
        let end = self.fetch(sim, core, from);
        self.owner = Some(core as u32);
        end
    }
}

/// A set of cores.
#[derive(Default)]
pub(super) struct CoreSet([u64; SHARER_WORDS]);

impl CoreSet {
    const EMPTY: CoreSet = CoreSet([0; SHARER_WORDS]);

    pub(super) fn insert(&mut self, core: usize) {
        self.0[core / 64] |= 1 << (core % 64);
    }

    pub(super) fn contains(&self, core: usize) -> bool {
        self.0[core / 64] >> (core % 64) & 1 == 1
    }
}

/// A line that is also read: readers keep copies until the next change.
pub(crate) struct SharedLine {
    line: LineState,
    sharers: CoreSet,
}

impl SharedLine {
    pub(crate) const fn new() -> SharedLine {
        SharedLine { line: LineState::new(), sharers: CoreSet::EMPTY }
    }

    /// Brings the line to the running core for a change, and voids all copies.
    pub(crate) fn change(&mut self, sim: &Sim) -> Nanos {
        self.sharers = CoreSet::EMPTY;
        self.sharers.insert(sim.current_core());
        self.line.take(sim)
    }

    /// Brings a copy to the running core. If it has one already, that costs no transfer and no
    /// turn.
    pub(crate) fn read(&mut self, sim: &Sim) -> Nanos {
        let core = sim.current_core();
        if self.line.machine != sim.id {
            self.sharers = CoreSet::EMPTY;
        }
        if self.sharers.contains(core) {
            return sim.now() + sim.profile.transfer(Some(core), core);
        }
        self.sharers.insert(core);
        self.line.fetch(sim, core, sim.now())
    }
}
