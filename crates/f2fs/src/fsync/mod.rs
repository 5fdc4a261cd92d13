//! fsync: what it writes, what it waits for, and when it must write a checkpoint instead
//! (`f2fs_do_sync_file`).
//!
//! One file per technique holds its [`Plan`]; [`queue::plan`] runs any of them. A step that
//! allocates and submits is tried with the inode locked exclusively and the volume shared
//! ([`Own`]); if that fails, it is retried with the volume locked exclusively. A step that waits
//! for the drive holds no lock. Three rules keep an fsync's promise whatever other threads do:
//! - what it has to do is decided (`need`) in the same step in which it is done;
//! - data and nodes that must show one instant are captured in one step (`Frozen`);
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
use crate::file::writeback::Cause;
use crate::file::writeback::WritePages;
use crate::inode::node_write::{Frozen, Placed, WriteNodes};
use crate::inode::see::{Own, See, Unseen};
use crate::mount::engine::{Caller, Engine};
use crate::mount::options::{FsyncMode, Inject, MountOptions};
use crate::ondisk::Nid;
use arrivals::Arrival;
pub(crate) use need::NAME_BLOCKS;
use need::{Decide, Need};

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
pub(crate) fn execute(fs: &F2fs, ino: Nid, datasync: bool) -> Result<()> {
    let _turn = fs.take_turn(ino);
    Fsync { datasync, ..Fsync::new(fs, ino) }.run(None)
}

/// Makes `ino` durable by the plan that `begin` returns; `begin` runs in the hold of the volume in
/// which the data is submitted.
pub(crate) fn execute_with(
    fs: &F2fs,
    ino: Nid,
    begin: impl FnOnce(&mut Engine) -> Result<&'static Plan>,
) -> Result<()> {
    let _turn = fs.take_turn(ino);
    let mut fsync = Fsync::new(fs, ino);
    let Some(mut volume) = fsync.begin()? else { return Ok(()) };
    fsync.plan = begin(&mut volume)?;
    fsync.run(Some(volume))
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
    /// An fdatasync.
    datasync: bool,
    plan: &'static Plan,
    writes: OnTheWay,
    /// The nodes as they were when the data was submitted, if the plan captures both at one
    /// instant.
    frozen: Option<Frozen>,
    arrival: Option<Arrival<'a>>,
    /// The checkpoint after which it began, once it has.
    version: Option<u64>,
    /// Whether its steps are tried under the shared lock: until one needs the exclusive one.
    beside: bool,
    /// The first decision, where [`crate::Inject::DECIDE_ONCE`] keeps it.
    decided: Option<Need>,
}

impl<'a> Fsync<'a> {
    fn new(fs: &'a F2fs, ino: Nid) -> Self {
        let has_zones = fs.queue().identify().zones.is_some();
        Self {
            fs,
            ino,
            datasync: false,
            plan: fs.plan(),
            writes: OnTheWay::default(),
            frozen: None,
            arrival: None,
            version: None,
            beside: !has_zones && fs.is_crowded() && !fs.injected(Inject::DECIDE_ONCE),
            decided: None,
        }
    }

