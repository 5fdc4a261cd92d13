//! The lock profile: for each named lock how often it was taken, how long threads waited for it and
//! how long they had it, as the kernel's `lock_stat` counts.
//!
//! What belongs to a profile is what belongs to a [trace](crate::trace): a virtual machine, or on
//! the real one the threads with a common ancestor. A virtual profile costs no virtual time. On the
//! real machine each thread counts in a table of its own and only reads what it shares with others,
//! so that counting makes no thread wait for another. When no profile runs, taking a lock costs one
//! look at a flag, and letting it go one at the guard.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use serde::Serialize;

use crate::sim::lock::Hold;
use crate::sim::{self, Sim, WaitsFor};
use crate::trace::{inherit, of_own};
use crate::{Nanos, now};

/// How many profiles of the real machine run in this process.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static TABLE: OnceCell<Arc<Mutex<Table>>> = const { OnceCell::new() };
}

/// What happened at all locks of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LockUse {
    /// The name; of a lock without one, the type that it holds.
    pub name: &'static str,
    /// Mutex, or the side of a readers-writer lock.
    pub kind: &'static str,
    /// How often it was taken and let go.
    pub taken: u64,
    /// How often another thread had it.
    pub contended: u64,
    /// Time until it was free. On the real machine a thread that has waited for a condition takes
    /// the lock again as part of that wait, so what it then waits for the lock cannot be told
    /// apart, and counts neither here nor in `contended`.
    #[serde(rename = "wait_ns")]
    pub wait: Nanos,
    /// The longest wait.
    #[serde(rename = "wait_max_ns")]
    pub wait_max: Nanos,
    /// Time that cores were busy with the lock: with its cache line, to take it and to let it go,
    /// and while they looked whether it was free yet. `None` on the real machine, which does not
    /// tell it from sleeping.
    #[serde(rename = "spin_ns")]
    pub spin: Option<Nanos>,
    /// Time that threads slept until they were woken to have it. `None` on the real machine.
    #[serde(rename = "sleep_ns")]
    pub sleep: Option<Nanos>,
    /// Time that it was held.
    #[serde(rename = "hold_ns")]
    pub hold: Nanos,
    /// The longest hold.
    #[serde(rename = "hold_max_ns")]
    pub hold_max: Nanos,
}

type Key = (&'static str, &'static str);
type Table = BTreeMap<Key, LockUse>;

/// The profile of a family of threads or of a virtual machine.
pub(crate) struct Profile {
    on: AtomicBool,
    tables: Mutex<Vec<Arc<Mutex<Table>>>>,
}

impl Profile {
    pub(crate) const fn new() -> Self {
        Profile { on: AtomicBool::new(false), tables: Mutex::new(Vec::new()) }
    }

    fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Starts anew; true if it was off.
    fn start(&self) -> bool {
        let mut tables = self.tables.lock();
        // The threads of the others have ended.
        tables.retain(|table| Arc::strong_count(table) > 1);
        tables.iter().for_each(|table| table.lock().clear());
        !self.on.swap(true, Ordering::Relaxed)
    }

    /// Ends it; also true if it was on.
    fn finish(&self) -> (Vec<LockUse>, bool) {
        let was_on = self.on.swap(false, Ordering::Relaxed);
        let mut all = Table::new();
        for table in self.tables.lock().iter() {
            for row in std::mem::take(&mut *table.lock()).into_values() {
                add(&mut all, row);
            }
        }
        (all.into_values().collect(), was_on)
    }

    fn new_table(&self) -> Arc<Mutex<Table>> {
        let table = Arc::new(Mutex::new(Table::new()));
        self.tables.lock().push(table.clone());
        table
    }

    /// A virtual machine is one thread and has one table.
    fn only_table(&self) -> Arc<Mutex<Table>> {
        let first = self.tables.lock().first().cloned();
        first.unwrap_or_else(|| self.new_table())
    }
}

fn add(table: &mut Table, row: LockUse) {
    let Some(sum) = table.get_mut(&(row.name, row.kind)) else {
        table.insert((row.name, row.kind), row);
        return;
    };
    sum.taken += row.taken;
    sum.contended += row.contended;
    sum.wait += row.wait;
    sum.wait_max = sum.wait_max.max(row.wait_max);
    let sum_of = |one: Option<Nanos>, other: Option<Nanos>| Some(one? + other?);
    (sum.spin, sum.sleep) = (sum_of(sum.spin, row.spin), sum_of(sum.sleep, row.sleep));
    sum.hold += row.hold;
    sum.hold_max = sum.hold_max.max(row.hold_max);
}

