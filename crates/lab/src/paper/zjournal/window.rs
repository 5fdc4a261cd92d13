//! A load on all cores for a window of virtual time, on a fresh volume that commits by age.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cores::Nanos;
use drive::{Drive, Timing};
use vfs::kind::Volume;

use super::{COMMITS_MIN, DRIVE, MACHINE};
use crate::{Error, Result, machine_named, now_ns, rig};

/// How long the loads run at least, and at most if there are too few commits.
const WINDOW: Nanos = 10_000_000;
const WINDOW_MAX: Nanos = 500_000_000;
/// Before the window: the first transactions, and buffers on their way to the cores.
const WARM_UP: Nanos = 1_000_000;

/// What a core does again and again. It returns how many operations that was.
pub(super) type Op = Box<dyn FnMut(&dyn Volume) -> Result<u64> + Send>;

/// What one run did.
pub(super) struct Measured {
    /// Operations in a second of all cores.
    pub(super) per_s: f64,
}

/// Runs `prepare`'s operation of each of `cores` cores on a volume with these mount options, until
/// there have been [`COMMITS_MIN`] commits, if its journal has any work. Fails if they take more
/// than the longest window.
pub(super) fn measure(
    options: &str,
    cores: usize,
    seed: u64,
    prepare: impl Fn(&dyn Volume, usize) -> Result<Op> + Copy + Send + 'static,
) -> Result<Measured> {
    machine_named(MACHINE, seed)?.run(|| {
        let drive: Arc<dyn Drive> = rig::new_drive(&rig::named(DRIVE)?, Timing::Virtual, seed)?;
        let format = subjects::named("ext4").map_err(Error::of("ext4"))?;
        rig::make(format, &drive)?;
        let fs = rig::mount(format, drive, options)?;
        // Each core prepares what it uses: memory belongs to the socket that touches it first.
        let prepare = |core| {
            let fs = fs.clone();
            cores::spawn("prepare", Some(core), move || prepare(&*fs, core)).join()
        };
        let ops = (0..cores).map(prepare).collect::<Result<Vec<_>>>()?;
        fs.sync().map_err(Error::at("sync", b""))?;
        let upkeep = fs.clone().maintain();
        let from = now_ns() + WARM_UP;
        let over = Arc::new(AtomicBool::new(false));
        let spawn = |(core, op): (usize, Op)| {
            let (fs, over) = (fs.clone(), over.clone());
            cores::spawn("load", Some(core), move || run(&*fs, op, from, &over))
        };
        let threads: Vec<_> = ops.into_iter().enumerate().map(spawn).collect();
        cores::sleep_until(from);
        let has_commits = options.contains(super::V4_14) && !options.contains(super::NONE);
        let wanted = commits(&*fs, cores) + if has_commits { COMMITS_MIN } else { 0 };
        let mut to = from;
        while to == from || commits(&*fs, cores) < wanted && to < from + WINDOW_MAX {
            to += WINDOW;
            cores::sleep_until(to);
        }
        let has_enough = commits(&*fs, cores) >= wanted;
        let window = now_ns() - from;
        over.store(true, Ordering::Relaxed);
        let mut done = 0;
        for thread in threads {
            done += thread.join()?;
        }
        drop(upkeep);
        fs.unmount().map_err(Error::at("unmount", b""))?;
        if !has_enough {
            let few = format!("{options}: fewer than {COMMITS_MIN} commits in {window} ns");
            return Err(Error::Usage(few));
        }
        Ok(Measured { per_s: done as f64 / window as f64 * 1e9 })
    })?
}

/// Operations of one core that ended in the window.
fn run(fs: &dyn Volume, mut op: Op, from: Nanos, over: &AtomicBool) -> Result<u64> {
    let mut done = 0;
    loop {
        let count = op(fs)?;
        if over.load(Ordering::Relaxed) {
            return Ok(done);
        }
        done += if now_ns() >= from { count } else { 0 };
        // Linux's scheduler lets a thread that has slept, as one that commits, run at once.
        cores::yield_now();
    }
}

/// Commits so far, of each area of the journal that is in use.
fn commits(fs: &dyn Volume, cores: usize) -> u64 {
    let status = fs.status();
    let of = |name| status.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
    of("journal/commits") / of("journal/areas").clamp(1, cores as u64)
}
