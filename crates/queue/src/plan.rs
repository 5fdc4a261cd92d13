//! An fsync is a plan, and a plan is data.
//!
//! A [`Plan`] says what is written, what is waited for and where the drive is asked to flush. Each
//! technique of a file system is one constant; [`Plan::run`] is the one executor. A plan is static,
//! so choosing and running one allocates nothing.

use bitflags::bitflags;
use cores::Stage;

use crate::{BlockQueue, IoError, WriteSet};

bitflags! {
    /// Writes an fsync has submitted and may wait for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Writes: u8 {
        /// The file's dirty data blocks.
        const DATA = 1;
        /// What leads recovery to the data (the file's nodes, or a journal's blocks), and what
        /// stands ahead of it in its log: recovery reads no further than the first block that is
        /// missing.
        const META = 2;
    }
}

/// One step of an fsync. What can be submitted, `S`, is the file system's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<S> {
    /// Allocate and submit.
    Submit(S),
    /// Wait until the drive has completed these (DMA, not NAND).
    Wait(Writes),
    /// Make all that has completed stable before anything else is submitted. This is what keeps
    /// data ahead of the metadata that leads to it.
    PreFlush,
    /// Make all that has completed stable before returning.
    Flush,
}

/// A technique: its steps, and what they guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan<S: 'static> {
    /// Name as in the tables.
    pub name: &'static str,
    /// In order.
    pub steps: &'static [Step<S>],
    /// On a drive with a volatile cache: when fsync has returned, it is there.
    pub durable: bool,
    /// On a drive with a volatile cache: every block of the file is an old or a new block of it,
    /// never another.
    pub data_consistent: bool,
    /// Where nothing is overwritten in place: recovery brings back all of an fsync, or the file as
    /// its last fsync or the last checkpoint had it. That checkpoint may include what write-back
    /// had written of half an update; only an atomic write prevents that.
    pub atomic: bool,
}

/// What a run of a plan has under way to the drive.
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
    /// The volume, held when the run begins; the first submission uses that hold.
    type Hold;
    /// How a run ends that does not complete its plan.
    type End;
    /// What can go wrong.
    type Error: From<IoError>;

    /// Allocates and submits, or finds that the plan no longer applies.
    fn submit(
        &mut self,
        what: Self::Submit,
        held: Option<Self::Hold>,
    ) -> Result<Option<Self::End>, Self::Error>;

    /// What has been submitted, and the queue to wait on.
    fn on_the_way(&mut self) -> (&mut OnTheWay, &BlockQueue);

    /// The drive has answered for [`Writes::META`]; waits for what stands ahead of it.
    fn meta_answered(&mut self, written: Result<(), IoError>) -> Result<(), Self::Error>;

    /// [`Step::PreFlush`]
    fn pre_flush(&mut self) -> Result<(), Self::Error>;

    /// [`Step::Flush`]
    fn flush(&mut self) -> Result<(), Self::Error>;
}

impl<S: Copy + PartialEq> Plan<S> {
    /// Whether recovery restores the order of data and metadata, because nothing in the plan
    /// ensures it.
    pub fn orders_at_recovery(&self) -> bool {
        self.data_consistent && !self.steps.contains(&Step::PreFlush)
    }

    /// Goes through the steps. `None` if all of them are done.
    pub fn run<R>(&self, run: &mut R, held: R::Hold) -> Result<Option<R::End>, R::Error>
    where
        R: Run<Submit = S>,
    {
        let mut held = Some(held);
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
