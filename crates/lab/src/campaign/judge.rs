//! Powers on what survived one cut, recovers it, and compares it with the oracle.

use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;

use cores::Mutex;
use drive::pm::{Pending, Pm};
use drive::{Drive, Timing};
use rustc_hash::FxHashMap;

use super::record::Recording;
use super::watch::Cut;
use super::{Failure, Job, Progress};
use crate::oracle::{Damage, Memo, Model, Verdict, verify};
use crate::rig::{Kit, Left, Medium};
use crate::{Result, machine, rig};
use vfs::kind::{Recovery, Volume};

/// What one cut did.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Which cut.
    pub index: usize,
    /// When, nanoseconds since the workload started.
    pub at_ns: u64,
    /// Time the mount with recovery took, simulated nanoseconds.
    pub recovery_ns: u64,
    /// What it did.
    pub recovery: Recovery,
    /// Everything that was wrong.
    pub verdicts: Vec<Verdict>,
}

/// A day: no run takes that long.
const OFF_NS: u64 = 86_400_000_000_000;

/// What may be there at the cut being compared. A model only moves forward, so there is one for the
/// first mounts and one for the second.
type Models = [Model; 2];

fn models(job: &Job) -> Models {
    [(); 2].map(|()| model(job))
}

/// The model of an empty volume, for the medium of `job`.
pub(crate) fn model(job: &Job) -> Model {
    let model = Model::new(job.format.habits(job.technique));
    match rig::kit(&job.drive, 0) {
        Ok(Kit::Pm(..)) => model.torn_at(drive::pm::WORD as usize),
        _ => model,
    }
}

