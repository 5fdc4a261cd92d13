//! A memory whose program forgets something: canaries for everything that looks for such errors.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
}

impl PmFaulty {
    /// `below`, with a fault.
    pub fn new(below: Arc<dyn Pm>, fault: PmFault) -> Arc<Self> {
        Arc::new(Self { below, fault, fences: AtomicU64::new(0) })
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
