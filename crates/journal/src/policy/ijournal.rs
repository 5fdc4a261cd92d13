//! iJournaling (Park and Shin, "iJournaling: Fine-Grained Journaling for Improving the Latency of
//! Fsync System Call", 2017): an fsync writes a record of its file into the area of its core, with
//! two flushes. Everything else is committed as by [`JBD2`].

use queue::plan::{Plan, Step};

use super::{
    CLOSE, COMMIT, COMMIT_FORCED, DATA, JBD2, LOG, Policy, Recording, Submit, WAIT_DATA, WAIT_META,
};

/// A record for each fsync.
pub const IJOURNAL: Policy = Policy {
    name: "ijournal",
    records: Some(Recording { plan: RECORD, forced: RECORD_FORCED, is_grouped: false }),
    ..JBD2
};

/// Closed are the files of this fsync: inodes, nodes of their extent trees, and the names of new
/// ancestors. Neither bitmaps nor other files are.
pub(super) const RECORD: Plan<Submit> = Plan {
    name: "record",
    steps: &[
        DATA,
        WAIT_DATA,
        CLOSE,
        LOG,
        WAIT_META,
        Step::PreFlush,
        COMMIT,
        WAIT_META,
        Step::Flush,
    ],
    durable: true,
    data_consistent: true,
    atomic: false,
};

pub(super) const RECORD_FORCED: Plan<Submit> = Plan {
    steps: &[DATA, WAIT_DATA, CLOSE, LOG, WAIT_META, Step::PreFlush, COMMIT_FORCED, WAIT_META],
    ..RECORD
};
