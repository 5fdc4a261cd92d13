//! One run of a load: every core prepares, all start at once, and the time is from the first start
//! to the last end.

use std::sync::Arc;

use cores::{LockUse, Nanos, lockstat};

use super::files::Files;
use super::load::Load;
use super::work::{Share, make_shared};
use crate::bench::start::{self, Start};
use crate::{Error, Result, now_ns};

/// What is run.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) load: Load,
    pub(super) cores: u64,
    /// The core that the first thread runs on.
    pub(super) first_core: u64,
    /// Operations per core.
    pub(super) ops: u64,
    /// Whether files are opened with `O_DIRECT`.
    pub(super) direct: bool,
    pub(super) seed: u64,
    /// Whether to count what happens at locks.
    pub(super) profile_locks: bool,
}

/// What a run took.
pub(super) struct Took {
    pub(super) time: Nanos,
    /// Empty unless it was asked for.
    pub(super) locks: Vec<LockUse>,
}

/// Between preparation and start: a lock whose readers go without it has been taken exclusively by
/// the sync, and does not let them for some milliseconds on a machine of many cores.
const PAUSE: Nanos = 10_000_000;

/// Called when every core is ready, and when the last one is done.
pub(super) struct Told<'a> {
    pub(super) ready: &'a dyn Fn() -> Result<()>,
    pub(super) done: &'a dyn Fn() -> Result<()>,
}

/// When a core started and ended.
type Times = (Nanos, Nanos);

impl Run {
    /// Runs the load on `files`.
    pub(super) fn on<F: Files>(self, files: &Arc<F>, told: &Told<'_>) -> Result<Took> {
        make_shared(self.load, &**files, self.cores)?;
        let start = Arc::new(Start::new());
        let threads: Vec<_> = (0..self.cores)
            .map(|core| {
                let (files, start) = (files.clone(), start.clone());
                let place = (self.first_core + core) as usize;
                cores::spawn("fxmark", Some(place), move || self.core(core, files, &start))
            })
            .collect();
        let prepared = start.wait_for(self.cores);
        let synced = if prepared { files.sync().and_then(|()| (told.ready)()) } else { Ok(()) };
        cores::sleep(PAUSE);
        if self.profile_locks {
            lockstat::start();
        }
        start.say(prepared && synced.is_ok());
        let times: Vec<_> = threads.into_iter().map(cores::JoinHandle::join).collect();
        let mut locks = if self.profile_locks { lockstat::finish() } else { Vec::new() };
        locks.retain(|lock| lock.name != start::LOCK);
        synced?;
        let times = times.into_iter().collect::<Result<Vec<_>>>()?;
        (told.done)()?;
        let began = times.iter().flatten().map(|times| times.0).min();
        let ended = times.iter().flatten().map(|times| times.1).max();
        match (began, ended) {
            (Some(began), Some(ended)) => Ok(Took { time: (ended - began).max(1), locks }),
            _ => Err(Error::Usage("no cores".into())),
        }
    }

    /// One core's share, from its preparation to its end. `None` if it was told to give up.
    fn core<F: Files>(self, core: u64, files: Arc<F>, start: &Start) -> Result<Option<Times>> {
        let preparing = start.prepare();
        let share = Share { files, core, ops: self.ops, seed: self.seed };
        let mut op = share.prepare(self.load)?;
        if !preparing.line_up() {
            return Ok(None);
        }
        let began = now_ns();
        (0..self.ops).try_for_each(&mut op)?;
        Ok(Some((began, now_ns())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::fxmark::files::Mounted;

    #[test]
    fn after_a_failure_no_core_runs() {
        let dir = tempfile::tempdir().expect("a directory");
        let files = Arc::new(Mounted::below(dir.path(), false).expect("a directory"));
        let (load, seed, profile_locks) = (Load::Mwcl, 1, false);
        let direct = false;
        let run = Run { load, cores: 2, first_core: 0, ops: 5, direct, seed, profile_locks };
        let own = |core: &str| files.root().join(core);
        let made = |core: &str| std::fs::read_dir(own(core)).expect("it is there").count();
        let done = || unreachable!("no core runs");

        let told = Told { ready: &|| Err(Error::Full), done: &done };
        assert!(matches!(run.on(&files, &told), Err(Error::Full)));
        assert_eq!([made("0"), made("1")], [0, 0]);

        // The directory of the second core is still there, so it cannot make it.
        std::fs::remove_dir(own("0")).expect("it is empty");
        let told = Told { ready: &|| unreachable!("one core has failed"), done: &done };
        assert!(matches!(run.on(&files, &told), Err(Error::Host { .. })));
        assert_eq!([made("0"), made("1")], [0, 0]);
    }
}
