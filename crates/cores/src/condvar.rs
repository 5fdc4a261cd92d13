//! Waiting for a condition on either machine.

use std::time::Duration;

use crate::{MutexGuard, Nanos, now};

/// A queue of threads that wait for a condition guarded by a [`Mutex`](crate::Mutex).
#[derive(Default)]
pub struct Condvar {
    inner: parking_lot::Condvar,
}

impl Condvar {
    /// A condition nobody waits for.
    pub const fn new() -> Self {
        Condvar { inner: parking_lot::Condvar::new() }
    }

    /// Lets go of the mutex, waits for a notification and takes the mutex again.
    ///
    /// As everywhere, the condition must be looked at again: others may have been first.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.inner.wait(&mut guard.inner);
    }

    /// As [`Condvar::wait`], but at most until `deadline`. True if the deadline came first.
    pub fn wait_until<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, deadline: Nanos) -> bool {
        let left = Duration::from_nanos(deadline.saturating_sub(now()));
        self.inner.wait_for(&mut guard.inner, left).timed_out()
    }

    /// Wakes the thread that has waited longest.
    pub fn notify_one(&self) {
        self.inner.notify_one();
    }

    /// Wakes every thread that waits.
    pub fn notify_all(&self) {
        self.inner.notify_all();
    }
}
