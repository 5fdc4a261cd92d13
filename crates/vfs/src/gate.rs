//! The gate of a mounted volume: a readers-writer lock, and commits during which nothing may
//! change.
//!
//! An operation whose data is all cached runs under the shared lock ([`Look`]), and may change
//! state that has a lock of its own. Other changes, and reads from the drive, need the exclusive
//! lock ([`Hold`]). A commit, such as a checkpoint or a journal's transaction, is prepared under
//! the exclusive lock and written with the gate unlocked; until the drive has all of it nothing may
//! change, and everything may be read.
//!
//! Threads that have waited for the end of a commit come before those that have not. Otherwise a
//! thread that commits again and again, as a cleaner does, would always come first.
//!
//! A change under the shared lock also takes the lock of what it changes, so it pays only under
//! contention. For this the gate remembers for a while that a thread had to wait for it.

use std::ops::{Deref, DerefMut};

use cores::{
    Condvar, Line, Mutex, Nanos, PerCoreReadGuard, PerCoreRwLock, PerCoreWriteGuard, Rank,
};

/// How long the lock counts as contended after a thread had to wait for it.
const CROWDED_FOR: Nanos = 10_000_000;

/// A volume behind its lock.
pub struct Gate<V> {
    /// The volume, and whether it is being committed.
    state: PerCoreRwLock<State<V>>,
    /// A copy of what waiters need to see. Locked alone or within `state`.
    shown: Mutex<Shown>,
    changed: Condvar,
    /// Until then the lock counts as contended.
    crowded_until: Line,
}

struct State<V> {
    volume: V,
    shown: Shown,
}

#[derive(Clone, Copy, Default)]
struct Shown {
    /// The cached contents are being written to the drive, and must not change.
    committing: bool,
    /// How many threads have waited for the end of a commit and not locked the volume since.
    waiting: usize,
}

/// The volume, locked shared.
pub struct Look<'a, V>(PerCoreReadGuard<'a, State<V>>);

/// The volume, locked exclusively.
pub struct Hold<'a, V>(PerCoreWriteGuard<'a, State<V>>);

impl<V> Deref for Look<'_, V> {
    type Target = V;
    fn deref(&self) -> &V {
        &self.0.volume
    }
}

impl<V> Deref for Hold<'_, V> {
    type Target = V;
    fn deref(&self) -> &V {
        &self.0.volume
    }
}

impl<V> DerefMut for Hold<'_, V> {
    fn deref_mut(&mut self) -> &mut V {
        &mut self.0.volume
    }
}

impl<V> Gate<V> {
    /// A gate to `volume`. `name` is the lock's name in reports.
    pub fn new(name: &'static str, volume: V) -> Self {
        Self {
            state: PerCoreRwLock::ranked(
                Rank::Gate,
                name,
                State { volume, shown: Shown::default() },
            ),
            shown: Mutex::ranked(Rank::Commit, "commit", Shown::default()),
            changed: Condvar::new(),
            crowded_until: Line::default(),
        }
    }

