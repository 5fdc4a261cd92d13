//! One virtual thread: its coroutine, what it waits for, and the pool from which stacks come.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};

#[cfg(debug_assertions)]
use crate::rank::HeldLock;
use crate::{Caller, Nanos};

pub(super) type Body = Coroutine<(), (), ()>;

/// Address space of a stack. Pages are used only once they are touched.
const STACK_BYTES: usize = 1 << 20;

/// If more stacks than this are idle, they go back to the operating system.
const POOL_STACKS: usize = 256;

thread_local! {
    static POOL: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// A stack from this OS thread's pool, or a new one.
pub(super) fn take_stack() -> io::Result<DefaultStack> {
    match POOL.with_borrow_mut(Vec::pop) {
        Some(stack) => Ok(stack),
        None => DefaultStack::new(STACK_BYTES),
    }
}

pub(super) fn return_stack(stack: DefaultStack) {
    POOL.with_borrow_mut(|pool| {
        if pool.len() < POOL_STACKS {
            pool.push(stack);
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
    /// It was notified.
    Notified,
    /// The lock waited for is free, or was; the thread has to try again.
    Roused,
    /// The deadline came first.
    TimedOut,
    /// The machine is ending; the thread must unwind.
    Cancelled,
}

/// One wait of one thread. Waking it once the wait is over does nothing.
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
    /// It has a core: running, set aside because of its clock, or in the queue.
    Runnable,
    /// Waits to be woken.
    Blocked,
}

/// One thread. With hundreds of them, every switch reads cold memory, so what a switch needs comes
/// first, in two cache lines.
#[repr(C, align(64))]
pub(super) struct Thread {
    pub(super) body: Option<Body>,
    pub(super) yielder: *const Yielder<(), ()>,
    /// How and when the current wait was ended, if it was.
    pub(super) woken: Option<(Wake, Nanos)>,
    pub(super) core: usize,
    /// When it came back to its core last, after it had slept or lost it.
    pub(super) slept_until: Nanos,
    /// Counts the waits of this slot. A [`Waiter`] of an earlier one is void.
    pub(super) turn: u32,
    pub(super) state: State,
    pub(super) cancel: Cancel,
    /// Its own stack is unwinding. [`std::thread::panicking`] only knows the OS thread.
    pub(super) unwinding: bool,
    /// Some other thread was unwinding when this one last got the processor.
    pub(super) beside_unwinding: bool,
    /// The locks it holds, by identity.
    pub(super) held: Vec<usize>,
    /// Those of them that have a rank.
    #[cfg(debug_assertions)]
    pub(super) ranked: Vec<HeldLock>,
    pub(super) waits_for: Option<WaitsFor>,
    /// For whom it works.
    pub(super) caller: Option<Caller>,
    pub(super) name: Arc<str>,
    /// Orders threads by age, because slots are used again.
    pub(super) serial: u64,
}

/// How far a thread has ended along with its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cancel {
    No,
    /// It unwinds as soon as it runs.
    Wanted,
    /// The unwinding has begun.
    Raised,
}

impl Thread {
    pub(super) fn empty() -> Thread {
        Thread {
            name: "".into(),
            core: 0,
            slept_until: 0,
            serial: 0,
            state: State::Free,
            body: None,
            yielder: std::ptr::null(),
            turn: 0,
            woken: None,
            waits_for: None,
            held: Vec::new(),
            #[cfg(debug_assertions)]
            ranked: Vec::new(),
            caller: None,
            cancel: Cancel::No,
            unwinding: false,
            beside_unwinding: false,
        }
    }
}

/// The panic payload that unwinds a thread when its machine ends.
#[derive(Debug)]
pub(crate) struct MachineEnded;
