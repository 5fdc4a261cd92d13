//! Many sequences through the explorer: all of one length, or enough for a number of states.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ace::Sequence;
use super::table::Row;
use super::{Bound, Counts, Explored, end_of, explore_from};
use crate::campaign::shard::Shard;
use crate::campaign::{Failure, Job, Progress};
use crate::workload::Rng;
use crate::{Extra, Result, rig};
use vfs::kind::Format;
use vfs::kind::Technique;

/// Failures reported in full; the rest are counted.
const FAILURES_SHOWN: usize = 20;

/// Sequences drawn at a time, so that the result does not depend on the number of threads.
const ROUND: usize = 64;

/// Which sequences to explore, in which mode on which drive.
#[derive(Clone)]
pub struct Batch {
    /// The file system.
    pub format: &'static dyn Format,
    /// The drive's profile.
    pub drive: String,
    /// The fsync mode.
    pub technique: &'static Technique,
    /// Operations in a sequence.
    pub length: u32,
    /// Not all sequences, but random ones until there are this many states.
    pub sample: Option<usize>,
    /// What its volumes have besides.
    pub extra: Extra,
    /// A deliberate fault, by name.
    pub inject: Option<String>,
    /// Decides everything random.
    pub seed: u64,
    /// Real threads.
    pub threads: usize,
}

impl Batch {
    /// Whether there is such a technique on such a drive.
    pub fn applies(&self) -> Result<bool> {
        Ok((self.technique.runs_on)(&rig::kit(&self.drive, 0)?.identify()?))
    }

    /// Whether calls are durable when they return, so that nothing else needs to make them so.
    fn at_return(&self) -> Result<bool> {
        Ok((self.technique.promise)(&rig::kit(&self.drive, 0)?.identify()?).at_return)
    }
}

/// What was found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BatchResult {
    /// Short name of the mode.
    pub mode: String,
    /// The drive's profile.
    pub drive: String,
    /// What the volumes had besides.
    #[serde(flatten)]
    pub extra: Extra,
    /// Operations in a sequence.
    pub length: u32,
    /// Whether these are all sequences of that length.
    pub complete: bool,
    /// Seed of the run.
    pub seed: u64,
    /// Sequences run.
    pub sequences: usize,
    /// Sums over all of them.
    #[serde(flatten)]
    pub counts: Counts,
    /// The first that broke a promise.
    pub failures: Vec<Failure>,
}

/// That, and the rows of single operations.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Explorations {
    /// Sums.
    pub result: BatchResult,
    /// For single operations: what may be seen.
    pub outcomes: Vec<Row>,
}

/// Explores a batch, or a share of its sequences.
pub fn run(batch: &Batch, shard: Option<Shard>, progress: &Progress) -> Result<Explorations> {
    let result = BatchResult {
        mode: batch.technique.name.into(),
        drive: batch.drive.clone(),
        extra: batch.extra.clone(),
        length: batch.length,
        complete: batch.sample.is_none(),
        seed: batch.seed,
        sequences: 0,
        counts: Counts::default(),
        failures: Vec::new(),
    };
    let mut all = Explorations { result, outcomes: Vec::new() };
    let outcomes = batch.length == 1;
    let is_whole = batch.sample.is_some() || !batch.at_return()?;
    // What a cut leaves before a sequence's last operation, where each is durable when it returns,
    // is what it leaves of the shorter sequence.
    let judge = move |batch: &Batch, sequence: &Sequence| {
        let whole = job(batch, sequence);
        let shorter = sequence.shorter().filter(|_| !is_whole);
        let from = shorter.map_or(Ok(0), |shorter| end_of(&job(batch, &shorter)))?;
        explore_from(&whole, Bound::default(), outcomes, from)
    };
    // Whether to go on: all of them were run.
    let take = |all: &mut Explorations, sequences: Vec<Sequence>| -> Result<bool> {
        let wanted = sequences.len();
        let found = in_parallel(batch, sequences, progress, judge)?;
        for (sequence, explored) in &found {
            all.take(batch, sequence, explored);
        }
        all.result.complete &= found.len() == wanted;
        Ok(found.len() == wanted)
    };
    let Some(states) = batch.sample else {
        let sequences: Vec<Sequence> = match batch.at_return()? {
            true => (1..=batch.length).flat_map(Sequence::all_at_return).collect(),
            false => Sequence::all(batch.length).collect(),
        };
        take(&mut all, share(sequences, shard))?;
        return Ok(all);
    };
    let mut drawn = drawn(batch)?;
    if shard.is_none() {
        while all.result.counts.states < states
            && take(&mut all, drawn.by_ref().take(ROUND).collect())?
        {}
        return Ok(all);
    }
    // Every shard finds out for itself which sequences give that many states: that is the smaller
    // part of the work.
    let (mut sequences, mut counted) = (Vec::new(), 0);
    let quiet: Progress = Arc::new(|_| true);
    let count =
        |batch: &Batch, sequence: &Sequence| super::count(&job(batch, sequence), Bound::default());
    while counted < states {
        let round: Vec<Sequence> = drawn.by_ref().take(ROUND).collect();
        for (sequence, states) in in_parallel(batch, round, &quiet, count)? {
            counted += states;
            sequences.push(sequence);
        }
    }
    take(&mut all, share(sequences, shard))?;
    Ok(all)
}

