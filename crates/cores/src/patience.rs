//! Waiting for a lock of the real machine that is most often held for a short time.
//!
//! Sleeping and waking cost more than most holds last. So a waiter polls for a while whether the
//! lock is free, ever less often. Meanwhile the thread that had it can take it again and again,
//! with the data it protects in its core's cache: the two alternate after many operations instead
//! of after each. (A queue that hands over at each release, as MCS does, would move those cache
//! lines each time.) A waiter that does not find the lock free in time sleeps, and `parking_lot`
//! prevents starvation.

use std::hint::spin_loop;

use crate::{Nanos, real};

/// The pauses between two looks double from the first to the last.
const FIRST_PAUSE: Nanos = 250;
const LAST_PAUSE: Nanos = 32_000;
/// After this much a waiter sleeps.
const PATIENCE: Nanos = 150_000;

/// Takes what `try_take` gives before long, or else waits for it with `take`.
#[inline]
pub(crate) fn take<T>(try_take: impl Fn() -> Option<T>, take: impl FnOnce() -> T) -> T {
    try_take().unwrap_or_else(|| wait(try_take, take))
}

#[cold]
fn wait<T>(try_take: impl Fn() -> Option<T>, take: impl FnOnce() -> T) -> T {
    let (mut now, mut pause) = (real::now(), FIRST_PAUSE);
    let end = now + PATIENCE;
    while now < end {
        let next = now + pause;
        while now < next {
            spin_loop();
            now = real::now();
        }
        if let Some(taken) = try_take() {
            return taken;
        }
        pause = (2 * pause).min(LAST_PAUSE);
    }
    take()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn only_a_lock_that_is_not_free_in_time_is_slept_for() {
        let looks = Cell::new(0);
        let free_after = |count| {
            looks.set(0);
            let look = || {
                looks.set(looks.get() + 1);
                (looks.get() > count).then_some("found")
            };
            take(look, || "woken")
        };
        assert_eq!(free_after(0), "found");
        assert_eq!(free_after(2), "found");
        assert_eq!(free_after(usize::MAX), "woken");
        assert!(looks.get() > 1, "it looked {} times", looks.get());
    }
}
