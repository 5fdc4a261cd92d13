//! Grouped fsync on a log per core. Not in the papers: both techniques combined.
//!
//! - *Operations* go to the running transaction of their core, as in [`ZJOURNAL`]: no line is
//!   shared by all cores, and no thread waits for another core's commit.
//! - *An fsync* closes none of them. It writes a record, as in [`GROUPED`], and so does not commit
//!   what others have changed, nor log the blocks that it shares with them: in Z-Journal those make
//!   an fsync of one core a commit of all.
//! - *A group* is one core's: fsyncs that meet there share a record, and no core waits until
//!   another has written its data. Groups of several cores share flushes.
//!
//! A record counts file by file. Each is of the transaction T that changed it last, and counts as
//! long as T is not valid: not committed, or without those that T names (the module `records` says
//! why that is enough). Recovery finds what is valid first, and keeps it as *floors* while records
//! are applied.
//!
//! Steps as for a record or a commit in JBD2.
//!
//! [`GROUPED`]: super::GROUPED

use super::ijournal::RECORDS;
use super::{Holds, Policy, Recording, ZJOURNAL};

/// A log for each core, and one record for all files whose fsyncs meet on it.
pub const ZGROUPED: Policy = Policy {
    name: "zgrouped",
    records: Some(Recording { holds: Holds::CoresGroup, ..RECORDS }),
    ..ZJOURNAL
};
