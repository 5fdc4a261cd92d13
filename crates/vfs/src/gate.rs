//! The gate to a mounted volume: for those who look, those who change, and a commit during which
//! others may look.
//!
//! One lock holds the volume. A commit, as a checkpoint or a journal's transaction, is put together
//! under it and written without it; until the drive has all of it, nothing may change, and
//! everything may be looked at.

use std::ops::{Deref, DerefMut};

use cores::{Condvar, Mutex, MutexGuard};

/// A volume behind its lock.
pub struct Gate<V> {
    /// Everything of the volume, and whether it is being committed.
    state: Mutex<State<V>>,
    committed: Condvar,
}

struct State<V> {
    volume: V,
    /// The contents of memory are on their way to the drive, and must not change.
    committing: bool,
}

/// The volume, held.
pub struct Hold<'a, V>(MutexGuard<'a, State<V>>);

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
        let state = State { volume, committing: false };
        Self { state: Mutex::named(name, state), committed: Condvar::new() }
    }

    /// The volume, to look at it: during a commit, too, when what is in memory may not be durable
    /// and must not change.
    pub fn look(&self) -> Hold<'_, V> {
        Hold(self.state.lock())
    }

    /// The volume while no commit is on its way: it may change.
    pub fn settled(&self) -> Hold<'_, V> {
        let mut state = self.state.lock();
        while state.committing {
            self.committed.wait(&mut state);
        }
        Hold(state)
    }

    /// Writes a commit that was put together in this hold, without holding the volume meanwhile.
    pub fn commit<'a, T>(
        &'a self,
        mut hold: Hold<'a, V>,
        write: impl FnOnce() -> T,
    ) -> (Hold<'a, V>, T) {
        hold.0.committing = true;
        drop(hold);
        let written = write();
        let mut state = self.state.lock();
        state.committing = false;
        self.committed.notify_all();
        (Hold(state), written)
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
                assert_eq!(*gate.look(), 0, "nothing changes meanwhile");
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
