//! The virtual machine: coroutines on one OS thread, cores with clocks of their own.
//!
//! The invariant: *a thread runs only while its core's clock is the lowest of all runnable cores
//! and of all timers*. So everything happens in the order of virtual time, and a running thread may
//! always read shared state. Charging CPU time moves the clock of the running core. Once that is no
//! longer the lowest, the core with the lowest clock takes over.
//!
//! Memory safety: a [`Sim`] and its coroutines never leave the OS thread that runs it, and a
//! reference into [`Core`]s, threads or timers never lives across a switch or a call to foreign
//! code. Locks rest on `parking_lot` for exclusion (see `lock`), not on this scheduler.

use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

#[cfg(debug_assertions)]
use crate::rank::HeldLock;
use crate::trace::Recorder;
use crate::{Caller, Nanos, Profile};

mod core;
mod end;
pub(crate) mod line;
pub(crate) mod lock;
mod memory;
mod pm;
mod preempt;
mod schedule;
mod thread;
mod tree;

use self::core::Core;
pub(crate) use end::{run, run_real};
use memory::Memory;
use pm::PmNodes;
use preempt::Preempt;
pub(crate) use preempt::Preempted;
use thread::{Body, Cancel, Thread};
pub(crate) use thread::{MachineEnded, Waiter, WaitsFor, Wake};
use tree::Tree;

thread_local! {
    static CURRENT: Cell<*const Sim> = const { Cell::new(std::ptr::null()) };
}

/// How many virtual machines run in this process.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// The virtual machine on which the caller runs, if it is on one.
///
/// Everything asks this, so where no machine runs the answer is one load and one branch. A
/// thread's own variable is more: code that may be linked into a library calls a function for its
/// address, and around a call in a hot path the compiler keeps nothing in most registers. A thread
/// on a machine sees its own count, because it is the one that raised it.
#[inline]
pub(crate) fn current<'a>() -> Option<&'a Sim> {
    if is_any() { of_this_thread() } else { None }
}

/// Whether a virtual machine runs in this process. What is done for one is best in a function of
/// its own that is not inlined: then the path without one saves no registers for it.
#[inline]
pub(crate) fn is_any() -> bool {
    RUNNING.load(Ordering::Relaxed) != 0
}

#[cold]
#[inline(never)]
fn of_this_thread<'a>() -> Option<&'a Sim> {
    // SAFETY: the pointer is set for as long as `run` has the machine on its stack, on this OS
    // thread only, and callers keep the reference no longer than one call from a machine's thread.
    unsafe { CURRENT.get().as_ref() }
}

/// No thread.
const NONE: u32 = u32::MAX;

/// The part that changes while a machine runs.
struct Inner {
    /// When each core is due. The running one keeps the key by which it was picked.
    tree: Tree,
    cores: Vec<Core>,
    /// Boxed so that each stays in place when others are added while it runs.
    #[expect(clippy::vec_box, reason = "a running thread's body must not move")]
    threads: Vec<Box<Thread>>,
    free: Vec<u32>,
    born: u64,
    /// The running thread, its core and that core's clock.
    running: u32,
    core: usize,
    clock: Nanos,
    /// Below this clock, the running core is certainly the lowest.
    horizon: Nanos,
    first_ended: bool,
    next_core: usize,
    memory: Memory,
    pm: PmNodes,
    switches: u64,
    ties: Xoshiro256PlusPlus,
    preempt: Option<Preempt>,
}

/// A running virtual machine.
pub(crate) struct Sim {
    /// Tells machines apart, in locks that outlive one.
    pub(super) id: u64,
    pub(crate) profile: Profile,
    pub(crate) recorder: Recorder,
    inner: UnsafeCell<Inner>,
}

impl Sim {
    fn new(profile: &Profile, seed: u64, preempted: Preempted) -> Sim {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let inner = Inner {
            tree: Tree::new(),
            cores: std::iter::repeat_with(Core::new).take(profile.cores()).collect(),
            threads: Vec::new(),
            free: Vec::new(),
            born: 0,
            running: NONE,
            core: 0,
            clock: 0,
            horizon: 0,
            first_ended: false,
            next_core: 0,
            memory: Memory::new(profile),
            pm: PmNodes::new(profile),
            switches: 0,
            ties: Xoshiro256PlusPlus::seed_from_u64(seed),
            preempt: Preempt::new(preempted, seed),
        };
        Sim {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            profile: profile.clone(),
            recorder: Recorder::new(),
            inner: UnsafeCell::new(inner),
        }
    }

    /// The state. The module's documentation says what callers promise.
    #[expect(clippy::mut_from_ref, reason = "one OS thread, no reference across a switch")]
    fn inner(&self) -> &mut Inner {
        // SAFETY: `Sim` is not `Sync` and only its own OS thread gets at it; every caller in this
        // module is done with the reference before it switches or calls code from outside.
        unsafe { &mut *self.inner.get() }
    }

    pub(crate) fn now(&self) -> Nanos {
        self.inner().clock
    }

    pub(crate) fn current_core(&self) -> usize {
        self.inner().core
    }

    pub(crate) fn core_count(&self) -> usize {
        self.profile.cores()
    }

    /// Moves the running core's clock forward by `time`.
    #[inline]
    pub(crate) fn spend(&self, time: Nanos) {
        self.advance(self.inner().clock.saturating_add(time));
    }

