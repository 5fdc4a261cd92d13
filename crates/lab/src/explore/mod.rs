//! Every state a power cut could leave of a run, not only those that one order of programs shows.
//!
//! A run is recorded as the commands that the drive was sent and the oracle's position at each.
//! From these follow all states the drive may show after a cut (`states`), whatever its timing.
//! Each is mounted, compared with the oracle at every position at which it can occur, checked,
//! unmounted and mounted again. [`ace`] makes all short sequences of operations to do that with,
//! [`table`] says what was seen.

pub mod ace;
pub mod batch;
mod collapse;
mod judge;
mod memory;
pub mod schedules;
mod states;
mod sum;
pub mod table;

use std::sync::Arc;

use cores::Mutex;
use drive::pm::{Domain, Pending, Pm, PmSim};
use drive::{Command, Drive, DriveState, Event as DriveEvent, EventKind, Ssd, Timing};
use serde::{Deserialize, Serialize};

use crate::campaign::{self, Cut, Failure, Job, Recording};
use crate::oracle::{Event, Oracle, Promise, Verdict};
use crate::report::ZoneMap;
use crate::rig::{Left, Medium};
use crate::workload::recorder::Recorder;
use crate::{Error, Result, machine, rig};

use judge::Models;
pub use judge::Seen;
use states::Entry;

/// How many states to look at where there are too many.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// If an instant has at most this many states, all are looked at; otherwise those that can be
    /// told apart or, if these are too many, this many drawn from the seed.
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

/// A run as the medium saw it.
struct Tape {
    log: Vec<Event>,
    ran: Ran,
    /// The oracle's position when the workload started, and at its end.
    positions: (usize, usize),
}

/// What the medium saw.
#[allow(clippy::large_enum_variant, reason = "there is one to a run")]
enum Ran {
    /// Commands, on a drive on which this was durable when the workload started.
    Ssd(DriveState, Vec<Entry>),
    /// What a cut might have left, and at which position of the oracle.
    Pm(Vec<(Pending, usize)>, Domain),
}

impl Tape {
    /// Every state that a cut may leave.
    fn states(&self, job: &Job, models: &Models, bound: Bound) -> Result<states::Found> {
        let look = &mut |left, positions: &[usize]| judge::look(job, models, left, positions);
        match &self.ran {
            Ran::Ssd(base, entries) => {
                let run = states::Commands { base, entries, positions: self.positions };
                states::enumerate(&run, bound, job.seed, look)
            }
            Ran::Pm(looks, domain) => memory::enumerate(looks, *domain, bound, job, look),
        }
    }

    /// The zones of the drive that a cut at this position left so.
    fn zones(&self, state: &Left, position: usize) -> Option<ZoneMap> {
        let (Ran::Ssd(base, entries), Some(state)) = (&self.ran, state.ssd()) else { return None };
        let sent = entries.iter().filter(|entry| entry.position <= position);
        campaign::zones_at(base, state, sent.map(|entry| &entry.command))
    }

    /// Whether something is on its way when all calls have returned.
    fn is_dirty(&self) -> bool {
        match &self.ran {
            Ran::Ssd(..) => false,
            Ran::Pm(looks, domain) => {
                let last = looks.last().filter(|_| *domain != Domain::Process);
                last.is_some_and(|(pending, _)| !pending.is_settled())
            }
        }
    }
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
    let promise = promise(job)?;
    let tape = take(job)?;
    let models = Models::new(job, &tape, promise, false);
    let found = tape.states(job, &models, bound)?;
    let is = &mut |verdicts: &[Verdict]| is(verdicts, promise);
    let Some((number, position, verdicts)) = judge::first_failure(job, &models, &found, is)? else {
        return Ok(None);
    };
    let state = &found.states[number].left;
    let zone_map = tape.zones(state, position);
    let cut = Cut::of_state(number, position, state.clone());
    let broken = verdicts.iter().any(|v| v.breaks(promise));
    let failure = Failure { cut: number, at_ns: 0, broken, verdicts, replay: job.replay(number) };
    let total = found.states.len();
    Ok(Some((failure, Recording::of_cut(tape.log, cut, total, promise, zone_map))))
}

/// How many states of a run [`explore`] would mount.
pub fn count(job: &Job, bound: Bound) -> Result<usize> {
    Ok(found(job, bound)?.states.len())
}

/// What a cut may leave of a run.
pub(crate) struct Leaving {
    /// Tells it from others of such a run.
    pub(crate) key: u64,
    pub(crate) left: Left,
    /// The oracle's positions at which it may be left, in order.
    pub(crate) positions: Vec<usize>,
}

