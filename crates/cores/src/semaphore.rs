//! Counted permits on either machine.

use parking_lot::{Condvar, Mutex};

/// A number of permits that threads take and give back; waiters are served in order.
pub struct Semaphore {
    free: Mutex<usize>,
    returned: Condvar,
}

impl Semaphore {
    /// A semaphore with that many free permits.
    pub const fn new(permits: usize) -> Self {
        Semaphore { free: Mutex::new(permits), returned: Condvar::new() }
    }

    /// Waits until `permits` are free at once, and takes them.
    pub fn acquire(&self, permits: usize) {
        let mut free = self.free.lock();
        while *free < permits {
            self.returned.wait(&mut free);
        }
        *free -= permits;
    }

    /// Takes `permits` if they are free now.
    pub fn try_acquire(&self, permits: usize) -> bool {
        let mut free = self.free.lock();
        let enough = *free >= permits;
        if enough {
            *free -= permits;
        }
        enough
    }

    /// Gives `permits` back.
    pub fn release(&self, permits: usize) {
        *self.free.lock() += permits;
        self.returned.notify_all();
    }

    /// How many permits are free now.
    pub fn available(&self) -> usize {
        *self.free.lock()
    }
}
