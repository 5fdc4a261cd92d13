//! Waiting for a condition on either machine.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::sim::{self, Sim, Waiter, WaitsFor, Wake};
use crate::{MutexGuard, Nanos, now};

/// A queue of threads that wait for a condition guarded by a [`Mutex`](crate::Mutex).
#[derive(Default)]
pub struct Condvar {
    inner: parking_lot::Condvar,
    /// Notifications so far, for threads that poll.
    notified: AtomicU64,
    /// Who waits, and whether waking costs nothing because an instrument's mutex is waited with.
    queue: Mutex<VecDeque<(Waiter, bool)>>,
}

impl Condvar {
    /// A condition without waiters.
    pub const fn new() -> Self {
        Condvar {
            inner: parking_lot::Condvar::new(),
            notified: AtomicU64::new(0),
            queue: Mutex::new(VecDeque::new()),
        }
    }

    /// Lets go of the mutex, waits for a notification and takes the mutex again.
    ///
    /// As everywhere, the caller must check the condition again, because others may have been
    /// first.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.held.check_wait();
        match (sim::current(), &mut guard.inner) {
            (Some(sim), _) => {
                self.wait_virtually(sim, guard, None);
            }
            (None, Some(inner)) => {
                guard.hold.end_watch();
                self.inner.wait(inner);
                guard.hold.watch(|| guard.mutex.waits_for());
            }
            (None, None) => unreachable!("a waiting guard is borrowed"),
        }
    }

    /// As [`Condvar::wait`], but at most until `deadline`. True if the deadline came first.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn wait_until<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, deadline: Nanos) -> bool {
        guard.held.check_wait();
        match (sim::current(), &mut guard.inner) {
            (Some(sim), _) => self.wait_virtually(sim, guard, Some(deadline)) == Wake::TimedOut,
            (None, Some(inner)) => {
                let left = Duration::from_nanos(deadline.saturating_sub(now()));
                guard.hold.end_watch();
                let timed_out = self.inner.wait_for(inner, left).timed_out();
                guard.hold.watch(|| guard.mutex.waits_for());
                timed_out
            }
            (None, None) => unreachable!("a waiting guard is borrowed"),
        }
    }

    /// Lets go of the mutex and polls for a notification until `end`, without sleeping. Whether
    /// there was one. On a virtual machine there is nothing to gain, and it returns at once.
    ///
    /// Waking a thread takes longer than some waits; but one that polls takes a core from others.
    /// The caller must check its condition again before it sleeps: a notifier that has changed it
    /// may have let go of the mutex, and not have notified yet.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn poll<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, end: Nanos) -> bool {
        guard.held.check_wait();
        if sim::current().is_some() {
            return false;
        }
        let Some(inner) = &mut guard.inner else { unreachable!("a waiting guard is borrowed") };
        let seen = self.notified.load(Ordering::SeqCst);
        let is_notified = || self.notified.load(Ordering::SeqCst) != seen;
        guard.hold.end_watch();
        parking_lot::MutexGuard::unlocked(inner, || {
            while !is_notified() && now() < end {
                std::hint::spin_loop();
            }
        });
        guard.hold.watch(|| guard.mutex.waits_for());
        is_notified()
    }

    /// Wakes the thread that has waited longest.
    pub fn notify_one(&self) {
        self.notify(1);
        self.notified.fetch_add(1, Ordering::SeqCst);
        self.inner.notify_one();
    }

    /// Wakes every thread that waits.
    pub fn notify_all(&self) {
        self.notify(usize::MAX);
        self.notified.fetch_add(1, Ordering::SeqCst);
        self.inner.notify_all();
    }

    /// The waiter joins the queue before the mutex is free, so no notification can be missed.
    #[cfg_attr(debug_assertions, track_caller)]
    fn wait_virtually<T: ?Sized>(
        &self,
        sim: &Sim,
        guard: &mut MutexGuard<'_, T>,
        deadline: Option<Nanos>,
    ) -> Wake {
        let waiter = sim.prepare_wait();
        self.queue.lock().push_back((waiter, guard.mutex.is_instrument()));
        if let Some(deadline) = deadline {
            sim.wake_at(waiter, deadline);
        }
        guard.unlock();
        let wake = sim.wait(waiter, WaitsFor::Condition);
        if wake != Wake::Notified {
            self.queue.lock().retain(|&(other, _)| other != waiter);
        }
        if wake == Wake::Cancelled {
            sim.end_thread();
        }
        guard.lock_again();
        wake
    }

    fn notify(&self, most: usize) {
        let Some(sim) = sim::current() else { return };
        let (mut woken, mut at) = (0, sim.now());
        let mut queue = self.queue.lock();
        while woken < most {
            let Some((waiter, is_free)) = queue.pop_front() else { break };
            let (call, wake) = match is_free {
                true => (0, 0),
                false => (sim.profile.wake_call(), sim.profile.wake()),
            };
            if sim.wake(waiter, at + call + wake) {
                at += call;
                woken += 1;
            }
        }
        drop(queue);
        sim.advance(at);
    }
}