/// Starts counting, and forgets what was counted before.
pub fn start() {
    if let Some(machine) = sim::current() {
        machine.recorder.locks.start();
    } else if inherit().locks.start() {
        ACTIVE.fetch_add(1, Ordering::Relaxed);
    }
}

/// Stops counting and returns what was counted, by name; nothing if it was not started. A lock that
/// is still held is left out.
pub fn finish() -> Vec<LockUse> {
    if let Some(machine) = sim::current() {
        return machine.recorder.locks.finish().0;
    }
    let (rows, was_on) = inherit().locks.finish();
    if was_on {
        ACTIVE.fetch_sub(1, Ordering::Relaxed);
    }
    rows
}

/// Whether a profile of the real machine may be running.
#[inline]
pub(crate) fn is_on() -> bool {
    ACTIVE.load(Ordering::Relaxed) != 0
}

/// One hold of a lock, which is counted when it ends.
pub(crate) struct Watch {
    row: LockUse,
    since: Nanos,
}

impl Watch {
    /// `busy` is where the time of cores and of sleepers counts from, if they are told apart.
    fn new(waits_for: &WaitsFor, busy: Option<Nanos>) -> Option<Box<Watch>> {
        let &WaitsFor::Lock { kind, name, holds, .. } = waits_for else { return None };
        let name = name.unwrap_or(holds);
        let (taken, contended, wait, wait_max, hold, hold_max) = (1, 0, 0, 0, 0, 0);
        let (spin, sleep) = (busy, busy);
        let row =
            LockUse { name, kind, taken, contended, wait, wait_max, spin, sleep, hold, hold_max };
        Some(Box::new(Watch { row, since: now() }))
    }

    /// Watches a lock of a virtual machine being taken; `None` if no profile is recorded.
    pub(crate) fn of_virtual(sim: &Sim, waits_for: &WaitsFor) -> Option<Box<Watch>> {
        if sim.recorder.locks.is_on() { Watch::new(waits_for, Some(0)) } else { None }
    }

    /// The core was busy with the lock's line until now.
    pub(crate) fn spun(&mut self) {
        let time = self.lap();
        self.row.spin = self.row.spin.map(|spin| spin + time);
    }

    /// The thread has waited asleep until now.
    pub(crate) fn slept(&mut self) {
        let time = self.lap();
        self.row.sleep = self.row.sleep.map(|sleep| sleep + time);
        self.row.wait += time;
    }

    /// The thread has waited until now, and has the lock.
    pub(crate) fn waited(&mut self) {
        let time = self.lap();
        self.row.spin = self.row.spin.map(|spin| spin + time);
        self.row.wait += time;
        (self.row.contended, self.row.wait_max) = (1, self.row.wait);
    }

    /// The lock is let go now.
    pub(crate) fn held(&mut self) {
        let time = self.lap();
        (self.row.hold, self.row.hold_max) = (time, time);
    }

    fn lap(&mut self) -> Nanos {
        let now = now();
        now.saturating_sub(std::mem::replace(&mut self.since, now))
    }

    /// Counts the hold.
    pub(crate) fn count(&mut self) {
        if let Some(sim) = sim::current() {
            self.spun();
            return add(&mut sim.recorder.locks.only_table().lock(), self.row);
        }
        // A thread that is about to end counts no more.
        let _ = TABLE.try_with(|table| {
            let table = table.get_or_init(|| inherit().locks.new_table());
            add(&mut table.lock(), self.row);
        });
    }
}

/// Takes a lock of the real machine while a profile may be running.
#[cold]
pub(crate) fn take<G>(
    hold: &mut Hold<'_>,
    waits_for: &WaitsFor,
    try_take: impl FnOnce() -> Option<G>,
    take: impl FnOnce() -> G,
) -> G {
    let mut watch = resume(waits_for);
    let guard = try_take().unwrap_or_else(|| {
        let guard = take();
        watch.iter_mut().for_each(|watch| watch.waited());
        guard
    });
    hold.watch = watch;
    guard
}

/// A hold that begins now on the real machine, if the calling thread's are counted.
pub(crate) fn resume(waits_for: &WaitsFor) -> Option<Box<Watch>> {
    let counted = sim::current().is_none() && of_own(|recorder| recorder.locks.is_on());
    if counted { Watch::new(waits_for, None) } else { None }
}
