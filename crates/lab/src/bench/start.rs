//! A common start: threads prepare, each as long as it takes, and then run at one word.

use cores::{Condvar, Mutex};

/// Name of the lock at which threads wait for each other. It is not the file system's.
pub(super) const LOCK: &str = "bench start";

/// Where threads wait for each other.
pub(super) struct Start {
    state: Mutex<State>,
    changed: Condvar,
}

/// How far the preparations are.
#[derive(Default)]
struct State {
    /// How many threads are ready or have failed.
    ready: u64,
    failed: bool,
    /// Once it is known: whether they run, or give up.
    word: Option<bool>,
}

/// A thread that prepares. Dropped before it is ready, be it in a panic, it has failed.
pub(super) struct Preparing<'a> {
    start: &'a Start,
    failed: bool,
}

impl Start {
    pub(super) fn new() -> Self {
        Self { state: Mutex::instrument(LOCK, State::default()), changed: Condvar::new() }
    }

    /// The calling thread begins to prepare.
    pub(super) fn prepare(&self) -> Preparing<'_> {
        Preparing { start: self, failed: true }
    }

    /// Waits until so many threads are ready or have failed. True if none has failed.
    pub(super) fn wait_for(&self, threads: u64) -> bool {
        let mut state = self.state.lock();
        while state.ready < threads {
            self.changed.wait(&mut state);
        }
        !state.failed
    }

    /// Tells those that are ready whether they run.
    pub(super) fn say(&self, word: bool) {
        self.state.lock().word = Some(word);
        self.changed.notify_all();
    }
}

impl Preparing<'_> {
    /// This thread is ready and waits for the word: whether it runs.
    pub(super) fn line_up(mut self) -> bool {
        self.failed = false;
        let Start { state, changed } = self.start;
        let mut state = state.lock();
        state.ready += 1;
        changed.notify_all();
        loop {
            match state.word {
                Some(word) => return word,
                None => changed.wait(&mut state),
            }
        }
    }
}

impl Drop for Preparing<'_> {
    fn drop(&mut self) {
        if self.failed {
            let mut state = self.start.state.lock();
            (state.ready, state.failed) = (state.ready + 1, true);
            self.start.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::Arc;

    use super::*;
    use crate::machine_named;

    #[test]
    fn a_thread_that_panics_before_the_start_makes_the_others_give_up() {
        for machine in ["real", "xeon-4116"] {
            let body = || {
                let start = Arc::new(Start::new());
                let spawn = |f: fn(Preparing<'_>) -> bool| {
                    let start = start.clone();
                    cores::spawn("bench", None, move || f(start.prepare()))
                };
                let gave_up = spawn(|preparing| !preparing.line_up());
                let lost = spawn(|_preparing| resume_unwind(Box::new("on purpose")));
                assert!(!start.wait_for(2), "one has failed");
                start.say(false);
                assert!(gave_up.join(), "it was not to run");
                assert!(catch_unwind(AssertUnwindSafe(|| lost.join())).is_err());
            };
            machine_named(machine, 1).expect("it is known").run(body).expect("no deadlock");
        }
    }
}
