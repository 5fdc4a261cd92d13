//! Processors for which there is no assembly here: only [`Domain::Process`](super::super::Domain)
//! is offered, so order within the program is all that is needed.

use std::sync::atomic::{Ordering, compiler_fence};

/// How lines are written back: not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pm) struct Flush;

impl Flush {
    /// No way to write back a line.
    pub(in crate::pm) fn detect() -> Option<Self> {
        None
    }

    pub(in crate::pm) const fn name(self) -> &'static str {
        "none"
    }

    /// # Safety
    ///
    /// None is needed here.
    pub(in crate::pm) unsafe fn line(self, _at: *const u8) {}
}

/// # Safety
///
/// `from` must be readable for `len` bytes and `to` writable.
pub(in crate::pm) unsafe fn read(to: *mut u8, from: *const u8, len: usize) {
    for i in 0..len {
        // SAFETY: within both ranges, as the caller says.
        unsafe { to.add(i).write(from.add(i).read_volatile()) }
    }
}

/// # Safety
///
/// `at` must be readable and aligned.
pub(in crate::pm) unsafe fn load(at: *const u64) -> u64 {
    // SAFETY: as the caller says.
    unsafe { at.read_volatile() }
}

/// # Safety
///
/// `at` must be writable and aligned.
pub(in crate::pm) unsafe fn store_word(at: *mut u64, word: u64) {
    // SAFETY: as the caller says.
    unsafe { at.write_volatile(word) }
}

/// # Safety
///
/// `to` must be writable for `words` words and aligned, `from` readable for as many bytes.
pub(in crate::pm) unsafe fn store_words(to: *mut u64, from: *const u8, words: usize) {
    for i in 0..words {
        // SAFETY: within both ranges, as the caller says.
        unsafe { to.add(i).write_volatile(from.cast::<u64>().add(i).read_unaligned()) }
    }
}

/// # Safety
///
/// As for [`store_words`], with lines of 64 bytes.
pub(in crate::pm) unsafe fn stream_lines(to: *mut u8, from: *const u8, lines: usize) {
    // SAFETY: as the caller says.
    unsafe { store_words(to.cast(), from, lines * 8) }
}

pub(in crate::pm) fn fence() {
    compiler_fence(Ordering::SeqCst);
}
