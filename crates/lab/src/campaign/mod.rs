//! Crash campaigns: one run of a workload, many power cuts, every byte judged.
//!
//! A campaign is a pure function of its [`Job`]. The workload runs twice on a virtual machine with
//! a virtual-time drive: once to learn how long it takes, once to take, at instants drawn from the
//! seed, what the NAND would have if the power went then, paired with the oracle's position. Each
//! such state is then powered on, recovered, compared and checked on a machine of its own, so the
//! verdict of a cut depends on nothing but the job and the cut, however cuts are spread over cores.

mod failing;
mod judge;
pub mod minimise;
mod record;
mod result;
pub mod shard;
#[cfg(test)]
mod snapshot;
mod tally;
#[cfg(test)]
mod tests;
mod view;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use drive::{Drive, Identify};

use crate::oracle::Promise;
use crate::report::ZoneMap;
use crate::workload::Workload;
use crate::{Result, rig};
use vfs::kind::Format;
use vfs::kind::Technique;

use judge::judge_stretch;
pub use judge::{Found, Judged, compare_each, corrupt, with_later};
pub(crate) use judge::{
    Passed, add_new, afterwards, compare, cut_again, first_failure, model, mount_cut, stay_off,
};
pub use record::{Recording, record};
pub use result::{Failure, ModeResult};
use shard::Pick;
pub use tally::{Run, Tally, latencies};
pub use view::{Fate, View};
pub(crate) use watch::zones_at;
pub use watch::{Cut, CutPoints, Watch};

/// A sensible [`Job::check_every`] for many cuts.
pub const CHECK_EVERY: usize = 10;

/// What to run, and how often to cut its power.
#[derive(Clone)]
pub struct Job {
    /// The file system.
    pub format: &'static dyn Format,
    /// The drive's profile, by name, and what is unlike it, or persistent memory; see
    /// [`crate::rig::kit`] and [`crate::rig::failing`].
    pub drive: String,
    /// What uses the file system.
    pub workload: Arc<dyn Workload>,
    /// The fsync mode.
    pub technique: &'static Technique,
    /// Mount options besides those of the mode and the workload: how the block layer is set up,
    /// for example.
    pub mount_opts: String,
    /// Features of the volume besides those that the mode needs: see [`Format::make_with`].
    pub features: String,
    /// A deliberate fault, by name.
    pub inject: Option<String>,
    /// How many cuts.
    pub cuts: usize,
    /// Decides everything random.
    pub seed: u64,
    /// Which cuts are judged.
    pub pick: Pick,
    /// What each cut left is mounted, compared, unmounted and mounted again. One cut in this many
    /// is also checked structure by structure, and compared again after the second mount.
    pub check_every: usize,
    /// Real threads to judge on.
    pub threads: usize,
    /// Command line that repeats this job, up to the mode.
    pub command: String,
}

impl Job {
    /// A job without a fault that judges everything on one thread; what else it needs is for the
    /// caller to fill in.
    pub fn new(
        format: &'static dyn Format,
        drive: impl Into<String>,
        workload: Arc<dyn Workload>,
        technique: &'static Technique,
        seed: u64,
    ) -> Self {
        Self {
            format,
            drive: drive.into(),
            workload,
            technique,
            mount_opts: String::new(),
            features: String::new(),
            inject: None,
            cuts: 0,
            seed,
            pick: Pick::All,
            check_every: CHECK_EVERY,
            threads: 1,
            command: "strandline crash".into(),
        }
    }

    /// Makes the volume.
    pub fn make(&self, drive: &Arc<dyn Drive>) -> Result<()> {
        rig::make_for(self.format, drive, self.technique, &self.mount_options(), &self.features)
    }

    /// The `mount -o` string.
    pub fn mount_options(&self) -> String {
        let sound = self.sound_options();
        match &self.inject {
            Some(fault) => format!("{sound},inject={fault}"),
            None => sound,
        }
    }

    /// That string without the deliberate fault.
    pub fn sound_options(&self) -> String {
        let mut options = self.technique.options.to_owned();
        for option in self.workload.mount_options().split(',').filter(|o| !o.is_empty()) {
            if self.format.has_option(option.split('=').next().unwrap_or(option)) {
                options += &format!(",{option}");
            }
        }
        if !self.mount_opts.is_empty() {
            options += &format!(",{}", self.mount_opts);
        }
        options
    }

