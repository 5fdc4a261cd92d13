//! Writes and flushes that failed, also those whose tickets were not waited for, or never will be.
//!
//! A ticket tells its owner how its command ended. A commit depends on more commands than it owns:
//! its blocks may refer to blocks that other threads have submitted. It waits for all of them
//! ([`crate::BlockQueue::drain`]) and learns here whether one of them failed, as
//! `filemap_check_errors` tells a kernel's `fsync` (`errseq_t`).

use std::sync::atomic::{AtomicU64, Ordering};

use cores::{Mutex, Rank};
use drive::Lba;

use crate::error::{IoError, Verb};
use crate::slots::Answer;

/// What a command does, and to which blocks.
pub(crate) type What = (Verb, Lba, u64);

/// The failures of one drive.
pub(crate) struct Failures {
    count: AtomicU64,
    /// Blocks of the writes among them.
    blocks: AtomicU64,
    /// Protects the newest failure.
    newest: Mutex<Option<IoError>>,
}

impl Default for Failures {
    fn default() -> Self {
        let newest = Mutex::ranked(Rank::Requests, "failed writes", None);
        Self { count: AtomicU64::new(0), blocks: AtomicU64::new(0), newest }
    }
}

impl Failures {
    /// Records `answer` if it is the failure of a write or a flush. Must be called before any
    /// waiter can see that the command has ended.
    #[inline]
    pub(crate) fn note(&self, what: What, answer: &Answer) {
        if answer.is_err() {
            self.note_error(what, answer);
        }
    }

    #[cold]
    fn note_error(&self, (verb, lba, blocks): What, answer: &Answer) {
        let (Err(status), Verb::Write | Verb::Append | Verb::Flush) = (answer, verb) else {
            return;
        };
        *self.newest.lock() = Some(IoError { verb, lba, blocks, status: *status });
        self.blocks.fetch_add(blocks, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Fails if more than `before` have failed.
    pub(crate) fn check(&self, before: u64) -> Result<(), IoError> {
        if self.count() <= before {
            return Ok(());
        }
        self.newest.lock().map_or(Ok(()), Err)
    }
}
