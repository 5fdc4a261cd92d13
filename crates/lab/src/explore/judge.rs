//! Mounts each state and compares it with the oracle at every position at which a cut may leave it.

use std::collections::BTreeMap;

use drive::Timing;

use super::states::{Found, State};
use super::{Counts, Explored, FAILURES_SHOWN, Tape};
use crate::campaign::{
    Failure, Job, Passed, add_new, afterwards, compare, compare_each, corrupt, cut_again, model,
    mount_cut, stay_off, with_later,
};
use crate::oracle::{Damage, Event, Memo, Model, Promise, Verdict};
use crate::rig::Left;
use crate::{Result, machine};

/// How often each outcome was seen, before the last fsync returned (`false`) and after (`true`).
pub type Seen = BTreeMap<(bool, Outcome), usize>;

/// What a cut left of the run, compared with the state before the run and after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// As if nothing had been done.
    Old,
    /// As if everything had been done.
    New,
    /// Some of it; no fsync under way says which part.
    Part,
    /// Some of what one fsync should have brought, and not the rest.
    Torn,
    /// What was durable is gone.
    Lost,
    /// Bytes that were never written.
    Garbage,
    /// A volume that does not mount or is not sound.
    Corrupt,
}

impl Outcome {
    /// As the tables have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Old => "old",
            Self::New => "new",
            Self::Part => "part",
            Self::Torn => "torn",
            Self::Lost => "lost",
            Self::Garbage => "garbage",
            Self::Corrupt => "corrupt",
        }
    }
}

/// The oracle at each position, and at the run's ends.
pub(super) struct Models {
    at: Vec<Model>,
    begin: usize,
    /// Everything durable, as it was before and as it is after.
    ends: Option<(Model, Model)>,
    /// If each call is durable when it returns: for each position the positions of the last return
    /// before it, and of the next.
    returns: Option<Vec<(usize, usize)>>,
    promise: Promise,
}

impl Models {
    pub(super) fn new(job: &Job, tape: &Tape, promise: Promise, outcomes: bool) -> Self {
        let (begin, end) = tape.positions;
        let mut model = model(job);
        let mut at = Vec::new();
        for position in begin..=end {
            model.advance(&tape.log, position);
            at.push(model.clone());
        }
        let settled = |model: &Model| {
            let mut model = model.clone();
            model.apply(&Event::SyncEnd { obj: None, call: None, times: None });
            model
        };
        let ends = at.first().zip(at.last()).filter(|_| outcomes);
        let ends = ends.map(|(old, new)| (settled(old), settled(new)));
        let returns = promise.at_return.then(|| returns(&tape.log, begin, end));
        Self { begin, ends, at, returns, promise }
    }

    fn get(&self, position: usize) -> &Model {
        &self.at[position - self.begin]
    }

    /// What is wrong with a volume at a position.
    fn verdicts(
        &self,
        position: usize,
        compare: &mut dyn FnMut(&Model) -> Vec<Verdict>,
    ) -> Vec<Verdict> {
        let Some(returns) = &self.returns else { return compare(self.get(position)) };
        let (last, next) = returns[position - self.begin];
        let new = compare(self.get(next));
        if new.is_empty() || next == last {
            return new;
        }
        let old = compare(self.get(last));
        if old.is_empty() {
            return old;
        }
        // Neither. Bytes under way may be some of each.
        let mut some = compare(self.get(position));
        some.retain(|verdict| verdict.breaks(self.promise));
        let in_blocks = |all: &[Verdict]| all.iter().all(|verdict| verdict.block.is_some());
        if some.is_empty() && (self.promise.atomic || !in_blocks(&old) && !in_blocks(&new)) {
            some = old;
        }
        some
    }
}

/// For each position the last return before it and the next one.
fn returns(log: &[Event], begin: usize, end: usize) -> Vec<(usize, usize)> {
    let is_return = |position: usize| {
        position == begin || matches!(log.get(position - 1), Some(Event::SyncEnd { .. }))
    };
    let last = |position: usize| (begin..=position).rev().find(|at| is_return(*at));
    let next = |position: usize| (position..=end).find(|at| is_return(*at));
    (begin..=end).map(|at| (last(at).unwrap_or(begin), next(at).unwrap_or(end))).collect()
}

/// Judges all states that may be left from position `from` on, or the one `job` asks for.
pub(super) fn judge_all(
    job: &Job,
    tape: &Tape,
    models: &Models,
    found: &Found,
    from: usize,
) -> Result<Explored> {
    let promise = models.promise;
    let mut known = Known::default();
    let mut explored = Explored {
        workload: job.workload.name().into(),
        mode: job.technique.name.into(),
        drive: job.drive.clone(),
        promise,
        seed: job.seed,
        counts: Counts::default(),
        failures: Vec::new(),
        seen: Seen::new(),
    };
    if job.pick.is_first() {
        explored.counts.sampled = found.sampled;
    }
    // A fault may leave that, which must be found by what a cut makes of it.
    if promise.at_return && job.inject.is_none() && tape.is_dirty() {
        explored.counts.broken += 1;
        let verdict = corrupt("memory", "nothing on its way at return", &"stores");
        let (replay, verdicts) = (job.replay(0), vec![verdict]);
        explored.failures.push(Failure { cut: 0, at_ns: 0, broken: true, verdicts, replay });
    }
    for number in job.pick.range(found.states.len(), "states")? {
        let Some(state) = since(&found.states[number], from) else { continue };
        let judged = machine(job.seed)?.run(|| judge(job, number, &state, models, &mut known))?;
        explored.counts.states += 1;
        for one in judged {
            explored.note(job, number, tape.positions.1, one);
        }
    }
    Ok(explored)
}

