//! Runs that are cut at every point there is.

use std::sync::Arc;

use f2fs::technique;
use lab::campaign::{CutPoints, Job, ModeResult, Progress, run_at};
use lab::workload::Workload;
use vfs::kind::Technique;

/// What holds without PLP on a drive without zones, by checksums or not at all.
pub(crate) const CONVENTIONAL_MODES: [&Technique; 4] =
    [technique::POSIX, technique::STRICT, technique::NOBARRIER, technique::OPRW_STRICT];

/// Two of these modes for the `nth` workload, and others on each of a kind's drives: six modes are
/// all there on three of them, four on two. The suites for `make test-all` take all on each.
pub(crate) fn share(
    modes: &'static [&'static Technique],
    nth: usize,
    drive: usize,
) -> [&'static Technique; 2] {
    [0, 1].map(|one| modes[(nth + 2 * drive + one) % modes.len()])
}

/// All cuts of one run of `workload`, each of them checked structure by structure.
pub(crate) fn job(
    workload: impl Into<Arc<dyn Workload>>,
    drive: &str,
    mode: &'static Technique,
    seed: u64,
) -> Job {
    let workload = workload.into();
    let name = workload.name();
    let command =
        format!("strandline crash --drive {drive} --workload {name} --seed {seed} --every-cut");
    let job = Job::new(&f2fs::Format, drive, workload, mode, seed);
    Job { command, check_every: 1, threads: 2, ..job }
}

/// The result; an error says how to repeat it.
pub(crate) fn every_cut(job: Job) -> Result<ModeResult, String> {
    let quiet: Progress = Arc::new(|_| true);
    let again = format!("{} --modes {}", job.command, job.technique);
    let ran = run_at(&Arc::new(job), CutPoints::Every, &quiet);
    ran.map(|(result, _)| result).map_err(|error| format!("{error}\n  {again}"))
}

/// How a promise was broken first, and what repeats it.
pub(crate) fn broken(result: &ModeResult) -> Option<String> {
    let told = result.failures.iter().find(|failure| failure.broken)?;
    let first = told.verdicts.iter().find(|verdict| verdict.breaks(result.promise))?;
    let (broken, cuts) = (result.broken, result.cuts);
    Some(format!("{broken} of {cuts} cuts; {first}\n  {}", told.replay))
}
