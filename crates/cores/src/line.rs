//! One contended cache line, holding a number.

use std::sync::atomic::{AtomicU64, Ordering};

/// A `u64` that threads of several cores change at once, on a cache line of its own.
///
/// All operations are sequentially consistent.
#[repr(align(64))]
#[derive(Default)]
pub struct Line {
    value: AtomicU64,
}

impl Line {
    /// A line holding `value`.
    pub const fn new(value: u64) -> Self {
        Line { value: AtomicU64::new(value) }
    }

    /// The value.
    pub fn load(&self) -> u64 {
        self.value.load(Ordering::SeqCst)
    }

    /// Replaces the value.
    pub fn store(&self, value: u64) {
        self.value.store(value, Ordering::SeqCst);
    }

    /// Adds, wrapping around, and returns the value before.
    pub fn fetch_add(&self, add: u64) -> u64 {
        self.value.fetch_add(add, Ordering::SeqCst)
    }

    /// Replaces `current` by `new`. `Ok(current)` if it was there, else `Err` of what was.
    pub fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.value.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst)
    }
}