/// Judges a part of the cuts, and says whether to go on with another.
pub(super) fn judge_stretch(
    job: &Job,
    recording: &Recording,
    stretch: Range<usize>,
    progress: &Progress,
    judged: &mut Vec<Judged>,
) -> Result<bool> {
    let (mut models, mut memo) = (models(job), Memo::default());
    // Cuts that left the same state are mounted once. What may be there can still differ between
    // them.
    for cuts in recording.cuts[stretch].chunk_by(|one, next| one.like == next.like) {
        judged.extend(judge_alike(job, recording, cuts, &mut models, &mut memo)?);
        let mut go_on = true;
        cuts.iter().for_each(|_| go_on &= progress(recording.cuts.len()));
        if !go_on {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Judges cuts that left the same state, on their own machine.
fn judge_alike(
    job: &Job,
    recording: &Recording,
    cuts: &[Cut],
    models: &mut Models,
    memo: &mut Memo,
) -> Result<Vec<Judged>> {
    let mut verify = |mounts: usize, fs: &dyn Volume, medium: &Medium, cut: &Cut| {
        let model = &mut models[mounts - 1];
        model.advance(&recording.log, cut.position);
        let in_flight = model.is_syncing();
        (compare(job, fs, medium, model, memo), in_flight)
    };
    Ok(machine(job.seed)?.run(|| judge(job, cuts, &mut verify))?)
}

/// The first cut, in order of time, whose findings satisfy `is`.
pub(crate) fn first_failure(
    job: &Job,
    recording: &Recording,
    is: &mut dyn FnMut(&[Verdict]) -> bool,
) -> Result<Option<Failure>> {
    let (mut models, mut memo) = (models(job), Memo::default());
    for cuts in recording.cuts.chunk_by(|one, next| one.like == next.like) {
        for judged in judge_alike(job, recording, cuts, &mut models, &mut memo)? {
            if !judged.verdicts.is_empty() && is(&judged.verdicts) {
                return Ok(Some(Failure::new(job, recording.promise, &judged)));
            }
        }
    }
    Ok(None)
}

/// What is wrong with a volume after one cut, and whether an fsync was under way at the cut.
pub type Found = (Vec<Verdict>, bool);

/// Holds a volume, if it mounted, against what may be there after each of `cuts`, which left the
/// same state.
pub fn compare_each<V, E: Display, C>(
    mounted: Result<&V, &E>,
    cuts: &[C],
    mut compare: impl FnMut(&V, &C) -> Found,
) -> Vec<Found> {
    let found = |cut| match mounted {
        Ok(fs) => compare(fs, cut),
        Err(error) => (vec![corrupt("mount", "a volume that recovers", error)], false),
    };
    cuts.iter().map(found).collect()
}

/// Adds to each cut's findings those about the volume as a whole, which came later.
pub fn with_later(found: Vec<Found>, later: &[Verdict]) -> Vec<Vec<Verdict>> {
    let add = |(mut verdicts, in_flight): Found| {
        let later = later.iter().cloned();
        verdicts.extend(later.map(|v| Verdict { in_flight: v.in_flight && in_flight, ..v }));
        verdicts
    };
    found.into_iter().map(add).collect()
}

/// How the volume differs, after the first mount or the second, from what may be there after a cut.
type Verify<'a> = dyn FnMut(usize, &dyn Volume, &Medium, &Cut) -> Found + 'a;

/// Judges cuts that left the same state, on the current machine.
fn judge(job: &Job, cuts: &[Cut], verify: &mut Verify<'_>) -> Vec<Judged> {
    let Some(first) = cuts.first() else { return Vec::new() };
    stay_off();
    let medium = first.power_on(job);
    let (drive, memory) = (medium.drive(), medium.memory_hash());
    let begun = crate::now_ns();
    let (mounted, recut) = mount_cut(job, &medium);
    let recovery_ns = crate::now_ns() - begun;
    let recovery = mounted.as_ref().map_or_else(|_| Recovery::default(), |fs| fs.recovery());
    let mounted = mounted.as_ref();
    let mut found = compare_each(mounted, cuts, |fs, cut| verify(1, &**fs, &medium, cut));
    let later = mounted.map_or_else(
        |_| Vec::new(),
        |fs| {
            afterwards(job, first.like, drive.clone(), &**fs, &mut |fs| {
                // All left the same, and by the last of them most had been promised.
                if let (Some(cut), Some((verdicts, _))) = (cuts.last(), found.last_mut()) {
                    add_new(verdicts, verify(2, fs, &medium, cut).0);
                }
            })
        },
    );
    if job.is_checked(first.like)
        && let (Some(cut), Some((verdicts, _))) = (cuts.last(), found.last_mut())
    {
        let mut passed = Passed::default();
        if verdicts.is_empty() {
            passed.note_whole(memory, cut.position);
        }
        let again = &mut |fs: &dyn Volume, medium: &Medium| verify(2, fs, medium, cut).0;
        verdicts.extend(cut_again(job, recut, cut.position, &mut passed, again));
    }
    let verdicts = with_later(found, &later);
    let judged = |(cut, verdicts): (&Cut, _)| {
        let Cut { index, at_ns, .. } = *cut;
        Judged { index, at_ns, recovery_ns, recovery, verdicts }
    };
    cuts.iter().zip(verdicts).map(judged).collect()
}

/// How often a recovery that was cut is cut again.
const RECUTS: u32 = 2;
/// States looked at for each moment of a recovery.
const RECUT_STATES: u64 = 24;

/// Mounts, and says what cuts of persistent memory might have left of that mount's recovery.
pub(crate) fn mount_cut(job: &Job, medium: &Medium) -> (Result<Arc<dyn Volume>>, Vec<Left>) {
    let looks = Arc::new(Mutex::instrument("moments of a recovery", Vec::new()));
    if let Medium::Pm(pm) = medium {
        let to = looks.clone();
        pm.observe(Arc::new(move |pending| to.lock().push(pending)));
    }
    let mounted = rig::mount(job.format, medium.drive(), &job.mount_options());
    let mut left = Vec::new();
    if let Medium::Pm(pm) = medium {
        pm.observe(Arc::new(|_| ()));
        let looks: Vec<Pending> = std::mem::take(&mut *looks.lock());
        let states = looks.iter().flat_map(|look| look.states(RECUT_STATES, job.seed));
        left.extend(states.map(|state| Left::Pm(state, pm.info().domain)));
    }
    (mounted, left)
}

/// Memories that were mounted and compared at a position without a finding, by their hashes, and
/// how often their recovery was cut after that. Most of what a cut leaves of a recovery is what
/// another cut left of the run, or of that recovery, so this saves half of all mounts.
#[derive(Default)]
pub(crate) struct Passed {
    depths: FxHashMap<(u64, usize), u32>,
}

impl Passed {
    /// A memory that passed, whose recovery is about to be cut as often as any is.
    pub(crate) fn note_whole(&mut self, memory: Option<u64>, position: usize) {
        if let Some(memory) = memory {
            self.depths.insert((memory, position), RECUTS + 1);
        }
    }

    /// Notes that a memory is judged with `depth` more cuts. False if that has been done.
    fn note(&mut self, memory: u64, position: usize, depth: u32) -> bool {
        let known = self.depths.entry((memory, position)).or_default();
        let is_new = *known < depth;
        *known = depth.max(*known);
        is_new
    }

    /// A memory that did not pass: others that leave it fail, too.
    fn forget(&mut self, memory: u64, position: usize) {
        self.depths.remove(&(memory, position));
    }
}

/// What is wrong with a volume after its recovery was cut, at any moment, and again. `position` is
/// the oracle's, with which `compare` compares.
pub(crate) fn cut_again(
    job: &Job,
    left: Vec<Left>,
    position: usize,
    passed: &mut Passed,
    compare: &mut dyn FnMut(&dyn Volume, &Medium) -> Vec<Verdict>,
) -> Vec<Verdict> {
    let mut todo = vec![(left, RECUTS)];
    while let Some((left, depth)) = todo.pop() {
        for state in left {
            let Left::Pm(memory, _) = &state else { continue };
            if !passed.note(memory.hash(), position, depth) {
                continue;
            }
            let medium = state.power_on(Timing::Instant, job.seed);
            let (mounted, again) = mount_cut(job, &medium);
            let verdicts = match &mounted {
                Ok(fs) => compare(&**fs, &medium),
                Err(error) => vec![corrupt("mount", "a volume that recovers", error)],
            };
            if !verdicts.is_empty() {
                passed.forget(memory.hash(), position);
                let told = |v: Verdict| {
                    let found = format!("{}, after recovery was cut", v.found);
                    Verdict { found, ..v }
                };
                return verdicts.into_iter().map(told).collect();
            }
            if depth > 1 {
                todo.push((again, depth - 1));
            }
        }
    }
    Vec::new()
}

/// Lets the power be off for a while. Otherwise recovery's changes would be dated within the run,
/// because this machine's clock began where the run's did.
pub(crate) fn stay_off() {
    cores::sleep(OFF_NS);
}

/// Differences from what may be there, and what the workload's own program would find wrong.
pub(crate) fn compare(
    job: &Job,
    fs: &dyn Volume,
    medium: &Medium,
    model: &Model,
    memo: &mut Memo,
) -> Vec<Verdict> {
    let mut verdicts = verify(fs, &|lbas, see| medium.look(lbas, see), model, memo);
    verdicts.extend(job.workload.inspect(fs, model.transactions));
    verdicts
}

/// Adds findings of the second mount that the first did not have.
pub(crate) fn add_new(verdicts: &mut Vec<Verdict>, again: Vec<Verdict>) {
    for verdict in again {
        if !verdicts.contains(&verdict) {
            let found = format!("{}, after a second mount", verdict.found);
            verdicts.push(Verdict { found, ..verdict });
        }
    }
}

/// Unmounting works, and the next mount finds nothing to recover. If the job asks for that for the
/// cut or state of this number, the structures must agree, and `compare` is shown the mounted
/// volume. Findings of the checker count as in flight if anything was.
pub(crate) fn afterwards(
    job: &Job,
    number: usize,
    drive: Arc<dyn Drive>,
    fs: &dyn Volume,
    compare: &mut dyn FnMut(&dyn Volume),
) -> Vec<Verdict> {
    if let Err(error) = fs.unmount() {
        return vec![corrupt("unmount", "a clean unmount", &error)];
    }
    let mut verdicts = Vec::new();
    if job.is_checked(number) {
        let about_data = |fault| job.format.is_about_data(fault);
        match rig::check(job.format, &drive) {
            Ok(faults) => verdicts.extend(faults.iter().take(4).map(|fault| {
                let verdict = corrupt("check", "no fault", &fault);
                let damage = if about_data(fault) { Damage::Garbage } else { Damage::Corrupt };
                Verdict { damage, in_flight: true, ..verdict }
            })),
            Err(error) => verdicts.push(corrupt("check", "a readable volume", &error)),
        }
    }
    match rig::mount(job.format, drive, &job.sound_options()) {
        Ok(again) => {
            if !again.recovery().clean {
                let found = format!("{:?}", again.recovery());
                verdicts.push(corrupt("second mount", "nothing to recover", &found));
            }
            if job.is_checked(number) {
                compare(&*again);
            }
        }
        Err(error) => verdicts.push(corrupt("second mount", "a clean volume", &error)),
    }
    verdicts
}

/// A finding about the volume as a whole.
pub fn corrupt(path: &str, expected: &str, found: &dyn std::fmt::Display) -> Verdict {
    Verdict {
        damage: Damage::Corrupt,
        path: format!("({path})"),
        block: None,
        expected: expected.into(),
        found: found.to_string(),
        in_flight: false,
    }
}
