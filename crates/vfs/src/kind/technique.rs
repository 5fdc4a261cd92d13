//! The ways to do an fsync, and what a file system says about what a power cut may leave.

use drive::Identify;
use serde::{Deserialize, Serialize};

/// A way to do an fsync: what it waits for, and what recovery makes of it.
#[derive(Debug)]
pub struct Technique {
    /// Short name, as on the command line.
    pub name: &'static str,
    /// The name that reports use: the paper's.
    pub title: &'static str,
    /// The `mount -o` string.
    pub options: &'static str,
    /// What it promises on a drive.
    pub promise: fn(&Identify) -> Promise,
    /// Whether there is such a way on a drive.
    pub runs_on: fn(&Identify) -> bool,
}

impl PartialEq for Technique {
    fn eq(&self, other: &Self) -> bool {
        (self.name, self.title) == (other.name, other.title)
    }
}

impl std::fmt::Display for Technique {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name)
    }
}

/// What a technique promises on a drive. That a volume mounts and its structures agree is promised
/// by every file system that recovers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// What an fsync that returned has written is there.
    pub durable: bool,
    /// Every block is an old or a new block of its file, never anything else.
    pub intact: bool,
    /// Of an fsync all blocks are there, or those that changed since the last checkpoint are as
    /// they were: what write-back had written by then, the checkpoint has taken up.
    pub atomic: bool,
    /// No block has sectors of several of its versions.
    pub whole: bool,
}

/// What a file system's way to make things durable leaves after a cut that no call explains, and
/// that it may leave. Nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Habits {
    /// Whatever is synced, sizes, attributes and holes of all other files may become durable with
    /// it, as they are then, and of their contents what was written back.
    pub takes_others_along: bool,
    /// What an fsync writes counts piece by piece: a block may be there, and the size not. The file
    /// ends with the block then.
    pub blocks_may_set_size: bool,
    /// A file up to so long may be kept elsewhere than in blocks: as it grows, its first block
    /// moves with whatever else is written.
    pub small_file: u64,
}
