//! Faults that tests inject: a test that does not notice them proves nothing.

use bitflags::bitflags;

bitflags! {
    /// What a journal leaves out.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Inject: u32 {
        /// The flush at the end of a commit: what returned may be lost.
        const DROP_FLUSH = 1;
        /// The flush before the commit block, which may then be durable before what it commits.
        const PLAIN_COMMIT = 2;
        /// Revokes: recovery brings back blocks that were freed and used again.
        const SKIP_REVOKE = 4;
        /// Escapes: an image may be taken for a block of the log.
        const SKIP_ESCAPE = 8;
        /// The order of a checkpoint: the tail moves before the images are home.
        const EARLY_TAIL = 16;
        /// Marks: commit blocks name no other transaction.
        const DROP_CHAIN = 32;
        /// The order of areas in a checkpoint: a tail passes a transaction before those that it
        /// follows.
        const TAIL_AHEAD = 64;
        /// Marks in time: a partner in another area hears of an operation only at its end.
        const LATE_MARK = 128;
        /// Records that never get old: they count although their transaction is committed.
        const RECORD_LATE = 256;
        /// The areas of records: all are written to the same place.
        const RECORD_SHARED = 512;
        /// Files of a group: all members return, but only the leader's file is in the record.
        const SPLIT_GROUP = 1024;
        /// Checksums of a record's data: recovery has nothing to verify.
        const SKIP_SUMS = 4096;
        /// The wait of a fast commit for a commit under way, without which it says nothing.
        const FC_LATE = 2048;
    }
}
