//! iJournaling (Park and Shin, "iJournaling: Fine-Grained Journaling for Improving the Latency of
//! Fsync System Call", 2017): an fsync writes a record of its file into the area of its core, with
//! two flushes. Everything else is committed as by [`JBD2`].

use queue::plan::Plan;

use super::{Holds, JBD2, Policy, Recording, Submit};

/// A record for each fsync.
pub const IJOURNAL: Policy = Policy {
    name: "ijournal",
    records: Some(Recording { plan: RECORD, forced: RECORD_FORCED, holds: Holds::File }),
    ..JBD2
};

/// The steps of a commit. Closed are the files of this fsync: inodes, nodes of their extent trees,
/// and the names of new ancestors. Neither bitmaps nor other files are.
pub(super) const RECORD: Plan<Submit> = Plan { name: "record", ..JBD2.plan };

pub(super) const RECORD_FORCED: Plan<Submit> = Plan { name: "record", ..JBD2.forced };