    /// Begins, with the volume locked exclusively. `None` if nothing can have changed.
    fn begin(&mut self) -> Result<Option<Hold<'a, Engine>>> {
        let _span = cores::span(Stage::FsyncOther);
        self.beside = false;
        drive::Block::stock();
        let mut volume = self.fs.settled();
        volume.operations += 1;
        volume.check_fsync(self.ino)?;
        if volume.options.read_only {
            return Ok(None);
        }
        while volume.at_once() < volume.inodes.of(self.ino).pages.dirty_count(self.ino.into()) {
            drop(volume);
            self.fs.write_back_held(self.ino)?;
            volume = self.fs.settled();
        }
        let volume = self.fs.in_good_time(volume)?;
        self.version = Some(volume.checkpoint.version);
        Ok(Some(volume))
    }

    fn decide_once(&mut self, volume: &mut Engine) -> Result<()> {
        if self.fs.injected(Inject::DECIDE_ONCE) {
            self.decided = Some(volume.fsync_need(self.ino)?);
        }
        Ok(())
    }

    /// Runs the plan. The first step uses the hold `volume`, if there is one.
    fn run(mut self, mut volume: Option<Hold<'a, Engine>>) -> Result<()> {
        if let Some(volume) = &mut volume {
            self.decide_once(volume)?;
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

    /// Ends with an error. Writes in flight still own their blocks, and stop the volume if they
    /// fail.
    fn give_up(&mut self, error: Error) -> Error {
        let volume = self.fs.lock();
        let OnTheWay { data, meta } = &mut self.writes;
        data.submit(volume.io.writer());
        meta.submit(volume.io.writer());
        drop(volume);
        let data = data.wait(self.fs.queue());
        let meta = meta.wait(self.fs.queue());
        if let Some(arrival) = self.arrival.take() {
            // Where the chain is broken, the failure that broke it stops the volume.
            let _ = arrival.arrive(meta.is_ok(), false);
        }
        // What this fsync could not do may do no harm; a write that failed does.
        let failed = data.and(meta).err().map_or(error, Error::from);
        stop(self.fs.lock(), failed)
    }

    /// Why data is written, for `ipu_policy`. What an atomic plan writes must not replace anything
    /// before all of it is there, so it never counts as small.
    fn cause<C: Decide>(&self, volume: &mut C) -> Result<Cause, C::Error> {
        let most = volume.engine().knobs.min_fsync_blocks;
        let dirty = volume.shard_mut(self.ino)?.pages.dirty_count(self.ino.into()) as u64;
        let small = (self.datasync || dirty <= most) && !self.plan.atomic;
        Ok(if small { Cause::SmallSync } else { Cause::Sync })
    }

    fn submit_data<C>(&mut self, volume: &mut C) -> Result<Option<End>, Unseen>
    where
        C: Decide<Error: Into<Unseen>>,
    {
        let cause = self.cause(volume).map_err(Into::into)?;
        volume.submit_data(self.ino, cause, &mut self.writes.data).map_err(Into::into)?;
        if !self.plan.atomic {
            return Ok(None);
        }
        let end = self.decide(volume)?;
        if end.is_none() {
            self.frozen = Some(volume.freeze_nodes(self.ino).map_err(Into::into)?);
        }
        Ok(end)
    }

    /// Submits the nodes, in the hold of the volume in which that was decided.
    fn submit_nodes(&mut self, mut volume: Hold<'a, Engine>, mark: Mark) -> Result<Option<End>> {
        // Neither write pointers nor checksums cover this data, so it must be durable before the
        // nodes.
        if volume.has_unjudgeable(self.ino, self.plan)? {
            volume.inodes.of(self.ino).unjudged.remove(&self.ino);
            drop(volume);
            self.writes.data.wait(self.fs.queue())?;
            self.fs.flush()?;
            volume = self.fs.settled();
            let end = self.decide(&mut *volume)?;
            if end.is_some() {
                return Ok(end);
            }
        }
        let (frozen, mut placed) = (self.freeze(&mut *volume)?, Placed::new());
        let done = self.place_nodes(&mut *volume, mark, frozen, &mut placed);
        self.submit_placed(placed, &volume);
        Ok(done.map(|()| None)?)
    }

    /// As [`Fsync::submit_nodes`], under the shared lock. Changes nothing if it fails with
    /// [`Unseen`], so the exclusive path can retry; a later error is the fsync's result.
    fn submit_nodes_beside(
        &mut self,
        own: &mut Own<'_>,
        mark: Mark,
    ) -> Result<Result<Option<End>>, Unseen> {
        if own.has_unjudgeable(self.ino, self.plan)? {
            return Err(Unseen::Absent);
        }
        let end = self.decide(own)?;
        if end.is_some() {
            return Ok(Ok(end));
        }
        let (frozen, mut placed) = (self.freeze(own)?, Placed::new());
        own.keep_logs(&frozen)?;
        let done = self.place_nodes(own, mark, frozen, &mut placed);
        own.let_go();
        self.submit_placed(placed, own.engine());
        Ok(done.map(|()| None).map_err(Error::from))
    }

    /// The nodes to write.
    fn freeze<C>(&mut self, volume: &mut C) -> Result<Frozen, Unseen>
    where
        C: Decide<Error: Into<Unseen>>,
    {
        match &self.frozen {
            Some(frozen) => Ok(frozen.clone()),
            None => volume.freeze_nodes(self.ino).map_err(Into::into),
        }
    }

    /// Gives the nodes their places in the chain.
    fn place_nodes<C>(
        &mut self,
        volume: &mut C,
        mark: Mark,
        frozen: Frozen,
        placed: &mut Placed,
    ) -> Result<(), Unseen>
    where
        C: Decide<Error: Into<Unseen>>,
    {
        self.frozen = None;
        let mark = match mark {
            _ if self.fs.injected(Inject::MARK_EVERY_NODE) => Mark::Every,
            // The last node has a checksum of all of them.
            _ if volume.engine().checkpoint.sealed => Mark::Last,
            mark => mark,
        };
        self.arrival = Some(self.fs.arrivals().announce());
        if let Err(error) = volume.place_fsync_nodes(self.ino, mark, frozen, placed) {
            if !placed.is_empty() {
                volume.break_chain();
            }
            return Err(error.into());
        }
        // Before the flush, because what is written back during it must be flushed again.
        if self.plan.steps.contains(&Step::Flush) && !self.fs.injected(Inject::DROP_FLUSH) {
            volume.shard_mut(self.ino).map_err(Into::into)?.unflushed.remove(&self.ino);
        }
        Ok(())
    }

    fn submit_placed(&mut self, placed: Placed, volume: &Engine) {
        for (addr, block) in placed {
            self.writes.meta.push(volume.io.writer(), addr.into(), block);
        }
        self.writes.meta.submit(volume.io.writer());
    }

    /// How to end in the present state; `None` means to go on.
    fn decide<C>(&self, volume: &mut C) -> Result<Option<End>, Unseen>
    where
        C: Decide<Error: Into<Unseen>>,
    {
        let need = match self.decided {
            Some(need) => Ok(need),
            None => self.need(volume).map_err(Into::into),
        };
        match need {
            Ok(Need::Plan) => Ok(None),
            Ok(Need::Checkpoint) => Ok(Some(End::Checkpoint)),
            Ok(Need::Nothing) => Ok(Some(End::Return(Ok(())))),
            Err(Unseen::Failed(error)) => Ok(Some(End::Return(Err(error)))),
            Err(Unseen::Absent) => Err(Unseen::Absent),
        }
    }

    fn need<C: Decide>(&self, volume: &mut C) -> Result<Need, C::Error> {
        volume.engine().check_writable()?;
        if self.version.is_some_and(|version| volume.engine().checkpoint.version != version) {
            // The checkpoint began after the data was submitted, and has made it durable.
            return Ok(Need::Nothing);
        }
        let is_there = match &self.frozen {
            Some(frozen) => volume.has_nodes(frozen)?,
            None => true,
        };
        if is_there { volume.fsync_need(self.ino) } else { Ok(Need::Checkpoint) }
    }

    /// A step under the shared lock; `None` if it needs the exclusive one.
    fn submit_beside(&mut self, what: Submit) -> Option<Result<Option<End>>> {
        let (fs, ino) = (self.fs, self.ino);
        let done = fs.own([ino], |own| {
            if self.version.is_none() {
                own.check_fsync(ino, self.plan)?;
                self.version = Some(own.engine().checkpoint.version);
            }
            match what {
                Submit::Data => {
                    let _span = cores::span(Stage::FsyncPrepare);
                    self.submit_data(own).map(Ok)
                }
                Submit::Nodes(mark) => {
                    let _span = cores::span(Stage::FsyncNode);
                    self.submit_nodes_beside(own, mark)
                }
                Submit::Both(mark) => {
                    let prepare = cores::span(Stage::FsyncPrepare);
                    let end = self.submit_data(own)?;
                    drop(prepare);
                    if end.is_some() {
                        return Ok(Ok(end));
                    }
                    let _span = cores::span(Stage::FsyncNode);
                    self.submit_nodes_beside(own, mark)
                }
            }
        });
        // Nothing has changed: the exclusive retry reports the error precisely.
        done.ok().flatten()
    }

    /// A step, with the volume locked exclusively.
    fn submit_alone(&mut self, what: Submit, mut volume: Hold<'a, Engine>) -> Result<Option<End>> {
        match what {
            Submit::Data => {
                let _span = cores::span(Stage::FsyncPrepare);
                Ok(self.submit_data(&mut *volume)?)
            }
            Submit::Nodes(mark) => {
                let _span = cores::span(Stage::FsyncNode);
                match self.decide(&mut *volume)? {
                    None => self.submit_nodes(volume, mark),
                    end => Ok(end),
                }
            }
            Submit::Both(mark) => {
                let prepare = cores::span(Stage::FsyncPrepare);
                let end = self.submit_data(&mut *volume)?;
                drop(prepare);
                if end.is_some() {
                    return Ok(end);
                }
                let _span = cores::span(Stage::FsyncNode);
                self.submit_nodes(volume, mark)
            }
        }
    }
}

impl<'a> Run for Fsync<'a> {
    type Submit = Submit;
    type Hold = Hold<'a, Engine>;
    type End = End;
    type Error = Error;

    fn submit(&mut self, what: Submit, held: Option<Self::Hold>) -> Result<Option<End>> {
        if held.is_none() && self.beside {
            match self.submit_beside(what) {
                Some(end) => return end,
                None => self.beside = false,
            }
            if what.has_data() {
                // A checkpoint may come before the data that is left is submitted.
                self.version = None;
            }
        }
        let volume = match held {
            Some(volume) => volume,
            None if self.version.is_some() => self.fs.settled(),
            None => match self.begin() {
                Ok(Some(mut volume)) => {
                    self.decide_once(&mut volume)?;
                    volume
                }
                nothing => return Ok(Some(End::Return(nothing.map(drop)))),
            },
        };
        self.submit_alone(what, volume)
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
        self.fs.flush()
    }
}

fn stop(mut volume: Hold<'_, Engine>, error: Error) -> Error {
    volume.stop(&error);
    error
}

#[cfg(test)]
mod tests;
