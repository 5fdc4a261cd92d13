//! Threads of either machine.

use std::any::Any;
use std::panic::resume_unwind;

use crate::{real, trace};

/// A panic's payload, or the word that the thread was ended with its machine.
pub type Panic = Box<dyn Any + Send + 'static>;

/// A started thread; dropping the handle lets the thread run on by itself.
pub struct JoinHandle<T> {
    inner: std::thread::JoinHandle<T>,
}

/// Starts a thread, on `core` (counted modulo the cores there are) or wherever is best.
///
/// # Panics
///
/// When the operating system refuses another thread.
pub fn spawn<T: Send + 'static>(
    name: &str,
    core: Option<usize>,
    f: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let tracing = trace::inherit();
    let body = move || {
        if let Some(core) = core {
            real::pin(core);
        }
        trace::adopt(tracing);
        f()
    };
    match std::thread::Builder::new().name(name.to_owned()).spawn(body) {
        Ok(inner) => JoinHandle { inner },
        Err(error) => panic!("cannot start thread {name:?}: {error}"),
    }
}

impl<T> JoinHandle<T> {
    /// Waits for the thread's end and returns its value; panics as it did if it panicked.
    pub fn join(self) -> T {
        self.result().unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Waits for the thread's end; `Err` if it panicked. The one to use in a `Drop`.
    pub fn result(self) -> Result<T, Panic> {
        self.inner.join()
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }
}
