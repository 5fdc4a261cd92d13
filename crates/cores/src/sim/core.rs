//! One virtual core: who has it, who waits for it, and the timers of its threads.
//!
//! A core is due when its thread may go on or its earliest timer ends, whichever comes first. That
//! is its key in the tournament of all cores. So timers need no queue of their own that every
//! switch would have to consult, and a thread that sleeps alone on its core costs one key.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use super::tree::Key;
use super::{NONE, Waiter};
use crate::Nanos;

/// One virtual core.
pub(super) struct Core {
    pub(super) clock: Nanos,
    /// The thread that has this core, even while another core runs.
    pub(super) current: u32,
    /// The thread that had it last. A different one pays for the context switch.
    pub(super) last: u32,
    /// When `current` got the core.
    pub(super) since: Nanos,
    /// When its thread may go on. While it runs, the key by which it was picked.
    pub(super) run: Key,
    /// Threads that wait for the core, and when each became ready.
    pub(super) ready: VecDeque<(u32, Nanos)>,
    /// The waits of its threads that have deadlines.
    pub(super) timers: BinaryHeap<Timer>,
}

impl Core {
    pub(super) fn new() -> Core {
        Core {
            clock: 0,
            current: NONE,
            last: NONE,
            since: 0,
            run: Key::IDLE,
            ready: VecDeque::new(),
            timers: BinaryHeap::new(),
        }
    }

    /// What it is due for first.
    pub(super) fn due(&self) -> Key {
        self.timers.peek().map_or(self.run, |timer| timer.key.min(self.run))
    }

    /// When its earliest timer ends.
    pub(super) fn deadline(&self) -> Nanos {
        self.timers.peek().map_or(Nanos::MAX, |timer| timer.key.clock())
    }
}

/// The end of a wait. The earliest compares as the greatest, because the heap pops that one first.
#[derive(PartialEq, Eq)]
pub(super) struct Timer {
    pub(super) key: Key,
    pub(super) waiter: Waiter,
}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |timer: &Timer| (timer.key, timer.waiter.thread, timer.waiter.turn);
        key(other).cmp(&key(self))
    }
}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
