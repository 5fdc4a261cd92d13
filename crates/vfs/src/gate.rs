//! The gate to a mounted volume: some callers read it, some change it, and during a commit others
//! may still read.
//!
//! One lock holds the volume. A commit (a checkpoint, or a journal's transaction) is put together
//! under the lock and written without it. Until all of it is on the drive, everything may be read,
//! but nothing may change.

use std::ops::{Deref, DerefMut};

use cores::{Condvar, Mutex, MutexGuard};

/// A volume behind its lock.
pub struct Gate<V> {
    /// The whole volume, and whether it is being committed.
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

    /// The volume, for reading. Also during a commit, when what is in memory may not be durable and
    /// must not change.
    pub fn look(&self) -> Hold<'_, V> {
        Hold(self.state.lock())
    }

    /// The volume while no commit is being written, so that it may change.
    pub fn settled(&self) -> Hold<'_, V> {
        let mut state = self.state.lock();
        while state.committing {
            self.committed.wait(&mut state);
        }
        Hold(state)
    }

    /// Writes a commit that was put together in this hold. The volume is not held meanwhile.
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
