//! Counted permits on either machine.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

use crate::may_sleep;
use crate::sim::line::LineState;
use crate::sim::{self, Sim, Waiter, WaitsFor, Wake};

/// A number of permits that threads take and give back. On a virtual machine waiters are served in
/// the order they came, and one that asks for many is not overtaken by others that ask for few.
pub struct Semaphore {
    state: Mutex<State>,
    returned: Condvar,
}

struct State {
    free: usize,
    line: LineState,
    queue: VecDeque<(Waiter, usize)>,
}

impl Semaphore {
    /// A semaphore with that many free permits.
    pub const fn new(permits: usize) -> Self {
        let state = State { free: permits, line: LineState::new(), queue: VecDeque::new() };
        Semaphore { state: Mutex::new(state), returned: Condvar::new() }
    }

    /// Waits until `permits` are free at once, and takes them.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn acquire(&self, permits: usize) {
        may_sleep();
        if let Some(sim) = sim::current() {
            return self.acquire_virtually(sim, permits);
        }
        let mut state = self.state.lock();
        while state.free < permits {
            self.returned.wait(&mut state);
        }
        state.free -= permits;
    }

    /// Takes `permits` if they are free now.
    pub fn try_acquire(&self, permits: usize) -> bool {
        let mut state = self.state.lock();
        let sim = sim::current();
        let end = sim.map(|sim| state.line.take(sim));
        let granted = sim.is_none_or(|sim| !state.is_awaited(sim)) && state.free >= permits;
        if granted {
            state.free -= permits;
        }
        drop(state);
        if let (Some(sim), Some(end)) = (sim, end) {
            sim.advance(end);
        }
        granted
    }

    /// Gives `permits` back.
    pub fn release(&self, permits: usize) {
        let mut state = self.state.lock();
        state.free += permits;
        let sim = sim::current();
        let end = sim.map(|sim| {
            state.serve(sim);
            state.line.take(sim)
        });
        drop(state);
        self.returned.notify_all();
        if let (Some(sim), Some(end)) = (sim, end) {
            sim.advance(end);
        }
    }

    /// How many permits are free now.
    pub fn available(&self) -> usize {
        self.state.lock().free
    }

    fn acquire_virtually(&self, sim: &Sim, permits: usize) {
        let mut state = self.state.lock();
        let end = state.line.take(sim);
        if !state.is_awaited(sim) && state.free >= permits {
            state.free -= permits;
            drop(state);
            return sim.advance_quietly(end);
        }
        let waiter = sim.prepare_wait();
        state.queue.push_back((waiter, permits));
        drop(state);
        sim.advance_quietly(end);
        if sim.wait(waiter, WaitsFor::Permits(permits)) == Wake::Cancelled {
            let mut state = self.state.lock();
            state.queue.retain(|&(other, _)| other != waiter);
            state.serve(sim);
            drop(state);
            sim.end_thread();
        }
    }
}

impl State {
    /// Whether anyone waits. First forgets the waiters of machines that have ended.
    fn is_awaited(&mut self, sim: &Sim) -> bool {
        while self.queue.front().is_some_and(|&(waiter, _)| !sim.is_waiting(waiter)) {
            self.queue.pop_front();
        }
        !self.queue.is_empty()
    }

    /// Gives permits to the waiters at the head of the queue as long as there are enough.
    fn serve(&mut self, sim: &Sim) {
        while self.is_awaited(sim) {
            let Some(&(waiter, permits)) = self.queue.front() else { break };
            if permits > self.free {
                break;
            }
            self.free -= permits;
            self.queue.pop_front();
            sim.wake(waiter, sim.now() + sim.profile.wake());
        }
    }
}
