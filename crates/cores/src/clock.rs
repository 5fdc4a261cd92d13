//! Clocks, sleeping and the caller's core, on whichever machine the caller runs.

use std::time::Duration;

use crate::{may_sleep, real, sim};

/// A point or a length of time on a machine, in nanoseconds.
pub type Nanos = u64;

/// 2026-01-01T00:00:00Z in seconds since the Unix epoch, when every virtual machine starts.
const VIRTUAL_EPOCH_SECS: u64 = 1_767_225_600;

/// Whether the caller is on a virtual machine, for what is only done to be charged there.
#[inline]
pub fn is_virtual() -> bool {
    sim::current().is_some()
}

/// Monotonic time since the machine started.
///
/// The real machine is the process. Its time starts when it is first asked for.
pub fn now() -> Nanos {
    match sim::current() {
        Some(machine) => machine.now(),
        None => real::now(),
    }
}

/// Time since the Unix epoch; on a virtual machine a fixed date plus [`now`].
pub fn wall_clock() -> Duration {
    match sim::current() {
        Some(machine) => {
            Duration::from_secs(VIRTUAL_EPOCH_SECS) + Duration::from_nanos(machine.now())
        }
        None => real::wall_clock(),
    }
}

/// Lets `duration` pass without using the core.
#[cfg_attr(debug_assertions, track_caller)]
pub fn sleep(duration: Nanos) {
    sleep_until(now().saturating_add(duration));
}

/// Lets time pass until [`now`] is at least `deadline`, without using the core.
///
/// On the real machine it spins at the end, because timers wake tens of microseconds late.
#[cfg_attr(debug_assertions, track_caller)]
pub fn sleep_until(deadline: Nanos) {
    may_sleep();
    match sim::current() {
        Some(machine) => machine.sleep_until(deadline),
        None => real::sleep_until(deadline),
    }
}

/// Lets other threads of this core run.
pub fn yield_now() {
    match sim::current() {
        Some(machine) => machine.yield_now(),
        None => std::thread::yield_now(),
    }
}

/// The core on which the caller runs, below [`core_count`].
pub fn current_core() -> usize {
    match sim::current() {
        Some(machine) => machine.current_core(),
        None => real::current_core(),
    }
}

/// How many cores the machine has.
pub fn core_count() -> usize {
    match sim::current() {
        Some(machine) => machine.core_count(),
        None => real::core_count(),
    }
}

/// Charges CPU time to the current core of a virtual machine. On the real one nothing happens,
/// since the work itself takes the time.
pub fn spend(time: Nanos) {
    if let Some(machine) = sim::current() {
        machine.spend(time);
    }
}

/// Charges the movement of `bytes` through the memory of the current socket, whose bandwidth all
/// its cores share. Nothing happens on the real machine.
pub fn memory(bytes: u64) {
    if let Some(machine) = sim::current() {
        machine.memory(bytes);
    }
}

/// As [`memory`], of the memory of another socket perhaps: its own cores and those of others share
/// its bandwidth.
pub fn memory_of(socket: usize, bytes: u64) {
    if let Some(machine) = sim::current() {
        machine.memory_of(socket, bytes);
    }
}
