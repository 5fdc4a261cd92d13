//! iJournaling (Park and Shin, "iJournaling: Fine-Grained Journaling for Improving the Latency of
//! Fsync System Call", 2017): an fsync writes a record of its file into the area of its core, with
//! two flushes. Everything else is committed as by [`JBD2`].

use queue::plan::{Plan, Step};

use super::{
    CLOSE, COMMIT, DATA, Holds, JBD2, LOG, Policy, Recording, Submit, WAIT_DATA, WAIT_META,
};

/// A record for each fsync.
pub const IJOURNAL: Policy =
    Policy { name: "ijournal", records: Some(Recording { holds: Holds::File, ..RECORDS }), ..JBD2 };

/// A record of one file.
pub(super) const RECORDS: Recording = Recording {
    plan: RECORD,
    forced: RECORD_FORCED,
    one_flush: Some(ONE_FLUSH),
    holds: Holds::File,
};

/// The steps of a commit. Closed are the files of this fsync: inodes, nodes of their extent trees,
/// and the names of new ancestors. Neither bitmaps nor other files are.
const RECORD: Plan<Submit> = Plan { name: "record", ..JBD2.plan };

const RECORD_FORCED: Plan<Submit> = Plan { name: "record", ..JBD2.forced };

/// Beyond the paper: the commit block goes with the record, and one flush makes them and the data
/// stable in any order. The record has checksums of itself and of what the file has gained, and
/// recovery leaves a file out of which anything is missing (the module `records`).
const ONE_FLUSH: Plan<Submit> = Plan {
    name: "record, one flush",
    steps: &[DATA, WAIT_DATA, CLOSE, LOG, COMMIT, WAIT_META, Step::Flush],
    ..JBD2.plan
};
