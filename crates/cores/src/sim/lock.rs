//! The virtual side of every lock: who holds it, who waits, and what its cache line costs.
//!
//! The `parking_lot` lock beside this one ensures the exclusion itself. A virtual holder takes that
//! too, and never has to wait for it. So a lock misused from two machines at once is slow or stuck,
//! never unsound. A lock held on one machine is simply a `parking_lot` lock to every other.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::line::{CoreSet, LineState};
use super::{Sim, Waiter, WaitsFor, Wake, current};
use crate::Nanos;
use crate::lockstat::{self, Watch};

/// Alone, or with other readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Shared,
    Exclusive,
}

/// A waiter that has slept for so long gets its turn though others spin: the kernel's
/// `RWSEM_WAIT_TIMEOUT`.
/// (Its mutexes wake the first that sleeps each time.)
const SLEEP_MAX: Nanos = 4_000_000;

/// A lock's state on a virtual machine. There is none until it is first used on one.
pub(crate) struct VirtualLock {
    state: Mutex<Option<Box<LockState>>>,
    charge: Charge,
}

/// What changes hands with a lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Charge {
    /// Nothing: it is no part of the machine.
    Nothing,
    /// Its own line.
    Line,
    /// That, and lines of what it protects.
    Data,
}

#[derive(Default)]
struct LockState {
    machine: u64,
    line: LineState,
    data: Data,
    readers: usize,
    written: bool,
    /// When it was taken last while it was free.
    taken_at: Nanos,
    /// Waiters that came before then sleep by now, because a holder was off its core.
    asleep_until: Nanos,
    queue: VecDeque<Waiting>,
}

/// A thread that waits for a lock.
struct Waiting {
    waiter: Waiter,
    mode: Mode,
    since: Nanos,
    /// It has been woken to try again, and is on its way.
    roused: bool,
    /// It has woken in vain: the lock was taken. No other thread gets the lock before it.
    is_next: bool,
}

impl Waiting {
    /// Wakes it to try again, unless it is on its way. Returns when the caller is done with that.
    fn rouse(&mut self, sim: &Sim, from: Nanos) -> Nanos {
        if self.roused {
            return from;
        }
        self.roused = true;
        let from = from + sim.profile.wake_call();
        sim.rouse(self.waiter, from + sim.profile.wake());
        from
    }
}

/// The lines that holders of the lock use.
#[derive(Default)]
struct Data {
    /// The core that changed them last.
    owner: Option<u32>,
    /// The cores that have copies.
    sharers: CoreSet,
}

/// A hold on a [`VirtualLock`], or nothing at all on the real machine.
pub(crate) struct Hold<'a> {
    lock: Option<&'a VirtualLock>,
    mode: Mode,
    /// Counts this hold, on either machine, if a lock profile runs.
    pub(crate) watch: Option<Box<Watch>>,
}

impl Hold<'_> {
    /// What a guard of the real machine carries.
    pub(crate) const REAL: Hold<'static> = Hold { lock: None, mode: Mode::Exclusive, watch: None };

    #[inline]
    pub(crate) fn is_real(&self) -> bool {
        self.lock.is_none()
    }

    /// Counts the hold from now on if it is one of the real machine and a lock profile runs.
    #[inline]
    pub(crate) fn watch(&mut self, waits_for: impl FnOnce() -> WaitsFor) {
        if lockstat::is_on() && self.is_real() {
            self.watch = lockstat::resume(&waits_for());
        }
    }

    #[inline(never)]
    fn end(&mut self) {
        if let Some(watch) = &mut self.watch {
            watch.held();
        }
        if let Some(lock) = self.lock {
            lock.release(self.mode);
        }
        if let Some(mut watch) = self.watch.take() {
            watch.count();
        }
    }

    /// Counts the hold as if it ended now.
    #[inline]
    pub(crate) fn end_watch(&mut self) {
        if let Some(mut watch) = self.watch.take() {
            watch.held();
            watch.count();
        }
    }
}

