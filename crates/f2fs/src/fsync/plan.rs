//! What a plan of F2FS submits; [`queue::plan`] has the rest.

pub use queue::plan::Writes;

/// A technique.
pub type Plan = queue::plan::Plan<Submit>;

/// One step of an fsync.
pub type Step = queue::plan::Step<Submit>;

/// What a step submits. The file's direct nodes and its inode are the [`Writes::META`] of F2FS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submit {
    /// The dirty data blocks.
    Data,
    /// The dirty nodes, in the order of the node log.
    Nodes(Mark),
    /// Both, as they are at one instant.
    Both(Mark),
}

/// Which nodes of an fsync carry the mark that roll-forward looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Each: nodes that arrived are recovered. Where a drive may tear a block, this means
    /// [`Mark::Last`]: the last node vouches for all.
    Every,
    /// The last one only: without it none is recovered.
    Last,
}
