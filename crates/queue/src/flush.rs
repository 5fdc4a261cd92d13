//! Group commit: flushes that wait at the same time share a command (F2FS's `flush_merge`,
//! `issue_flush_thread`).
//!
//! A flush covers what completed before it was submitted, so a caller cannot share one that is
//! already under way. It sends its own if fewer than [`AT_ONCE`] are under way. Otherwise it waits
//! for the next one, together with all callers that come meanwhile.

use cores::{Condvar, Mutex, Rank};

use crate::IoError;

/// How many flushes may be under way at a time. In Linux it is two: that of a caller that found
/// no waiter, and that of the thread that serves all others.
const AT_ONCE: u32 = 2;

/// The flushes of one drive.
pub(crate) struct JoinedFlush {
    state: Mutex<State>,
    ended: Condvar,
}

/// Flushes are numbered from 1 in the order of their submission.
#[derive(Default)]
struct State {
    submitted: u64,
    under_way: u32,
    /// The newest flush that has ended.
    ended: u64,
    /// The last one that failed, and how.
    failed: Option<(u64, IoError)>,
}

impl Default for JoinedFlush {
    fn default() -> Self {
        let state = Mutex::ranked(Rank::Flush, "joined flush", State::default());
        Self { state, ended: Condvar::new() }
    }
}

impl JoinedFlush {
    /// Returns when a flush has ended that was submitted after this call: `flush`, called from
    /// here, or another caller's. Fails if that flush failed, or if a later one did, since then it
    /// is unknown what either made stable.
    pub(crate) fn run(&self, flush: impl FnOnce() -> Result<(), IoError>) -> Result<(), IoError> {
        let mut state = self.state.lock();
        let wanted = state.submitted + 1;
        let is_coming = |state: &State| state.submitted >= wanted || state.under_way >= AT_ONCE;
        while state.ended < wanted && is_coming(&state) {
            self.ended.wait(&mut state);
        }
        if state.ended < wanted {
            state.submitted += 1;
            state.under_way += 1;
            let number = state.submitted;
            drop(state);
            let answer = flush();
            state = self.state.lock();
            state.under_way -= 1;
            state.ended = state.ended.max(number);
            if let Err(error) = answer
                && state.failed.is_none_or(|(last, _)| last < number)
            {
                state.failed = Some((number, error));
            }
            self.ended.notify_all();
        }
        match state.failed {
            Some((number, error)) if number >= wanted => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use cores::{Machine, Profile};
    use drive::Status;

    use super::*;
    use crate::Verb;

    const FLUSH_NS: u64 = 1_000_000;

    /// Calls from eight cores, 100 us after one another; how many flushes that took.
    fn flushes(fails: fn(u64) -> bool) -> (u64, Vec<Result<(), IoError>>) {
        let profile = Profile::named("xeon-4116").unwrap();
        let calls = move || {
            let (joined, count) = (Arc::new(JoinedFlush::default()), Arc::new(AtomicU64::new(0)));
            let callers: Vec<_> = (0..8)
                .map(|core| {
                    let (joined, count) = (joined.clone(), count.clone());
                    cores::spawn("caller", Some(core as usize), move || {
                        cores::sleep(core * 100_000);
                        let called = cores::now();
                        joined.run(|| {
                            let number = count.fetch_add(1, Ordering::Relaxed) + 1;
                            assert!(cores::now() >= called);
                            cores::sleep(FLUSH_NS);
                            let error = IoError {
                                verb: Verb::Flush,
                                lba: 0,
                                blocks: 0,
                                status: Status::WriteFault,
                            };
                            if fails(number) { Err(error) } else { Ok(()) }
                        })
                    })
                })
                .collect();
            let answers: Vec<_> = callers.into_iter().map(cores::JoinHandle::join).collect();
            (count.load(Ordering::Relaxed), answers)
        };
        Machine::simulated(&profile, 1).run(calls).unwrap()
    }

    #[test]
    fn those_who_come_during_a_flush_share_the_next() {
        let (count, answers) = flushes(|_| false);
        assert_eq!(count, 3);
        assert!(answers.iter().all(Result::is_ok));
    }

    #[test]
    fn all_who_share_a_flush_hear_that_it_failed() {
        let (_, answers) = flushes(|number| number == 3);
        assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), 6);
    }
}
