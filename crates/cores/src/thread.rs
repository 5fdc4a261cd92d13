//! Threads of either machine.

use std::any::Any;
use std::panic::resume_unwind;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::sim::{self, MachineEnded, Name, Sim, Waiter, WaitsFor, Wake};
use crate::{may_sleep, real, trace};

/// What a panic carries, or the note that the thread ended with its machine.
pub type Panic = Box<dyn Any + Send + 'static>;

/// A started thread. If the handle is dropped, the thread runs on by itself.
pub struct JoinHandle<T> {
    thread: Kind<T>,
}

enum Kind<T> {
    Real(std::thread::JoinHandle<T>),
    Virtual(Arc<Ending<T>>),
}

/// Where a virtual thread leaves its result.
struct Ending<T> {
    name: Name,
    state: Mutex<EndingState<T>>,
}

struct EndingState<T> {
    ended: bool,
    result: Option<Result<T, Panic>>,
    joiner: Option<Waiter>,
}

/// Starts a thread on `core`, counted modulo the number of cores. Without one, it runs wherever the
/// system likes (real) or on the cores in turn (virtual).
///
/// # Panics
///
/// When the operating system refuses another thread, or a stack for one.
pub fn spawn<T: Send + 'static>(
    name: &str,
    core: Option<usize>,
    f: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    match try_spawn(name, core, f) {
        Ok(thread) => thread,
        Err(error) => panic!("cannot start thread {name:?}: {error}"),
    }
}

/// As [`spawn`], for a thread that the caller can do without.
///
/// # Errors
///
/// When the operating system refuses another thread, or a stack for one.
pub fn try_spawn<T: Send + 'static>(
    name: &str,
    core: Option<usize>,
    f: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    let thread = match sim::current() {
        Some(sim) => spawn_virtual(sim, name, core, f).map(Kind::Virtual),
        None => spawn_real(name, core, f).map(Kind::Real),
    };
    thread.map(|thread| JoinHandle { thread })
}

fn spawn_real<T: Send + 'static>(
    name: &str,
    core: Option<usize>,
    f: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<T>> {
    let recorder = trace::inherit();
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        if let Some(core) = core {
            real::pin(core);
        }
        trace::adopt(recorder);
        f()
    })
}

fn spawn_virtual<T: Send + 'static>(
    sim: &Sim,
    name: &str,
    core: Option<usize>,
    f: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<Arc<Ending<T>>> {
    let state = EndingState { ended: false, result: None, joiner: None };
    let ending = Arc::new(Ending { name: name.into(), state: Mutex::new(state) });
    let body = {
        let ending = ending.clone();
        move || {
            let result = sim::guarded(|| {
                if let Some(sim) = sim::current() {
                    sim.check_end();
                }
                f()
            });
            ending.end(result);
        }
    };
    sim.spawn(name, core, body)?;
    Ok(ending)
}

impl<T> Ending<T> {
    fn end(&self, result: Result<T, Panic>) {
        let mut state = self.state.lock();
        state.ended = true;
        state.result = Some(result);
        if let (Some(joiner), Some(sim)) = (state.joiner.take(), sim::current()) {
            sim.wake(joiner, sim.now() + sim.profile.wake());
        }
    }

    fn wait(&self) -> Result<T, Panic> {
        loop {
            let mut state = self.state.lock();
            if let Some(result) = state.result.take() {
                return result;
            }
            // If its machine has ended and the thread has not, it never will.
            let Some(sim) = sim::current() else { return Err(Box::new(MachineEnded)) };
            let waiter = sim.prepare_wait();
            state.joiner = Some(waiter);
            drop(state);
            if sim.wait(waiter, WaitsFor::Thread(self.name.clone())) == Wake::Cancelled {
                sim.end_thread();
            }
        }
    }
}

impl<T> JoinHandle<T> {
    /// Waits for the thread's end and returns its value; panics as it did if it panicked.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn join(self) -> T {
        self.result().unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Waits for the thread's end; `Err` if it panicked or was ended with its machine. A `Drop`
    /// should use this one.
    ///
    /// # Errors
    ///
    /// The panic's payload.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn result(self) -> Result<T, Panic> {
        may_sleep();
        match self.thread {
            Kind::Real(thread) => thread.join(),
            Kind::Virtual(ending) => ending.wait(),
        }
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        match &self.thread {
            Kind::Real(thread) => thread.is_finished(),
            Kind::Virtual(ending) => ending.state.lock().ended,
        }
    }
}