/// The first state and position whose findings satisfy `is`.
pub(super) fn first_failure(
    job: &Job,
    models: &Models,
    found: &Found,
    is: &mut dyn FnMut(&[Verdict]) -> bool,
) -> Result<Option<(usize, usize, Vec<Verdict>)>> {
    let mut known = Known::default();
    for (number, state) in found.states.iter().enumerate() {
        let judged = machine(job.seed)?.run(|| judge(job, number, state, models, &mut known))?;
        let bad = judged.into_iter().find(|one| !one.verdicts.is_empty() && is(&one.verdicts));
        if let Some(Judged { position, verdicts, .. }) = bad {
            return Ok(Some((number, position, verdicts)));
        }
    }
    Ok(None)
}

/// Does to one state all that is done to judge it, remembering nothing of others.
pub(super) fn look(job: &Job, models: &Models, left: Left, positions: &[usize]) -> Result<()> {
    let state = State { left, positions: positions.to_vec() };
    machine(job.seed)?.run(|| judge(job, 0, &state, models, &mut Known::default()))?;
    Ok(())
}

/// A state at the positions from `from` on, if it may be left at any of them.
fn since(state: &State, from: usize) -> Option<State> {
    let later = state.positions.iter().copied().filter(|&position| position >= from);
    let positions: Vec<usize> = later.collect();
    (!positions.is_empty()).then(|| State { left: state.left.clone(), positions })
}

/// One state at one position.
struct Judged {
    position: usize,
    verdicts: Vec<Verdict>,
    outcome: Option<Outcome>,
}

/// What was found of the states of a tape, so as not to do the same for each.
#[derive(Default)]
struct Known {
    memo: Memo,
    passed: Passed,
}

fn judge(
    job: &Job,
    number: usize,
    state: &State,
    models: &Models,
    Known { memo, passed }: &mut Known,
) -> Vec<Judged> {
    stay_off();
    let medium = state.left.power_on(Timing::Instant, job.seed);
    let (drive, memory) = (medium.drive(), medium.memory_hash());
    let (mounted, recut) = mount_cut(job, &medium);
    let mounted = mounted.as_ref();
    let ends = models.ends.as_ref().zip(mounted.ok()).map(|((old, new), fs)| {
        let mut against = |model| compare(job, &**fs, &medium, model, memo).is_empty();
        // New first: an operation that changes nothing visible counts as done.
        (against(new), against(old))
    });
    let mut found = compare_each(mounted, &state.positions, |fs, &position| {
        let compare = &mut |model: &Model| compare(job, &**fs, &medium, model, memo);
        (models.verdicts(position, compare), models.get(position).is_syncing())
    });
    let outcomes: Vec<_> = match mounted {
        Ok(_) => found.iter().map(|(of, _)| ends.map(|ends| outcome(ends, of))).collect(),
        Err(_) => vec![Some(Outcome::Corrupt); found.len()],
    };
    let later = mounted.map_or_else(
        |_| Vec::new(),
        |fs| {
            afterwards(job, number, drive.clone(), &**fs, &mut |fs| {
                for (&position, (verdicts, _)) in state.positions.iter().zip(&mut found) {
                    let compare = &mut |model: &Model| compare(job, fs, &medium, model, memo);
                    add_new(verdicts, models.verdicts(position, compare));
                }
            })
        },
    );
    if let (Some(&position), Some((verdicts, _))) = (state.positions.last(), found.last_mut()) {
        if verdicts.is_empty() && later.is_empty() {
            passed.note_whole(memory, position);
        }
        verdicts.extend(cut_again(job, recut, position, passed, &mut |fs, medium| {
            let compare = &mut |model: &Model| compare(job, fs, medium, model, memo);
            models.verdicts(position, compare)
        }));
    }
    let verdicts = with_later(found, &later);
    let judged = |((&position, verdicts), outcome)| Judged { position, verdicts, outcome };
    state.positions.iter().zip(verdicts).zip(outcomes).map(judged).collect()
}

fn outcome((new, old): (bool, bool), verdicts: &[Verdict]) -> Outcome {
    let worst_first = [
        (Damage::Corrupt, Outcome::Corrupt),
        (Damage::Garbage, Outcome::Garbage),
        (Damage::Lost, Outcome::Lost),
        (Damage::Torn, Outcome::Torn),
    ];
    let found = |damage| verdicts.iter().any(|v| v.damage == damage);
    match (new, old) {
        (true, _) => Outcome::New,
        (_, true) => Outcome::Old,
        _ => {
            let worst = worst_first.into_iter().find(|(damage, _)| found(*damage));
            worst.map_or(Outcome::Part, |(_, outcome)| outcome)
        }
    }
}

impl Explored {
    fn note(&mut self, job: &Job, number: usize, end: usize, judged: Judged) {
        let Judged { position, verdicts, outcome } = judged;
        self.counts.judged += 1;
        self.counts.torn += usize::from(verdicts.iter().any(|v| v.damage == Damage::Torn));
        if let Some(outcome) = outcome {
            *self.seen.entry((position == end, outcome)).or_default() += 1;
        }
        let broken = verdicts.iter().any(|v| v.breaks(self.promise));
        self.counts.broken += usize::from(broken);
        // If a single state is asked for, everything is reported, promised or not.
        let told = broken || (job.pick.is_one() && !verdicts.is_empty());
        if told && self.failures.len() < FAILURES_SHOWN {
            let replay = job.replay(number);
            let (cut, at_ns) = (number, 0);
            self.failures.push(Failure { cut, at_ns, broken, verdicts, replay });
        }
    }
}
