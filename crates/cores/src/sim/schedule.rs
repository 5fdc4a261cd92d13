//! Who runs next: the running core gives way, threads wait and are woken, timers fire.

use rand_xoshiro::rand_core::RngCore;

use super::core::Timer;
use super::thread::{Body, Cancel, State, Thread};
use super::tree::Key;
use super::{Inner, NONE, Name, Sim, Waiter, WaitsFor, Wake};
use crate::Nanos;

impl Sim {
    /// Hands over to whichever core is due before the running core's clock. Returns when none is.
    #[cold]
    #[inline(never)]
    pub(super) fn give_way(&self) {
        self.check_end();
        let inner = self.inner();
        if let Some(preempt) = &mut inner.preempt {
            let pause = preempt.pause();
            if pause > 0 {
                inner.clock += pause;
                inner.note_slept();
            }
        }
        self.hand_over();
        self.check_end();
    }

    /// As [`Sim::advance`], but never unwinds: for callers in the middle of a change.
    pub(crate) fn advance_quietly(&self, clock: Nanos) {
        let inner = self.inner();
        inner.clock = inner.clock.max(clock);
        if inner.clock >= inner.horizon {
            self.hand_over();
        }
    }

    fn hand_over(&self) {
        let inner = self.inner();
        let (index, clock) = (inner.core, inner.clock);
        let slice = self.profile.time_slice();
        let core = &mut inner.cores[index];
        if !core.ready.is_empty() && clock >= core.since.saturating_add(slice) {
            core.ready.push_back((inner.running, clock));
            inner.leave_core();
            self.switch();
            return self.note_slept();
        }
        core.clock = clock;
        core.run = Key::new(clock, inner.ties.next_u32(), index as u32);
        let run = core.run;
        inner.tree.set(index, core.due());
        if inner.tree.first() == run {
            inner.set_horizon(slice);
        } else {
            self.switch();
        }
    }

    /// Back to the machine's loop, until it is the running thread's turn again.
    pub(super) fn switch(&self) {
        let inner = self.inner();
        let slot = inner.running as usize;
        let thread = &mut inner.threads[slot];
        thread.unwinding = std::thread::panicking() && !thread.beside_unwinding;
        let yielder = thread.yielder;
        // SAFETY: the yielder lies on the running coroutine's own stack, which is this one, and no
        // reference into the state is used after the switch.
        unsafe { (*yielder).suspend(()) };
        let thread = &mut self.inner().threads[slot];
        thread.beside_unwinding = std::thread::panicking() && !thread.unwinding;
    }

    /// Begins a wait of the running thread: from now on the waiter can be woken.
    pub(crate) fn prepare_wait(&self) -> Waiter {
        let inner = self.inner();
        let thread = &mut inner.threads[inner.running as usize];
        thread.turn = thread.turn.wrapping_add(1);
        thread.woken = None;
        Waiter { machine: self.id, thread: inner.running, turn: thread.turn }
    }

    /// Blocks the running thread until its waiter is woken. If it was woken already, does not
    /// block.
    pub(crate) fn wait(&self, waiter: Waiter, waits_for: WaitsFor) -> Wake {
        // A thread that waits for a lock may spin.
        let sleeps = !matches!(waits_for, WaitsFor::Lock { .. });
        let slot = waiter.thread as usize;
        let inner = self.inner();
        let thread = &mut inner.threads[slot];
        if thread.woken.is_none() && thread.cancel == Cancel::Wanted && !thread.is_unwinding() {
            thread.turn = thread.turn.wrapping_add(1);
            return Wake::Cancelled;
        }
        if thread.woken.is_none() {
            thread.state = State::Blocked;
            thread.waits_for = Some(waits_for);
            inner.leave_core();
            self.switch();
        }
        let thread = &mut self.inner().threads[slot];
        thread.turn = thread.turn.wrapping_add(1);
        thread.waits_for = None;
        let (wake, at) = thread.woken.take().unwrap_or((Wake::Cancelled, 0));
        self.advance_quietly(at);
        if sleeps {
            self.note_slept();
        }
        wake
    }

    /// Ends a wait at the time `at`; false if it was over already.
    pub(crate) fn wake(&self, waiter: Waiter, at: Nanos) -> bool {
        waiter.machine == self.id && self.inner().wake(waiter, Wake::Notified, at)
    }

    /// As [`Sim::wake`], for a thread that waits for a lock and has to try again.
    pub(super) fn rouse(&self, waiter: Waiter, at: Nanos) {
        self.inner().wake(waiter, Wake::Roused, at);
    }

    /// Notes that the running thread was off its core until now.
    pub(crate) fn note_slept(&self) {
        self.inner().note_slept();
    }

    /// When the running thread came back to its core last.
    pub(super) fn slept_until(&self) -> Nanos {
        let inner = self.inner();
        inner.threads[inner.running as usize].slept_until
    }

    /// Whether no other thread has used the waiter's core since it began to wait, or wants to.
    pub(super) fn has_its_core(&self, waiter: Waiter) -> bool {
        let inner = self.inner();
        let core = &inner.cores[inner.threads[waiter.thread as usize].core];
        core.last == waiter.thread && core.ready.is_empty()
    }

    /// Ends a wait of the running thread at the time `deadline`, unless it ends before.
    pub(crate) fn wake_at(&self, waiter: Waiter, deadline: Nanos) {
        let inner = self.inner();
        let key = Key::new(deadline, inner.ties.next_u32(), inner.core as u32);
        inner.cores[inner.core].timers.push(Timer { key, waiter });
        inner.horizon = inner.horizon.min(deadline);
    }

