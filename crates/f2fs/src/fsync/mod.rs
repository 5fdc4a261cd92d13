//! fsync: what it writes, what it waits for, and when it must write a checkpoint instead
//! (`f2fs_do_sync_file`).
//!
//! One file per technique holds its [`Plan`]; [`queue::plan`] runs any of them. The volume is
//! locked while a step allocates and submits, and not while it waits for the drive. Three rules
//! keep an fsync's promise, whatever other threads do meanwhile:
//! - what it has to do is decided (`need`) in the same hold of the volume in which it is done;
//! - data and nodes that must show one instant are captured in one hold (`Frozen`);
//! - it returns when the nodes ahead of its own are durable, too (`arrivals`).

pub(crate) mod arrivals;
mod atomic;
mod need;
mod nobarrier;
mod oprw;
mod posix;
mod strict;
mod submit;
pub mod technique;

use cores::Stage;
use queue::plan::{OnTheWay, Run};
use queue::{BlockQueue, IoError};
use vfs::Hold;

pub use atomic::ATOMIC;
pub use nobarrier::NOBARRIER;
pub use oprw::{OPRW_NOBARRIER, OPRW_POSIX};
pub use posix::POSIX;
pub use strict::STRICT;
pub use submit::{Mark, Plan, Step, Submit, Writes};

use crate::F2fs;
use crate::error::{Error, Result};
use crate::inode::node_write::Frozen;
use crate::mount::engine::{Caller, Engine};
use crate::mount::options::{FsyncMode, Inject, MountOptions};
use crate::ondisk::Nid;
use arrivals::Arrival;
use need::Need;

/// The technique that these options select.
pub fn plan_of(options: &MountOptions) -> &'static Plan {
    match (options.fsync_mode, options.oprw) {
        (FsyncMode::Strict, false) => &STRICT,
        (FsyncMode::Strict, true) => &ATOMIC,
        (FsyncMode::Posix, false) => &POSIX,
        (FsyncMode::Posix, true) => &OPRW_POSIX,
        (FsyncMode::Nobarrier, false) => &NOBARRIER,
        (FsyncMode::Nobarrier, true) => &OPRW_NOBARRIER,
    }
}

/// Makes `ino` durable by the volume's plan.
pub(crate) fn execute(fs: &F2fs, ino: Nid) -> Result<()> {
    execute_with(fs, ino, |_| Ok(fs.plan()))
}

/// Makes `ino` durable by the plan that `begin` returns; `begin` runs in the hold of the volume in
/// which the data is submitted.
pub(crate) fn execute_with(
    fs: &F2fs,
    ino: Nid,
    begin: impl FnOnce(&mut Engine) -> Result<&'static Plan>,
) -> Result<()> {
    let _turn = fs.take_turn(ino);
    let (volume, plan) = {
        let _span = cores::span(Stage::FsyncOther);
        drive::Block::stock();
        let mut volume = fs.settled();
        volume.operations += 1;
        volume.check_fsync(ino)?;
        if volume.options.read_only {
            return Ok(());
        }
        if volume.at_once() < volume.inodes.of(ino).pages.dirty_count(ino.into()) {
            drop(volume);
            fs.write_back_held(ino)?;
            volume = fs.settled();
        }
        let mut volume = fs.balance(volume)?;
        let plan = begin(&mut volume)?;
        (volume, plan)
    };
    Fsync::new(fs, ino, plan, volume.checkpoint.version).run(volume)
}

/// How an fsync ends if it does not complete its plan.
enum End {
    /// With a checkpoint.
    Checkpoint,
    /// At once: nothing is left to do, or finding that out failed.
    Return(Result<()>),
}

/// An fsync under way.
struct Fsync<'a> {
    fs: &'a F2fs,
    ino: Nid,
    plan: &'static Plan,
    writes: OnTheWay,
    /// The nodes as they were when the data was submitted, if the plan captures both at one
    /// instant.
    frozen: Option<Frozen>,
    arrival: Option<Arrival<'a>>,
    /// The checkpoint after which it began.
    version: u64,
    /// The first decision, where [`crate::Inject::DECIDE_ONCE`] keeps it.
    decided: Option<Need>,
}

impl<'a> Fsync<'a> {
    fn new(fs: &'a F2fs, ino: Nid, plan: &'static Plan, version: u64) -> Self {
        let (writes, frozen, arrival, decided) = (OnTheWay::default(), None, None, None);
        Self { fs, ino, plan, writes, frozen, arrival, version, decided }
    }

    /// Runs the plan. The first step uses the hold `volume`.
    fn run(mut self, mut volume: Hold<'a, Engine>) -> Result<()> {
        if self.fs.injected(Inject::DECIDE_ONCE) {
            self.decided = Some(volume.fsync_need(self.ino)?);
        }
        let plan = self.plan;
        match plan.run(&mut self, volume) {
            Ok(None) => Ok(()),
            Ok(Some(End::Checkpoint)) => self.checkpoint(),
            Ok(Some(End::Return(done))) => {
                let waited = self.writes.data.wait(self.fs.queue());
                waited.map_err(|error| self.give_up(error.into())).and(done)
            }
            Err(error) => Err(self.give_up(error)),
        }
    }

    /// Ends with a checkpoint. The file's dirty data has been submitted.
    fn checkpoint(mut self) -> Result<()> {
        let waited = self.writes.data.wait(self.fs.queue());
        let volume = self.fs.settled();
        if let Err(error) = waited {
            return Err(stop(volume, error.into()));
        }
        self.fs.checkpoint(volume, Caller::Foreground).map(drop)
    }

