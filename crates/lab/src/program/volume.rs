//! The states of a real volume: the run is repeated on one, and each state that a cut of its drive
//! may leave is mounted, with recovery, and its tree read.

use std::collections::BTreeMap;
use std::sync::Arc;

use drive::Timing;
use vfs::kind::{Format, Technique, Volume as Mounted};
use vfs::path::walk;
use vfs::{FileSystem, Ino, SetAttr};

use super::replay::{HOME, Others, Replay, home};
use super::tree::Tree;
use crate::campaign::{Job, stay_off};
use crate::explore::{self, Bound, Leaving};
use crate::record::Run;
use crate::rig::Left;
use crate::workload::Rng;
use crate::{Error, Result, machine, rig};

/// The stream of random numbers that leaves out states.
const FEWER: u64 = 13;

/// A file system in a mode on a drive.
#[derive(Clone)]
pub struct Volume {
    /// The file system.
    pub format: &'static dyn Format,
    /// The mode.
    pub technique: &'static Technique,
    /// The drive's profile.
    pub drive: String,
    /// Mount options besides those of the mode.
    pub options: String,
}

impl Volume {
    fn job(&self, replay: &Arc<Replay>, seed: u64) -> Job {
        let workload: Arc<Replay> = replay.clone();
        let mount_opts = self.options.clone();
        let job = Job::new(self.format, self.drive.clone(), workload, self.technique, seed);
        Job { mount_opts, ..job }
    }
}

/// A tree that a cut may leave after each of these numbers of steps.
pub(super) struct Found {
    /// Number of the state in its repetition.
    pub(super) number: usize,
    pub(super) tree: Read,
    pub(super) origin: Origin,
    /// Steps that had returned, each once and in order.
    pub(super) steps: Vec<usize>,
}

/// A state of a volume, which can be mounted again.
#[derive(Clone)]
pub(super) struct Origin {
    job: Arc<Job>,
    left: Left,
}

impl Origin {
    /// See [`super::State::mount`].
    pub(super) fn mount(&self, uid: u32, gid: u32) -> Result<(Arc<dyn Mounted>, &'static str)> {
        let Job { format, seed, .. } = &*self.job;
        let medium = self.left.power_on(Timing::Instant, *seed);
        let volume = rig::mount(*format, medium.drive(), &self.job.mount_options())?;
        let owned = home(&*volume).and_then(|dir| own(&*volume, dir, uid, gid));
        owned.map_err(Error::at("chown", HOME.as_bytes()))?;
        Ok((volume, HOME))
    }
}

/// The run was repeated by the superuser; its files belong to these from now on.
fn own(fs: &dyn FileSystem, dir: Ino, uid: u32, gid: u32) -> vfs::Result<()> {
    let set = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
    fs.setattr(dir, &set)?;
    walk(fs, dir, &mut |_, attr| fs.setattr(attr.ino, &set).map(drop))
}

/// What was there, or why it did not mount.
pub(super) type Read = Result<Arc<Tree>, String>;

/// More states of an instant than this are never listed.
const EVERY_AT_INSTANT: usize = 4096;

/// The states of one repetition of the run.
pub(super) struct Round {
    pub(super) found: Vec<Found>,
    /// States that were left out.
    pub(super) left_out: usize,
    /// Instants with too many states to list.
    pub(super) sampled: usize,
}

/// The trees of states met before, by what tells a state from others.
pub(super) type Known = BTreeMap<u64, Read>;

/// Repeats the run on `volume` while `others` use it too, and reads at most `most` of its states,
/// on `threads` threads.
pub(super) fn repeat(
    volume: &Volume,
    run: &Arc<Run>,
    others: Others,
    (seed, most, threads): (u64, usize, usize),
    known: &mut Known,
) -> Result<Round> {
    let replay = Arc::new(Replay::new(run.clone(), others)?);
    let job = Arc::new(volume.job(&replay, seed));
    // A few times as many as are wanted: others bring the same.
    let bound = most.saturating_mul(8) / run.steps_after_begin().max(1);
    let bound = bound.clamp(2, (most >> 8).clamp(64, EVERY_AT_INSTANT));
    let (states, sampled) = explore::leavings(&job, Bound { states: bound })?;
    let ends = replay.ends();
    let total = states.len();
    let mut rng = Rng::new(seed, FEWER);
    let keeps = |n: &usize| total <= most || (rng.below(total as u64) as usize) < most || *n == 0;
    let numbers: Vec<usize> = (0..total).filter(keeps).collect();
    let new: Vec<(u64, Left)> = (numbers.iter().map(|&n| &states[n]))
        .filter(|state| !known.contains_key(&state.key))
        .map(|state| (state.key, state.left.clone()))
        .collect();
    known.extend(read_all(&job, new, threads)?);
    let found = numbers.iter().map(|&number| {
        let Leaving { key, positions, left } = &states[number];
        let done = |at: &usize| ends.partition_point(|end| end <= at).saturating_sub(1);
        let mut steps: Vec<usize> = positions.iter().map(done).collect();
        steps.dedup();
        let origin = Origin { job: job.clone(), left: left.clone() };
        Found { number, tree: known[key].clone(), origin, steps }
    });
    let found: Vec<Found> = found.collect();
    Ok(Round { left_out: total - found.len(), found, sampled })
}

type Trees = Vec<(u64, Read)>;

/// Mounts all of these and reads the program's directory.
fn read_all(job: &Arc<Job>, mut states: Vec<(u64, Left)>, threads: usize) -> Result<Trees> {
    let share = states.len().div_ceil(threads.max(1)).max(1);
    let mut workers = Vec::new();
    while !states.is_empty() {
        let rest = states.split_off(states.len().saturating_sub(share));
        let job = job.clone();
        workers.push(cores::spawn("mounts", None, move || {
            let read = |(key, left): (u64, Left)| Ok((key, read(&job, &left)?));
            rest.into_iter().map(read).collect::<Result<Trees>>()
        }));
    }
    let mut all = Vec::new();
    for worker in workers {
        all.extend(worker.join()?);
    }
    Ok(all)
}

/// What is in the program's directory of a volume in this state.
fn read(job: &Job, left: &Left) -> Result<Read> {
    Ok(machine(job.seed)?.run(|| {
        stay_off();
        let medium = left.power_on(Timing::Instant, job.seed);
        let mounted = rig::mount(job.format, medium.drive(), &job.mount_options());
        let mounted = mounted.map_err(|error| error.to_string())?;
        let read = home(&*mounted).and_then(|dir| Tree::read(&*mounted, dir));
        read.map(Arc::new).map_err(|error| error.to_string())
    })?)
}
