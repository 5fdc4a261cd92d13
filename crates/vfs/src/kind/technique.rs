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
    /// Everything that a completed fsync wrote is there.
    pub durable: bool,
    /// Every block is an old or a new block of its file, never anything else.
    pub intact: bool,
    /// All blocks of an fsync are there, or all blocks changed since the last checkpoint are as
    /// they were. (The checkpoint includes what write-back had written by then.)
    pub atomic: bool,
    /// No block has sectors of several of its versions.
    pub whole: bool,
}

/// What a file system may leave after a cut that no call explains, because of its way of making
/// things durable. Nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Habits {
    /// When anything is synced, the current sizes, attributes and holes of all other files may
    /// become durable with it, and those of their contents that were written back.
    pub takes_others_along: bool,
    /// The parts of an fsync count one by one: a block may be there without the size. The file then
    /// ends with the block.
    pub blocks_may_set_size: bool,
    /// Files up to this length may be kept outside blocks: as one grows, its first block moves with
    /// whatever else is written.
    pub small_file: u64,
}
