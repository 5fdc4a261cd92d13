//! F2FS `fsync_mode=nobarrier`: two waits for DMA and no flush, for drives with power-loss
//! protection. On a drive without it nothing is promised.

use super::plan::{Mark, Plan, Step, Writes};

/// Data, wait, nodes, wait.
pub const NOBARRIER: Plan = Plan {
    name: "F2FS-nobarrier",
    steps: &[
        Step::SubmitData,
        Step::Wait(Writes::DATA),
        Step::SubmitNodes(Mark::Every),
        Step::Wait(Writes::NODES),
    ],
    durable: false,
    data_consistent: false,
    atomic: false,
};