    /// Locks the volume shared. The caller waits for nothing else while it holds the lock.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn look(&self) -> Look<'_, V> {
        Look(self.state.read())
    }

    /// Locks the volume shared, to change what has a lock of its own; `None` during a commit.
    #[inline]
    pub fn join(&self) -> Option<Look<'_, V>> {
        let look = self.look();
        (!look.0.shown.committing).then_some(look)
    }

    /// Locks the volume exclusively, perhaps during a commit: what is in memory may not be durable,
    /// and what the commit writes must not change.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn hold(&self) -> Hold<'_, V> {
        Hold(self.state.try_write().unwrap_or_else(|| {
            self.crowded_until.store(cores::now().saturating_add(CROWDED_FOR));
            self.state.write()
        }))
    }

    /// Whether a thread recently had to wait for the exclusive lock.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        let until = self.crowded_until.load();
        until != 0 && cores::now() < until
    }

    /// Locks the volume exclusively once no commit is under way: it may change.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn settled(&self) -> Hold<'_, V> {
        loop {
            let hold = self.hold();
            match hold.0.shown {
                Shown { committing: true, .. } => return self.settled_in_time(hold),
                Shown { waiting: 0, .. } => return hold,
                _ => self.sleep_while(hold, |shown| shown.waiting > 0),
            }
        }
    }

    /// As [`Gate::settled`], after the commit under way and before threads that have not waited.
    #[cold]
    fn settled_in_time<'a>(&'a self, mut hold: Hold<'a, V>) -> Hold<'a, V> {
        self.show(&mut hold, |shown| shown.waiting += 1);
        while hold.0.shown.committing {
            self.sleep_while(hold, |shown| shown.committing);
            hold = self.hold();
        }
        self.show(&mut hold, |shown| shown.waiting -= 1);
        if hold.0.shown.waiting == 0 {
            self.changed.notify_all();
        }
        hold
    }

    fn sleep_while(&self, hold: Hold<'_, V>, is_so: impl Fn(&Shown) -> bool) {
        drop(hold);
        let mut shown = self.shown.lock();
        while is_so(&shown) {
            self.changed.wait(&mut shown);
        }
    }

    /// Writes a commit that was prepared under `hold`, with the gate unlocked while it is written.
    pub fn commit<'a, T>(
        &'a self,
        mut hold: Hold<'a, V>,
        write: impl FnOnce() -> T,
    ) -> (Hold<'a, V>, T) {
        self.show(&mut hold, |shown| shown.committing = true);
        drop(hold);
        let written = write();
        let mut hold = self.hold();
        self.show(&mut hold, |shown| shown.committing = false);
        self.changed.notify_all();
        (hold, written)
    }

    fn show(&self, hold: &mut Hold<'_, V>, change: impl FnOnce(&mut Shown)) {
        change(&mut hold.0.shown);
        *self.shown.lock() = hold.0.shown;
    }

    /// How often the volume has been locked shared so far.
    pub fn looks(&self) -> u64 {
        self.state.readers()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cores::{Machine, Profile};

    use super::*;

    #[test]
    fn who_looks_goes_on_during_a_commit_and_who_changes_waits() {
        let profile = Profile::named("xeon-4116").unwrap();
        let test = || {
            let gate = Arc::new(Gate::new("test", 0));
            let (looker, changer) = (gate.clone(), gate.clone());
            let committed = gate.commit(gate.settled(), || {
                let looker = cores::spawn("look", Some(1), move || *looker.look());
                let changer = cores::spawn("change", Some(2), move || {
                    *changer.settled() += 1;
                    cores::now()
                });
                cores::sleep(5_000_000);
                assert_eq!(looker.join(), 0);
                assert_eq!(*gate.hold(), 0, "nothing changes meanwhile");
                (changer, cores::now())
            });
            let (hold, (changer, end)) = committed;
            drop(hold);
            assert!(changer.join() >= end);
            assert_eq!(*gate.look(), 1);
        };
        Machine::simulated(&profile, 1).run(test).unwrap();
    }

    #[test]
    fn who_commits_again_and_again_holds_nobody_up_for_longer_than_once() {
        const MS: u64 = 1_000_000;
        let profile = Profile::named("xeon-4116").unwrap();
        let test = || {
            let gate = Arc::new(Gate::new("test", 0));
            let committer = |core| {
                let gate = gate.clone();
                cores::spawn("commit", Some(core), move || {
                    for _ in 0..50 {
                        drop(gate.commit(gate.settled(), || cores::sleep(MS)));
                    }
                })
            };
            let committers = [committer(1), committer(2)];
            for _ in 0..20 {
                cores::sleep(MS / 3);
                let begun = cores::now();
                *gate.settled() += 1;
                // The commit under way, and that of the other committer, which waits for its end.
                assert!(cores::now() - begun < 3 * MS);
            }
            committers.into_iter().for_each(cores::JoinHandle::join);
            assert_eq!(*gate.look(), 20);
        };
        for seed in 0..20 {
            Machine::simulated(&profile, seed).run(test).unwrap();
        }
    }
}