    /// What the mode promises for this workload on such a drive.
    pub(crate) fn promise(&self, drive: &Identify) -> Promise {
        let promise = (self.technique.promise)(drive);
        Promise {
            atomic: promise.atomic && !self.workload.evicts(),
            whole: promise.whole && self.format.has_whole_pages(self.technique, &self.features),
            ..promise
        }
    }

    /// Whether the cut or state of this number gets every check there is.
    pub(crate) fn is_checked(&self, number: usize) -> bool {
        self.pick.is_one() || number.is_multiple_of(self.check_every)
    }

    /// A command that judges cut `index` of this job alone.
    pub fn replay(&self, index: usize) -> String {
        format!("{} --modes {} --only {index}", self.command, self.technique)
    }
}

/// Called after each judged cut, from any thread, with the campaign's number of cuts. Once it says
/// no, a thread judges no more, and what comes out is about the cuts judged by then.
pub type Progress = Arc<dyn Fn(usize) -> bool + Send + Sync>;

/// Runs the whole campaign of one mode: `job.cuts` cuts at random moments.
///
/// ```
/// use std::sync::Arc;
///
/// use lab::campaign::{self, Job};
/// # fn main() -> lab::Result<()> {
/// let format = subjects::named("f2fs")?;
/// let workload = lab::workload::named("pattern", 20)?.into();
/// let strict = subjects::technique(format, "oprw-strict")?;
/// let job = Job { cuts: 20, ..Job::new(format, "zn540-noplp", workload, strict, 42) };
/// let result = campaign::run(&Arc::new(job), &(Arc::new(|_| true) as campaign::Progress))?;
/// assert_eq!((result.cuts, result.broken), (20, 0));
/// # Ok(())
/// # }
/// ```
pub fn run(job: &Arc<Job>, progress: &Progress) -> Result<ModeResult> {
    run_at(job, CutPoints::Random(job.cuts), progress).map(|(result, _)| result)
}

/// As [`run`] with cuts where `points` says; also shows the drive's zones at the cut that lost
/// most of its buffer.
pub fn run_at(
    job: &Arc<Job>,
    points: CutPoints,
    progress: &Progress,
) -> Result<(ModeResult, Option<ZoneMap>)> {
    let recording = Arc::new(record(job, points)?);
    let judged = judge_all(job, &recording, progress)?;
    let tally = Tally::new(job, &recording, &judged);
    Ok((ModeResult::new(&tally, &recording, &judged), recording.zone_map.clone()))
}

/// As [`run_at`], in sums that shares add up to.
pub fn run_share(job: &Arc<Job>, points: CutPoints, progress: &Progress) -> Result<Tally> {
    let recording = Arc::new(record(job, points)?);
    let judged = judge_all(job, &recording, progress)?;
    Ok(Tally::new(job, &recording, &judged))
}

/// How many parts of a recording each thread gets: later cuts may cost more, and no thread should
/// wait long for the one that has them.
const STRETCHES: usize = 8;

/// Judges all cuts of a recording over `job.threads` real threads. Each takes a contiguous part at
/// a time, so that it replays the log only once for that part. Results are in the order of the
/// cuts.
pub fn judge_all(
    job: &Arc<Job>,
    recording: &Arc<Recording>,
    progress: &Progress,
) -> Result<Vec<Judged>> {
    let count = recording.cuts.len();
    let threads = job.threads.clamp(1, count.max(1));
    let share = count.div_ceil(threads * STRETCHES).max(1);
    let next = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            let (job, recording, progress) = (job.clone(), recording.clone(), progress.clone());
            let next = next.clone();
            cores::spawn("judge", None, move || {
                let mut judged = Vec::new();
                loop {
                    let from = next.fetch_add(share, Ordering::Relaxed);
                    if from >= count {
                        return Ok(judged);
                    }
                    let stretch = from..count.min(from + share);
                    if !judge_stretch(&job, &recording, stretch, &progress, &mut judged)? {
                        return Ok(judged);
                    }
                }
            })
        })
        .collect();
    let mut judged: Vec<Judged> = Vec::with_capacity(count);
    for worker in workers {
        let part: Result<Vec<Judged>> = worker.join();
        judged.extend(part?);
    }
    judged.sort_unstable_by_key(|judged| judged.index);
    Ok(judged)
}