impl Drop for Hold<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.lock.is_some() || self.watch.is_some() {
            self.end();
        }
    }
}

impl VirtualLock {
    pub(crate) const fn new() -> VirtualLock {
        VirtualLock { state: Mutex::new(None), charge: Charge::Data }
    }

    /// A lock around a `T`. One around nothing moves only its own line.
    pub(crate) const fn around<T>() -> VirtualLock {
        let charge = if size_of::<T>() == 0 { Charge::Line } else { Charge::Data };
        VirtualLock { state: Mutex::new(None), charge }
    }

    /// A lock that costs nothing.
    pub(crate) const fn free() -> VirtualLock {
        VirtualLock { state: Mutex::new(None), charge: Charge::Nothing }
    }

    pub(crate) fn is_free(&self) -> bool {
        self.charge == Charge::Nothing
    }

    /// When the lock's line is at the running core, to be changed.
    fn take_line(&self, sim: &Sim, line: &mut LineState) -> Nanos {
        if self.is_free() { sim.now() } else { line.take(sim) }
    }

    fn watch(&self, sim: &Sim, waits_for: &WaitsFor) -> Option<Box<Watch>> {
        if self.is_free() { None } else { Watch::of_virtual(sim, waits_for) }
    }

    /// Lets the time pass that the line took. A lock that costs nothing is no moment at which
    /// others may come in between.
    fn spend(&self, sim: &Sim, end: Nanos) {
        if !self.is_free() {
            sim.advance(end);
        }
    }

    /// This lock's identity in reports.
    pub(crate) fn id(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// Waits for a hold. A thread that comes last and can have the lock at once does not wait for a
    /// sleeper to wake up first.
    pub(crate) fn acquire(&self, sim: &Sim, mode: Mode, waits_for: WaitsFor) -> Hold<'_> {
        let mut watch = self.watch(sim, &waits_for);
        let mut slot = self.state.lock();
        let Some(state) = LockState::of(&mut slot, sim) else { return Hold::REAL };
        let end = self.take_line(sim, &mut state.line);
        if state.lets_in(mode) {
            let end = end + self.grant(sim, state, mode, sim.current_core());
            drop(slot);
            sim.note_held(self.id());
            let mut hold = Hold { lock: Some(self), mode, watch: None };
            self.spend(sim, end);
            watch.iter_mut().for_each(|watch| watch.spun());
            hold.watch = watch;
            return hold;
        }
        let mut waiter = sim.prepare_wait();
        let (since, roused, is_next) = (sim.now(), false, false);
        state.queue.push_back(Waiting { waiter, mode, since, roused, is_next });
        drop(slot);
        sim.advance_quietly(end);
        watch.iter_mut().for_each(|watch| watch.spun());
        loop {
            match sim.wait(waiter, waits_for.clone()) {
                Wake::Roused => {}
                Wake::Cancelled => {
                    self.leave_queue(sim, waiter);
                    sim.end_thread();
                }
                Wake::Notified | Wake::TimedOut => break,
            }
            sim.note_slept();
            watch.iter_mut().for_each(|watch| watch.slept());
            match self.try_again(sim, waiter, mode) {
                Some(again) => waiter = again,
                None => break,
            }
        }
        watch.iter_mut().for_each(|watch| watch.waited());
        Hold { lock: Some(self), mode, watch }
    }

