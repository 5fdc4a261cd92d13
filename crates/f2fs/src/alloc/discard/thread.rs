//! When to discard what: the discard thread and its policies (`__init_discard_policy`).

use cores::{Nanos, now};

use super::Runs;
use crate::F2fs;
use crate::error::Result;
use crate::mount::attributes::{GcMode, Knobs};
use crate::mount::engine::Engine;

const MS: Nanos = 1_000_000;
const SECOND: Nanos = 1_000 * MS;
/// Percent of the volume in use above which short runs are worth it (`DEF_DISCARD_URGENT_UTIL`).
const URGENT_PERCENT: u64 = 80;

/// Since when no request has come.
#[derive(Default)]
struct Quiet {
    operations: u64,
    since: Nanos,
}

impl Quiet {
    fn for_long(&mut self, operations: u64, interval: Nanos) -> bool {
        if self.operations != operations {
            *self = Self { operations, since: now() };
        }
        now() - self.since >= interval
    }
}

/// Discards in the background: zones are reset at once; runs of at least `discard_granularity` are
/// discarded after `discard_idle_interval` without an operation, a few at a time.
pub(crate) fn discard_thread(fs: &F2fs) {
    let mut quiet = Quiet { operations: 0, since: now() };
    let mut wake = Nanos::MAX;
    while let Some(mut state) = fs.upkeep.sleep(wake, |wishes| wishes.discard == Some(true)) {
        state.own.discard = Some(false);
        let knobs = state.own.knobs;
        drop(state);
        let round = fs.discard_round(&knobs, &mut quiet);
        let Ok(wait) = round else {
            fs.report_failure("discard", round.map(drop));
            return;
        };
        wake = wait.map_or(Nanos::MAX, |wait| now().saturating_add(wait));
    }
}

impl F2fs {
    /// One round of the thread. How long to wait for the next; `None` if there is nothing to wait
    /// for.
    fn discard_round(&self, knobs: &Knobs, quiet: &mut Quiet) -> Result<Option<Nanos>> {
        let urgent = knobs.gc_mode() == GcMode::UrgentHigh;
        let interval = knobs.discard_idle_interval.saturating_mul(SECOND);
        let idle = quiet.for_long(self.operations_begun(), interval) || urgent;
        let least = if urgent { 1 } else { self.lock().least_discard(knobs) };
        let most = usize::try_from(knobs.max_discard_request).unwrap_or(usize::MAX);
        let told = self.discard(if idle { Runs { least, most } } else { Runs::NONE })?;
        let (any, some) = {
            let mut volume = self.lock();
            let pending = volume.segments.get_mut().pending();
            (pending.count() > 0, pending.has(least))
        };
        let ms = match (some, idle) {
            (true, true) if told > 0 => knobs.min_discard_issue_time,
            (true, false) => knobs.mid_discard_issue_time,
            _ if any => knobs.max_discard_issue_time,
            _ => return Ok(None),
        };
        Ok(Some(ms.saturating_mul(MS)))
    }
}

impl Engine {
    /// The shortest run that the thread discards.
    fn least_discard(&self, knobs: &Knobs) -> u32 {
        match self.space.used_percent() > URGENT_PERCENT {
            true => 1,
            false => knobs.discard_granularity as u32,
        }
    }

    /// Discards everything that is free, for at most `umount_discard_timeout`: an unmount waits for
    /// it.
    pub(crate) fn discard_all(&mut self) -> Result<()> {
        let timeout = self.knobs.umount_discard_timeout.saturating_mul(SECOND);
        let deadline = now().saturating_add(timeout);
        let mut runs = Runs { least: 1, most: self.knobs.max_discard_request as usize };
        loop {
            let telling = self.begin_discards(runs)?;
            if telling.is_empty() {
                return Ok(());
            }
            let told = telling.tell(self.io.queue());
            self.end_discards(told)?;
            if now() >= deadline {
                // All zones were reset at once; the next `fstrim` discards what is left.
                runs = Runs::NONE;
            }
        }
    }
}
