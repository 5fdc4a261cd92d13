//! What a mounted volume does by itself: writes back dirty pages by age and amount (the kernel's
//! flusher), commits from time to time, and detects quiet moments.
//!
//! Idle means that no operation has begun for some time. Operations are counted, not timed, which
//! costs them nothing. In return, idleness is noticed up to one interval of the flusher late.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use cores::{Condvar, Mutex, MutexGuard, Nanos, Rank, now};

use crate::Ino;

/// How often dirty pages are looked at (`dirty_writeback_centisecs`).
const WRITEBACK_INTERVAL: Nanos = 5_000_000_000;
/// Age at which dirty pages are written back (`dirty_expire_centisecs`).
const DIRTY_EXPIRE: Nanos = 30_000_000_000;

/// What a volume's threads and operations tell each other. `S` is the file system's own part.
pub struct Upkeep<S> {
    /// Taken alone, or last.
    state: Mutex<State<S>>,
    changed: Condvar,
    /// Too much is dirty to wait until it is old enough, and the flusher has not looked yet.
    kicked: AtomicBool,
}

/// The state behind the lock of an [`Upkeep`].
pub struct State<S> {
    /// The file system's own part.
    pub own: S,
    /// The threads have to end.
    stop: bool,
    /// How many operations had begun when it last looked, and since when none has.
    seen: u64,
    quiet_since: Nanos,
}

impl<S> Upkeep<S> {
    /// Nothing to tell yet. `name` is the lock's name in reports.
    pub fn new(name: &'static str, own: S) -> Self {
        let state = State { own, stop: false, seen: 0, quiet_since: now() };
        Self {
            state: Mutex::ranked(Rank::Upkeep, name, state),
            changed: Condvar::new(),
            kicked: AtomicBool::new(false),
        }
    }

    /// Notes that too much is dirty. Almost free as long as the flusher has not looked yet.
    pub fn kick(&self) {
        if !self.kicked.swap(true, Ordering::Relaxed) {
            // A thread that goes to sleep has checked the flag under this lock.
            drop(self.state.lock());
            self.changed.notify_all();
        }
    }

    /// Tells all threads to end.
    pub fn end(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }

    /// The state, to be read or changed.
    pub fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock()
    }

    /// Wakes the threads, so that they look at what has changed.
    pub fn wake(&self) {
        self.changed.notify_all();
    }

    /// Sleeps until `deadline`, or until `early` is true; `None` if it is time to end.
    pub fn sleep(
        &self,
        deadline: Nanos,
        early: impl Fn(&S) -> bool,
    ) -> Option<MutexGuard<'_, State<S>>> {
        let mut state = self.state.lock();
        while !state.stop && !early(&state.own) {
            if self.changed.wait_until(&mut state, deadline) {
                break;
            }
        }
        (!state.stop).then_some(state)
    }
}

impl<S> State<S> {
    /// Notes whether operations have begun since the last look.
    fn note_idleness(&mut self, operations: u64) {
        if self.seen != operations {
            (self.seen, self.quiet_since) = (operations, now());
        }
    }

    /// Whether no operation has begun for `interval`.
    pub fn is_idle(&self, operations: u64, interval: Nanos) -> bool {
        self.seen == operations && now() - self.quiet_since >= interval
    }
}

/// A volume that a flusher looks after.
pub trait Flushed {
    /// What the file system keeps in its [`Upkeep`].
    type Own;

    /// Where the flusher learns of changes.
    fn upkeep(&self) -> &Upkeep<Self::Own>;

    /// How old the last commit may become. By default, threads of the file system's own commit.
    fn commit_interval(_: &Self::Own) -> Nanos {
        Nanos::MAX
    }

    /// Whether the volume is still sound, so that looking after it makes sense.
    fn is_sound(&self) -> bool;

    /// Operations begun since the mount.
    fn operations(&self) -> u64;

    /// Inodes with dirty pages.
    fn dirty_inos(&self) -> Vec<Ino>;

    /// Writes back the dirty pages of `ino`. A failure is reported by its next fsync.
    fn write_back(&self, ino: Ino);

    /// Commits if the last commit is `age` old and anything has changed since. A failure is
    /// reported by the next operation.
    fn commit_if_older(&self, _: Nanos) {}
}

/// Writes back what has been dirty for long, or everything if there is much of it, and commits in
/// time. Returns when it is told to end.
pub fn flush<F: Flushed>(fs: &F) {
    let mut dirty_since: BTreeMap<Ino, Nanos> = BTreeMap::new();
    let kicked = &fs.upkeep().kicked;
    let mut next = now() + interval::<F>(&fs.upkeep().lock().own);
    while let Some(state) = fs.upkeep().sleep(next, |_| kicked.load(Ordering::Relaxed)) {
        let all = kicked.swap(false, Ordering::Relaxed);
        let commit_interval = F::commit_interval(&state.own);
        drop(state);
        if !fs.is_sound() {
            return;
        }
        let operations = fs.operations();
        fs.upkeep().lock().note_idleness(operations);
        for ino in due(fs, &mut dirty_since, all) {
            fs.write_back(ino);
        }
        fs.commit_if_older(commit_interval);
        next = now() + interval::<F>(&fs.upkeep().lock().own);
    }
}

/// How long the flusher sleeps: a commit interval that is shorter than its own is kept, too.
fn interval<F: Flushed>(own: &F::Own) -> Nanos {
    WRITEBACK_INTERVAL.min(F::commit_interval(own))
}

/// Files to write back now. `dirty_since` says since when the others have been dirty.
fn due(fs: &impl Flushed, dirty_since: &mut BTreeMap<Ino, Nanos>, all: bool) -> Vec<Ino> {
    let now = now();
    let dirty = fs.dirty_inos();
    let since = dirty.into_iter().map(|ino| (ino, *dirty_since.get(&ino).unwrap_or(&now)));
    let (old, young): (BTreeMap<_, _>, BTreeMap<_, _>) =
        since.partition(|(_, since)| all || now - since >= DIRTY_EXPIRE);
    *dirty_since = young;
    old.into_keys().collect()
}
