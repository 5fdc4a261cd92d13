//! What an fsync closes and waits for. Each policy is a constant in its own file, short enough to
//! compare with the paper's figure.

mod fast;
pub(crate) mod grouped;
mod ijournal;
mod jbd2;
mod none;
mod zgrouped;
mod zjournal;

use queue::plan::{Plan, Step, Writes};

pub use fast::FAST;
pub use grouped::GROUPED;
pub use ijournal::IJOURNAL;
pub use jbd2::JBD2;
pub use none::NONE;
pub use zgrouped::ZGROUPED;
pub use zjournal::ZJOURNAL;

/// How a journal commits.
#[derive(Debug)]
pub struct Policy {
    /// The word after `-o journal=`.
    pub name: &'static str,
    /// The steps of a commit.
    pub plan: Plan<Submit>,
    /// The same on a drive that can force single writes to stable media.
    pub forced: Plan<Submit>,
    /// What it logs to.
    pub areas: Areas,
    /// How an fsync writes a record of its file in place of a commit, if it does.
    pub records: Option<Recording>,
}

/// Their names tell them apart.
impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Policy {
    /// Whether opening a log marks it as in use, with what only this crate can recover.
    pub fn marks_log(&self) -> bool {
        let has_records = self.records.as_ref().is_some_and(|how| how.holds != Holds::Changes);
        self.areas == Areas::PerCore || has_records
    }

    /// Whether records can have the checksums of their data.
    pub fn can_sum(&self) -> bool {
        self.records.as_ref().is_some_and(|how| how.one_flush.is_some())
    }
}

/// How an fsync writes a record.
#[derive(Debug)]
pub struct Recording {
    /// Its steps.
    pub plan: Plan<Submit>,
    /// The same on a drive that can force single writes to stable media.
    pub forced: Plan<Submit>,
    /// Its steps where a record has the checksums of its data, if it can.
    pub one_flush: Option<Plan<Submit>>,
    /// What a record has.
    pub holds: Holds,
}

/// What a record has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// The caller's file.
    File,
    /// The files of all callers whose fsyncs meet.
    Group,
    /// The files of callers whose fsyncs meet on one core.
    CoresGroup,
    /// All that has changed since the last commit.
    Changes,
}

/// How many logs there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Areas {
    /// None: blocks are written in place.
    None,
    /// One for all.
    One,
    /// One for each core, in chains.
    PerCore,
}

/// What a commit can submit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submit {
    /// The file's dirty data.
    Data,
    /// Nothing: the running transaction is closed, or another caller's commit is waited for.
    Close,
    /// Everything of the transaction but its commit block.
    Log,
    /// The commit block.
    Commit {
        /// Forced to stable media.
        forced: bool,
    },
    /// The transaction's blocks, in place.
    Home,
}

const DATA: Step<Submit> = Step::Submit(Submit::Data);
const CLOSE: Step<Submit> = Step::Submit(Submit::Close);
const LOG: Step<Submit> = Step::Submit(Submit::Log);
const HOME: Step<Submit> = Step::Submit(Submit::Home);
const COMMIT: Step<Submit> = Step::Submit(Submit::Commit { forced: false });
const COMMIT_FORCED: Step<Submit> = Step::Submit(Submit::Commit { forced: true });
const WAIT_DATA: Step<Submit> = Step::Wait(Writes::DATA);
const WAIT_META: Step<Submit> = Step::Wait(Writes::META);
