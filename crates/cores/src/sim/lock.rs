//! The virtual side of every lock: who holds it, who waits, and what its cache line costs.
//!
//! The `parking_lot` lock beside this one ensures the exclusion itself. A virtual holder takes that
//! too, and never has to wait for it. So a lock misused from two machines at once is slow or stuck,
//! never unsound. A lock held on one machine is simply a `parking_lot` lock to every other.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::line::LineState;
use super::{Sim, Waiter, WaitsFor, Wake, current};
use crate::Nanos;
use crate::lockstat::{self, Watch};

/// Alone, or with other readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Shared,
    Exclusive,
}

/// A lock's state on a virtual machine. There is none until it is first used on one.
pub(crate) struct VirtualLock {
    state: Mutex<Option<Box<LockState>>>,
    /// It is no part of the machine: who takes it or lets go of it spends no time.
    is_free: bool,
}

#[derive(Default)]
struct LockState {
    machine: u64,
    line: LineState,
    readers: usize,
    written: bool,
    queue: VecDeque<(Waiter, Mode)>,
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
        VirtualLock { state: Mutex::new(None), is_free: false }
    }

    /// A lock that costs nothing.
    pub(crate) const fn free() -> VirtualLock {
        VirtualLock { state: Mutex::new(None), is_free: true }
    }

    /// When the lock's line is at the running core, to be changed.
    fn take_line(&self, sim: &Sim, line: &mut LineState) -> Nanos {
        if self.is_free { sim.now() } else { line.take(sim) }
    }

    fn watch(&self, sim: &Sim, waits_for: &WaitsFor) -> Option<Box<Watch>> {
        if self.is_free { None } else { Watch::of_virtual(sim, waits_for) }
    }

    /// Lets the time pass that the line took. A lock that costs nothing is no moment at which
    /// others may come in between.
    fn spend(&self, sim: &Sim, end: Nanos) {
        if !self.is_free {
            sim.advance(end);
        }
    }

    /// This lock's identity in reports.
    pub(crate) fn id(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// Waits for a hold, first come first served.
    pub(crate) fn acquire(&self, sim: &Sim, mode: Mode, waits_for: WaitsFor) -> Hold<'_> {
        let mut watch = self.watch(sim, &waits_for);
        let mut slot = self.state.lock();
        let Some(state) = LockState::of(&mut slot, sim) else { return Hold::REAL };
        let end = self.take_line(sim, &mut state.line);
        if state.queue.is_empty() && state.is_free_for(mode) {
            state.grant(mode);
            drop(slot);
            sim.note_held(self.id());
            let mut hold = Hold { lock: Some(self), mode, watch: None };
            self.spend(sim, end);
            watch.iter_mut().for_each(|watch| watch.spun());
            hold.watch = watch;
            return hold;
        }
        let waiter = sim.prepare_wait();
        state.queue.push_back((waiter, mode));
        drop(slot);
        sim.advance_quietly(end);
        watch.iter_mut().for_each(|watch| watch.spun());
        if sim.wait(waiter, waits_for) == Wake::Cancelled {
            self.leave_queue(sim, waiter);
            sim.end_thread();
        }
        watch.iter_mut().for_each(|watch| watch.waited());
        Hold { lock: Some(self), mode, watch }
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
        let end = self.take_line(sim, &mut state.line);
        let granted = state.queue.is_empty() && state.is_free_for(mode);
        if granted {
            state.grant(mode);
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
        state.ungrant(mode);
        // If the guard has outlived its machine, nobody waits for the lock.
        let Some(sim) = current().filter(|sim| sim.id == state.machine) else { return };
        let end = self.take_line(sim, &mut state.line);
        state.hand_on(sim, self, end);
        drop(slot);
        sim.note_released(self.id());
        self.spend(sim, end);
    }

    /// Forgets a waiter that will not come; it may have been in the way of others.
    fn leave_queue(&self, sim: &Sim, waiter: Waiter) {
        let mut slot = self.state.lock();
        if let Some(state) = LockState::of(&mut slot, sim) {
            state.queue.retain(|&(other, _)| other != waiter);
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
            state.machine = sim.id;
            state.queue.clear();
        }
        Some(state)
    }

    fn is_free_for(&self, mode: Mode) -> bool {
        !self.written && (mode == Mode::Shared || self.readers == 0)
    }

    fn grant(&mut self, mode: Mode) {
        match mode {
            Mode::Shared => self.readers += 1,
            Mode::Exclusive => self.written = true,
        }
    }

    fn ungrant(&mut self, mode: Mode) {
        match mode {
            Mode::Shared => self.readers -= 1,
            Mode::Exclusive => self.written = false,
        }
    }

    /// Gives the lock to the waiters at the head of the queue that can have it together. The line
    /// goes from one to the next, so each pays for its transfer in turn.
    fn hand_on(&mut self, sim: &Sim, of: &VirtualLock, from: Nanos) {
        while let Some(&(waiter, mode)) = self.queue.front() {
            if !self.is_free_for(mode) {
                break;
            }
            self.queue.pop_front();
            if sim.is_waiting(waiter) {
                let to = sim.core_of(waiter);
                let at = if of.is_free { from } else { self.line.hand_to(sim, to, from) };
                sim.wake(waiter, at);
                self.grant(mode);
                sim.note_held_by(waiter, of.id());
            }
        }
    }
}