    /// Moves the running core's clock forward to `clock`, and hands over if it is no longer the
    /// lowest.
    #[inline]
    pub(crate) fn advance(&self, clock: Nanos) {
        let inner = self.inner();
        inner.clock = inner.clock.max(clock);
        if inner.clock >= inner.horizon {
            self.give_way();
        }
    }

    /// Goes to the end of the core's queue. Costs as much as a cached atomic, so that time passes
    /// for a thread that spins.
    pub(crate) fn yield_now(&self) {
        let inner = self.inner();
        inner.clock += self.profile.transfer(Some(inner.core), inner.core).max(1);
        if inner.cores[inner.core].ready.is_empty() {
            return self.advance(self.inner().clock);
        }
        let (running, clock) = (inner.running, inner.clock);
        inner.cores[inner.core].ready.push_back((running, clock));
        inner.leave_core();
        self.switch();
        self.check_end();
    }

    pub(crate) fn sleep_until(&self, deadline: Nanos) {
        let inner = self.inner();
        let alone = inner.cores[inner.core].ready.is_empty() && deadline < inner.horizon;
        if deadline <= inner.clock || alone {
            self.advance(deadline);
            return self.note_slept();
        }
        let waiter = self.prepare_wait();
        self.wake_at(waiter, deadline);
        if self.wait(waiter, WaitsFor::Time(deadline)) == Wake::Cancelled {
            self.end_thread();
        }
    }

    /// Starts a thread on `core`, or on the next one in turn.
    pub(crate) fn spawn(
        &self,
        name: &str,
        core: Option<usize>,
        f: impl FnOnce() + 'static,
    ) -> std::io::Result<()> {
        let inner = self.inner();
        let cores = inner.cores.len();
        let core = core.map_or_else(
            || {
                inner.next_core = (inner.next_core + 1) % cores;
                inner.next_core
            },
            |core| core % cores,
        );
        // SAFETY: `f` borrows nothing.
        unsafe { self.spawn_borrowing(name, core, f) }
    }

    /// # Safety
    ///
    /// What `f` borrows must live until the thread has ended; a thread that cannot end keeps its
    /// stack for good but never runs again.
    unsafe fn spawn_borrowing(
        &self,
        name: &str,
        core: usize,
        f: impl FnOnce(),
    ) -> std::io::Result<()> {
        let stack = thread::take_stack()?;
        let sim: *const Sim = self;
        let body = move |yielder: &corosensei::Yielder<(), ()>, ()| {
            // SAFETY: the machine outlives its coroutines and stays where it is.
            let sim = unsafe { &*sim };
            sim.enter(yielder);
            f();
        };
        // SAFETY: the caller vouches for what `f` borrows.
        let body = unsafe { Body::with_stack_unchecked(stack, body) };
        let inner = self.inner();
        let thread = inner.add_thread(name, core, body);
        inner.make_ready(thread, inner.clock);
        Ok(())
    }

    fn enter(&self, yielder: &corosensei::Yielder<(), ()>) {
        let inner = self.inner();
        let thread = &mut inner.threads[inner.running as usize];
        thread.yielder = yielder;
        thread.beside_unwinding = std::thread::panicking();
    }

    /// How often the processor went to a coroutine so far.
    pub(crate) fn switches(&self) -> u64 {
        self.inner().switches
    }

    /// Unwinds the running thread if its machine is ending and the thread can be unwound now.
    pub(crate) fn check_end(&self) {
        let inner = self.inner();
        let thread = &inner.threads[inner.running as usize];
        if thread.cancel == Cancel::Wanted && !thread.is_unwinding() {
            self.end_thread();
        }
    }

    /// Unwinds the running thread because its machine is ending.
    pub(crate) fn end_thread(&self) -> ! {
        let inner = self.inner();
        let thread = &mut inner.threads[inner.running as usize];
        thread.cancel = Cancel::Raised;
        thread.turn = thread.turn.wrapping_add(1);
        resume_unwind(Box::new(MachineEnded))
    }

    /// Notes that the running thread holds the lock `id`.
    pub(crate) fn note_held(&self, id: usize) {
        let inner = self.inner();
        inner.threads[inner.running as usize].held.push(id);
    }

    /// Notes that the running thread let go of the lock `id`.
    pub(crate) fn note_released(&self, id: usize) {
        let inner = self.inner();
        let held = &mut inner.threads[inner.running as usize].held;
        if let Some(at) = held.iter().rposition(|&other| other == id) {
            held.swap_remove(at);
        }
    }
}

impl Sim {
    /// For whom the running thread works.
    pub(crate) fn caller(&self) -> Option<Caller> {
        let inner = self.inner();
        inner.threads[inner.running as usize].caller
    }

    /// Sets that, and returns for whom it did.
    pub(crate) fn set_caller(&self, caller: Option<Caller>) -> Option<Caller> {
        let inner = self.inner();
        std::mem::replace(&mut inner.threads[inner.running as usize].caller, caller)
    }
}

#[cfg(debug_assertions)]
impl Sim {
    /// The locks with ranks that the running thread holds. `see` must not switch.
    pub(crate) fn with_ranked<R>(&self, see: impl FnOnce(&mut Vec<HeldLock>) -> R) -> R {
        let inner = self.inner();
        see(&mut inner.threads[inner.running as usize].ranked)
    }
}

/// Runs `f` and keeps its panic, if any, as a value.
pub(crate) fn guarded<T>(f: impl FnOnce() -> T) -> std::thread::Result<T> {
    catch_unwind(AssertUnwindSafe(f))
}

/// A thread's name, cheap to keep in several places.
pub(crate) type Name = Arc<str>;
