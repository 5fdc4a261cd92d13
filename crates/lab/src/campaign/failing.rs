//! Runs on a drive that fails one write or flush (`--drive NAME:fail=N`).
//!
//! The rule: the failure is reported to somebody and stops the volume, so `sync` fails from then
//! on. What was durable stays, which the cuts of the run show, before the failure and after it.

use std::sync::Arc;

use drive::{Drive, Fault, FaultOn, Ssd, Status};
use vfs::kind::{Habits, Volume};

use crate::workload::Rng;
use crate::{Error, Result};

/// The stream of random numbers that decides how long the command is under way before it fails.
const FAILING: u64 = 9;
/// So long at most, in nanoseconds: enough for other threads to meet it.
const TRIES_FOR: u64 = 3_000_000;

/// A drive of which one write or flush fails.
pub(super) struct Failing {
    fault: Arc<Fault<Arc<Ssd>>>,
    nth: u64,
    tries_for: u64,
}

impl Failing {
    /// Makes the write or flush of this number fail, counted from 0 from [`Failing::arm`] on.
    pub(super) fn new(ssd: Arc<Ssd>, nth: u64, seed: u64) -> Self {
        let mut rng = Rng::new(seed, FAILING);
        // Every third fails at once.
        let tries_for = if rng.below(3) == 0 { 0 } else { rng.below(TRIES_FOR) };
        Self { fault: Arc::new(Fault::new(ssd)), nth, tries_for }
    }

    /// What the volume is mounted on.
    pub(super) fn drive(&self) -> Arc<dyn Drive> {
        self.fault.clone()
    }

    /// From now on commands count.
    pub(super) fn arm(&self) {
        let (nth, status) = (self.nth, Status::WriteFault);
        self.fault.fail_nth_after(FaultOn::WriteOrFlush, nth, status, self.tries_for);
    }

    /// What came of a run: if the drive has failed by then, some call must have said so or the next
    /// `sync` does, and it always fails, unless what failed is written again.
    pub(super) fn judge(&self, ran: Result<()>, volume: &dyn Volume, habits: Habits) -> Result<()> {
        if self.fault.is_armed() {
            return ran;
        }
        match ran {
            Ok(()) | Err(Error::FileSystem { .. } | Error::Full) => {}
            other => return other,
        }
        match volume.sync() {
            Err(_) => Ok(()),
            Ok(()) if habits.writes_again => Ok(()),
            Ok(()) => {
                let message = format!("write or flush {} failed, and sync does not", self.nth);
                Err(Error::Volume { step: "sync", message })
            }
        }
    }
}
