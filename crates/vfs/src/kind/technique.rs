//! The ways to do an fsync, and what a file system says a power cut may leave.

use drive::Identify;
use serde::{Deserialize, Serialize};

/// A way to do an fsync: what it waits for, and what recovery does with it.
#[derive(Debug)]
pub struct Technique {
    /// Short name, as on the command line.
    pub name: &'static str,
    /// The name in reports, which is the paper's.
    pub title: &'static str,
    /// The `mount -o` string.
    pub options: &'static str,
    /// What mkfs is asked for, as in `-O`; mostly nothing.
    pub make: &'static str,
    /// What it promises on a drive.
    pub promise: fn(&Identify) -> Promise,
    /// Whether it works on a drive.
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

/// What a technique promises on a drive. Every file system that recovers also promises that a
/// volume mounts and that its structures agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// Everything that a completed fsync wrote is there.
    pub durable: bool,
    /// Every block is an old or a new block of its own file, never anything else.
    pub intact: bool,
    /// Either all blocks of an fsync are there, or all blocks changed since the last checkpoint are
    /// as they were at that checkpoint, with what write-back had written by then.
    pub atomic: bool,
    /// No block mixes sectors of several of its versions.
    pub whole: bool,
    /// Every call is durable when it returns, without an fsync, and a cut leaves the volume as
    /// before or after the call under way. Without `atomic`, bytes that it overwrites may be old or
    /// new, each unit that the medium does not tear for itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_return: bool,
}

/// What a file system may leave after a cut although no call explains it, because of the way it
/// makes things durable. Nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Habits {
    /// When anything is synced, the current sizes, attributes and holes of all other files may
    /// become durable too, and so may any of their contents that were written back.
    pub takes_others_along: bool,
    /// The parts of an fsync count one by one: a block may be there although the new size is not.
    /// The file then ends with that block.
    pub blocks_may_set_size: bool,
    /// A file may have new blocks, made durable along with another file's fsync, before they have
    /// its contents: then they have what was there before. Its own fsync waits for them.
    pub maps_ahead: bool,
    /// Files up to this length may be kept outside blocks. When such a file grows, its first block
    /// is written along with anything else.
    pub small_file: u64,
    /// What the drive failed to write is written again, so that the next sync may succeed.
    pub writes_again: bool,
}
