//! Where pages of memory are on a virtual machine: on which socket, and in whose cache.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::sim;

/// Where one page of memory is. Only virtual machines keep it; on the real one nothing happens.
///
/// A page lies on the socket of the core that touches it first. A core that copies bytes of it has
/// it in its own cache afterwards, until other pages evict it or another core changes it; a cached
/// page costs no memory traffic. Otherwise the core waits for the memory of the page's socket,
/// whose bandwidth all cores share.
#[derive(Debug, Default)]
pub struct Residence(AtomicU64);

impl Residence {
    /// Of a page that was never touched.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Another page has taken this one's place.
    pub fn renew(&self) {
        if sim::current().is_some() {
            self.0.store(0, Relaxed);
        }
    }

    /// Charges the calling core for `bytes` copied from the page.
    #[inline]
    pub fn read(&self, bytes: usize) {
        self.moved(bytes, false);
    }

    /// Charges the calling core for `bytes` copied to the page.
    #[inline]
    pub fn write(&self, bytes: usize) {
        self.moved(bytes, true);
    }

    #[inline]
    fn moved(&self, bytes: usize, changed: bool) {
        if let Some(machine) = sim::current() {
            let at = machine.move_page(self.0.load(Relaxed), bytes as u64, changed);
            self.0.store(at, Relaxed);
        }
    }
}
