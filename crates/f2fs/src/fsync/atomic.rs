//! Atomic OPRW, `fsync_mode=strict,oprw`: an fsync is recovered whole or not at all, and nothing is
//! waited for between data and nodes. One flush where `strict` has two. On any drive.
//!
//! **What can tear.** A drive programs data, nodes and the last node in any order, and flushes by
//! itself at any time. So of one fsync, a cut may keep any prefix of what it wrote to each zone.
//!
//! **What orders it.** Nothing. Recovery decides, from the write pointers or, where there are none,
//! from checksums, and finds one of two things:
//! - *Whole*: the last node of the fsync, its only marked one, is in the chain, and every block
//!   that any of its nodes points to lies below the write pointer of its zone, or is what it was.
//! - *Not whole*: all of it, and whatever that inode wrote later, is left out; the inode stays as
//!   its last whole fsync or the checkpoint had it.
//!
//! **Why that is enough.**
//! - *Several nodes.* An fsync's nodes follow one another in the node log, the inode last. The
//!   chain is read in that order and ends at the first node that is not there: below its zone's
//!   write pointer, or by the checkpoint version in a conventional zone. So the mark proves that
//!   all nodes before it are there. A cut that keeps some and not the mark keeps none.
//! - *Nodes half there.* Where a drive may tear a block, the last node has a checksum of them all
//!   (`ondisk/node_sums.rs`), under every plan; the chain ends before the first fsync whose
//!   checksum is wrong.
//! - *Several zones.* A zone may lose nothing while the one before it in the log loses its end. The
//!   chain then ends in the earlier one, and what is in the later counts for nothing. Data may lie
//!   in as many zones as it likes: every pointer is held against the pointer of its own zone.
//! - *This content, not an older one, lies below a write pointer*: a zone is reset only after a
//!   checkpoint in which nothing points into it, a chain begins after its checkpoint, and between
//!   two resets a block of a zone is written once.
//! - *Several files.* Nodes of others may stand between, for the verdict is kept by inode; whether
//!   one is left out says nothing of another. No two need each other: a parent that the checkpoint
//!   does not know, a rename and a second link make an fsync a checkpoint.
//! - *Older versions half durable.* One fsync of an inode runs at a time, and returns only after a
//!   flush that began after all it submitted had completed. Each fsync therefore stands on one that
//!   is durable; what write-back wrote in between is pointed to by the same nodes and judged with
//!   them. Without flushes (`nobarrier`) a later fsync could be whole and an earlier not: it is
//!   left out too, for it says only what changed since.
//! - *One instant.* Data is submitted and the nodes are taken down in one hold of the volume
//!   ([`Submit::Both`]). Where the volume has to be let go before the nodes go, they are written as
//!   they were then; a checkpoint that comes between ends the fsync, for it has made all of it
//!   durable.
//! - *Other threads' nodes* ahead in the log are waited for, too: without them the chain would end
//!   before this fsync's.
//! - *Cleaning* moves what is durable, never the newer version that waits in the page cache, or it
//!   would carry half an fsync into the next checkpoint.
//! - *No write pointer* tells of data on a conventional drive or in a conventional zone. There the
//!   inode carries checksums of what the fsync stands on and was not stable before
//!   (`ondisk/data_sums.rs`, in what the name leaves of its field), and recovery compares: of each
//!   inode the last fsync only, for it began when the one before was durable. What lies at such an
//!   address is this content or one from before the checkpoint: nothing is updated in place under
//!   OPRW, and no block is allocated twice between two checkpoints. So equal checksums are equal
//!   contents, but for one lost block in 2^32. What has no room for checksums (a long name, data in
//!   more than 24 places), and a pinned file, is waited for and flushed before the nodes go, as
//!   `strict` does.
//!
//! **What it does not promise.** Writes that nobody fsynced: a checkpoint (`sync`, the periodic
//! one, one that makes room) may find a file half written back and makes that the state an fsync is
//! recovered to. Pinned files are overwritten in place, block by block. Fsyncs which become a
//! checkpoint are atomic with all else that is in it.
//!
//! **On other recoveries.** Ours judges in every mode, unless told not to (`nowp_check`). To the
//! kernel the marks are those of `strict`, so it takes an fsync's nodes together or not; it
//! believes their pointers, as it does after any fsync of OPRW.

use super::plan::{Mark, Plan, Step, Submit, Writes};

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
