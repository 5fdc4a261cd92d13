//! What would be left of the drive at moments of the run, taken while it runs.
//!
//! A moment is an event of the drive: a command arrives, or a NAND program ends. Between events
//! nothing changes. The clock does not measure how long a state lasts, because an emulated machine
//! is slow and its drive is not; so all events count the same. Their number is not known
//! beforehand, so they are chosen by a reservoir: after any number of events, each was kept with
//! the same odds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cores::Mutex;
use drive::{DriveState, Event, Moment, Ssd};
use lab::oracle::Oracle;
use lab::workload::Rng;

/// Survivors drawn per event from a drive that leaves them to chance.
const CHANCES: usize = 3;
/// The stream of random numbers of this choice.
const STREAM: u64 = 7;

/// Which of the moments are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// So many.
    Random(usize),
    /// Each of them.
    All,
}

/// A cut.
pub(crate) struct Cut {
    /// The event's number since `start`, times the draws of each, and which draw.
    pub(crate) index: usize,
    /// Nanoseconds since `start`.
    pub(crate) at_ns: u64,
    /// Events of the oracle before it.
    pub(crate) position: usize,
    pub(crate) state: DriveState,
}

/// Takes cuts of a drive from [`Cuts::start`] to [`Cuts::end`].
pub(crate) struct Cuts {
    ssd: Arc<Ssd>,
    started: Arc<AtomicU64>,
    taken: Arc<Mutex<Vec<Cut>>>,
}

struct Watcher {
    oracle: Arc<Oracle>,
    started: Arc<AtomicU64>,
    choice: Choice,
    draws: usize,
    seed: u64,
    rng: Rng,
    seen: usize,
    kept: Vec<Cut>,
    taken: Arc<Mutex<Vec<Cut>>>,
}

impl Cuts {
    /// Prepares to take cuts of `ssd`.
    pub(crate) fn new(ssd: &Arc<Ssd>, oracle: &Arc<Oracle>, choice: Choice, seed: u64) -> Self {
        let started = Arc::new(AtomicU64::new(u64::MAX));
        let taken = Arc::new(Mutex::new(Vec::new()));
        let identify = drive::Drive::identify(&**ssd);
        let draws = if identify.volatile_cache && identify.zones.is_none() { CHANCES } else { 1 };
        let mut watcher = Watcher {
            oracle: oracle.clone(),
            started: started.clone(),
            choice,
            draws,
            seed,
            rng: Rng::new(seed, STREAM),
            seen: 0,
            kept: Vec::new(),
            taken: taken.clone(),
        };
        ssd.observe(Box::new(move |event, moment| watcher.see(event, moment)));
        Self { ssd: ssd.clone(), started, taken }
    }

    /// From here on the power may fail.
    pub(crate) fn start(&self) {
        self.started.store(cores::now(), Ordering::Release);
    }

    /// The cuts, in order of time.
    pub(crate) fn end(self) -> Vec<Cut> {
        // Dropping the observer hands over what it took.
        drop(self.ssd.unobserve());
        let mut cuts = std::mem::take(&mut *self.taken.lock());
        cuts.sort_by_key(|cut| cut.index);
        cuts
    }
}

impl Watcher {
    fn see(&mut self, event: &Event<'_>, moment: &Moment<'_>) {
        let started = self.started.load(Ordering::Acquire);
        if started == u64::MAX {
            return;
        }
        for _ in 0..self.draws {
            let index = self.seen;
            self.seen += 1;
            let slot = match self.choice {
                Choice::All => self.kept.len(),
                Choice::Random(most) if self.kept.len() < most => self.kept.len(),
                Choice::Random(most) => match self.rng.below(self.seen as u64) as usize {
                    slot if slot < most => slot,
                    _ => continue,
                },
            };
            let state = moment.survivors(self.seed.wrapping_add(index as u64));
            let at_ns = event.at.saturating_sub(started);
            // Taken after the state: anything acknowledged by then was already durable in it.
            let position = self.oracle.position();
            let cut = Cut { index, at_ns, position, state };
            match self.kept.get_mut(slot) {
                Some(old) => *old = cut,
                None => self.kept.push(cut),
            }
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        *self.taken.lock() = std::mem::take(&mut self.kept);
    }
}

#[cfg(test)]
mod tests {
    use drive::{Block, Blocks, Command, Drive, Spec, Timing};

    use super::*;

    /// Cuts of a drive that is sent twenty writes, by `choice`.
    fn cuts(choice: Choice) -> Vec<usize> {
        let spec = Spec::named("conventional-noplp").expect("profile").blocks(1024);
        let ssd = Ssd::new(spec, Timing::Instant, 1).expect("drive");
        let cuts = Cuts::new(&ssd, &Arc::new(Oracle::new()), choice, 1);
        let write = |lba| {
            let data = Blocks::from_iter([Block::new([7; drive::BLOCK_SIZE])]);
            ssd.submit(0, 0, Command::Write { lba, data, fua: false });
            drop(ssd.wait(0));
        };
        write(0);
        cuts.start();
        (1..21).for_each(write);
        cuts.end().iter().map(|cut| cut.index).collect()
    }

    #[test]
    fn cuts_are_of_the_events_since_the_start() {
        let all = cuts(Choice::All);
        assert!(all.len() >= 20 * CHANCES, "{}", all.len());
        assert_eq!(all, (0..all.len()).collect::<Vec<_>>());
        let some = cuts(Choice::Random(10));
        assert!(some.len() == 10 && some.is_sorted_by(|one, next| one < next), "{some:?}");
        assert!(some.iter().any(|index| *index >= 30), "not only the first: {some:?}");
        assert_eq!(cuts(Choice::Random(1000)), all);
    }
}
