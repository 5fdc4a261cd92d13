//! No log: blocks are written in place, in any order. A power cut may leave anything; this is the
//! ceiling for the others' speed.

use queue::plan::{Plan, Step};

use super::{Areas, CLOSE, DATA, HOME, Policy, Submit, WAIT_DATA, WAIT_META};

const PLAN: Plan<Submit> = Plan {
    name: "none",
    steps: &[DATA, WAIT_DATA, CLOSE, HOME, WAIT_META, Step::Flush],
    durable: false,
    data_consistent: false,
    atomic: false,
};

/// No journal.
pub const NONE: Policy =
    Policy { name: "none", plan: PLAN, forced: PLAN, areas: Areas::None, records: None };
