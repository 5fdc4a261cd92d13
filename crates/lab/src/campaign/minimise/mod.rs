//! The fewest operations that still fail, and the earliest cut at which they do.
//!
//! What a workload did is recorded as a script and replayed with fewer and fewer operations (delta
//! debugging), each time on the same drive from the same seed in the same mode. A shorter run
//! counts if it fails in the same way as the whole: the same kind of damage, and a broken promise
//! if it was one. The order in which programs end is chance, and removing an operation changes it;
//! so for a shorter run every state that a cut may leave is looked at, whatever the timing. Only if
//! none of these fails is the run cut at every point of its own time. [`words()`] describes what
//! the last failing cut left on the drive.

mod words;

use std::sync::Arc;

use vfs::ops::shrink;

use crate::Result;
use crate::campaign::shard::Pick;
use crate::campaign::{self, CutPoints, Failure, Job, Progress, Recording, record};
use crate::explore::{self, Bound};
use crate::oracle::{Damage, Promise, Verdict};
use crate::workload::Script;
use crate::workload::script::ScriptStep;

pub use words::words;

/// Operations after `begin` that are tried first; then twice as many, and so on.
const PREFIX: usize = 4;
/// And at most this many, because every position of a run has its own model.
const PREFIX_MAX: usize = 512;

/// In runs of up to this many steps, every pair is also left out together.
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
    /// What `failure.cut` is the number of.
    pub cuts: Cuts,
    /// The run with that cut alone, for [`words()`].
    pub recording: Recording,
    /// The earliest cut that fails, and how.
    pub failure: Failure,
}

/// The failure that a shorter run must reproduce.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    damage: Damage,
    broken: bool,
}

impl Kind {
    fn of(verdicts: &[Verdict], promise: Promise) -> Option<Self> {
        let broken = verdicts.iter().find(|v| v.breaks(promise));
        let worst = broken.or(verdicts.first())?;
        Some(Self { damage: worst.damage, broken: broken.is_some() })
    }
}

/// Shortens a failure of `job`, cut at every point or in every state; `None` if nothing fails.
///
/// ```
/// use std::sync::Arc;
///
/// use lab::campaign::{Job, Progress};
/// use lab::campaign::minimise::{Cuts, minimise};
/// # fn main() -> lab::Result<()> {
/// let format = subjects::named("f2fs")?;
/// let workload = lab::workload::named("ace:overwrite+fsync", 0)?.into();
/// let strict = subjects::technique(format, "strict")?;
/// let sound = Job::new(format, "zn540-noplp", workload, strict, 42);
/// let job = Job { inject: Some("drop-flush".to_owned()), ..sound };
/// let silent: Progress = Arc::new(|_| true);
/// let found = minimise(&job, Cuts::States, &silent)?.expect("a lost flush shows");
/// assert!(found.operations <= found.before && found.failure.broken);
/// println!("{}", found.script.text());
/// # Ok(())
/// # }
/// ```
pub fn minimise(job: &Job, cuts: Cuts, progress: &Progress) -> Result<Option<Minimal>> {
    let script = Script::record(job)?;
    let mut search = Search { job, cuts, progress, script: &script, runs: 0 };
    let steps = script.steps();
    let Some(kind) = search.kind(&steps)? else { return Ok(None) };
    search.cuts = Cuts::States;
    let short = match search.prefix(&steps, kind) {
        Some(short) => short,
        None => {
            search.cuts = Cuts::Every;
            search.prefix(&steps, kind).unwrap_or_else(|| steps.clone())
        }
    };
    let short = shrink(&short, |fewer| search.fails(fewer, kind).is_some());
    let short = without_pairs(short, |fewer| search.fails(fewer, kind).is_some());
    let Some((failure, recording)) = search.fails(&short, kind) else { return Ok(None) };
    let operations =
        |steps: &[ScriptStep]| steps.iter().filter(|s| **s != ScriptStep::Begin).count();
    let Search { runs, cuts, .. } = search;
    Ok(Some(Minimal {
        script: script.with_steps(&short),
        before: operations(&steps),
        operations: operations(&short),
        runs,
        cuts,
        recording,
        failure,
    }))
}

/// A write and the fsync after it often go together or not at all.
fn without_pairs(
    mut short: Vec<ScriptStep>,
    mut fails: impl FnMut(&[ScriptStep]) -> bool,
) -> Vec<ScriptStep> {
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
    fn job(&self, steps: &[ScriptStep]) -> Job {
        let workload = Arc::new(self.script.with_steps(steps));
        Job { workload, pick: Pick::All, ..self.job.clone() }
    }

    /// How the whole fails: with a broken promise, if there is one.
    fn kind(&mut self, steps: &[ScriptStep]) -> Result<Option<Kind>> {
        let job = self.job(steps);
        let (mut kind, mut broken) = (None, None);
        let mut is = |verdicts: &[Verdict], promise| {
            let found = Kind::of(verdicts, promise);
            kind = kind.or(found);
            broken = broken.or(found.filter(|kind| kind.broken));
            broken.is_some()
        };
        match self.cuts {
            Cuts::Every => {
                let recording = record(&job, CutPoints::Every)?;
                let promise = recording.promise;
                let is = &mut |verdicts: &[Verdict]| is(verdicts, promise);
                campaign::first_failure(&job, &recording, is)?;
            }
            Cuts::States => drop(explore::first_failure(&job, Bound::default(), &mut is)?),
        }
        Ok(broken.or(kind))
    }

    /// The first few steps after `begin` that fail in that way.
    fn prefix(&mut self, steps: &[ScriptStep], kind: Kind) -> Option<Vec<ScriptStep>> {
        let begin = steps.iter().position(|step| *step == ScriptStep::Begin)? + 1;
        let lengths = std::iter::successors(Some(PREFIX), |some| Some(some * 2));
        for some in lengths.take_while(|some| *some <= PREFIX_MAX) {
            let end = steps.len().min(begin + some);
            if self.fails(&steps[..end], kind).is_some() {
                return Some(steps[..end].to_vec());
            }
            if end == steps.len() {
                break;
            }
        }
        None
    }

    /// The first cut of a run of `steps` that fails in that way; none if the steps cannot be run.
    fn fails(&mut self, steps: &[ScriptStep], kind: Kind) -> Option<(Failure, Recording)> {
        self.runs += 1;
        (self.progress)(self.runs);
        if !steps.contains(&ScriptStep::Begin) {
            return None;
        }
        let job = self.job(steps);
        let mut like = |verdicts: &[Verdict], promise| Kind::of(verdicts, promise) == Some(kind);
        match self.cuts {
            Cuts::Every => {
                let recording = record(&job, CutPoints::Every).ok()?;
                let promise = recording.promise;
                let is = &mut |verdicts: &[Verdict]| like(verdicts, promise);
                let failure = campaign::first_failure(&job, &recording, is).ok()??;
                let cut = record(&Job { pick: Pick::One(failure.cut), ..job }, CutPoints::Every);
                Some((failure, cut.ok()?))
            }
            Cuts::States => explore::first_failure(&job, Bound::default(), &mut like).ok()?,
        }
    }
}

#[cfg(test)]
mod tests;
