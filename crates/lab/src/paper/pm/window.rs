//! A load on all cores for a window of virtual time.

use std::sync::Arc;

use cores::Nanos;
use vfs::kind::Volume;

use crate::{Error, Result, now_ns};

/// What a core does again and again. It returns how many operations that was.
pub(super) type Op = Box<dyn FnMut(&dyn Volume) -> Result<u64> + Send>;

/// Which operations count: those that end in it.
#[derive(Clone, Copy)]
pub(super) struct Window {
    /// The load has been running so long when it begins.
    pub(super) warm_up: Nanos,
    pub(super) length: Nanos,
}

impl Window {
    /// Runs the load of each core, and returns how many operations of each count. Calls `look` when
    /// the window begins, and when it ends.
    pub(super) fn run(
        self,
        fs: &Arc<dyn Volume>,
        loads: Vec<Op>,
        look: &mut dyn FnMut(),
    ) -> Result<Vec<u64>> {
        let from = now_ns() + self.warm_up;
        let to = from + self.length;
        let spawn = |(core, op): (usize, Op)| {
            let fs = fs.clone();
            cores::spawn("load", Some(core), move || one(&*fs, op, from, to))
        };
        let threads: Vec<_> = loads.into_iter().enumerate().map(spawn).collect();
        cores::sleep_until(from);
        look();
        cores::sleep_until(to);
        look();
        threads.into_iter().map(cores::JoinHandle::join).collect()
    }

    /// Operations per second.
    pub(super) fn per_s(self, done: u64) -> f64 {
        done as f64 / self.length as f64 * 1e9
    }
}

/// Each core prepares what it uses: memory belongs to the socket that touches it first.
pub(super) fn prepare(
    fs: &Arc<dyn Volume>,
    cores: usize,
    prepare: impl Fn(&dyn Volume, usize) -> Result<Op> + Clone + Send + 'static,
) -> Result<Vec<Op>> {
    let prepare = |core| {
        let (fs, prepare) = (fs.clone(), prepare.clone());
        cores::spawn("prepare", Some(core), move || prepare(&*fs, core)).join()
    };
    let loads = (0..cores).map(prepare).collect::<Result<Vec<_>>>()?;
    fs.sync().map_err(Error::at("sync", b""))?;
    Ok(loads)
}

/// Operations of one core that ended in the window.
fn one(fs: &dyn Volume, mut op: Op, from: Nanos, to: Nanos) -> Result<u64> {
    let mut done = 0;
    loop {
        let count = op(fs)?;
        let now = now_ns();
        if now >= to {
            return Ok(done);
        }
        done += if now >= from { count } else { 0 };
        // The thread that looks shares a core with one that works.
        cores::yield_now();
    }
}
