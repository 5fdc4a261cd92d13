//! The gate to a mounted volume: for those who look, those who hold it, and a commit during which
//! nothing may change.
//!
//! Whoever finds in memory all it asks for looks at the volume together with others, and may change
//! what has a lock of its own. Whoever changes anything else, or has to read it first, holds the
//! volume alone. A commit, as a checkpoint or a journal's transaction, is put together by a holder
//! and written while nobody holds the volume; until the drive has all of it nothing may change, and
//! everything may be looked at.

use std::ops::{Deref, DerefMut};

use cores::{Condvar, Mutex, PerCoreReadGuard, PerCoreRwLock, PerCoreWriteGuard, Rank};

/// A volume behind its lock.
pub struct Gate<V> {
    /// Everything of the volume, and whether it is being committed.
    state: PerCoreRwLock<State<V>>,
    /// Whether it is being committed, for those who wait for the end. Taken alone or within
    /// `state`.
    committing: Mutex<bool>,
    committed: Condvar,
}

struct State<V> {
    volume: V,
    /// The contents of memory are on their way to the drive, and must not change.
    committing: bool,
}

/// The volume, to look at beside others.
pub struct Look<'a, V>(PerCoreReadGuard<'a, State<V>>);

/// The volume, held alone.
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
            state: PerCoreRwLock::ranked(Rank::Gate, name, State { volume, committing: false }),
            committing: Mutex::ranked(Rank::Commit, "commit", false),
            committed: Condvar::new(),
        }
    }

    /// The volume beside others who look. Whoever looks waits for nothing meanwhile.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn look(&self) -> Look<'_, V> {
        Look(self.state.read())
    }

    /// The volume beside others, to change what has a lock of its own; `None` during a commit.
    #[inline]
    pub fn join(&self) -> Option<Look<'_, V>> {
        let look = self.look();
        (!look.0.committing).then_some(look)
    }

    /// The volume alone, but perhaps during a commit: what is in memory may not be durable, and
    /// what the commit writes must not change.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn hold(&self) -> Hold<'_, V> {
        Hold(self.state.write())
    }

    /// The volume alone while no commit is on its way: it may change.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn settled(&self) -> Hold<'_, V> {
        loop {
            let hold = self.hold();
            if !hold.0.committing {
                return hold;
            }
            drop(hold);
            let mut committing = self.committing.lock();
            while *committing {
                self.committed.wait(&mut committing);
            }
        }
    }

    /// Writes a commit that was put together in this hold, without holding the volume meanwhile.
    pub fn commit<'a, T>(
        &'a self,
        mut hold: Hold<'a, V>,
        write: impl FnOnce() -> T,
    ) -> (Hold<'a, V>, T) {
        self.set_committing(&mut hold, true);
        drop(hold);
        let written = write();
        let mut hold = self.hold();
        self.set_committing(&mut hold, false);
        self.committed.notify_all();
        (hold, written)
    }

    fn set_committing(&self, hold: &mut Hold<'_, V>, committing: bool) {
        hold.0.committing = committing;
        *self.committing.lock() = committing;
    }

    /// How often somebody has looked so far.
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
}