    /// Ends with an error. Writes in flight still own their blocks; their outcome matters only to
    /// later fsyncs.
    fn give_up(&mut self, error: Error) -> Error {
        let mut volume = self.fs.lock();
        let OnTheWay { data, meta } = &mut self.writes;
        data.submit(volume.io.writer());
        meta.submit(volume.io.writer());
        let _ = data.wait(self.fs.queue());
        let written = meta.wait(self.fs.queue()).is_ok();
        if let Some(arrival) = self.arrival.take() {
            let _ = arrival.arrive(written, false);
        }
        stop(volume, error)
    }

    fn submit_data(&mut self, volume: &mut Engine) -> Result<Option<End>> {
        volume.submit_data(self.ino, &mut self.writes.data)?;
        if !self.plan.atomic {
            return Ok(None);
        }
        let end = self.decide(volume);
        if end.is_none() {
            self.frozen = Some(volume.freeze_nodes(self.ino)?);
        }
        Ok(end)
    }

    /// Submits the nodes, in the hold of the volume in which that was decided.
    fn submit_nodes(&mut self, mut volume: Hold<'a, Engine>, mark: Mark) -> Result<Option<End>> {
        // Neither write pointers nor checksums cover this data, so it must be durable before the
        // nodes.
        if volume.has_unjudgeable(self.ino, self.plan)? {
            volume.unjudged.remove(&self.ino);
            drop(volume);
            self.writes.data.wait(self.fs.queue())?;
            self.fs.flush()?;
            volume = self.fs.settled();
            let end = self.decide(&mut volume);
            if end.is_some() {
                return Ok(end);
            }
        }
        let frozen = match self.frozen.take() {
            Some(frozen) => frozen,
            None => volume.freeze_nodes(self.ino)?,
        };
        let mark = match mark {
            _ if self.fs.injected(Inject::MARK_EVERY_NODE) => Mark::Every,
            // The last node has a checksum of all of them.
            _ if volume.checkpoint.sealed => Mark::Last,
            mark => mark,
        };
        self.arrival = Some(self.fs.arrivals().announce());
        volume.submit_fsync_nodes(self.ino, mark, frozen, &mut self.writes.meta)?;
        Ok(None)
    }

    /// How to end in the present state; `None` means to go on.
    fn decide(&self, volume: &mut Engine) -> Option<End> {
        let need = match self.decided {
            Some(need) => Ok(need),
            None => self.need(volume),
        };
        match need {
            Ok(Need::Plan) => None,
            Ok(Need::Checkpoint) => Some(End::Checkpoint),
            Ok(Need::Nothing) => Some(End::Return(Ok(()))),
            Err(error) => Some(End::Return(Err(error))),
        }
    }

    fn need(&self, volume: &mut Engine) -> Result<Need> {
        volume.check_writable()?;
        if volume.checkpoint.version != self.version {
            // The checkpoint began after the data was submitted, and has made it durable.
            return Ok(Need::Nothing);
        }
        let is_there = match &self.frozen {
            Some(frozen) => volume.has_nodes(frozen)?,
            None => true,
        };
        if is_there { volume.fsync_need(self.ino) } else { Ok(Need::Checkpoint) }
    }
}

impl<'a> Run for Fsync<'a> {
    type Submit = Submit;
    type Hold = Hold<'a, Engine>;
    type End = End;
    type Error = Error;

    fn submit(&mut self, what: Submit, held: Option<Self::Hold>) -> Result<Option<End>> {
        let fs = self.fs;
        let volume = || held.unwrap_or_else(|| fs.settled());
        match what {
            Submit::Data => {
                let _span = cores::span(Stage::FsyncPrepare);
                self.submit_data(&mut volume())
            }
            Submit::Nodes(mark) => {
                let _span = cores::span(Stage::FsyncNode);
                let mut volume = volume();
                match self.decide(&mut volume) {
                    None => self.submit_nodes(volume, mark),
                    end => Ok(end),
                }
            }
            Submit::Both(mark) => {
                let prepare = cores::span(Stage::FsyncPrepare);
                let mut volume = volume();
                let end = self.submit_data(&mut volume)?;
                drop(prepare);
                if end.is_some() {
                    return Ok(end);
                }
                let _span = cores::span(Stage::FsyncNode);
                self.submit_nodes(volume, mark)
            }
        }
    }

    fn on_the_way(&mut self) -> (&mut OnTheWay, &BlockQueue) {
        (&mut self.writes, self.fs.queue())
    }

    fn meta_answered(&mut self, written: Result<(), IoError>) -> Result<()> {
        let in_order = !self.fs.injected(Inject::NO_CHAIN_ORDER);
        let arrived = self.arrival.take().map(|arrival| arrival.arrive(written.is_ok(), in_order));
        written?;
        arrived.unwrap_or(Ok(()))
    }

    fn pre_flush(&mut self) -> Result<()> {
        if self.fs.injected(Inject::DROP_PREFLUSH) { Ok(()) } else { self.fs.flush() }
    }

    fn flush(&mut self) -> Result<()> {
        if self.fs.injected(Inject::DROP_FLUSH) {
            return Ok(());
        }
        // Before the flush, because what is written back during it must be flushed again.
        self.fs.lock().unflushed.remove(&self.ino);
        self.fs.flush()
    }
}

fn stop(mut volume: Hold<'_, Engine>, error: Error) -> Error {
    volume.stop(&error);
    error
}