    /// For a thread that has been woken: takes the lock if it is free. If not, the thread is the
    /// next to have it, and waits on as the waiter returned.
    fn try_again(&self, sim: &Sim, waiter: Waiter, mode: Mode) -> Option<Waiter> {
        let mut slot = self.state.lock();
        let state = LockState::of(&mut slot, sim)?;
        let end = self.take_line(sim, &mut state.line);
        let at = state.queue.iter().position(|waiting| waiting.waiter == waiter)?;
        if !state.is_free_for(mode) {
            let again = sim.prepare_wait();
            let waiting = &mut state.queue[at];
            (waiting.waiter, waiting.since, waiting.roused, waiting.is_next) =
                (again, sim.now(), false, true);
            drop(slot);
            sim.advance_quietly(end);
            return Some(again);
        }
        state.queue.remove(at);
        let end = end + self.grant(sim, state, mode, sim.current_core());
        sim.note_held(self.id());
        if mode == Mode::Shared {
            // Readers that came behind a sleeping one.
            state.hand_on(sim, self, end);
        }
        drop(slot);
        sim.advance_quietly(end);
        None
    }

    /// Gives the lock to a thread on `core`. Returns how long its data is on the way there.
    fn grant(&self, sim: &Sim, state: &mut LockState, mode: Mode, core: usize) -> Nanos {
        if state.readers == 0 {
            state.taken_at = sim.now();
        }
        match mode {
            Mode::Shared => state.readers += 1,
            Mode::Exclusive => state.written = true,
        }
        if self.charge == Charge::Data { state.data.bring(sim, mode, core) } else { 0 }
    }

    /// Takes a hold if one is free now.
    pub(crate) fn try_acquire(
        &self,
        sim: &Sim,
        mode: Mode,
        waits_for: &WaitsFor,
    ) -> Option<Hold<'_>> {
        let mut watch = self.watch(sim, waits_for);
        let mut slot = self.state.lock();
        let Some(state) = LockState::of(&mut slot, sim) else { return Some(Hold::REAL) };
        let mut end = self.take_line(sim, &mut state.line);
        let granted = state.lets_in(mode);
        if granted {
            end += self.grant(sim, state, mode, sim.current_core());
            sim.note_held(self.id());
        }
        drop(slot);
        let mut hold = granted.then(|| Hold { lock: Some(self), mode, watch: None });
        self.spend(sim, end);
        watch.iter_mut().for_each(|watch| watch.spun());
        hold.iter_mut().for_each(|hold| hold.watch = watch.take());
        hold
    }

    fn release(&self, mode: Mode) {
        let mut slot = self.state.lock();
        let Some(state) = slot.as_deref_mut() else { return };
        match mode {
            Mode::Shared => state.readers -= 1,
            Mode::Exclusive => state.written = false,
        }
        // If the guard has outlived its machine, nobody waits for the lock.
        let Some(sim) = current().filter(|sim| sim.id == state.machine) else { return };
        if sim.slept_until() > state.taken_at {
            state.asleep_until = state.asleep_until.max(sim.slept_until());
        }
        let end = self.take_line(sim, &mut state.line);
        let end = state.hand_on(sim, self, end);
        drop(slot);
        sim.note_released(self.id());
        self.spend(sim, end);
    }

    /// Forgets a waiter that will not come; it may have been in the way of others.
    fn leave_queue(&self, sim: &Sim, waiter: Waiter) {
        let mut slot = self.state.lock();
        if let Some(state) = LockState::of(&mut slot, sim) {
            state.queue.retain(|waiting| waiting.waiter != waiter);
            state.hand_on(sim, self, sim.now());
        }
    }
}

