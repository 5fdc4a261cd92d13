//! A memory whose use costs virtual time: what moves between a core and the medium takes its share
//! of the bandwidth of the node that it lies on, and a remote core's way there is slower.
//!
//! Without a model of a medium, persistent memory is the node's DRAM, as in pNOVA's testbed
//! (MASCOTS 2020). What a core's cache answers costs nothing here.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{LINE, Pm, PmInfo};

/// A memory that charges the virtual machine for its use.
pub struct PmCharged {
    below: Arc<dyn Pm>,
    /// Bytes moved to or from the caller's own node, and others.
    local: AtomicU64,
    remote: AtomicU64,
}

impl PmCharged {
    /// `below`, with costs. Nothing costs anything on the real machine.
    pub fn new(below: Arc<dyn Pm>) -> Arc<Self> {
        Arc::new(Self { below, local: AtomicU64::new(0), remote: AtomicU64::new(0) })
    }

    /// Bytes moved between cores and their own node, and between cores and other nodes. The cores
    /// are divided evenly among the nodes.
    pub fn moved(&self) -> (u64, u64) {
        (self.local.load(Ordering::Relaxed), self.remote.load(Ordering::Relaxed))
    }

    fn charge(&self, at: u64, len: u64) {
        let nodes = &self.info().nodes;
        let index = nodes.partition_point(|node| node.range.end <= at);
        let node = nodes.get(index).map_or(0, |node| node.node as usize);
        let own = cores::current_core() * nodes.len() / cores::core_count().max(1);
        let count = if own == node { &self.local } else { &self.remote };
        count.fetch_add(len, Ordering::Relaxed);
        cores::memory_of(node, len);
    }
}

impl Pm for PmCharged {
    fn info(&self) -> &PmInfo {
        self.below.info()
    }

    fn read(&self, at: u64, to: &mut [u8]) {
        self.below.read(at, to);
        self.charge(at, to.len() as u64);
    }

    fn load(&self, at: u64) -> u64 {
        self.below.load(at)
    }

    fn store(&self, at: u64, from: &[u8]) {
        self.below.store(at, from);
    }

    fn store_word(&self, at: u64, word: u64) {
        self.below.store_word(at, word);
    }

    fn stream(&self, at: u64, from: &[u8]) {
        self.below.stream(at, from);
        self.charge(at, from.len() as u64);
    }

    fn write_back(&self, at: u64, len: u64) {
        self.below.write_back(at, len);
        let lines = (at + len).div_ceil(LINE) - at / LINE;
        self.charge(at, lines * LINE);
    }

    fn fence(&self) {
        self.below.fence();
    }

    fn sync(&self) -> io::Result<()> {
        self.below.sync()
    }
}