fn drawn(batch: &Batch) -> Result<impl Iterator<Item = Sequence> + use<>> {
    let (mut rng, length) = (Rng::new(batch.seed, 10), batch.length);
    let at_return = batch.at_return()?;
    Ok(std::iter::repeat_with(move || match at_return {
        true => Sequence::drawn_at_return(length, &mut rng),
        false => Sequence::drawn(length, &mut rng),
    }))
}

fn share(mut sequences: Vec<Sequence>, shard: Option<Shard>) -> Vec<Sequence> {
    let range = shard.map_or(0..sequences.len(), |shard| shard.range(sequences.len()));
    sequences.drain(range).collect()
}

impl BatchResult {
    /// Whether both belong to one batch.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        (&self.mode, &self.drive, &self.extra, self.length, self.complete, self.seed)
            == (&other.mode, &other.drive, &other.extra, other.length, other.complete, other.seed)
    }
}

impl Explorations {
    fn take(&mut self, batch: &Batch, sequence: &Sequence, explored: &Explored) {
        self.result.sequences += usize::from(sequence.steps().len() as u32 == batch.length);
        self.result.counts.add(&explored.counts);
        let room = FAILURES_SHOWN.saturating_sub(self.result.failures.len());
        self.result.failures.extend(explored.failures.iter().take(room.min(1)).cloned());
        if let ([(op, then)], 1) = (sequence.steps(), batch.length) {
            self.outcomes.push(Row::new(*op, *then, batch.technique, explored));
        }
    }

    /// Adds the share that comes next.
    pub(crate) fn add(&mut self, next: Self) {
        let all = &mut self.result;
        all.sequences = all.sequences.saturating_add(next.result.sequences);
        all.counts.add(&next.result.counts);
        all.failures.extend(next.result.failures);
        all.failures.truncate(FAILURES_SHOWN);
        self.outcomes.extend(next.outcomes);
    }
}

/// Explores sequences on `batch.threads` real threads, all of them unless `progress` says no;
/// results are in the order of the sequences.
fn in_parallel<T: Send + 'static>(
    batch: &Batch,
    sequences: Vec<Sequence>,
    progress: &Progress,
    look: impl Fn(&Batch, &Sequence) -> Result<T> + Copy + Send + 'static,
) -> Result<Vec<(Sequence, T)>> {
    let all = Arc::new(sequences);
    let threads = batch.threads.clamp(1, all.len().max(1));
    let shares: Vec<_> = (0..threads)
        .map(|share| {
            let (batch, all, progress) = (batch.clone(), all.clone(), progress.clone());
            cores::spawn("explore", None, move || {
                let mut found = Vec::new();
                for (at, sequence) in all.iter().enumerate().skip(share).step_by(threads) {
                    found.push((at, look(&batch, sequence)?));
                    if !progress(all.len()) {
                        break;
                    }
                }
                Ok(found)
            })
        })
        .collect();
    let mut found = Vec::with_capacity(all.len());
    for share in shares {
        let part: Result<Vec<(usize, T)>> = share.join();
        found.extend(part?);
    }
    found.sort_unstable_by_key(|(at, _)| *at);
    Ok(found.into_iter().map(|(at, one)| (all[at].clone(), one)).collect())
}

fn job(batch: &Batch, sequence: &Sequence) -> Job {
    let Batch { drive, seed, inject, extra, .. } = batch;
    let fault = inject.as_ref().map_or_else(String::new, |fault| format!(" --inject {fault}"));
    let command = format!(
        "strandline crash --every-state --fs {} --drive {drive} --workload {sequence} \
         --seed {seed}{fault}{}",
        batch.format.name(),
        extra.arguments()
    );
    let workload = Arc::new(sequence.clone());
    let sound = Job::new(batch.format, drive, workload, batch.technique, *seed);
    let Extra { mount_opts, features } = extra.clone();
    Job { inject: inject.clone(), mount_opts, features, command, ..sound }
}
