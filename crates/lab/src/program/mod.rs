//! Does a program survive a power cut? Its run is recorded with its bytes ([`crate::record`]), and
//! what any cut may leave of it is shown to the program's own checker.
//!
//! States come from two kinds of places ([`Place`]): real volumes, on which the run is repeated
//! and their drive cut, and the least that POSIX promises. Different states often hold the
//! same files, so each tree is judged once for everything that the program had said by then.

mod effects;
mod judging;
mod least;
mod picture;
mod replay;
#[cfg(test)]
mod tests;
mod tree;
mod volume;
mod warnings;
mod why;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::record::Run;
use crate::{Error, Result};

use judging::{Task, judge_all};
use least::{Least, Without};
use replay::Others;
use volume::Origin;

pub use judging::{Judge, Judgement, State};
pub use tree::Tree;
pub use volume::Volume;
pub use warnings::warnings;
pub use why::{Pattern, Why, shown};

/// What the program had promised at a cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promised {
    /// The last marker that it had printed.
    pub acknowledged: Option<String>,
    /// It had ended, with success.
    pub exited: bool,
}

/// Where the run is repeated.
#[derive(Clone)]
pub enum Place {
    /// On no file system: POSIX's promises and nothing else.
    Least,
    /// On this volume.
    Volume(Volume),
}

impl Place {
    /// As the command line has it.
    pub fn name(&self) -> String {
        match self {
            Self::Least => "least".into(),
            Self::Volume(volume) => format!("{}:{}", volume.format.name(), volume.technique),
        }
    }
}

/// How much to look at.
#[derive(Clone)]
pub struct Limits {
    /// States of a place. With [`Limits::EVERY`] as many as there are, up to 4,096 at an instant.
    pub states: usize,
    /// Decides everything random.
    pub seed: u64,
    /// Real threads; the result does not depend on it.
    pub threads: usize,
    /// Whether to go on; asked before each state is judged, with how many were looked at.
    pub go_on: Arc<dyn Fn(usize) -> bool + Send + Sync>,
    /// [`Outcome::trees`] is wanted.
    pub keeps_trees: bool,
}

impl Limits {
    /// All states.
    pub const EVERY: usize = usize::MAX;
}

/// A state that the checker rejects.
#[derive(Clone, Debug)]
pub struct Rejected {
    /// Its name, which finds it again.
    pub state: String,
    /// Steps of the program that had returned.
    pub steps: usize,
    /// What else happened on the volume.
    pub meanwhile: Option<&'static str>,
    /// What is there.
    pub tree: Arc<Tree>,
    /// What the program had promised.
    pub promised: Promised,
    /// What the checker said.
    pub said: String,
    /// The changes that are missing, if that is known.
    missing: Option<Without>,
}

/// What was found in one place.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// States looked at.
    pub states: usize,
    /// Pairs of a tree and what the program had promised, each judged once.
    pub judged: usize,
    /// Such pairs that the checker rejects.
    pub rejected: usize,
    /// The one of them with the earliest cut.
    pub first: Option<Rejected>,
    /// States that there are and that were not looked at, or not judged.
    pub left_out: usize,
    /// Instants of whose many states only some were looked at, or none.
    pub sampled: usize,
    /// States whose volume did not mount or read, and the first reason: damage by the file system.
    pub unreadable: Option<(usize, String)>,
    /// It was told to stop.
    pub stopped: bool,
    /// The different trees, by their digests, if they are wanted.
    pub trees: BTreeMap<u64, Arc<Tree>>,
}

/// The fewest states of an instant that are looked at.
const FEWEST: usize = 4;

/// How often the run is repeated with events by chance.
const BY_CHANCE: u64 = 3;

/// A run and its checker.
pub struct Check {
    run: Arc<Run>,
    exited: bool,
    judge: Judge,
    limits: Limits,
    verdicts: BTreeMap<Key, Arc<Judgement>>,
    /// The earliest state of [`Place::Least`] that was rejected, once its states were looked at.
    least: Option<Option<Rejected>>,
}

/// What a verdict depends on: the tree's digest, how many markers there were, and whether the
/// program had ended.
type Key = (u64, usize, bool);

/// A state to be judged.
struct Case {
    state: String,
    steps: usize,
    meanwhile: Option<&'static str>,
    tree: Arc<Tree>,
    missing: Option<Without>,
    origin: Option<Origin>,
}

