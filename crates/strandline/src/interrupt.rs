//! Ctrl-C. A command with something to tell stops at the next good place and tells it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::failure::{Failure, Outcome};

/// Exit status of a program that SIGINT ended, as a shell has it.
const STATUS: u8 = 130;

/// Whether somebody wants the command to stop. The default is that nobody can.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on the first SIGINT is noted. The second one ends the process.
    pub(crate) fn watch() -> Outcome<Self> {
        let noted = Arc::new(AtomicBool::new(false));
        // In this order: the other way round, the first one would end it as well.
        flag::register_conditional_shutdown(SIGINT, STATUS.into(), noted.clone())
            .and_then(|_| flag::register(SIGINT, noted.clone()))
            .map_err(Failure::on("signals"))?;
        Ok(Self(noted))
    }

    /// Whether to stop.
    pub(crate) fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails if it came, with what was done by then.
    pub(crate) fn check(&self, done: impl FnOnce() -> String) -> Outcome<()> {
        match self.came() {
            true => {
                Err(Failure::Coded { message: format!("interrupted: {}", done()), code: STATUS })
            }
            false => Ok(()),
        }
    }
}
