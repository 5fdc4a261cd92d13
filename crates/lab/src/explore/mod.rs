//! Every state a power cut could leave of a run, not only those that one order of programs shows.
//!
//! A run is recorded as the commands that the drive was sent and the oracle's position at each.
//! From these follow all states the drive may show after a cut (`states`), whatever its timing.
//! Each is mounted, compared with the oracle at every position at which it can occur, checked,
//! unmounted and mounted again. [`ace`] makes all short sequences of operations to do that with,
//! [`table`] says what was seen.

pub mod ace;
pub mod batch;
mod judge;
mod states;
pub mod table;

use std::sync::Arc;

use cores::Mutex;
use drive::{Command, Drive, DriveState, Event as DriveEvent, EventKind, Timing};
use serde::{Deserialize, Serialize};

use crate::campaign::{self, Cut, Failure, Job, Recording};
use crate::oracle::{Event, Oracle, Promise, Verdict};
use crate::workload::recorder::Recorder;
use crate::{Error, Result, machine, rig};

pub use judge::Seen;
use states::Entry;

/// How many states to look at where there are too many.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// If an instant has at most this many states, all are looked at; otherwise this many are drawn
    /// from the seed.
    pub states: usize,
}

impl Default for Bound {
    fn default() -> Self {
        Self { states: 256 }
    }
}

/// How many states there were, and of what kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Different states mounted.
    pub states: usize,
    /// Pairs of a state and an instant at which it can be left, each compared with the oracle.
    pub judged: usize,
    /// Instants with too many states to look at all.
    pub sampled: usize,
    /// Pairs in which a promise was broken.
    pub broken: usize,
    /// Pairs with old and new parts of one fsync.
    pub torn: usize,
}

