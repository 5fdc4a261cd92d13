//! Atomic OPRW, `fsync_mode=strict,oprw`: an fsync is recovered whole or not at all, without a wait
//! between data and nodes, and with one flush where `strict` has two. Works on any drive.
//!
//! **What can tear.** A drive programs data, nodes and the last node in any order, and may flush at
//! any time. So a cut may keep, in each zone, any prefix of what an fsync wrote there.
//!
//! **What orders it.** Nothing. Recovery decides, from the write pointers or, where there are none,
//! from checksums, and finds one of two things:
//! - *Whole*: the last node of the fsync, its only marked one, is in the chain, and every block
//!   that any of its nodes points to lies below the write pointer of its zone, or matches its
//!   checksum.
//! - *Not whole*: all of it, and everything that inode wrote later, is left out; the inode stays as
//!   its last whole fsync or the checkpoint had it.
//!
//! **Why that is enough.**
//! - *Several nodes.* An fsync's nodes follow one another in the node log, the inode last. The
//!   chain is read in that order and ends at the first node that is not there: below its zone's
//!   write pointer, or by the checkpoint version in a conventional zone. So the mark proves that
//!   all nodes before it are there. If a cut keeps some of them but not the mark, none counts.
//! - *Nodes half there.* Where a drive may tear a block, the last node has a checksum of them all
//!   (`ondisk/node_sums.rs`), under every plan; the chain ends before the first fsync whose
//!   checksum is wrong.
//! - *Several zones.* A zone may lose nothing while the one before it in the log loses its end. The
//!   chain then ends in the earlier zone, and nodes in the later one do not count. Data may lie in
//!   any number of zones: every block pointer is compared with the write pointer of its own zone.
//! - *This content, not an older one, lies below a write pointer*: a zone is reset only after a
//!   checkpoint in which nothing points into it, a chain begins after its checkpoint, and between
//!   two resets a block of a zone is written once.
//! - *Several files.* Nodes of other files may stand in between, because the verdict is kept per
//!   inode, and leaving one out says nothing about another. No two need each other: a parent that
//!   the checkpoint does not know, a rename and a second link make an fsync a checkpoint.
//! - *Older versions half durable.* One fsync of an inode runs at a time, and returns only after a
//!   flush that began after all it submitted had completed. So each fsync builds on one that is
//!   durable; what write-back wrote in between is pointed to by the same nodes and judged with
//!   them. Without flushes (`nobarrier`) a later fsync could be whole and an earlier not: it is
//!   left out, too, because it describes only what changed since.
//! - *One instant.* Data is submitted and the nodes are captured in one hold of the volume
//!   ([`Submit::Both`]). If the volume is let go before the nodes are submitted, they are written
//!   as they were then; a checkpoint in between ends the fsync, because it has made everything
//!   durable.
//! - *Other threads' nodes* ahead in the log are waited for, too: without them the chain would end
//!   before this fsync's.
//! - *Cleaning* moves what is durable, never the newer version in the page cache; otherwise it
//!   would carry half an fsync into the next checkpoint.
//! - *No write pointer* tells of data on a conventional drive or in a conventional zone. There the
//!   inode carries checksums of the data that the fsync relies on and that was not stable before
//!   (`ondisk/data_sums.rs`, behind the name in its field), and recovery compares them, for the
//!   last fsync of each inode only, because that began when the one before was durable. What lies
//!   at such an address is this content or one from before the checkpoint: nothing is updated in
//!   place under OPRW, and no block is allocated twice between two checkpoints. So equal checksums
//!   mean equal contents, except for one lost block in 2^32. Data without room for checksums (a
//!   long name, data in more than 24 places), or of a pinned file, is waited for and flushed before
//!   the nodes go, as under `strict`.
//!
//! **What it does not promise.** Writes that nobody fsynced: a checkpoint (`sync`, the periodic
//! one, one that makes room) may find a file half written back, and makes that the state to which
//! an fsync is recovered. Pinned files are overwritten in place, block by block. Fsyncs that become
//! a checkpoint are atomic together with everything else in it.
//!
//! **On other recoveries.** Ours judges in every mode, unless told not to (`nowp_check`). To the
//! kernel the marks are those of `strict`, so it takes all of an fsync's nodes or none; but it
//! believes their pointers, as after any fsync of OPRW.

use super::submit::{Mark, Plan, Step, Submit, Writes};

/// Data and nodes, wait for both, flush.
pub const ATOMIC: Plan = Plan {
    name: "OPRW-strict",
    steps: &[
        Step::Submit(Submit::Both(Mark::Last)),
        Step::Wait(Writes::DATA.union(Writes::META)),
        Step::Flush,
    ],
    durable: true,
    data_consistent: true,
    atomic: true,
};
