//! What a campaign found, as the reports and scripts see it.

use serde::{Deserialize, Serialize};

use super::{Job, Judged, Recording, Tally, View};
use crate::oracle::{Damage, Promise, Verdict};
use crate::workload::recorder::FsyncSample;

/// The campaign of one mode. All times are of the simulated drive and machine, if there is one.
#[derive(Clone, Debug, Serialize)]
pub struct ModeResult {
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inject: Option<String>,
    /// Cuts judged.
    pub cuts: usize,
    /// Cuts after which anything was lost, garbage or corrupt.
    pub failed: usize,
    /// Cuts after which the volume broke one of the mode's promises.
    pub broken: usize,
    /// What the mode promises on this drive.
    pub promise: Promise,
    /// Files missing or back at an older version, over all cuts.
    pub files_lost: usize,
    /// Files with bytes never written there, over all cuts.
    pub files_garbage: usize,
    /// Files with part of an fsync but not the rest, over all cuts.
    pub files_torn: usize,
    /// Cuts after which the volume did not mount or check.
    pub corrupt: usize,
    /// Machine and drive are models. If not, times are of the clock.
    pub simulated: bool,
    /// The machine, unless it is a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// fsyncs of the run.
    pub fsyncs: usize,
    /// fsyncs per second of simulated time.
    pub fsyncs_per_s: f64,
    /// Median latency of an fsync, microseconds.
    pub fsync_us_p50: f64,
    /// 99th percentile, microseconds.
    pub fsync_us_p99: f64,
    /// Median time to mount after a cut, milliseconds.
    pub recovery_ms_p50: f64,
    /// The longest.
    pub recovery_ms_max: f64,
    /// Sections cleaned during the run.
    pub cleanings: u64,
    /// Node blocks replayed, over all cuts.
    pub replayed: u64,
    /// Inodes of which a node was discarded, over all cuts.
    pub skipped: u64,
    /// The first failures, each with the command that repeats it.
    pub failures: Vec<Failure>,
    /// Every fsync of the run, for plots; not part of the JSON.
    #[serde(skip)]
    pub samples: Vec<FsyncSample>,
    /// Time of every cut and whether it failed, for plots.
    #[serde(skip)]
    pub instants: Vec<(u64, bool)>,
    /// The files at the worst cut, for plots.
    #[serde(skip)]
    pub view: Option<View>,
    /// Time from the first to the last instant of the run, nanoseconds.
    #[serde(skip)]
    pub span_ns: u64,
}

/// One cut that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Which cut.
    pub cut: usize,
    /// When, nanoseconds of simulated time since the workload started.
    pub at_ns: u64,
    /// Whether that broke a promise of the mode.
    pub broken: bool,
    /// What was found.
    pub verdicts: Vec<Verdict>,
    /// Command that repeats exactly this cut.
    pub replay: String,
}

impl Failure {
    pub(super) fn new(job: &Job, promise: Promise, judged: &Judged) -> Self {
        Self::of(promise, judged, job.replay(judged.index))
    }

    pub(super) fn of(promise: Promise, judged: &Judged, replay: String) -> Self {
        Self {
            cut: judged.index,
            at_ns: judged.at_ns,
            broken: judged.verdicts.iter().any(|v| v.breaks(promise)),
            verdicts: judged.verdicts.clone(),
            replay,
        }
    }
}

impl ModeResult {
    pub(super) fn new(tally: &Tally, recording: &Recording, judged: &[Judged]) -> Self {
        Self {
            samples: recording.fsyncs.clone(),
            view: View::of(recording, judged),
            instants: judged.iter().map(|j| (j.at_ns, !j.verdicts.is_empty())).collect(),
            ..tally.result()
        }
    }
}

/// Files with that damage.
pub(super) fn files(verdicts: &[Verdict], damage: Damage) -> usize {
    // Names in brackets are steps, not files: a check, a mount.
    let of = |v: &&Verdict| v.damage == damage && v.path.starts_with('/');
    let mut paths: Vec<&str> = verdicts.iter().filter(of).map(|v| v.path.as_str()).collect();
    paths.sort_unstable();
    paths.dedup();
    paths.len()
}

/// The smallest of `sorted` that is not below `percent` of them.
pub(crate) fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(rank).copied().unwrap_or(0)
}

/// Three decimals: enough for a reader, and the same text everywhere.
pub(super) fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_values() {
        let values: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&values, 50), 50);
        assert_eq!(percentile(&values, 99), 99);
        assert_eq!(percentile(&values, 100), 100);
        assert_eq!(percentile(&[], 50), 0);
    }
}
