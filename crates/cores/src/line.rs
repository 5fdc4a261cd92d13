//! One contended cache line, holding a number.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::Nanos;
use crate::sim::line::SharedLine;
use crate::sim::{self, Sim};

/// A `u64` that threads of several cores change at once, on a cache line of its own.
///
/// All operations are sequentially consistent. On a virtual machine each pays for the line's
/// transfer from the core that changed it last, one core at a time. A core that has read the line
/// since then has a copy, and reads it as cheaply as its own.
#[repr(align(64))]
pub struct Line {
    value: AtomicU64,
    sim: Mutex<SharedLine>,
}

/// What an operation costs on a virtual machine: when the line has arrived.
type Charge = fn(&mut SharedLine, &Sim) -> Nanos;

impl Line {
    /// A line holding `value`.
    pub const fn new(value: u64) -> Self {
        Line { value: AtomicU64::new(value), sim: Mutex::new(SharedLine::new()) }
    }

    /// The value.
    #[inline]
    pub fn load(&self) -> u64 {
        self.charged(SharedLine::read, |value| value.load(Ordering::SeqCst))
    }

    /// The value at no cost, for a caller that uses a line beside it at the same time.
    pub(crate) fn load_free(&self) -> u64 {
        self.value.load(Ordering::SeqCst)
    }

    /// Replaces the value.
    #[inline]
    pub fn store(&self, value: u64) {
        self.charged(SharedLine::change, |line| line.store(value, Ordering::SeqCst));
    }

    /// Adds, wrapping around, and returns the value before.
    #[inline]
    pub fn fetch_add(&self, add: u64) -> u64 {
        self.charged(SharedLine::change, |value| value.fetch_add(add, Ordering::SeqCst))
    }

    /// Sets bits, and returns the value before.
    pub fn fetch_or(&self, bits: u64) -> u64 {
        self.charged(SharedLine::change, |value| value.fetch_or(bits, Ordering::SeqCst))
    }

    /// Keeps only `bits`, and returns the value before.
    pub fn fetch_and(&self, bits: u64) -> u64 {
        self.charged(SharedLine::change, |value| value.fetch_and(bits, Ordering::SeqCst))
    }

    /// Replaces `current` by `new`. `Ok(current)` if it was there, otherwise `Err` with the value
    /// that was there.
    pub fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.charged(SharedLine::change, |value| {
            value.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst)
        })
    }

    /// Performs `operation` at once, so that operations take effect in the order of the requests.
    /// Then lets the caller's time pass until the line has arrived.
    #[inline]
    fn charged<R>(&self, charge: Charge, operation: impl FnOnce(&AtomicU64) -> R) -> R {
        let result = operation(&self.value);
        if sim::is_any() {
            self.charge(charge);
        }
        result
    }

    #[cold]
    #[inline(never)]
    fn charge(&self, charge: Charge) {
        if let Some(sim) = sim::current() {
            let end = charge(&mut self.sim.lock(), sim);
            sim.advance(end);
        }
    }
}

impl Default for Line {
    fn default() -> Self {
        Line::new(0)
    }
}