impl Counts {
    /// Adds other counts. They may come from a file, so sums must not overflow.
    pub(crate) fn add(&mut self, more: &Self) {
        for (sum, more) in [
            (&mut self.states, more.states),
            (&mut self.judged, more.judged),
            (&mut self.sampled, more.sampled),
            (&mut self.broken, more.broken),
            (&mut self.torn, more.torn),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

/// What was found for one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Explored {
    /// The workload.
    pub workload: String,
    /// Short name of the mode.
    pub mode: String,
    /// The drive's profile.
    pub drive: String,
    /// What the mode promises there.
    pub promise: Promise,
    /// Seed of the run.
    pub seed: u64,
    /// How much of what.
    #[serde(flatten)]
    pub counts: Counts,
    /// The first pairs that broke a promise.
    pub failures: Vec<Failure>,
    /// What was seen while the last operation was being made durable, and afterwards.
    #[serde(skip)]
    pub seen: Seen,
}

/// A run as the drive saw it.
struct Tape {
    log: Vec<Event>,
    /// What was durable when the workload started.
    base: DriveState,
    entries: Vec<Entry>,
    /// The oracle's position when the workload started, and at its end.
    positions: (usize, usize),
}

/// The drive's observer. It runs under the drive's lock, so it takes no other before it is dropped.
struct Writer {
    oracle: Arc<Oracle>,
    entries: Vec<Entry>,
    slot: Arc<Mutex<Vec<Entry>>>,
}

impl Writer {
    fn see(&mut self, event: &DriveEvent<'_>) {
        if let EventKind::Command { command, .. } = event.kind {
            let position = self.oracle.position();
            self.entries.push(Entry { command: command.clone(), position });
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        *self.slot.lock() = std::mem::take(&mut self.entries);
    }
}

impl Explored {
    /// Whether both belong to one run.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        (&self.workload, &self.mode, &self.drive, self.promise, self.seed)
            == (&other.workload, &other.mode, &other.drive, other.promise, other.seed)
    }

    /// Adds the share that comes next.
    pub(crate) fn add(&mut self, next: Self) {
        self.counts.add(&next.counts);
        self.failures.extend(next.failures);
        self.failures.truncate(FAILURES_SHOWN);
    }
}

/// Failures reported in full; the rest are counted.
const FAILURES_SHOWN: usize = 20;

/// The first state of a run, at a position at which it may be left, whose findings satisfy `is`:
/// how it fails, and the run with that cut alone.
pub(crate) fn first_failure(
    job: &Job,
    bound: Bound,
    is: &mut dyn FnMut(&[Verdict], Promise) -> bool,
) -> Result<Option<(Failure, Recording)>> {
    let spec = rig::unkind(&job.drive, job.workload.footprint())?;
    let identify = spec.identify().map_err(|e| Error::Usage(e.to_string()))?;
    let promise = job.promise(&identify);
    let tape = take(job)?;
    let found = states::enumerate(&tape, identify.volatile_cache, bound, job.seed)?;
    let is = &mut |verdicts: &[Verdict]| is(verdicts, promise);
    let Some((number, position, verdicts)) = judge::first_failure(job, &tape, &found, is)? else {
        return Ok(None);
    };
    let sent = tape.entries.iter().filter(|entry| entry.position <= position);
    let sent = sent.map(|entry| &entry.command);
    let state = &found.states[number].drive;
    let zone_map = campaign::zones_at(&tape.base, state, sent);
    let cut = Cut::of_state(number, position, state.clone());
    let broken = verdicts.iter().any(|v| v.breaks(promise));
    let failure = Failure { cut: number, at_ns: 0, broken, verdicts, replay: job.replay(number) };
    let total = found.states.len();
    Ok(Some((failure, Recording::of_cut(tape.log, cut, total, promise, zone_map))))
}

/// How many states of a run [`explore`] would mount.
pub fn count(job: &Job, bound: Bound) -> Result<usize> {
    let spec = rig::unkind(&job.drive, job.workload.footprint())?;
    let identify = spec.identify().map_err(|e| Error::Usage(e.to_string()))?;
    let found = states::enumerate(&take(job)?, identify.volatile_cache, bound, job.seed)?;
    Ok(found.states.len())
}

/// Explores one run of the workload of `job`; `job.pick` selects among the states. With `outcomes`
/// it also tells old from new in each.
///
/// ```
/// use lab::campaign::Job;
/// use lab::explore::{Bound, explore};
/// # fn main() -> lab::Result<()> {
/// let format = subjects::named("f2fs")?;
/// let workload = lab::workload::named("ace:create+fsync", 0)?.into();
/// let strict = subjects::technique(format, "strict")?;
/// let job = Job::new(format, "zn540-noplp", workload, strict, 42);
/// let found = explore(&job, Bound { states: 16 }, false)?;
/// assert!(found.counts.states > 1 && found.counts.broken == 0, "{:?}", found.counts);
/// # Ok(())
/// # }
/// ```
pub fn explore(job: &Job, bound: Bound, outcomes: bool) -> Result<Explored> {
    let spec = rig::unkind(&job.drive, job.workload.footprint())?;
    let identify = spec.identify().map_err(|e| Error::Usage(e.to_string()))?;
    let promise = job.promise(&identify);
    let tape = take(job)?;
    let found = states::enumerate(&tape, identify.volatile_cache, bound, job.seed)?;
    judge::judge_all(job, &tape, &found, promise, outcomes)
}

fn take(job: &Job) -> Result<Tape> {
    machine(job.seed)?.run(|| {
        let spec = rig::unkind(&job.drive, job.workload.footprint())?;
        // No time passes on the drive: it gets its commands one after the other.
        let ssd = rig::new_drive(&spec, Timing::Instant, job.seed)?;
        let drive: Arc<dyn Drive> = ssd.clone();
        rig::make(job.format, &drive)?;
        let mounted = rig::mount(job.format, drive, &job.mount_options())?;
        let oracle = Arc::new(Oracle::new());
        let entries = Arc::new(Mutex::instrument("commands seen", Vec::new()));
        let recorder = Recorder::new(mounted.clone(), oracle.clone());
        let (mut base, mut begun) = (None, 0);
        job.workload.run(&recorder, job.seed, &mut || {
            // The preparation is durable, whatever fault is injected.
            let _ = ssd.issue(0, 0, Command::Flush).or_else(|| ssd.wait_for(0, 0));
            base = Some(ssd.survivors(job.seed));
            begun = oracle.position();
            let (oracle, slot) = (oracle.clone(), entries.clone());
            let mut writer = Writer { oracle, entries: Vec::new(), slot };
            ssd.observe(Box::new(move |event, _| writer.see(event)));
        })?;
        drop(ssd.unobserve());
        drop(recorder);
        drop(mounted);
        let positions = (begun, oracle.position());
        let base = base.ok_or_else(|| Error::Usage("the workload never started".into()))?;
        let entries = std::mem::take(&mut *entries.lock());
        Ok(Tape { log: oracle.take_log(), base, entries, positions })
    })?
}
