//! Powers on what survived one cut, recovers it, and holds it against the oracle.

use std::ops::Range;
use std::sync::Arc;

use drive::{Drive, Ssd};

use super::record::{Cut, Recording};
use super::{Failure, Job, Progress};
use crate::oracle::{Damage, Memo, Model, Verdict, verify};
use crate::subject::{Recovery, Volume};
use crate::{Result, machine};

/// What every cut left is mounted, compared, unmounted and mounted again; of so many one is also
/// checked structure by structure.
const CHECK_EVERY: usize = 10;

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

pub(super) fn judge_stretch(
    job: &Job,
    recording: &Recording,
    stretch: Range<usize>,
    progress: &Progress,
) -> Result<Vec<Judged>> {
    let (mut model, mut memo) = (Model::default(), Memo::default());
    let mut judged = Vec::with_capacity(stretch.len());
    // Cuts that left the same are mounted once. What may be there differs all the same.
    for cuts in recording.cuts[stretch].chunk_by(|one, next| one.like == next.like) {
        judged.extend(judge_alike(job, recording, cuts, &mut model, &mut memo, progress)?);
    }
    Ok(judged)
}

/// Cuts that left the same, on a machine of their own.
fn judge_alike(
    job: &Job,
    recording: &Recording,
    cuts: &[Cut],
    model: &mut Model,
    memo: &mut Memo,
    progress: &Progress,
) -> Result<Vec<Judged>> {
    let mut verify = |fs: &dyn Volume, drive: &Ssd, cut: &Cut| {
        model.advance(&recording.log, cut.position);
        let in_flight = model.is_syncing();
        (verify(fs, &|lbas, see| drive.look(lbas, see), model, memo), in_flight)
    };
    let judged = machine(job.seed)?.run(|| judge(job, cuts, &mut verify))?;
    cuts.iter().for_each(|_| progress(recording.cuts.len()));
    Ok(judged)
}

/// The first cut, in order of time, whose findings `is` says yes to.
pub(crate) fn first_failure(
    job: &Job,
    recording: &Recording,
    is: &mut dyn FnMut(&[Verdict]) -> bool,
) -> Result<Option<Failure>> {
    let quiet: Progress = Arc::new(|_| ());
    let (mut model, mut memo) = (Model::default(), Memo::default());
    for cuts in recording.cuts.chunk_by(|one, next| one.like == next.like) {
        for judged in judge_alike(job, recording, cuts, &mut model, &mut memo, &quiet)? {
            if !judged.verdicts.is_empty() && is(&judged.verdicts) {
                return Ok(Some(Failure::new(job, recording.promise, &judged)));
            }
        }
    }
    Ok(None)
}

/// What differs from what may be there after a cut, and whether an fsync was under way at it.
type Verify<'a> = dyn FnMut(&dyn Volume, &Ssd, &Cut) -> (Vec<Verdict>, bool) + 'a;

/// Judges cuts that left the same, on the current machine.
fn judge(job: &Job, cuts: &[Cut], verify: &mut Verify<'_>) -> Vec<Judged> {
    let Some(first) = cuts.first() else { return Vec::new() };
    let drive = first.power_on(job);
    let begun = crate::now_ns();
    let mounted = job.subject.mount(drive.clone(), &job.mount_options());
    let recovery_ns = crate::now_ns() - begun;
    let recovery = mounted.as_ref().map_or_else(|_| Recovery::default(), |m| m.recovery);
    let mut judged: Vec<(Judged, bool)> = cuts
        .iter()
        .map(|cut| {
            let (verdicts, in_flight) = match &mounted {
                Ok(mounted) => verify(&*mounted.fs, &drive, cut),
                Err(error) => (vec![corrupt("mount", "a volume that recovers", error)], false),
            };
            let Cut { index, at_ns, .. } = *cut;
            (Judged { index, at_ns, recovery_ns, recovery, verdicts }, in_flight)
        })
        .collect();
    if let Ok(mounted) = mounted {
        let check = job.pick.is_one() || first.like.is_multiple_of(CHECK_EVERY);
        let later = afterwards(job, check, drive, &*mounted.fs);
        for (judged, in_flight) in &mut judged {
            judged.verdicts.extend(
                later.iter().cloned().map(|verdict| Verdict {
                    in_flight: verdict.in_flight && *in_flight,
                    ..verdict
                }),
            );
        }
    }
    judged.into_iter().map(|(judged, _)| judged).collect()
}

/// Unmounting works, the structures agree if that is to be checked, and the next mount finds
/// nothing to recover. What the checker finds is said to be in flight, as it is if anything was.
pub(crate) fn afterwards(
    job: &Job,
    check: bool,
    drive: Arc<dyn Drive>,
    fs: &dyn Volume,
) -> Vec<Verdict> {
    if let Err(error) = fs.unmount() {
        return vec![corrupt("unmount", "a clean unmount", &error)];
    }
    let mut verdicts = Vec::new();
    if check {
        match job.subject.check(&drive) {
            Ok(faults) => verdicts.extend(faults.iter().take(4).map(|fault| {
                let verdict = corrupt("check", "no fault", &fault.text);
                let damage = if fault.data_only { Damage::Garbage } else { Damage::Corrupt };
                Verdict { damage, in_flight: true, ..verdict }
            })),
            Err(error) => verdicts.push(corrupt("check", "a readable volume", &error)),
        }
    }
    match job.subject.mount(drive, &job.sound_options()) {
        Ok(again) if again.recovery.clean => {}
        Ok(again) => {
            let found = format!("{:?}", again.recovery);
            verdicts.push(corrupt("second mount", "nothing to recover", &found));
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
