//! What using persistent memory costs: the core's own time, its node's time, and waiting at a fence
//! for what was sent there.
//!
//! A node serves the cores' requests at its own rate. A read waits until it is served; what is
//! streamed or written back is only sent, and the core's next fence waits for it. Blocks wait for
//! those that came before. A line that is written back does not: memory takes the lines of all
//! cores in turn, so it waits for one line of each core that has some in flight.

use super::Sim;
use crate::{Nanos, Profile, Toward};

/// Bytes of a cache line.
const LINE: u64 = 64;

/// The persistent memory of all nodes, one per socket.
pub(super) struct PmNodes {
    /// When each node has served all requests so far.
    free: Vec<Nanos>,
    /// When what each core has sent to a node is there, by node and core.
    sent: Vec<Vec<Nanos>>,
}

impl PmNodes {
    pub(super) fn new(profile: &Profile) -> Self {
        let nodes = if profile.has_pm() { profile.sockets() } else { 0 };
        Self { free: vec![0; nodes], sent: vec![vec![0; profile.cores()]; nodes] }
    }

    /// How many cores, with `core`, have something under way to a node.
    fn writers(&self, node: usize, core: usize, clock: Nanos) -> u64 {
        let sent = self.sent.get(node).into_iter().flatten().enumerate();
        1 + sent.filter(|&(of, &until)| of != core && until > clock).count() as u64
    }

    /// Something of a core will be there at that time.
    fn sent(&mut self, node: usize, core: usize, at: Nanos) {
        if let Some(until) = self.sent.get_mut(node).and_then(|cores| cores.get_mut(core)) {
            *until = (*until).max(at);
        }
    }
}

impl Sim {
    /// Whether the memory of a node is that of the running core's socket.
    pub(crate) fn is_near(&self, node: usize) -> bool {
        node % self.profile.sockets() == self.profile.socket_of(self.current_core())
    }

    /// The running core reads so many bytes of a node.
    pub(crate) fn pm_read(&self, node: usize, bytes: u64) {
        let clock = self.inner().clock;
        match self.pm_serve(node, bytes, Toward::Core) {
            Some((core, served)) => self.advance(served.max(clock + core)),
            None => self.memory_of(node, bytes),
        }
    }

    /// The running core streams so many bytes to a node.
    pub(crate) fn pm_stream(&self, node: usize, bytes: u64) {
        match self.pm_serve(node, bytes, Toward::Memory) {
            Some((core, _)) => self.spend(core),
            None => self.memory_of(node, bytes),
        }
    }

    /// The running core writes back so many lines to a node.
    pub(crate) fn pm_write_back(&self, node: usize, lines: u64) {
        match self.profile.pm_order() {
            Some((line, _)) => {
                self.pm_serve_lines(node, lines);
                self.spend(line * lines);
            }
            None => self.memory_of(node, lines * LINE),
        }
    }

    /// The running core waits until all that it sent is there.
    pub(crate) fn pm_fence(&self) {
        let Some((_, fence)) = self.profile.pm_order() else { return };
        let inner = self.inner();
        let core = inner.core;
        let there = inner.pm.sent.iter().map(|node| node[core]).max().unwrap_or(0);
        self.advance(there.max(inner.clock + fence));
    }

    /// Puts a request into a node's queue. Returns the core's own time for it, and when it will
    /// have been served. `None` if persistent memory has no costs of its own.
    fn pm_serve(&self, node: usize, bytes: u64, toward: Toward) -> Option<(Nanos, Nanos)> {
        let inner = self.inner();
        let (core, clock) = (inner.core, inner.clock);
        // A machine with fewer sockets goes on with the memory of another.
        let node = node % self.profile.sockets();
        let is_remote = node != self.profile.socket_of(core);
        let writers = || inner.pm.writers(node, core, clock);
        let time = self.profile.pm_time(bytes, toward, is_remote, writers)?;
        let free = inner.pm.free.get_mut(node)?;
        *free = (*free).max(clock) + time.node;
        let served = *free;
        if toward == Toward::Memory {
            // It is not there before the core has sent it.
            inner.pm.sent(node, core, served.max(clock + time.core));
        }
        Some((time.core, served))
    }

    /// Sends lines to a node, which takes them between those of other cores.
    fn pm_serve_lines(&self, node: usize, lines: u64) -> Option<()> {
        let inner = self.inner();
        let (core, clock) = (inner.core, inner.clock);
        let node = node % self.profile.sockets();
        let is_remote = node != self.profile.socket_of(core);
        let writers = inner.pm.writers(node, core, clock);
        let bytes = lines * LINE;
        let time = self.profile.pm_time(bytes, Toward::Memory, is_remote, || writers)?;
        let free = inner.pm.free.get_mut(node)?;
        *free = (*free).max(clock) + time.node;
        inner.pm.sent(node, core, clock + time.node * writers);
        Some(())
    }
}
