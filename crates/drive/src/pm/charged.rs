//! A memory whose use costs virtual time: what moves between a core and the medium takes its share
//! of the bandwidth of the node that it lies on, and a remote core's way there is slower.
//!
//! The costs are the machine profile's (`[pm]`); without them, the node's DRAM stands for it. Only
//! this charges, so no file system can forget to. What a core's cache answers costs nothing.

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

    /// Bytes moved between cores and their own node, and between cores and other nodes.
    pub fn moved(&self) -> (u64, u64) {
        (self.local.load(Ordering::Relaxed), self.remote.load(Ordering::Relaxed))
    }

    /// The node of `at`. Counts `len` bytes moved between it and the caller.
    fn moves(&self, at: u64, len: u64) -> usize {
        let nodes = &self.info().nodes;
        let index = nodes.partition_point(|node| node.range.end <= at);
        let node = nodes.get(index).map_or(0, |node| node.node as usize);
        let count = if cores::is_near(node) { &self.local } else { &self.remote };
        count.fetch_add(len, Ordering::Relaxed);
        node
    }
}

impl Pm for PmCharged {
    fn info(&self) -> &PmInfo {
        self.below.info()
    }

    fn read(&self, at: u64, to: &mut [u8]) {
        self.below.read(at, to);
        let len = to.len() as u64;
        cores::pm_read(self.moves(at, len), len);
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
        let len = from.len() as u64;
        cores::pm_stream(self.moves(at, len), len);
    }

    fn write_back(&self, at: u64, len: u64) {
        self.below.write_back(at, len);
        let lines = (at + len).div_ceil(LINE) - at / LINE;
        cores::pm_write_back(self.moves(at, lines * LINE), lines);
    }

    fn fence(&self) {
        self.below.fence();
        cores::pm_fence();
    }

    fn sync(&self) -> io::Result<()> {
        self.below.sync()
    }
}
