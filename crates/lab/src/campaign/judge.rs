//! Powers on what survived one cut, recovers it, and holds it against the oracle.

use std::ops::Range;
use std::sync::Arc;

use drive::Drive;
use vfs::FileSystem;

use super::record::{Cut, Recording};
use super::{Job, Progress};
use crate::oracle::{Damage, Model, Verdict, verify};
use crate::subject::Recovery;
use crate::{Result, machine};

/// Every cut is mounted, compared, unmounted and mounted again; of so many one is also checked
/// structure by structure.
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
    let mut model = Model::default();
    let mut judged = Vec::with_capacity(stretch.len());
    for cut in &recording.cuts[stretch] {
        model.advance(&recording.log, cut.position);
        judged.push(machine(job.seed)?.run(|| judge(job, cut, &model))?);
        progress(recording.cuts.len());
    }
    Ok(judged)
}

/// Judges one cut on the current machine.
fn judge(job: &Job, cut: &Cut, model: &Model) -> Judged {
    let drive = cut.power_on(job);
    let begun = crate::now_ns();
    let mounted = job.subject.mount(drive.clone(), &job.mount_options());
    let recovery_ns = crate::now_ns() - begun;
    let mut judged = Judged {
        index: cut.index,
        at_ns: cut.at_ns,
        recovery_ns,
        recovery: Recovery::default(),
        verdicts: Vec::new(),
    };
    match mounted {
        Err(error) => judged.verdicts.push(corrupt("mount", "a volume that recovers", &error)),
        Ok(mounted) => {
            judged.recovery = mounted.recovery;
            judged.verdicts = verify(&*mounted.fs, model);
            let in_flight = model.objects.iter().any(|o| o.syncing);
            afterwards(job, cut, drive, (&*mounted.fs, in_flight), &mut judged.verdicts);
        }
    }
    judged
}

/// Unmounting works, the structures agree, and the next mount finds nothing to recover.
fn afterwards(
    job: &Job,
    cut: &Cut,
    drive: Arc<dyn Drive>,
    (fs, in_flight): (&dyn FileSystem, bool),
    verdicts: &mut Vec<Verdict>,
) {
    if let Err(error) = fs.unmount() {
        verdicts.push(corrupt("unmount", "a clean unmount", &error));
        return;
    }
    if job.only.is_some() || cut.index.is_multiple_of(CHECK_EVERY) {
        match job.subject.check(&drive) {
            Ok(faults) => verdicts.extend(faults.iter().take(4).map(|fault| {
                let verdict = corrupt("check", "no fault", &fault.text);
                let damage = if fault.data_only { Damage::Garbage } else { Damage::Corrupt };
                Verdict { damage, in_flight, ..verdict }
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
}

fn corrupt(path: &str, expected: &str, found: &dyn std::fmt::Display) -> Verdict {
    Verdict {
        damage: Damage::Corrupt,
        path: format!("({path})"),
        block: None,
        expected: expected.into(),
        found: found.to_string(),
        in_flight: false,
    }
}
