//! A machine's run from its first thread to its end, and how the remaining threads are ended.
//!
//! A machine ends when its first thread does, as a process ends when `main` returns. Threads that
//! still run are unwound where they are, by a panic that is not shown, so that what they own is
//! dropped. While they unwind they may still wait for one another. A thread that does not end even
//! then keeps its stack for good and never runs again.

use std::mem;
use std::sync::atomic::Ordering;

use super::thread::{self, Cancel, State};
use super::{CURRENT, Preempted, RUNNING, Sim, WaitsFor, Wake, guarded};
use crate::{BlockedThread, DeadlockReport, MachineError, Profile};

/// How many switches the end of a machine may take before it gives up the remaining threads.
const LAST_SWITCHES: u64 = 10_000_000;

/// Name of the first thread.
const FIRST: &str = "main";

/// Makes a machine, the real one if null, the current one as long as this lives.
struct Entered {
    outer: *const Sim,
}

impl Entered {
    fn new(machine: *const Sim) -> Entered {
        RUNNING.fetch_add(usize::from(!machine.is_null()), Ordering::Relaxed);
        Entered { outer: CURRENT.replace(machine) }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let machine = CURRENT.replace(self.outer);
        RUNNING.fetch_sub(usize::from(!machine.is_null()), Ordering::Relaxed);
    }
}

/// Runs `f` as real code even if the caller is on a virtual machine.
pub(crate) fn run_real<T>(f: impl FnOnce() -> T) -> T {
    let _entered = Entered::new(std::ptr::null());
    f()
}

/// Runs `f` as the first thread of a new machine.
pub(crate) fn run<T>(
    profile: &Profile,
    seed: u64,
    preempted: Preempted,
    f: impl FnOnce() -> T,
) -> Result<T, MachineError> {
    let sim = Sim::new(profile, seed, preempted);
    let mut outcome = None;
    let slot = &raw mut outcome;
    // SAFETY: `slot` outlives the thread, and nothing else uses it until the thread has ended.
    let first = move || unsafe { *slot = Some(guarded(f)) };
    let entered = Entered::new(&raw const sim);
    // SAFETY: `finish` does not return before the first thread has ended.
    unsafe { sim.spawn_borrowing(FIRST, 0, first) }
        .map_err(|source| MachineError::Stack { thread: FIRST.to_owned(), source })?;
    let deadlock = sim.run_until(u64::MAX, Sim::first_ended).then(|| sim.report());
    sim.finish(deadlock.as_ref());
    drop(entered);
    match (deadlock, outcome) {
        (Some(report), _) => Err(MachineError::Deadlock(report)),
        (None, Some(Ok(value))) => Ok(value),
        (None, Some(Err(panic))) => std::panic::resume_unwind(panic),
        (None, None) => unreachable!("the first thread ended without an outcome"),
    }
}

impl Sim {
    /// Runs threads until `done`. True if that did not happen: none can go on, or `switches` are
    /// used up.
    fn run_until(&self, switches: u64, done: impl Fn(&Sim) -> bool) -> bool {
        for _ in 0..switches {
            if done(self) {
                return false;
            }
            match self.pick() {
                Some(thread) => self.resume(thread),
                None => return true,
            }
        }
        true
    }

    fn first_ended(&self) -> bool {
        self.inner().first_ended
    }

    fn all_ended(&self) -> bool {
        let inner = self.inner();
        inner.free.len() == inner.threads.len()
    }

    fn resume(&self, thread: u32) {
        let inner = self.inner();
        inner.switches += 1;
        let Some(body) = inner.threads[thread as usize].body.as_mut() else { return };
        let body: *mut thread::Body = body;
        // SAFETY: the thread's box keeps its place while threads come and go, and only `remove`,
        // after the coroutine's end, takes the body out of it.
        let result = unsafe { (*body).resume(()) };
        if result.as_return().is_some() {
            self.remove(thread);
        }
    }

    /// Takes an ended thread out of the machine.
    fn remove(&self, index: u32) {
        let inner = self.inner();
        inner.leave_core();
        let thread = &mut inner.threads[index as usize];
        thread.state = State::Free;
        thread.held.clear();
        inner.first_ended |= thread.serial == 1;
        if let Some(body) = thread.body.take() {
            thread::return_stack(body.into_stack());
        }
        inner.free.push(index);
    }

    /// Every blocked thread, what it waits for, and who holds that.
    fn report(&self) -> DeadlockReport {
        let inner = self.inner();
        let threads = inner.threads.iter().map(AsRef::as_ref);
        let mut blocked: Vec<&thread::Thread> =
            threads.filter(|thread| thread.state == State::Blocked).collect();
        blocked.sort_by_key(|thread| thread.serial);
        let holders = |id: usize| {
            let mut holders: Vec<_> = inner
                .threads
                .iter()
                .filter(|thread| thread.state != State::Free && thread.held.contains(&id))
                .collect();
            holders.sort_by_key(|thread| thread.serial);
            holders.iter().map(|thread| thread.name.to_string()).collect()
        };
        let describe = |thread: &&thread::Thread| BlockedThread {
            thread: thread.name.to_string(),
            core: thread.core,
            waits_for: thread.waits_for.as_ref().map_or_else(String::new, WaitsFor::describe),
            held_by: match thread.waits_for {
                Some(WaitsFor::Lock { id, .. }) => holders(id),
                _ => Vec::new(),
            },
        };
        DeadlockReport { at: inner.clock, blocked: blocked.iter().map(describe).collect() }
    }

    /// Ends every thread. After a deadlock the first thread goes first, because it unwinds what
    /// serves the others.
    fn finish(&self, deadlock: Option<&DeadlockReport>) {
        if deadlock.is_some() {
            self.cancel(|serial| serial == 1);
            self.run_until(LAST_SWITCHES, Sim::first_ended);
        }
        if self.all_ended() {
            return;
        }
        self.cancel(|_| true);
        self.run_until(LAST_SWITCHES, Sim::all_ended);
        if let (Some(report), false) = (deadlock, self.first_ended()) {
            // Its stack may be borrowed from the caller's, so there is no way on.
            eprintln!("{report}; the first thread waits even while it unwinds");
            std::process::abort();
        }
        for thread in &mut self.inner().threads {
            mem::forget(thread.body.take());
        }
    }

    /// Asks threads to unwind, in the order in which they were spawned.
    fn cancel(&self, which: impl Fn(u64) -> bool) {
        let inner = self.inner();
        let live = |&index: &u32| {
            let thread = &inner.threads[index as usize];
            thread.state != State::Free && thread.cancel == Cancel::No && which(thread.serial)
        };
        let mut chosen: Vec<u32> = (0..inner.threads.len() as u32).filter(live).collect();
        chosen.sort_by_key(|&index| inner.threads[index as usize].serial);
        for index in chosen {
            let thread = &mut inner.threads[index as usize];
            thread.cancel = Cancel::Wanted;
            if thread.state == State::Blocked && !thread.unwinding && thread.woken.is_none() {
                thread.woken = Some((Wake::Cancelled, inner.clock));
                inner.make_ready(index, inner.clock);
            }
        }
    }
}
