//! Fast commit (`fs/ext4/fast_commit.c`; Shirwadkar, Kadekodi and Tso, "FastCommit", 2024): an
//! fsync writes what has changed since the last commit, as short as it can be said, and everything
//! else follows from that at recovery. In most cases that is one block.
//!
//! - *What.* Of each changed file its inode and the ranges whose blocks are others now; names that
//!   were made or removed. Neither bitmaps nor directories, nor nodes of extent trees.
//! - *Where.* Into the area behind the log, one after another. A commit of the running transaction
//!   makes all of them void, and the next one begins at the area's start.
//! - *When.* It says what to do after the last transaction that is committed, so it waits for a
//!   commit under way, and the next commit for it. What it cannot say (another directory, an
//!   extended attribute, more than there is room for) is committed in full, and until then all is.
//!
//! Steps as in JBD2. `Close` stops all handles for as long as it takes to write down what has
//! changed; the changes that follow are for the next one. `Log` writes all blocks but the last,
//! `Commit` that one, whose tail has the checksum of all.

use queue::plan::Plan;

use super::{Holds, JBD2, Policy, Recording, Submit};

/// What the kernel does on a volume with `fast_commit`.
pub const FAST: Policy = Policy {
    name: "fast",
    records: Some(Recording {
        plan: FAST_COMMIT,
        forced: FORCED,
        one_flush: None,
        holds: Holds::Changes,
    }),
    ..JBD2
};

const FAST_COMMIT: Plan<Submit> = Plan { name: "fast commit", ..JBD2.plan };

const FORCED: Plan<Submit> = Plan { name: "fast commit", ..JBD2.forced };
