//! Batching: an fsync waits for those of other threads, so that one commit serves them all
//! (`min_batch_time`, `max_batch_time` of ext4(5); `jbd2_journal_stop`).
//!
//! Without it, two threads that write and fsync take turns: while a commit is under way for one,
//! the other joins the next transaction, which is closed when the first has just returned. Each
//! fsync takes two commits' time, and each commit serves one.
//!
//! So a caller does not begin a commit before as many wait as were there when the last one ended.
//! The last one to come leads, and the others sleep until the end. None waits longer than a commit
//! takes on average, and a thread that does not come again is waited for once.
//!
//! Linux waits that long whether others come or not, and only in handles that are synchronous by
//! themselves: an fsync goes to the commit thread at once (`jbd2_complete_transaction`).

use cores::{Nanos, now};

/// A commit that takes less is not waited for: sleeping and waking take longer.
const COMMIT_MIN: Nanos = 20_000;
/// For a commit that takes less a caller polls, since waking takes as long.
const POLLED_MAX: Nanos = 100_000;
/// After this much it sleeps.
pub(crate) const PATIENCE: Nanos = 2 * POLLED_MAX;

/// How long an fsync waits for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchTime {
    /// At least this, where a commit takes less on average.
    pub min: Nanos,
    /// At most this.
    pub max: Nanos,
}

/// The callers that want the transactions of an area durable.
#[derive(Default)]
pub(crate) struct Batch {
    /// How many wait for the commit under way, or for the next one to begin.
    waiting: u32,
    /// How many of them poll, each on a core of its own; one is left for the commit.
    polling: u32,
    /// How many were there at the end of the last commit.
    expected: u32,
    /// Commits that have ended.
    ended: u64,
    /// When the one under way began.
    began: Nanos,
    /// What one takes (`j_average_commit_time`).
    average: Nanos,
}

/// A caller that waits.
pub(crate) struct Waiting {
    /// Commits that had ended before.
    ended: u64,
    /// For [`PATIENCE`], before it sleeps.
    pub(crate) polls: bool,
}

impl Batch {
    /// Until when a caller that `came` waits for others before it commits. `None` if as many are
    /// there as were last time.
    pub(crate) fn wait_until(&self, came: Nanos, time: BatchTime) -> Option<Nanos> {
        let wait = self.average.max(time.min).min(time.max);
        let are_all_here = self.waiting + 1 >= self.expected;
        (!are_all_here && wait >= COMMIT_MIN).then(|| came + wait)
    }

    /// The caller is about to wait. If it `may_poll`, it may be better not to sleep.
    pub(crate) fn wait(&mut self, may_poll: bool) -> Waiting {
        let is_short = (1..POLLED_MAX).contains(&self.average);
        let has_core = (self.polling as usize) < cores::core_count() - 1;
        let polls = may_poll && is_short && has_core && !cores::is_virtual();
        self.waiting += 1;
        self.polling += u32::from(polls);
        Waiting { ended: self.ended, polls }
    }

    /// The caller has waited. If a commit has ended meanwhile, it is not counted any more.
    pub(crate) fn waited(&mut self, waiting: &Waiting) {
        self.polling -= u32::from(waiting.polls);
        self.waiting -= u32::from(waiting.ended == self.ended);
    }

    /// A commit begins.
    pub(crate) fn begin(&mut self) {
        self.began = now();
    }

    /// It has ended. All that wait may come again, and so may its leader, if that was an fsync.
    pub(crate) fn end(&mut self, leader_fsyncs: bool) {
        let took = now().saturating_sub(self.began);
        self.average = if self.average == 0 { took } else { (took + 3 * self.average) / 4 };
        self.expected = self.waiting + u32::from(leader_fsyncs);
        self.waiting = 0;
        self.ended += 1;
    }
}
