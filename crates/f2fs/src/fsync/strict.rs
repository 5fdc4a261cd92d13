//! F2FS `fsync_mode=strict` (thesis §2, §6.1): a flush on either side of the nodes.
//!
//! Data is on NAND before the first node is submitted, and only the last node carries the mark. So
//! an fsync is recovered whole or not at all ([`Plan::atomic`] says what that means). The nodes are
//! written as they were when the data was submitted, whatever others did to the file during the
//! first flush. Linux leaves out that flush on zoned drives; the thesis puts it in for a correct
//! comparison, and so do we.

use super::submit::{Mark, Plan, Step, Submit, Writes};

/// Data, wait, flush, nodes, wait, flush.
pub const STRICT: Plan = Plan {
    name: "F2FS-strict",
    steps: &[
        Step::Submit(Submit::Data),
        Step::Wait(Writes::DATA),
        Step::PreFlush,
        Step::Submit(Submit::Nodes(Mark::Last)),
        Step::Wait(Writes::META),
        Step::Flush,
    ],
    durable: true,
    data_consistent: true,
    atomic: true,
};
