//! F2FS `fsync_mode=nobarrier`: two waits for DMA and no flush, for drives with power-loss
//! protection. On a drive without it, nothing is promised.

use super::submit::{Mark, Plan, Step, Submit, Writes};

/// Data, wait, nodes, wait.
pub const NOBARRIER: Plan = Plan {
    name: "F2FS-nobarrier",
    steps: &[
        Step::Submit(Submit::Data),
        Step::Wait(Writes::DATA),
        Step::Submit(Submit::Nodes(Mark::Every)),
        Step::Wait(Writes::META),
    ],
    durable: false,
    data_consistent: false,
    atomic: false,
};
