//! Ctrl-C, and the other ways to ask a process to end. A command with something to tell, or to
//! clear away, stops at the next good place and does that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::{Failure, Outcome};

/// What a shell adds to a signal's number, for the status of a process that it ended.
const STATUS: u8 = 128;

/// Whether the command was interrupted. By default it cannot be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    came: Arc<AtomicBool>,
    /// The last signal.
    signal: Arc<AtomicUsize>,
}

/// Whether this process ignores a signal: proc(5), where there is such a file.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & 1 << (signal - 1) != 0
}

impl Interrupt {
    /// From now on the first signal is noted. The second one ends the process. SIGHUP stays ignored
    /// if it was, as under `nohup`.
    pub(crate) fn watch() -> Outcome<Self> {
        let interrupt = Self::default();
        let Self { came, signal } = &interrupt;
        for number in [SIGINT, SIGHUP, SIGTERM] {
            if number == SIGHUP && is_ignored(number) {
                continue;
            }
            let status = i32::from(STATUS) + number;
            // In this order: the other way round, the first one would end it as well.
            flag::register_conditional_shutdown(number, status, came.clone())
                .and_then(|_| flag::register_usize(number, signal.clone(), number as usize))
                .and_then(|_| flag::register(number, came.clone()))
                .map_err(Failure::on("signals"))?;
        }
        Ok(interrupt)
    }

    /// One that has come.
    #[cfg(test)]
    pub(crate) fn now() -> Self {
        let interrupt = Self::default();
        interrupt.came.store(true, Ordering::Relaxed);
        interrupt
    }

    /// Whether to stop.
    pub(crate) fn came(&self) -> bool {
        self.came.load(Ordering::Relaxed)
    }

    /// Fails if it came, with what was done by then.
    pub(crate) fn check(&self, done: impl FnOnce() -> String) -> Outcome<()> {
        if !self.came() {
            return Ok(());
        }
        let code = STATUS + self.signal.load(Ordering::Relaxed) as u8;
        Err(Failure::Coded { message: format!("interrupted: {}", done()), code })
    }
}