impl LockState {
    /// The state, for use by `sim`; `None` if another machine holds the lock.
    fn of<'a>(slot: &'a mut Option<Box<LockState>>, sim: &Sim) -> Option<&'a mut LockState> {
        let state = slot.get_or_insert_default();
        if state.machine != sim.id {
            if state.written || state.readers > 0 {
                return None;
            }
            **state = LockState { machine: sim.id, ..LockState::default() };
        }
        Some(state)
    }

    fn is_free_for(&self, mode: Mode) -> bool {
        !self.written && (mode == Mode::Shared || self.readers == 0)
    }

    /// Whether a thread that comes now gets the lock at once. A reader queues behind all waiters,
    /// so that readers cannot starve a writer. A writer passes sleeping waiters, except one that
    /// has woken in vain.
    fn lets_in(&self, mode: Mode) -> bool {
        let is_in_turn = match mode {
            Mode::Shared => self.queue.is_empty(),
            Mode::Exclusive => !self.queue.iter().any(|waiting| waiting.is_next),
        };
        is_in_turn && self.is_free_for(mode)
    }

    /// Gives the lock to the waiters that can have it together: the one marked as next, or else the
    /// first that spins. If all are asleep, wakes the first to try again. The line goes from one to
    /// the next, so each pays for its transfer in turn. Returns when the caller is done with that.
    fn hand_on(&mut self, sim: &Sim, of: &VirtualLock, from: Nanos) -> Nanos {
        let mut from = self.rouse_starved(sim, from);
        while let Some(at) = self.first_awake(sim) {
            let Waiting { waiter, mode, .. } = self.queue[at];
            if !self.is_free_for(mode) {
                return from;
            }
            self.queue.remove(at);
            if !sim.is_waiting(waiter) {
                continue;
            }
            let core = sim.core_of(waiter);
            let there = if of.is_free() { from } else { self.line.hand_to(sim, core, from) };
            let there = there + of.grant(sim, self, mode, core);
            sim.wake(waiter, there);
            sim.note_held_by(waiter, of.id());
        }
        // Sleeping readers in a row wake together.
        for waiting in &mut self.queue {
            let is_free = !self.written && (waiting.mode == Mode::Shared || self.readers == 0);
            if !is_free {
                break;
            }
            from = waiting.rouse(sim, from);
            if waiting.mode == Mode::Exclusive {
                break;
            }
        }
        from
    }

    /// Wakes the first waiter that has slept for too long: spinning ones get the lock before it
    /// each time, until it has woken in vain. Returns when the caller is done with that.
    fn rouse_starved(&mut self, sim: &Sim, from: Nanos) -> Nanos {
        let is_starved = |waiting: &Waiting| {
            from.saturating_sub(waiting.since) >= SLEEP_MAX && !self.spins(sim, waiting)
        };
        match self.queue.iter().position(is_starved) {
            Some(at) => self.queue[at].rouse(sim, from),
            None => from,
        }
    }

    /// Whether it waits awake: as long as the holder is on its core and no other thread wants the
    /// waiter's (the kernel's optimistic spinning).
    fn spins(&self, sim: &Sim, waiting: &Waiting) -> bool {
        waiting.since >= self.asleep_until && sim.has_its_core(waiting.waiter)
    }

    /// Where in the queue the thread stands that takes the lock first once it is free; `None` if
    /// that one sleeps.
    fn first_awake(&self, sim: &Sim) -> Option<usize> {
        let is_awake = |waiting: &Waiting| !waiting.roused && self.spins(sim, waiting);
        let at = match self.queue.iter().position(|waiting| waiting.is_next) {
            Some(at) => Some(at).filter(|&at| is_awake(&self.queue[at])),
            None => self.queue.iter().position(is_awake),
        }?;
        // A reader does not pass a writer.
        let passes = self.queue[at].mode == Mode::Exclusive
            || self.queue.iter().take(at).all(|waiting| waiting.mode == Mode::Shared);
        passes.then_some(at)
    }
}

impl Data {
    /// Brings the lines to `core`. Returns how long that takes.
    fn bring(&mut self, sim: &Sim, mode: Mode, core: usize) -> Nanos {
        let has_copy = self.sharers.contains(core);
        let owner = self.owner.map(|owner| owner as usize);
        if mode == Mode::Exclusive {
            self.owner = Some(core as u32);
            self.sharers = CoreSet::default();
        }
        self.sharers.insert(core);
        match owner {
            Some(owner) if !has_copy => {
                sim.profile.lock_lines() * sim.profile.transfer(Some(owner), core)
            }
            _ => 0,
        }
    }
}