/// Everything that a cut may leave of a run, and how many instants had too many states to list.
pub(crate) fn leavings(job: &Job, bound: Bound) -> Result<(Vec<Leaving>, usize)> {
    let states::Found { states, sampled, by_key } = found(job, bound)?;
    let mut keys = vec![0; states.len()];
    by_key.into_iter().for_each(|(key, at)| keys[at] = key);
    let leaving = |(key, state): (u64, states::State)| {
        let states::State { left, positions } = state;
        Leaving { key, left, positions }
    };
    Ok((keys.into_iter().zip(states).map(leaving).collect(), sampled))
}

fn found(job: &Job, bound: Bound) -> Result<states::Found> {
    let tape = take(job)?;
    tape.states(job, &Models::new(job, &tape, promise(job)?, false), bound)
}

fn promise(job: &Job) -> Result<Promise> {
    Ok(job.promise(&rig::kit(&job.drive, job.workload.footprint())?.identify()?))
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
    explore_from(job, bound, outcomes, 0)
}

/// As [`explore`], of what a cut may leave from this position of the oracle on.
fn explore_from(job: &Job, bound: Bound, outcomes: bool, from: usize) -> Result<Explored> {
    let tape = take(job)?;
    let models = Models::new(job, &tape, promise(job)?, outcomes);
    let found = tape.states(job, &models, bound)?;
    judge::judge_all(job, &tape, &models, &found, from)
}

/// The oracle's position when the run of `job` has ended.
fn end_of(job: &Job) -> Result<usize> {
    Ok(take(job)?.positions.1)
}

fn take(job: &Job) -> Result<Tape> {
    machine(job.seed)?.run(|| {
        // No time passes on the drive: it gets its commands one after the other.
        let medium =
            rig::kit(&job.drive, job.workload.footprint())?.make(Timing::Instant, job.seed)?;
        let drive = medium.drive();
        job.make(&drive)?;
        let at_return = job.promise(drive.identify()).at_return;
        let mounted = rig::mount(job.format, drive, &job.mount_options())?;
        let oracle = Arc::new(Oracle::new());
        let recorder = Recorder::new(mounted.clone(), oracle.clone()).durable(at_return);
        let mut watched = Watched::new(&medium);
        let mut begun = None;
        job.workload.run(&recorder, job.seed, &mut || {
            watched.start(&oracle, job.seed);
            begun = Some(oracle.position());
        })?;
        let ran = watched.end(&oracle);
        drop(recorder);
        drop(mounted);
        let begun = begun.ok_or_else(|| Error::Usage("the workload never started".into()))?;
        let positions = (begun, oracle.position());
        Ok(Tape { log: oracle.take_log(), ran, positions })
    })?
}

/// A medium that is watched while the workload runs.
#[allow(clippy::large_enum_variant, reason = "there is one to a run")]
enum Watched {
    Ssd(Arc<Ssd>, Option<DriveState>, Arc<Mutex<Vec<Entry>>>),
    Pm(Arc<PmSim>, Arc<Mutex<Vec<(Pending, usize)>>>),
}

impl Watched {
    fn new(medium: &Medium) -> Self {
        match medium {
            Medium::Ssd(ssd) => {
                let entries = Mutex::instrument("commands seen", Vec::new());
                Self::Ssd(ssd.clone(), None, Arc::new(entries))
            }
            Medium::Pm(pm) => {
                let looks = Mutex::instrument("memory seen", Vec::new());
                Self::Pm(pm.clone(), Arc::new(looks))
            }
        }
    }

    /// The preparation is durable, whatever fault is injected.
    fn start(&mut self, oracle: &Arc<Oracle>, seed: u64) {
        match self {
            Self::Ssd(ssd, base, entries) => {
                let _ = ssd.issue(0, 0, Command::Flush).or_else(|| ssd.wait_for(0, 0));
                *base = Some(ssd.survivors(seed));
                let (oracle, slot) = (oracle.clone(), entries.clone());
                let mut writer = Writer { oracle, entries: Vec::new(), slot };
                ssd.observe(Box::new(move |event, _| writer.see(event)));
            }
            Self::Pm(pm, looks) => {
                pm.settle_all();
                let (oracle, looks) = (oracle.clone(), looks.clone());
                pm.observe(Arc::new(move |pending| {
                    looks.lock().push((pending, oracle.position()));
                }));
            }
        }
    }

    fn end(self, oracle: &Oracle) -> Ran {
        match self {
            Self::Ssd(ssd, base, entries) => {
                drop(ssd.unobserve());
                let base = base.unwrap_or_else(|| ssd.survivors(0));
                Ran::Ssd(base, std::mem::take(&mut *entries.lock()))
            }
            Self::Pm(pm, looks) => {
                pm.observe(Arc::new(|_| ()));
                let mut looks = std::mem::take(&mut *looks.lock());
                // After the last call has returned.
                looks.push((pm.pending(), oracle.position()));
                Ran::Pm(looks, pm.info().domain)
            }
        }
    }
}
