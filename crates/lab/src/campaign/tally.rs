//! What was found over cuts, in sums: shares of a campaign add up to it.

use serde::{Deserialize, Serialize};

use super::result::{Failure, ModeResult, files, percentile, round};
use super::{Job, Judged, Recording};
use crate::oracle::{Damage, Promise};
use crate::workload::recorder::FsyncSample;

/// Failures reported in full; the rest are counted.
const FAILURES_SHOWN: usize = 20;

/// The run that was cut. Every share of a campaign makes the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Short name of the mode.
    pub mode: String,
    /// The drive's profile.
    pub drive: String,
    /// The workload.
    pub workload: String,
    /// Seed of the run and the cuts.
    pub seed: u64,
    /// File system.
    pub fs: String,
    /// The injected fault.
    pub inject: Option<String>,
    /// Command line that repeats it, up to the mode.
    pub command: String,
    /// Cuts in all.
    pub cuts: usize,
    /// What the mode promises on this drive.
    pub promise: Promise,
    /// fsyncs of the run.
    pub fsyncs: usize,
    /// Simulated time of the run, nanoseconds.
    pub span_ns: u64,
    /// Median latency of an fsync, nanoseconds.
    pub fsync_ns_p50: u64,
    /// 99th percentile, nanoseconds.
    pub fsync_ns_p99: u64,
    /// Sections cleaned during the run.
    pub cleanings: u64,
    /// The machine, unless it was a model; then times are the clock's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
}

/// Median and 99th percentile of what fsyncs took, nanoseconds.
pub fn latencies(fsyncs: &[FsyncSample]) -> [u64; 2] {
    let mut latency: Vec<u64> = fsyncs.iter().map(|f| f.took_ns).collect();
    latency.sort_unstable();
    [50, 99].map(|percent| percentile(&latency, percent))
}

/// Sums over the cuts of a share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// What was cut.
    pub run: Run,
    /// Cuts judged.
    pub cuts: usize,
    /// Cuts after which anything was lost, garbage or corrupt.
    pub failed: usize,
    /// Cuts after which the volume broke one of the mode's promises.
    pub broken: usize,
    /// Files, by kind of damage: lost, garbage, torn.
    pub files: [usize; 3],
    /// Cuts after which the volume did not mount or check.
    pub corrupt: usize,
    /// Node blocks replayed, over all cuts.
    pub replayed: u64,
    /// Inodes of which a node was discarded, over all cuts.
    pub skipped: u64,
    /// Mount times in nanoseconds, each with how often it occurred, in order.
    pub recovery_ns: Vec<(u64, usize)>,
    /// The first failures: of those that broke a promise, then of the others.
    pub failures: Vec<Failure>,
}

impl Tally {
    pub(super) fn new(job: &Job, recording: &Recording, judged: &[Judged]) -> Self {
        let [fsync_ns_p50, fsync_ns_p99] = latencies(&recording.fsyncs);
        let promise = recording.promise;
        let run = Run {
            mode: job.technique.name.into(),
            drive: job.drive.clone(),
            workload: job.workload.name().into(),
            seed: job.seed,
            fs: job.format.name().into(),
            inject: job.inject.clone(),
            command: job.command.clone(),
            cuts: recording.total,
            promise,
            fsyncs: recording.fsyncs.len(),
            span_ns: recording.span_ns,
            fsync_ns_p50,
            fsync_ns_p99,
            cleanings: recording.cleanings,
            machine: None,
        };
        Self::of(run, judged, |cut| job.replay(cut))
    }

