//! The fewest operations that still fail, and the earliest cut at which they do.
//!
//! What a workload did is recorded as a script and replayed with fewer and fewer operations (delta
//! debugging), each time on the same drive from the same seed in the same mode, cut at every point
//! there is, or with every state a cut may leave. A shorter run counts if it fails in the way the
//! whole did: the same kind of damage, and a broken promise if it was one. [`words`] says of the
//! last what is on the drive.

mod words;

use std::sync::Arc;

use vfs::ops::shrink;

use crate::Result;
use crate::campaign::{CutPoints, Failure, Job, Progress, Recording, first_failure, record};
use crate::explore::{Bound, explore};
use crate::oracle::{Damage, Promise, Verdict};
use crate::shard::Pick;
use crate::workload::Script;
use crate::workload::script::Step;

pub use words::words;

/// Operations after `begin` that are tried first; then twice as many, and so on.
const PREFIX: usize = 4;

/// Steps of a run of which every two are left out together, too.
const PAIRS: usize = 24;

/// Where the power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cuts {
    /// At every command and NAND program.
    Every,
    /// Every state a cut may leave, whatever the timing.
    States,
}

/// A short run that fails.
pub struct Minimal {
    /// What it does.
    pub script: Script,
    /// Operations there were at first.
    pub before: usize,
    /// And are now.
    pub operations: usize,
    /// Runs it took.
    pub runs: usize,
    /// The earliest cut that fails, and how.
    pub failure: Failure,
}

/// What a shorter run has to show.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    damage: Damage,
    broken: bool,
}

impl Kind {
    fn of(verdicts: &[Verdict], promise: Promise) -> Option<Self> {
        let broken = verdicts.iter().find(|v| promise.broken_by(v));
        let worst = broken.or(verdicts.first())?;
        Some(Self { damage: worst.damage, broken: broken.is_some() })
    }
}

/// Makes what fails in `job` short; `None` if nothing does. `job.command` is the command line up to
/// its workload.
pub fn minimise(job: &Job, cuts: Cuts, progress: &Progress) -> Result<Option<Minimal>> {
    let script = Script::record(job)?;
    let mut search = Search { job, cuts, progress, script: &script, runs: 0 };
    let steps = script.steps();
    let Some(kind) = search.kind(&steps)? else { return Ok(None) };
    let begin = steps.iter().position(|step| *step == Step::Begin).map_or(0, |at| at + 1);
    let mut short = steps.clone();
    let mut some = PREFIX;
    while begin + some < steps.len() {
        if search.fails(&steps[..begin + some], kind).is_some() {
            short.truncate(begin + some);
            break;
        }
        some *= 2;
    }
    let short = shrink(&short, |fewer| search.fails(fewer, kind).is_some());
    let short = without_pairs(short, |fewer| search.fails(fewer, kind).is_some());
    let Some(failure) = search.fails(&short, kind) else { return Ok(None) };
    let operations = |steps: &[Step]| steps.iter().filter(|s| **s != Step::Begin).count();
    Ok(Some(Minimal {
        script: script.with_steps(&short),
        before: operations(&steps),
        operations: operations(&short),
        runs: search.runs,
        failure,
    }))
}

/// A write and the fsync after it often go together or not at all.
fn without_pairs(mut short: Vec<Step>, mut fails: impl FnMut(&[Step]) -> bool) -> Vec<Step> {
    let mut left = short.len();
    while short.len() <= PAIRS && left > 0 {
        left = 0;
        'pairs: for one in 0..short.len() {
            for two in one + 1..short.len() {
                let mut fewer = short.clone();
                fewer.remove(two);
                fewer.remove(one);
                if fails(&fewer) {
                    (short, left) = (fewer, 1);
                    break 'pairs;
                }
            }
        }
    }
    short
}

struct Search<'a> {
    job: &'a Job,
    cuts: Cuts,
    progress: &'a Progress,
    script: &'a Script,
    runs: usize,
}

impl Search<'_> {
    fn job(&self, steps: &[Step]) -> Job {
        let workload = Arc::new(self.script.with_steps(steps));
        Job { workload, pick: Pick::All, ..self.job.clone() }
    }

    /// How the whole fails: with a broken promise, if there is one.
    fn kind(&mut self, steps: &[Step]) -> Result<Option<Kind>> {
        let job = self.job(steps);
        match self.cuts {
            Cuts::Every => {
                let (mut kind, mut broken) = (None, None);
                let recording = Arc::new(record(&job, CutPoints::Every)?);
                let promise = recording.promise;
                first_failure(&job, &recording, &mut |verdicts| {
                    let found = Kind::of(verdicts, promise);
                    kind = kind.or(found);
                    broken = broken.or(found.filter(|kind| kind.broken));
                    broken.is_some()
                })?;
                Ok(broken.or(kind))
            }
            Cuts::States => {
                let found = explore(&job, Bound::default(), false)?;
                let first = found.failures.first();
                Ok(first.and_then(|failure| Kind::of(&failure.verdicts, found.promise)))
            }
        }
    }

    /// The first cut of a run of `steps` that fails in that way. One that cannot be run does not.
    fn fails(&mut self, steps: &[Step], kind: Kind) -> Option<Failure> {
        self.runs += 1;
        (self.progress)(self.runs);
        if !steps.contains(&Step::Begin) {
            return None;
        }
        let job = self.job(steps);
        match self.cuts {
            Cuts::Every => {
                let recording = Arc::new(record(&job, CutPoints::Every).ok()?);
                let promise = recording.promise;
                let like = |verdicts: &[Verdict]| Kind::of(verdicts, promise) == Some(kind);
                first_failure(&job, &recording, &mut |verdicts| like(verdicts)).ok()?
            }
            Cuts::States => {
                let found = explore(&job, Bound::default(), false).ok()?;
                let promise = found.promise;
                let like = |failure: &Failure| Kind::of(&failure.verdicts, promise) == Some(kind);
                found.failures.into_iter().find(like)
            }
        }
    }
}

/// The run of `job` with the drive as it is at cut `number`, for [`words`].
pub fn at_cut(job: &Job, number: usize) -> Result<Recording> {
    record(&Job { pick: Pick::One(number), ..job.clone() }, CutPoints::Every)
}

#[cfg(test)]
mod tests;
