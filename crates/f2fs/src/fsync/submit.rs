//! What a plan of F2FS submits. The rest of a plan is in [`queue::plan`].

pub use queue::plan::Writes;

/// A technique.
pub type Plan = queue::plan::Plan<Submit>;

/// One step of an fsync.
pub type Step = queue::plan::Step<Submit>;

/// What a step submits. The file's direct nodes and its inode count as [`Writes::META`] of F2FS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submit {
    /// The dirty data blocks.
    Data,
    /// The dirty nodes, in the order of the node log.
    Nodes(Mark),
    /// Both, as they are at one instant.
    Both(Mark),
}

impl Submit {
    /// Whether data is among it.
    pub(super) fn has_data(self) -> bool {
        !matches!(self, Self::Nodes(_))
    }
}

/// Which nodes of an fsync carry the mark that roll-forward looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Every node, so that each node that arrived is recovered. Where a drive may tear a block,
    /// this means [`Mark::Last`]: the last node has a checksum of them all.
    Every,
    /// Only the last one: without it, none is recovered.
    Last,
}
