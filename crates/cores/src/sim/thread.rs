//! One virtual thread: its coroutine, what it waits for, and the pool its stack comes from.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use corosensei::stack::{DefaultStack, Stack, StackPointer};
use corosensei::{Coroutine, Yielder};

use crate::Nanos;

pub(super) type Body = Coroutine<(), (), (), Coloured>;

/// Address space per stack; pages are only taken once touched.
const STACK_BYTES: usize = 1 << 20;

/// More idle stacks than this go back to the operating system.
const POOL_STACKS: usize = 256;

/// Neighbouring stacks begin this much further into a page, so that the live ends of many do not
/// compete for the same sets of the cache. An odd number of cache lines reaches every set.
const COLOUR_BYTES: usize = 5 * 64;
const PAGE_BYTES: usize = 4096;

/// A stack that begins a little below its memory's end.
pub(super) struct Coloured {
    memory: DefaultStack,
    colour: usize,
}

// SAFETY: the memory is a stack by itself, and `colour` is less than a page of its many and a
// multiple of 64, so a part of it aligned as well remains.
unsafe impl Stack for Coloured {
    fn base(&self) -> StackPointer {
        let base = self.memory.base().get() - self.colour;
        StackPointer::new(base).unwrap_or(self.memory.base())
    }

    fn limit(&self) -> StackPointer {
        self.memory.limit()
    }
}

/// The idle stacks of an OS thread, and how many it has made.
struct Pool {
    idle: Vec<Coloured>,
    made: usize,
}

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { idle: Vec::new(), made: 0 }) };
}

/// A stack from this OS thread's pool, or a new one.
pub(super) fn take_stack() -> io::Result<Coloured> {
    POOL.with_borrow_mut(|pool| {
        if let Some(stack) = pool.idle.pop() {
            return Ok(stack);
        }
        pool.made += 1;
        let colour = pool.made * COLOUR_BYTES % PAGE_BYTES;
        Ok(Coloured { memory: DefaultStack::new(STACK_BYTES)?, colour })
    })
}

pub(super) fn return_stack(stack: Coloured) {
    POOL.with_borrow_mut(|pool| {
        if pool.idle.len() < POOL_STACKS {
            pool.idle.push(stack);
        }
    });
}

/// What a blocked thread waits for, for the deadlock report.
#[derive(Clone, Debug)]
pub(crate) enum WaitsFor {
    Lock { kind: &'static str, name: Option<&'static str>, holds: &'static str, id: usize },
    Condition,
    Permits(usize),
    Thread(Arc<str>),
    Time(Nanos),
}

impl WaitsFor {
    pub(super) fn describe(&self) -> String {
        match self {
            WaitsFor::Lock { kind, name: Some(name), .. } => format!("{kind} {name:?}"),
            WaitsFor::Lock { kind, name: None, holds, .. } => format!("{kind} of {holds}"),
            WaitsFor::Condition => "a condition".to_owned(),
            WaitsFor::Permits(permits) => format!("{permits} semaphore permits"),
            WaitsFor::Thread(name) => format!("the end of thread {name:?}"),
            WaitsFor::Time(deadline) => format!("{deadline} ns"),
        }
    }
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// What was waited for has come.
    Notified,
    /// The deadline came first.
    TimedOut,
    /// The machine comes to its end; the thread must unwind.
    Cancelled,
}

/// One wait of one thread; waking it once the wait is over does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(super) machine: u64,
    pub(super) thread: u32,
    pub(super) turn: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No thread is in this slot.
    Free,
    /// On its core: running, set aside by its clock, or in the queue.
    Runnable,
    /// Waits to be woken.
    Blocked,
}

pub(super) struct Thread {
    pub(super) name: Arc<str>,
    pub(super) core: usize,
    /// Orders threads by birth, as slots are used again.
    pub(super) serial: u64,
    pub(super) state: State,
    /// Boxed so that it stays in place when threads are added while it runs.
    pub(super) body: Option<Box<Body>>,
    pub(super) yielder: *const Yielder<(), ()>,
    /// Counts the waits of this slot; a [`Waiter`] of an earlier turn is void.
    pub(super) turn: u32,
    /// How and when the current turn was ended, if it was.
    pub(super) woken: Option<(Wake, Nanos)>,
    pub(super) waits_for: Option<WaitsFor>,
    /// The locks it holds, by identity.
    pub(super) held: Vec<usize>,
    pub(super) cancel: Cancel,
    /// Its own stack is unwinding. [`std::thread::panicking`] tells only of the OS thread.
    pub(super) unwinding: bool,
    /// Some other thread was unwinding when this one last got the processor.
    pub(super) beside_unwinding: bool,
}

/// How far the ending of a thread with its machine has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cancel {
    No,
    /// To be unwound as soon as it runs.
    Wanted,
    /// The unwinding has begun.
    Raised,
}

impl Thread {
    pub(super) fn empty() -> Thread {
        Thread {
            name: "".into(),
            core: 0,
            serial: 0,
            state: State::Free,
            body: None,
            yielder: std::ptr::null(),
            turn: 0,
            woken: None,
            waits_for: None,
            held: Vec::new(),
            cancel: Cancel::No,
            unwinding: false,
            beside_unwinding: false,
        }
    }
}

/// The panic payload that unwinds a thread whose machine comes to its end.
#[derive(Debug)]
pub(crate) struct MachineEnded;
