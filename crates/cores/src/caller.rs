//! For whom a thread works: the user whose call a file system serves, as a kernel knows it of the
//! current task. What only some users may do is decided by it, deep below the call.

use std::cell::Cell;

use crate::sim;

/// A user who has made a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl Caller {
    /// Who may do everything.
    pub const ROOT: Self = Self { uid: 0, gid: 0 };

    /// Whether limits do not hold for this user (`CAP_SYS_RESOURCE`).
    pub fn is_privileged(self) -> bool {
        self.uid == Self::ROOT.uid
    }
}

thread_local! {
    /// That of an OS thread outside virtual machines.
    static OF_THREAD: Cell<Option<Caller>> = const { Cell::new(None) };
}

/// For whom the calling thread works; `None` if for no user, as in the background.
pub fn caller() -> Option<Caller> {
    match sim::current() {
        Some(sim) => sim.caller(),
        None => OF_THREAD.get(),
    }
}

/// Makes the calling thread work for `caller`. Returns for whom it did.
fn replace(caller: Option<Caller>) -> Option<Caller> {
    match sim::current() {
        Some(sim) => sim.set_caller(caller),
        None => OF_THREAD.replace(caller),
    }
}

/// The caller as before, whether the work ends or panics.
struct Before(Option<Caller>);

impl Drop for Before {
    fn drop(&mut self) {
        replace(self.0);
    }
}

/// Does `work` for `caller`.
pub fn acting_for<R>(caller: Option<Caller>, work: impl FnOnce() -> R) -> R {
    let _before = Before(replace(caller));
    work()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Machine, Profile, sleep, spawn};

    const ANN: Caller = Caller { uid: 1000, gid: 100 };

    #[test]
    fn a_caller_is_known_as_long_as_the_work_takes() {
        assert_eq!(caller(), None);
        acting_for(Some(ANN), || {
            assert_eq!(caller(), Some(ANN));
            acting_for(Some(Caller::ROOT), || assert!(caller().unwrap().is_privileged()));
            let panicked = std::panic::catch_unwind(|| acting_for(None, || panic!("as it should")));
            assert!(panicked.is_err());
            assert_eq!(caller(), Some(ANN));
            assert!(!ANN.is_privileged());
        });
        assert_eq!(caller(), None);
    }

    /// Virtual threads share an OS thread, and not their callers.
    #[test]
    fn each_virtual_thread_has_its_own() {
        let profile = Profile::named("uniform-1").unwrap();
        let work = || {
            let user = |uid| {
                let work = move || {
                    acting_for(Some(Caller { uid, gid: 0 }), || {
                        sleep(1000);
                        caller()
                    })
                };
                spawn("user", None, work)
            };
            let users = [5, 6].map(user);
            assert_eq!(caller(), None);
            users.map(|user| user.join().unwrap().uid)
        };
        assert_eq!(Machine::simulated(&profile, 1).run(work).unwrap(), [5, 6]);
    }
}
