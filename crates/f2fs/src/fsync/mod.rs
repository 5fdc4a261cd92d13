//! fsync: what it writes, what it waits for, and when it must write a checkpoint instead
//! (`f2fs_do_sync_file`).
//!
//! One file per technique holds its [`Plan`]; [`execute`] runs any of them. The volume is locked
//! while a step allocates and submits, and free while it waits for the drive. Three rules make an
//! fsync true whatever other threads do meanwhile:
//! - what it has to do is decided ([`need`]) in the hold of the volume that does it;
//! - what must be of one instant is taken down in one hold ([`Frozen`]), and written as it was;
//! - it returns when the nodes ahead of its own are durable, too ([`chain`]).

mod atomic;
pub(crate) mod chain;
mod need;
mod nobarrier;
mod oprw;
mod plan;
mod posix;
mod strict;

use cores::Stage;
use vfs::Hold;

pub use atomic::ATOMIC;
pub use nobarrier::NOBARRIER;
pub use oprw::{OPRW_NOBARRIER, OPRW_POSIX};
pub use plan::{Mark, Plan, Step, Writes};
pub use posix::POSIX;
pub use strict::STRICT;

use crate::F2fs;
use crate::error::{Error, Result};
use crate::inode::node_write::Frozen;
use crate::mount::io::WriteSet;
use crate::mount::options::{FsyncMode, Inject, MountOptions};
use crate::mount::volume::{Caller, Volume};
use crate::ondisk::Nid;
use chain::Place;
use need::Need;

impl Plan {
    /// The technique these options ask for.
    pub fn of(options: &MountOptions) -> &'static Self {
        match (options.fsync_mode, options.oprw) {
            (FsyncMode::Strict, false) => &STRICT,
            (FsyncMode::Strict, true) => &ATOMIC,
            (FsyncMode::Posix, false) => &POSIX,
            (FsyncMode::Posix, true) => &OPRW_POSIX,
            (FsyncMode::Nobarrier, false) => &NOBARRIER,
            (FsyncMode::Nobarrier, true) => &OPRW_NOBARRIER,
        }
    }
}

/// Makes `ino` durable by the volume's plan.
pub(crate) fn execute(fs: &F2fs, ino: Nid) -> Result<()> {
    execute_with(fs, ino, |_| Ok(fs.plan()))
}

/// Makes `ino` durable by the plan that `begin` returns. What that does is done in the hold of the
/// volume in which the data is submitted.
pub(crate) fn execute_with(
    fs: &F2fs,
    ino: Nid,
    begin: impl FnOnce(&mut Volume) -> Result<&'static Plan>,
) -> Result<()> {
    let _turn = fs.take_turn(ino);
    let (volume, plan) = {
        let _span = cores::span(Stage::FsyncOther);
        let mut volume = fs.settled();
        volume.operations += 1;
        volume.check_fsync(ino)?;
        if volume.options.read_only {
            return Ok(());
        }
        volume.balance()?;
        let plan = begin(&mut volume)?;
        (volume, plan)
    };
    Fsync::new(fs, ino, plan, volume.checkpoint.version).run(volume)
}

/// How an fsync goes on after a step.
enum Next {
    /// With the next step.
    Step,
    /// With a checkpoint.
    Checkpoint,
    /// Not at all: there is nothing left to do, or it cannot be told what.
    Return(Result<()>),
}

/// An fsync under way.
struct Fsync<'a> {
    fs: &'a F2fs,
    ino: Nid,
    plan: &'static Plan,
    data: WriteSet,
    nodes: WriteSet,
    /// The nodes as they were when the data was submitted, where the plan is of one instant.
    frozen: Option<Frozen>,
    place: Option<Place<'a>>,
    /// The checkpoint it began after.
    version: u64,
    /// Injected: what was decided at first.
    decided: Option<Need>,
}

impl<'a> Fsync<'a> {
    fn new(fs: &'a F2fs, ino: Nid, plan: &'static Plan, version: u64) -> Self {
        let (data, nodes) = (WriteSet::default(), WriteSet::default());
        let (frozen, place, decided) = (None, None, None);
        Self { fs, ino, plan, data, nodes, frozen, place, version, decided }
    }

    /// Runs the plan. `volume` is the hold that the first step goes on with.
    fn run(mut self, mut volume: Hold<'a, Volume>) -> Result<()> {
        if self.fs.injected(Inject::DECIDE_ONCE) {
            self.decided = Some(volume.fsync_need(self.ino)?);
        }
        let mut volume = Some(volume);
        for step in self.plan.steps {
            match self.step(*step, volume.take()) {
                Ok(Next::Step) => {}
                Ok(Next::Checkpoint) => return self.checkpoint(),
                Ok(Next::Return(done)) => {
                    let waited = self.data.wait(self.fs.queue());
                    return waited.map_err(|error| self.give_up(error)).and(done);
                }
                Err(error) => return Err(self.give_up(error)),
            }
        }
        Ok(())
    }

    /// What is dirty of the file has been submitted: a checkpoint is all that is missing.
    fn checkpoint(mut self) -> Result<()> {
        let waited = self.data.wait(self.fs.queue());
        let volume = self.fs.settled();
        if let Err(error) = waited {
            return Err(stop(volume, error));
        }
        self.fs.checkpoint(volume, Caller::Foreground).map(drop)
    }

