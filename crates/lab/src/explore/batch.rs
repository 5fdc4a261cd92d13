//! Many sequences through the explorer: all of a length, or as many as make so many states.

use std::sync::Arc;

use serde::Serialize;

use super::ace::Sequence;
use super::table::Row;
use super::{Bound, Explored, explore};
use crate::campaign::{Failure, Job, Progress};
use crate::mode::Mode;
use crate::subject::Subject;
use crate::workload::Rng;
use crate::{Error, Result, rig};

/// Failures told in full; the rest is counted.
const FAILURES_SHOWN: usize = 20;

/// Sequences drawn at a time, so that the result does not depend on how many threads there are.
const ROUND: u64 = 64;

/// Which sequences to explore, in which mode on which drive.
#[derive(Clone)]
pub struct Batch {
    /// The file system.
    pub subject: &'static dyn Subject,
    /// The drive's profile.
    pub drive: String,
    /// The fsync mode.
    pub mode: Mode,
    /// Operations in a sequence.
    pub length: u32,
    /// Not all sequences, but drawn ones until there are so many states.
    pub sample: Option<usize>,
    /// A deliberate fault, by name.
    pub inject: Option<String>,
    /// Decides everything random.
    pub seed: u64,
    /// Real threads.
    pub threads: usize,
}

impl Batch {
    /// Whether there is such a mode on such a drive: OPRW needs write pointers, or checksums of all
    /// an fsync wrote.
    pub fn applies(&self) -> Result<bool> {
        let identify = rig::spec(&self.drive, 0)?.identify();
        let identify = identify.map_err(|e| Error::Usage(e.to_string()))?;
        Ok(!self.mode.is_oprw() || self.mode.is_strict() || identify.zones.is_some())
    }
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct BatchResult {
    /// Short name of the mode.
    pub mode: String,
    /// The drive's profile.
    pub drive: String,
    /// Operations in a sequence.
    pub length: u32,
    /// Whether these are all sequences of that length.
    pub complete: bool,
    /// Seed of the run.
    pub seed: u64,
    /// Sequences run.
    pub sequences: usize,
    /// Different states mounted, over all sequences.
    pub states: usize,
    /// States held against the oracle, once for each position they can be left at.
    pub judged: usize,
    /// Instants with too many states to see all.
    pub sampled: usize,
    /// Pairs in which a promise was broken.
    pub broken: usize,
    /// Pairs with old beside new of one fsync.
    pub torn: usize,
    /// The first that broke a promise.
    pub failures: Vec<Failure>,
}

/// Explores a batch. The rows are those of single operations.
pub fn run(batch: &Batch, progress: &Progress) -> Result<(BatchResult, Vec<Row>)> {
    let mut total = BatchResult {
        mode: batch.mode.name().into(),
        drive: batch.drive.clone(),
        length: batch.length,
        complete: batch.sample.is_none(),
        seed: batch.seed,
        sequences: 0,
        states: 0,
        judged: 0,
        sampled: 0,
        broken: 0,
        torn: 0,
        failures: Vec::new(),
    };
    let mut rows = Vec::new();
    let mut take = |sequences: Vec<Sequence>, total: &mut BatchResult| -> Result<()> {
        for (sequence, explored) in explore_all(batch, sequences, progress)? {
            total.add(&explored);
            if let [(op, then)] = sequence.steps() {
                rows.push(Row::new(*op, *then, batch.mode, &explored));
            }
        }
        Ok(())
    };
    match batch.sample {
        None => take(Sequence::all(batch.length).collect(), &mut total)?,
        Some(states) => {
            let mut rng = Rng::new(batch.seed, 10);
            while total.states < states {
                let drawn = (0..ROUND).map(|_| Sequence::drawn(batch.length, &mut rng));
                take(drawn.collect(), &mut total)?;
            }
        }
    }
    Ok((total, rows))
}

impl BatchResult {
    fn add(&mut self, explored: &Explored) {
        self.sequences += 1;
        self.states += explored.states;
        self.judged += explored.judged;
        self.sampled += explored.sampled;
        self.broken += explored.broken;
        self.torn += explored.torn;
        let room = FAILURES_SHOWN.saturating_sub(self.failures.len());
        self.failures.extend(explored.failures.iter().take(room.min(1)).cloned());
    }
}

/// Explores sequences on `batch.threads` real threads; the answers in their order.
fn explore_all(
    batch: &Batch,
    sequences: Vec<Sequence>,
    progress: &Progress,
) -> Result<Vec<(Sequence, Explored)>> {
    let all = Arc::new(sequences);
    let threads = batch.threads.max(1);
    let shares: Vec<_> = (0..threads)
        .map(|share| {
            let (batch, all, progress) = (batch.clone(), all.clone(), progress.clone());
            cores::spawn("explore", None, move || {
                let mine = all.iter().skip(share).step_by(threads);
                mine.map(|sequence| {
                    progress(all.len());
                    explore(&job(&batch, sequence), Bound::default(), batch.length == 1)
                })
                .collect::<Result<Vec<Explored>>>()
            })
        })
        .collect();
    let mut shares = shares
        .into_iter()
        .map(|share| share.join().map(Vec::into_iter))
        .collect::<Result<Vec<_>>>()?;
    let in_order = (0..all.len()).filter_map(|i| shares[i % threads].next());
    Ok(all.iter().cloned().zip(in_order).collect())
}

fn job(batch: &Batch, sequence: &Sequence) -> Job {
    let Batch { drive, seed, inject, .. } = batch;
    let fault = inject.as_ref().map_or_else(String::new, |fault| format!(" --inject {fault}"));
    Job {
        subject: batch.subject,
        drive: drive.clone(),
        workload: Arc::new(sequence.clone()),
        mode: batch.mode,
        inject: inject.clone(),
        cuts: 0,
        seed: *seed,
        only: None,
        threads: 1,
        command: format!(
            "strandline crash --every-state --drive {drive} --workload {sequence} \
             --seed {seed}{fault}"
        ),
    }
}
