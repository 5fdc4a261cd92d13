//! An fsync is a plan, and a plan is data.
//!
//! A [`Plan`] says what is written, what is waited for and where the drive is asked to flush. Each
//! technique is one constant in a file of its own; [`super::execute`] runs them all. A plan is
//! static, so choosing and running one allocates nothing.

use bitflags::bitflags;

bitflags! {
    /// Writes an fsync has submitted and may wait for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Writes: u8 {
        /// The file's dirty data blocks.
        const DATA = 1;
        /// The file's dirty direct nodes and its inode, and what stands ahead of them in the node
        /// log: recovery reads no further than the first node that is missing.
        const NODES = 2;
    }
}

/// Which nodes of an fsync carry the mark that roll-forward looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Each: what arrived is recovered. Where a drive may tear a block, this means [`Mark::Last`]:
    /// the last node vouches for all.
    Every,
    /// The last one only: without it none is recovered.
    Last,
}

/// One step of an fsync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Allocate and submit the dirty data blocks.
    SubmitData,
    /// Allocate and submit the dirty nodes, in the order of the node log.
    SubmitNodes(Mark),
    /// Both, as the file is at one instant.
    Submit(Mark),
    /// Wait until the drive has completed these (DMA, not NAND).
    Wait(Writes),
    /// Make all that has completed stable before anything else is submitted. The one that keeps
    /// data ahead of nodes.
    PreFlush,
    /// Make all that has completed stable before returning.
    Flush,
}

/// A technique: its steps, and what they are worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Name as in the tables.
    pub name: &'static str,
    /// In order.
    pub steps: &'static [Step],
    /// On a drive with a volatile cache: when fsync has returned, it is there.
    pub durable: bool,
    /// On a drive with a volatile cache: every block of the file is an old or a new block of it,
    /// never another.
    pub data_consistent: bool,
    /// Where nothing is overwritten in place: recovery brings back all of an fsync, or the file as
    /// its last fsync or the last checkpoint had it. That checkpoint may have taken up what
    /// write-back had written of a half-made update; only an atomic write keeps that out.
    pub atomic: bool,
}

impl Plan {
    /// Whether it is recovery that puts data before nodes: nothing in the plan does.
    pub fn orders_at_recovery(&self) -> bool {
        self.data_consistent && !self.steps.contains(&Step::PreFlush)
    }
}
