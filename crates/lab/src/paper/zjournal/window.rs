//! A load on all cores for a window of virtual time, on a fresh volume that commits by age.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
/// there have been [`COMMITS_MIN`] commits, if operations `begin` transactions. Fails if they take
/// more than the longest window.
pub(super) fn measure(
    options: &str,
    cores: usize,
    seed: u64,
    begins: bool,
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
        let window = Arc::new(Window {
            cores,
            from: now_ns() + WARM_UP,
            wanted: if begins { COMMITS_MIN } else { 0 },
            end: AtomicU64::new(Nanos::MAX),
        });
        let spawn = |(core, op): (usize, Op)| {
            let (fs, window) = (fs.clone(), window.clone());
            cores::spawn("load", Some(core), move || run(&*fs, op, core, &window))
        };
        let threads: Vec<_> = ops.into_iter().enumerate().map(spawn).collect();
        let mut done = 0;
        for thread in threads {
            done += thread.join()?;
        }
        drop(upkeep);
        fs.unmount().map_err(Error::at("unmount", b""))?;
        let took = window.end.load(Ordering::Relaxed) - window.from;
        if took >= WINDOW_MAX {
            let few = format!("{options}: fewer than {COMMITS_MIN} commits in {took} ns");
            return Err(Error::Usage(few));
        }
        Ok(Measured { per_s: done as f64 / took as f64 * 1e9 })
    })?
}

/// When operations count.
struct Window {
    cores: usize,
    from: Nanos,
    /// Commits that it must have.
    wanted: u64,
    /// Its end, once core 0 has seen enough: other threads may find no core to run on.
    end: AtomicU64,
}

/// Operations of one core that ended in the window.
fn run(fs: &dyn Volume, mut op: Op, core: usize, window: &Window) -> Result<u64> {
    let (mut done, mut before, mut look) = (0, 0, window.from);
    loop {
        let count = op(fs)?;
        let now = now_ns();
        if now >= window.end.load(Ordering::Relaxed) {
            return Ok(done);
        }
        done += if now >= window.from { count } else { 0 };
        if core == 0 && now >= look {
            let commits = commits(fs, window.cores);
            if look == window.from {
                before = commits;
            } else if commits >= before + window.wanted || now >= window.from + WINDOW_MAX {
                window.end.store(now, Ordering::Relaxed);
            }
            look += WINDOW;
        }
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
