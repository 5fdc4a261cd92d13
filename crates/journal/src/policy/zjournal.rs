//! A log per core: each commits on its own, and what they share is told by chains of marks
//! (Z-Journal, 2.2 and figure 1).
//!
//! - A core's operations go to its own running transaction, and its log commits independently of
//!   the others ([`Areas::PerCore`]).
//! - A transaction that changes a block of another core's transaction names that one: both ways if
//!   it is running (core 0 changes buffer 3 of (1,7)), one way if it is closed or committed ((1,7)
//!   changes buffer 4 of (2,2)). The module `chain` has the rules.
//! - Marks and a stamp are in the commit block. A transaction is *valid* once all that it names are
//!   committed and valid; only valid ones are checkpointed, and recovered in the order of stamps.
//!
//! Steps as in JBD2. `Close` closes, for an fsync, the transaction and those that it depends on and
//! that are not committed (its *closure*), so that what is fsynced is valid when the run ends;
//! where a transaction is only full, it closes that one. All that are closed are logged in parallel
//! and share the two flushes, however many areas they are in.

use queue::plan::Plan;

use super::{Areas, JBD2, Policy};

/// A journal for each core.
pub const ZJOURNAL: Policy = Policy {
    name: "zjournal",
    plan: Plan { name: "zjournal", ..JBD2.plan },
    forced: Plan { name: "zjournal", ..JBD2.forced },
    areas: Areas::PerCore,
    ..JBD2
};
