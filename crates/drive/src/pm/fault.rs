//! A memory whose program forgets something: canaries for everything that looks for such errors.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Pm, PmInfo};

/// What is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PmFault {
    /// Every fence.
    DropFence,
    /// Every `every`-th fence, beginning with number `first` (from zero).
    DropFences {
        /// Number of the first one.
        first: u64,
        /// One of so many; not zero.
        every: u64,
    },
    /// Fences that come behind a write-back that begins in `start..end`, `part` bytes behind a
    /// multiple of `stride` from `start` on.
    DropFencesBehind {
        /// Address of the first.
        start: u64,
        /// Behind the last.
        end: u64,
        /// Bytes of one of several equal structures; not zero.
        stride: u64,
        /// Where in it.
        part: (u64, u64),
    },
    /// Every write-back, but not streaming stores.
    DropWriteBack,
    /// Write-backs of up to `longest` bytes that begin in `start..end`.
    DropWriteBacks {
        /// Address of the first.
        start: u64,
        /// Behind the last.
        end: u64,
        /// Longer ones are made.
        longest: u64,
    },
    /// Streaming stores stay in the cache.
    DropStream,
}

/// A memory that leaves out what a [`PmFault`] says.
pub struct PmFaulty {
    below: Arc<dyn Pm>,
    fault: PmFault,
    fences: AtomicU64,
    /// A write-back has come that [`PmFault::DropFencesBehind`] waits for.
    is_behind: AtomicBool,
}

impl PmFaulty {
    /// `below`, with a fault.
    pub fn new(below: Arc<dyn Pm>, fault: PmFault) -> Arc<Self> {
        let (fences, is_behind) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Self { below, fault, fences, is_behind })
    }
}

impl Pm for PmFaulty {
    fn info(&self) -> &PmInfo {
        self.below.info()
    }

    fn read(&self, at: u64, to: &mut [u8]) {
        self.below.read(at, to);
    }

    fn load(&self, at: u64) -> u64 {
        self.below.load(at)
    }

    fn store(&self, at: u64, from: &[u8]) {
        self.below.store(at, from);
    }

    fn store_word(&self, at: u64, word: u64) {
        self.below.store_word(at, word);
    }

    fn stream(&self, at: u64, from: &[u8]) {
        match self.fault {
            PmFault::DropStream => self.below.store(at, from),
            _ => self.below.stream(at, from),
        }
    }

    fn write_back(&self, at: u64, len: u64) {
        let dropped = match self.fault {
            PmFault::DropWriteBack => true,
            PmFault::DropWriteBacks { start, end, longest } => {
                (start..end).contains(&at) && len <= longest
            }
            PmFault::DropFencesBehind { start, end, stride, part } => {
                let offset = at.saturating_sub(start) % stride.max(1);
                if (start..end).contains(&at) && (part.0..part.1).contains(&offset) {
                    self.is_behind.store(true, Ordering::Relaxed);
                }
                false
            }
            _ => false,
        };
        if !dropped {
            self.below.write_back(at, len);
        }
    }

    fn fence(&self) {
        let number = self.fences.fetch_add(1, Ordering::Relaxed);
        let dropped = match self.fault {
            PmFault::DropFence => true,
            PmFault::DropFences { first, every } => {
                number >= first && (number - first).is_multiple_of(every.max(1))
            }
            PmFault::DropFencesBehind { .. } => self.is_behind.swap(false, Ordering::Relaxed),
            PmFault::DropWriteBack | PmFault::DropWriteBacks { .. } | PmFault::DropStream => false,
        };
        if !dropped {
            self.below.fence();
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.below.sync()
    }
}
