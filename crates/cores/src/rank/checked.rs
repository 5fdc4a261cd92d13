//! The ranked locks that each thread holds.

use std::cell::RefCell;
use std::fmt;
use std::panic::Location;

use super::Rank;
use crate::sim;

thread_local! {
    /// Those of an OS thread outside virtual machines.
    static OF_THREAD: RefCell<Vec<HeldLock>> = const { RefCell::new(Vec::new()) };
}

/// A lock that a thread holds.
#[derive(Clone, Copy)]
pub(crate) struct HeldLock {
    of: (Rank, u64),
    name: Option<&'static str>,
    id: usize,
    at: &'static Location<'static>,
}

impl fmt::Display for HeldLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rank, key) = self.of;
        write!(f, "{:?} ({rank:?} {key}) taken at {}", self.name.unwrap_or("a lock"), self.at)
    }
}

/// What `see` says of the calling thread's locks. `None` in a thread that is about to end.
fn of_thread<R>(see: impl FnOnce(&mut Vec<HeldLock>) -> R) -> Option<R> {
    match sim::current() {
        Some(sim) => Some(sim.with_ranked(see)),
        None => OF_THREAD.try_with(|held| see(&mut held.borrow_mut())).ok(),
    }
}

/// The first lock held that fits. A thread that unwinds is not checked: one panic is enough.
fn first_held(fits: impl Fn(&HeldLock) -> bool) -> Option<HeldLock> {
    let found = of_thread(|held| held.iter().find(|lock| fits(lock)).copied()).flatten();
    found.filter(|_| !std::thread::panicking())
}

#[track_caller]
pub(super) fn check(of: (Rank, u64), name: Option<&'static str>) {
    if let Some(held) = first_held(|held| held.of >= of) {
        let wanted = HeldLock { of, name, id: 0, at: Location::caller() };
        panic!("lock order: {wanted} while {held} is held");
    }
}

#[track_caller]
pub(super) fn note(
    of: Option<(Rank, u64)>,
    name: Option<&'static str>,
    id: usize,
) -> Option<usize> {
    let lock = HeldLock { of: of?, name, id, at: Location::caller() };
    of_thread(|held| held.push(lock));
    Some(id)
}

pub(super) fn forget(id: usize) {
    of_thread(|held| {
        if let Some(at) = held.iter().rposition(|lock| lock.id == id) {
            held.remove(at);
        }
    });
}

/// Panics if a lock is held under which no thread may sleep, or one that is inner to `own`, which
/// the caller releases and will take again.
#[track_caller]
pub(super) fn check_wait(own: Option<usize>) {
    let own_of = own.and_then(|own| first_held(|held| held.id == own)).map(|lock| lock.of);
    let in_the_way = |held: &HeldLock| {
        Some(held.id) != own && (held.of.0.is_short() || own_of.is_some_and(|of| held.of >= of))
    };
    if let Some(held) = first_held(in_the_way) {
        panic!("sleeps at {} while {held} is held", Location::caller());
    }
}
