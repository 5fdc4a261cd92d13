//! F2FS `fsync_mode=posix` (thesis Fig. 2.1a): two waits for DMA, one flush.
//!
//! The order of the two DMAs is not the order of the NAND programs. A cut before the flush ends may
//! keep a node and lose the data it points to; roll-forward believes the node.

use super::submit::{Mark, Plan, Step, Submit, Writes};

/// Data, wait, nodes, wait, flush.
pub const POSIX: Plan = Plan {
    name: "F2FS-posix",
    steps: &[
        Step::Submit(Submit::Data),
        Step::Wait(Writes::DATA),
        Step::Submit(Submit::Nodes(Mark::Every)),
        Step::Wait(Writes::META),
        Step::Flush,
    ],
    durable: true,
    data_consistent: false,
    atomic: false,
};
