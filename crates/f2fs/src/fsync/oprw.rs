//! OPRW (thesis §5.2, Fig. 5.2): recovery restores the order of data and nodes from the zones'
//! write pointers, so fsync does not wait between them.
//!
//! What can tear: a node may reach NAND before data it points to. What orders it: nothing. Who
//! repairs: [`crate::recover`]. It discards a node if any of its pointers lies at or above its
//! zone's write pointer, and also every later node of that inode. The file keeps its last whole
//! node.

use super::submit::{Mark, Plan, Step, Submit, Writes};

/// Data, nodes, wait for both, flush.
pub const OPRW_POSIX: Plan = Plan {
    name: "OPRW-posix",
    steps: &[
        Step::Submit(Submit::Data),
        Step::Submit(Submit::Nodes(Mark::Every)),
        Step::Wait(Writes::DATA.union(Writes::META)),
        Step::Flush,
    ],
    durable: true,
    data_consistent: true,
    atomic: false,
};

/// Data, nodes, wait for both: for drives with power-loss protection.
pub const OPRW_NOBARRIER: Plan = Plan {
    name: "OPRW-nobarrier",
    steps: &[
        Step::Submit(Submit::Data),
        Step::Submit(Submit::Nodes(Mark::Every)),
        Step::Wait(Writes::DATA.union(Writes::META)),
    ],
    durable: false,
    data_consistent: true,
    atomic: false,
};