    /// Whether a wait is still on.
    pub(crate) fn is_waiting(&self, waiter: Waiter) -> bool {
        waiter.machine == self.id && self.inner().threads[waiter.thread as usize].awaits(waiter)
    }

    /// The core of a waiter of this machine.
    pub(super) fn core_of(&self, waiter: Waiter) -> usize {
        self.inner().threads[waiter.thread as usize].core
    }

    /// Notes that a thread just woken holds the lock `id`.
    pub(super) fn note_held_by(&self, waiter: Waiter, id: usize) {
        self.inner().threads[waiter.thread as usize].held.push(id);
    }

    /// Picks the thread that goes on next and makes it the running one; `None` if none can.
    pub(super) fn pick(&self) -> Option<u32> {
        let inner = self.inner();
        let context_switch = self.profile.context_switch();
        loop {
            let first = inner.tree.first();
            if first == Key::IDLE {
                return None;
            }
            let index = first.core();
            if inner.cores[index].run != first {
                inner.fire_timer(index, first);
            }
            let core = &mut inner.cores[index];
            if core.run == first && core.current == NONE {
                let Some((thread, _)) = core.ready.pop_front() else {
                    unreachable!("a core is due without a thread")
                };
                if core.last != thread && core.last != NONE && context_switch > 0 {
                    let clock = first.clock().saturating_add(context_switch);
                    core.run = Key::new(clock, inner.ties.next_u32(), index as u32);
                }
                (core.current, core.last, core.since) = (thread, thread, core.run.clock());
            }
            if core.run != first {
                inner.tree.set(index, core.due());
                continue;
            }
            (inner.running, inner.core, inner.clock) = (core.current, index, first.clock());
            inner.set_horizon(self.profile.time_slice());
            return Some(inner.running);
        }
    }
}

impl Thread {
    fn awaits(&self, waiter: Waiter) -> bool {
        self.state != State::Free && self.turn == waiter.turn && self.woken.is_none()
    }

    /// Whether the running thread is unwinding.
    pub(super) fn is_unwinding(&self) -> bool {
        std::thread::panicking() && !self.beside_unwinding
    }
}

impl Inner {
    pub(super) fn note_slept(&mut self) {
        self.threads[self.running as usize].slept_until = self.clock;
    }

    pub(super) fn add_thread(&mut self, name: &str, core: usize, body: Body) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.threads.push(Box::new(Thread::empty()));
            (self.threads.len() - 1) as u32
        });
        self.born += 1;
        let slot = &mut self.threads[index as usize];
        let turn = slot.turn.wrapping_add(1);
        **slot = Thread {
            name: Name::from(name),
            core,
            serial: self.born,
            body: Some(body),
            turn,
            held: std::mem::take(&mut slot.held),
            ..Thread::empty()
        };
        index
    }

    /// Puts a thread into its core's queue, to run from `at` on.
    pub(super) fn make_ready(&mut self, thread: u32, at: Nanos) {
        let slot = &mut self.threads[thread as usize];
        slot.state = State::Runnable;
        let index = slot.core;
        let core = &mut self.cores[index];
        core.ready.push_back((thread, at));
        if core.current == NONE && core.ready.len() == 1 {
            let clock = core.clock.max(at);
            core.run = Key::new(clock, self.ties.next_u32(), index as u32);
            self.tree.set(index, core.due());
            self.horizon = self.horizon.min(clock);
        } else if index == self.core {
            // The time slice counts from here. The slow path knows how long it is.
            self.horizon = 0;
        }
    }

    /// Takes the core from the running thread, so that the next one in the queue can run.
    pub(super) fn leave_core(&mut self) {
        let index = self.core;
        let core = &mut self.cores[index];
        core.clock = self.clock;
        core.current = NONE;
        core.run = match core.ready.front() {
            Some(&(_, at)) => Key::new(core.clock.max(at), self.ties.next_u32(), index as u32),
            None => Key::IDLE,
        };
        self.tree.set(index, core.due());
    }

    pub(super) fn wake(&mut self, waiter: Waiter, wake: Wake, at: Nanos) -> bool {
        let thread = &mut self.threads[waiter.thread as usize];
        if !thread.awaits(waiter) {
            return false;
        }
        thread.woken = Some((wake, at));
        if thread.state == State::Blocked {
            self.make_ready(waiter.thread, at);
        }
        true
    }

    /// Ends the wait whose deadline is the `key` of its core. If the thread has the core to itself,
    /// it keeps the key and goes on without another round.
    fn fire_timer(&mut self, index: usize, key: Key) {
        let core = &mut self.cores[index];
        let Some(timer) = core.timers.pop() else { return };
        let idle = core.current == NONE && core.ready.is_empty();
        let thread = &mut self.threads[timer.waiter.thread as usize];
        if thread.awaits(timer.waiter) {
            thread.woken = Some((Wake::TimedOut, key.clock()));
            if thread.state == State::Blocked {
                thread.state = State::Runnable;
                core.ready.push_back((timer.waiter.thread, key.clock()));
                if idle {
                    core.run = key.not_before(core.clock);
                }
            }
        }
    }

    /// Sets how far the running core may go without asking again.
    fn set_horizon(&mut self, slice: Nanos) {
        let core = &self.cores[self.core];
        let slice =
            if core.ready.is_empty() { Nanos::MAX } else { core.since.saturating_add(slice) };
        self.horizon = slice.min(core.deadline()).min(self.tree.first_beside(self.core));
        // From here on every step takes the slow path.
        let slow = self.preempt.is_some();
        if slow || self.threads[self.running as usize].cancel == Cancel::Wanted {
            self.horizon = 0;
        }
    }
}