    /// The sums over `judged`; `replay` is the command that repeats a cut.
    pub fn of(run: Run, judged: &[Judged], replay: impl Fn(usize) -> String) -> Self {
        let promise = run.promise;
        let broken = |j: &Judged| j.verdicts.iter().any(|v| v.breaks(promise));
        let count = |d: Damage| judged.iter().map(|j| files(&j.verdicts, d)).sum();
        let corrupt = |j: &&Judged| j.verdicts.iter().any(|v| v.damage == Damage::Corrupt);
        let failed = judged.iter().filter(|j| !j.verdicts.is_empty());
        let mut recovery: Vec<u64> = judged.iter().map(|j| j.recovery_ns).collect();
        recovery.sort_unstable();
        Self {
            run,
            cuts: judged.len(),
            failed: failed.clone().count(),
            broken: judged.iter().filter(|j| broken(j)).count(),
            files: [Damage::Lost, Damage::Garbage, Damage::Torn].map(count),
            corrupt: judged.iter().filter(corrupt).count(),
            replayed: judged.iter().map(|j| j.recovery.replayed).sum(),
            skipped: judged.iter().map(|j| j.recovery.skipped).sum(),
            recovery_ns: recovery.chunk_by(|a, b| a == b).map(|all| (all[0], all.len())).collect(),
            failures: (failed.clone().filter(|j| broken(j)))
                .chain(failed.filter(|j| !broken(j)))
                .take(FAILURES_SHOWN)
                .map(|j| Failure::of(promise, j, replay(j.index)))
                .collect(),
        }
    }

    /// Adds the share that comes next. Shares are read from files: sums do not overflow.
    pub(crate) fn add(&mut self, next: Self) {
        for (sum, more) in [
            (&mut self.cuts, next.cuts),
            (&mut self.failed, next.failed),
            (&mut self.broken, next.broken),
            (&mut self.corrupt, next.corrupt),
        ] {
            *sum = sum.saturating_add(more);
        }
        for (sum, more) in self.files.iter_mut().zip(next.files) {
            *sum = sum.saturating_add(more);
        }
        self.replayed = self.replayed.saturating_add(next.replayed);
        self.skipped = self.skipped.saturating_add(next.skipped);
        self.recovery_ns.extend(next.recovery_ns);
        self.recovery_ns.sort_unstable();
        self.failures.extend(next.failures);
        self.failures.sort_by_key(|failure| !failure.broken);
        self.failures.truncate(FAILURES_SHOWN);
    }

    /// The time that `percent` of the mounts did not exceed.
    fn recovery_ms(&self, percent: usize) -> f64 {
        let all = self.recovery_ns.iter().fold(0_usize, |all, (_, n)| all.saturating_add(*n));
        let rank = (all as u128 * percent as u128).div_ceil(100).max(1);
        let mut seen = 0;
        let at = self.recovery_ns.iter().find(|(_, n)| {
            seen += *n as u128;
            seen >= rank
        });
        round(at.map_or(0, |(ns, _)| *ns) as f64 / 1e6)
    }

    /// As the reports have it.
    pub fn result(&self) -> ModeResult {
        let run = &self.run;
        let seconds = run.span_ns as f64 / 1e9;
        let [files_lost, files_garbage, files_torn] = self.files;
        ModeResult {
            mode: run.mode.clone(),
            drive: run.drive.clone(),
            workload: run.workload.clone(),
            seed: run.seed,
            fs: run.fs.clone(),
            inject: run.inject.clone(),
            cuts: self.cuts,
            failed: self.failed,
            broken: self.broken,
            promise: run.promise,
            files_lost,
            files_garbage,
            files_torn,
            corrupt: self.corrupt,
            simulated: run.machine.is_none(),
            machine: run.machine.clone(),
            fsyncs: run.fsyncs,
            fsyncs_per_s: round(run.fsyncs as f64 / seconds.max(1e-9)),
            fsync_us_p50: round(run.fsync_ns_p50 as f64 / 1e3),
            fsync_us_p99: round(run.fsync_ns_p99 as f64 / 1e3),
            recovery_ms_p50: self.recovery_ms(50),
            recovery_ms_max: self.recovery_ms(100),
            cleanings: run.cleanings,
            replayed: self.replayed,
            skipped: self.skipped,
            failures: self.failures.clone(),
            samples: Vec::new(),
            instants: Vec::new(),
            view: None,
            span_ns: run.span_ns,
        }
    }
}
