//! An fsync is a plan, and a plan is data.
//!
//! A [`Plan`] says what is written, what is waited for and where the drive is asked to flush. Each
//! technique of a file system is one constant, and [`Plan::run`] executes all of them. A plan is
//! static, so choosing and running one allocates nothing.

use bitflags::bitflags;
use cores::Stage;

use crate::{BlockQueue, IoError, WriteSet};

bitflags! {
    /// Writes that an fsync has submitted and may wait for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Writes: u8 {
        /// The file's dirty data blocks.
        const DATA = 1;
        /// What leads recovery to the data (the file's nodes, or a journal's blocks), and also what
        /// is ahead of it in its log: recovery reads only up to the first block that is missing.
        const META = 2;
    }
}

/// One step of an fsync. `S` is what the file system can submit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<S> {
    /// Allocate and submit.
    Submit(S),
    /// Wait until the drive has completed these (DMA, not NAND).
    Wait(Writes),
    /// Make everything stable that has completed, before anything else is submitted. This keeps
    /// data ahead of the metadata that leads to it.
    PreFlush,
    /// Make everything stable that has completed, before returning.
    Flush,
}

/// A technique: its steps, and what they guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan<S: 'static> {
    /// Name as in the tables.
    pub name: &'static str,
    /// The steps, in order.
    pub steps: &'static [Step<S>],
    /// On a drive with a volatile cache: what was fsynced is there once fsync has returned.
    pub durable: bool,
    /// On a drive with a volatile cache: every block of the file is an old or a new block of this
    /// file, never anything else.
    pub data_consistent: bool,
    /// Where nothing is overwritten in place: recovery restores all of an fsync, or else the file
    /// as its last fsync or the last checkpoint left it. That checkpoint may include half an update
    /// that write-back had written; only an atomic write prevents that.
    pub atomic: bool,
}

/// The writes under way in one run of a plan.
#[derive(Default)]
pub struct OnTheWay {
    /// [`Writes::DATA`]
    pub data: WriteSet,
    /// [`Writes::META`]
    pub meta: WriteSet,
}

/// A file system's side of one run of a plan.
pub trait Run {
    /// What can be submitted.
    type Submit: Copy;
    /// The volume; if it is held when the run begins, the first submission uses that hold.
    type Hold;
    /// How a run ends if it does not complete its plan.
    type End;
    /// What can go wrong.
    type Error: From<IoError>;

    /// Allocates and submits, or finds that the plan no longer applies.
    fn submit(
        &mut self,
        what: Self::Submit,
        held: Option<Self::Hold>,
    ) -> Result<Option<Self::End>, Self::Error>;

    /// The writes submitted so far, and the queue to wait on.
    fn on_the_way(&mut self) -> (&mut OnTheWay, &BlockQueue);

    /// The drive has answered for [`Writes::META`]. Waits for what is ahead of it in its log, if
    /// recovery needs that.
    fn meta_answered(&mut self, written: Result<(), IoError>) -> Result<(), Self::Error> {
        Ok(written?)
    }

    /// [`Step::PreFlush`]
    fn pre_flush(&mut self) -> Result<(), Self::Error>;

    /// [`Step::Flush`]
    fn flush(&mut self) -> Result<(), Self::Error>;
}

impl<S: Copy + PartialEq> Plan<S> {
    /// Whether recovery restores the order of data and metadata, because no step of the plan
    /// ensures it.
    pub fn orders_at_recovery(&self) -> bool {
        self.data_consistent && !self.steps.contains(&Step::PreFlush)
    }

    /// Performs the steps. `None` if all of them are done.
    pub fn run<R>(&self, run: &mut R, mut held: Option<R::Hold>) -> Result<Option<R::End>, R::Error>
    where
        R: Run<Submit = S>,
    {
        for step in self.steps {
            match *step {
                Step::Submit(what) => {
                    let end = run.submit(what, held.take())?;
                    if end.is_some() {
                        return Ok(end);
                    }
                }
                Step::Wait(writes) => wait(run, writes)?,
                Step::PreFlush => run.pre_flush()?,
                Step::Flush => run.flush()?,
            }
        }
        Ok(None)
    }
}

fn wait<R: Run>(run: &mut R, writes: Writes) -> Result<(), R::Error> {
    if writes.contains(Writes::DATA) {
        let _span = cores::span(Stage::WaitData);
        let (writes, queue) = run.on_the_way();
        writes.data.wait(queue)?;
    }
    if writes.contains(Writes::META) {
        let _span = cores::span(Stage::WaitNode);
        let (writes, queue) = run.on_the_way();
        let written = writes.meta.wait(queue);
        run.meta_answered(written)?;
    }
    Ok(())
}