    /// What is in flight still owns its blocks; its outcome matters only to the fsyncs behind.
    fn give_up(&mut self, error: Error) -> Error {
        let mut volume = self.fs.lock();
        self.data.submit(&mut volume.io);
        self.nodes.submit(&mut volume.io);
        let _ = self.data.wait(self.fs.queue());
        let written = self.nodes.wait(self.fs.queue()).is_ok();
        if let Some(place) = self.place.take() {
            let _ = place.arrive(written, false);
        }
        stop(volume, error)
    }

    fn step(&mut self, step: Step, held: Option<Hold<'a, Volume>>) -> Result<Next> {
        let fs = self.fs;
        let volume = || held.unwrap_or_else(|| fs.settled());
        match step {
            Step::SubmitData => {
                let _span = cores::span(Stage::FsyncPrepare);
                self.submit_data(&mut volume())
            }
            Step::SubmitNodes(mark) => {
                let _span = cores::span(Stage::FsyncNode);
                let mut volume = volume();
                match self.decide(&mut volume) {
                    Next::Step => self.submit_nodes(volume, mark),
                    next => Ok(next),
                }
            }
            Step::Submit(mark) => {
                let prepare = cores::span(Stage::FsyncPrepare);
                let mut volume = volume();
                let next = self.submit_data(&mut volume)?;
                drop(prepare);
                if !matches!(next, Next::Step) {
                    return Ok(next);
                }
                let _span = cores::span(Stage::FsyncNode);
                self.submit_nodes(volume, mark)
            }
            Step::Wait(writes) => self.wait(writes),
            Step::PreFlush if fs.injected(Inject::DROP_PREFLUSH) => Ok(Next::Step),
            Step::Flush if fs.injected(Inject::DROP_FLUSH) => Ok(Next::Step),
            Step::PreFlush => fs.flush().map(|()| Next::Step),
            Step::Flush => {
                // Before the flush: what is written back during it has to be flushed again.
                fs.lock().unflushed.remove(&self.ino);
                fs.flush().map(|()| Next::Step)
            }
        }
    }

    fn submit_data(&mut self, volume: &mut Volume) -> Result<Next> {
        volume.submit_data(self.ino, &mut self.data)?;
        if !self.plan.atomic {
            return Ok(Next::Step);
        }
        let next = self.decide(volume);
        if matches!(next, Next::Step) {
            self.frozen = Some(volume.freeze_nodes(self.ino)?);
        }
        Ok(next)
    }

    /// Submits the nodes; in this hold of the volume it was decided to.
    fn submit_nodes(&mut self, mut volume: Hold<'a, Volume>, mark: Mark) -> Result<Next> {
        // Data of which neither write pointers nor checksums will tell recovery is ordered here.
        if volume.has_unjudgeable(self.ino, self.plan)? {
            volume.unjudged.remove(&self.ino);
            drop(volume);
            self.data.wait(self.fs.queue())?;
            self.fs.flush()?;
            volume = self.fs.settled();
            match self.decide(&mut volume) {
                Next::Step => {}
                next => return Ok(next),
            }
        }
        let frozen = match self.frozen.take() {
            Some(frozen) => frozen,
            None => volume.freeze_nodes(self.ino)?,
        };
        let mark = match mark {
            _ if self.fs.injected(Inject::MARK_EVERY_NODE) => Mark::Every,
            // The last node vouches for all.
            _ if volume.checkpoint.sealed => Mark::Last,
            mark => mark,
        };
        self.place = Some(self.fs.chain().take_place());
        volume.submit_fsync_nodes(self.ino, mark, frozen, &mut self.nodes)?;
        Ok(Next::Step)
    }

    /// How to go on as things are now.
    fn decide(&self, volume: &mut Volume) -> Next {
        let need = match self.decided {
            Some(need) => Ok(need),
            None => self.need(volume),
        };
        match need {
            Ok(Need::Plan) => Next::Step,
            Ok(Need::Checkpoint) => Next::Checkpoint,
            Ok(Need::Nothing) => Next::Return(Ok(())),
            Err(error) => Next::Return(Err(error)),
        }
    }

    fn need(&self, volume: &mut Volume) -> Result<Need> {
        volume.check_writable()?;
        if volume.checkpoint.version != self.version {
            // It began after the data was submitted, and has made all of it durable.
            return Ok(Need::Nothing);
        }
        let is_there = match &self.frozen {
            Some(frozen) => volume.has_nodes(frozen)?,
            None => true,
        };
        if is_there { volume.fsync_need(self.ino) } else { Ok(Need::Checkpoint) }
    }

    fn wait(&mut self, writes: Writes) -> Result<Next> {
        if writes.contains(Writes::DATA) {
            let _span = cores::span(Stage::WaitData);
            self.data.wait(self.fs.queue())?;
        }
        if writes.contains(Writes::NODES) {
            let _span = cores::span(Stage::WaitNode);
            let written = self.nodes.wait(self.fs.queue());
            let in_order = !self.fs.injected(Inject::NO_CHAIN_ORDER);
            let arrived = self.place.take().map(|place| place.arrive(written.is_ok(), in_order));
            written.and(arrived.unwrap_or(Ok(())))?;
        }
        Ok(Next::Step)
    }
}

fn stop(mut volume: Hold<'_, Volume>, error: Error) -> Error {
    volume.stop(&error);
    error
}
