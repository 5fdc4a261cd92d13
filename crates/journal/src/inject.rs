//! Mistakes that tests make on purpose: a test that does not notice them proves nothing.

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
    }
}
