//! One run of a load: every core prepares, all start at once, and the time is from the first start
//! to the last end.

use std::sync::Arc;

use cores::{Condvar, LockUse, Mutex, Nanos, lockstat};

use super::files::Files;
use super::load::Load;
use super::work::{Op, Share, make_shared};
use crate::{Error, Result, now_ns};

/// What is run.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) load: Load,
    pub(super) cores: u64,
    /// The core that the first thread runs on.
    pub(super) first_core: u64,
    /// Operations per core.
    pub(super) ops: u64,
    pub(super) seed: u64,
    /// Whether to count what happens at locks.
    pub(super) profile_locks: bool,
}

/// What a run took.
pub(super) struct Took {
    pub(super) time: Nanos,
    /// Empty unless it was asked for.
    pub(super) locks: Vec<LockUse>,
}

/// Called when every core is ready, and when the last one is done.
pub(super) struct Told<'a> {
    pub(super) ready: &'a dyn Fn() -> Result<()>,
    pub(super) done: &'a dyn Fn() -> Result<()>,
}

/// Name of the lock at which the cores wait for each other. It is not the file system's.
const START: &str = "fxmark start";

/// Where the cores wait for each other.
struct Start {
    /// How many are ready, and whether they may go.
    state: Mutex<(u64, bool)>,
    changed: Condvar,
}

impl Start {
    /// One core is ready and waits for the others.
    fn line_up(&self) {
        let mut state = self.state.lock();
        state.0 += 1;
        self.changed.notify_all();
        while !state.1 {
            self.changed.wait(&mut state);
        }
    }

    /// Waits until so many cores are ready.
    fn wait_for(&self, cores: u64) {
        let mut state = self.state.lock();
        while state.0 < cores {
            self.changed.wait(&mut state);
        }
    }

    fn go(&self) {
        self.state.lock().1 = true;
        self.changed.notify_all();
    }
}

/// When a core started and ended.
type Times = (Nanos, Nanos);

impl Run {
    /// Runs the load on `files`.
    pub(super) fn on<F: Files>(self, files: &Arc<F>, told: &Told<'_>) -> Result<Took> {
        make_shared(self.load, &**files, self.cores)?;
        let start = Mutex::named(START, (0, false));
        let start = Arc::new(Start { state: start, changed: Condvar::new() });
        let threads: Vec<_> = (0..self.cores)
            .map(|core| {
                let (files, start) = (files.clone(), start.clone());
                let place = (self.first_core + core) as usize;
                cores::spawn("fxmark", Some(place), move || self.core(core, files, &start))
            })
            .collect();
        start.wait_for(self.cores);
        let synced = files.sync().and_then(|()| (told.ready)());
        if self.profile_locks {
            lockstat::start();
        }
        start.go();
        let times: Result<Vec<Times>> = threads.into_iter().map(cores::JoinHandle::join).collect();
        let mut locks = if self.profile_locks { lockstat::finish() } else { Vec::new() };
        locks.retain(|lock| lock.name != START);
        synced.and((told.done)())?;
        let times = times?;
        let began = times.iter().map(|times| times.0).min();
        let ended = times.iter().map(|times| times.1).max();
        match (began, ended) {
            (Some(began), Some(ended)) => Ok(Took { time: (ended - began).max(1), locks }),
            _ => Err(Error::Usage("no cores".into())),
        }
    }

    /// One core's share, from its preparation to its end.
    fn core<F: Files>(self, core: u64, files: Arc<F>, start: &Start) -> Result<Times> {
        let share = Share { files, core, ops: self.ops, seed: self.seed };
        let prepared: Result<Op> = share.prepare(self.load);
        start.line_up();
        let mut op = prepared?;
        let began = now_ns();
        (0..self.ops).try_for_each(&mut op)?;
        Ok((began, now_ns()))
    }
}