impl Check {
    /// For a run that ended with success, or did not.
    pub fn new(run: Run, exited: bool, judge: Judge, limits: Limits) -> Self {
        let (run, verdicts) = (Arc::new(run), BTreeMap::new());
        Self { run, exited, judge, limits, verdicts, least: None }
    }

    /// Has the checker judge what the program leaves without any cut.
    ///
    /// # Errors
    ///
    /// It rejects that, and so its other verdicts mean nothing.
    pub fn sound(&self) -> Result<()> {
        let run = self.run.clone();
        let least = Least::new(&run)?;
        let whole = Without { steps: least.steps(), missing: Vec::new() };
        let marker = self.run.markers.last().map(|last| last.text.clone());
        let promised = Promised { acknowledged: marker, exited: self.exited };
        let state = format!("{}.0", least.steps());
        let (tree, promised) = (&least.tree(&whole), &promised);
        let judged = (self.judge)(&State { tree, promised, name: &state, origin: None })?;
        match judged {
            Some(Judgement { accepted: false, said }) => Err(Error::Usage(format!(
                "the checker rejects what the program leaves without any power cut: {said}"
            ))),
            _ => Ok(()),
        }
    }

    /// Looks at the states of one place; with `only`, at the state of that name.
    ///
    /// # Errors
    ///
    /// The checker cannot be run, or the run not be repeated there.
    pub fn on(&mut self, place: &Place, only: Option<&str>) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        match place {
            Place::Least => self.on_least(&mut outcome, only)?,
            Place::Volume(volume) => self.on_volume(volume, &mut outcome, only)?,
        }
        if let Some(only) = only {
            if outcome.states == 0 {
                return Err(Error::Usage(format!("{}: there is no state {only}", place.name())));
            }
            // The other states were not asked for.
            (outcome.left_out, outcome.sampled) = (0, 0);
        }
        Ok(outcome)
    }

    fn on_least(&mut self, outcome: &mut Outcome, only: Option<&str>) -> Result<()> {
        let run = self.run.clone();
        let mut least = Least::new(&run)?;
        let (instants, limit) = (least.steps() + 1, self.limits.states.max(1));
        let most = (limit / instants).max(FEWEST);
        // Of a run so long that there is no room for a few states at each instant, every so
        // many instants are looked at, and the end.
        let stride = (instants * FEWEST).div_ceil(limit.max(FEWEST));
        let mut met = BTreeSet::new();
        for steps in 0..=least.steps() {
            if (least.steps() - steps) % stride != 0 {
                outcome.sampled += 1;
                continue;
            }
            least.advance(steps);
            let (states, are_all) = least.states(steps, most, self.limits.seed);
            outcome.sampled += usize::from(!are_all);
            let cases = states.into_iter().enumerate().map(|(n, missing)| Case {
                state: format!("{steps}.{n}"),
                steps,
                meanwhile: None,
                tree: Arc::new(least.tree(&missing)),
                missing: Some(missing),
                origin: None,
            });
            let cases: Vec<Case> = cases.collect();
            if !self.take(cases, &mut met, outcome, only)? {
                break;
            }
        }
        self.least = Some(outcome.first.clone());
        Ok(())
    }

    /// Why the checker rejects what it rejects: the earliest state of [`Place::Least`], with as
    /// little missing as possible. `None` if it accepts all of those, or was told to stop.
    ///
    /// # Errors
    ///
    /// The checker cannot be run.
    pub fn why(&mut self) -> Result<Option<Why>> {
        if self.least.is_none() {
            self.on(&Place::Least, None)?;
        }
        let Some(Rejected { missing: Some(state), promised, .. }) = self.least.clone().flatten()
        else {
            return Ok(None);
        };
        let run = self.run.clone();
        let least = Least::new(&run)?;
        let mut stopped = false;
        let mut accepts = |state: &Without, promised: &Promised| {
            let tree = &least.tree(state);
            let judged = match stopped {
                true => None,
                false => (self.judge)(&State { tree, promised, name: "shortened", origin: None })?,
            };
            stopped = judged.is_none();
            Ok(judged.is_none_or(|judged| judged.accepted))
        };
        let mut why = why::why(&least, &state, &promised, &mut accepts)?;
        if stopped {
            return Ok(None);
        }
        why.blame_failed(&run.failed_syncs, &least.effects.steps, self.exited);
        Ok(Some(why))
    }

    fn on_volume(
        &mut self,
        volume: &Volume,
        outcome: &mut Outcome,
        only: Option<&str>,
    ) -> Result<()> {
        let Limits { states, seed, threads, .. } = self.limits;
        let chance = (0..BY_CHANCE).map(|n| Others::Chance(seed ^ (n << 32)));
        let all = [Others::Idle, Others::Save, Others::Pause].into_iter().chain(chance);
        let all: Vec<Others> = all.collect();
        let (mut known, mut met) = (BTreeMap::new(), BTreeSet::new());
        // The same for each, whatever the others had: `only` has to find a state again.
        let most = (states / all.len()).max(1);
        for (n, &others) in all.iter().enumerate() {
            let run = self.run.clone();
            let limits = (seed, most, threads);
            let round = volume::repeat(volume, &run, others, limits, &mut known)?;
            outcome.left_out += round.left_out;
            outcome.sampled += round.sampled;
            let mut cases = Vec::new();
            for found in round.found {
                match &found.tree {
                    Ok(tree) => {
                        cases.extend(found.steps.iter().map(|&steps| Case {
                            state: format!("{n}.{}", found.number),
                            steps,
                            meanwhile: Some(others.words()),
                            tree: tree.clone(),
                            missing: None,
                            origin: Some(found.origin.clone()),
                        }));
                    }
                    Err(why) => {
                        let unreadable = outcome.unreadable.get_or_insert((0, why.clone()));
                        unreadable.0 += 1;
                    }
                }
            }
            if !self.take(cases, &mut met, outcome, only)? {
                break;
            }
        }
        Ok(())
    }

    /// Judges these; false if it is time to stop.
    fn take(
        &mut self,
        mut cases: Vec<Case>,
        met: &mut BTreeSet<Key>,
        outcome: &mut Outcome,
        only: Option<&str>,
    ) -> Result<bool> {
        if let Some(only) = only {
            cases.retain(|case| case.state == only);
        }
        let mut last = None;
        for case in &cases {
            outcome.states += usize::from(last != Some(&case.state));
            last = Some(&case.state);
        }
        cases.sort_by_key(|case| case.steps);
        let keyed = cases.into_iter().map(|case| (self.key(&case), case));
        let new: Vec<(Key, Case)> = keyed.filter(|(key, _)| met.insert(*key)).collect();
        self.judge_new(&new, outcome.states)?;
        for (key, case) in new {
            let Some(judgement) = self.verdicts.get(&key) else {
                outcome.stopped = true;
                outcome.left_out += 1;
                continue;
            };
            outcome.judged += 1;
            if self.limits.keeps_trees {
                outcome.trees.entry(key.0).or_insert_with(|| case.tree.clone());
            }
            if judgement.accepted {
                continue;
            }
            outcome.rejected += 1;
            if outcome.first.as_ref().is_none_or(|first| case.steps < first.steps) {
                let promised = self.promised(key);
                let Case { state, steps, meanwhile, tree, missing, .. } = case;
                let said = judgement.said.clone();
                let first = Rejected { state, steps, meanwhile, tree, promised, said, missing };
                outcome.first = Some(first);
            }
        }
        outcome.stopped |= !(self.limits.go_on)(outcome.states);
        Ok(!outcome.stopped)
    }

    fn key(&self, case: &Case) -> Key {
        let markers = self.run.markers.partition_point(|marker| marker.after <= case.steps);
        let steps = self.run.steps_after_begin();
        (case.tree.digest(), markers, self.exited && case.steps >= steps)
    }

    fn promised(&self, (_, markers, exited): Key) -> Promised {
        let last = markers.checked_sub(1).map(|last| self.run.markers[last].text.clone());
        Promised { acknowledged: last, exited }
    }

    /// Has those judged that no place has met before, until it is time to stop.
    fn judge_new(&mut self, cases: &[(Key, Case)], looked: usize) -> Result<()> {
        let new = cases.iter().filter(|(key, _)| !self.verdicts.contains_key(key));
        let task = |(key, case): &(Key, Case)| Task {
            key: *key,
            tree: case.tree.clone(),
            promised: self.promised(*key),
            name: case.state.clone(),
            origin: case.origin.clone(),
        };
        let tasks: Vec<Task<Key>> = new.map(task).collect();
        self.verdicts.extend(judge_all(&self.judge, tasks, &self.limits, looked)?);
        Ok(())
    }
}
