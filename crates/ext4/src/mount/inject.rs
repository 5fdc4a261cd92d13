//! Faults of the file system that tests inject, in addition to those of its journal
//! ([`journal::Inject`]): a campaign that does not notice them proves nothing.

use bitflags::bitflags;

bitflags! {
    /// What the engine leaves out.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Inject: u32 {
        /// The wait for the commit: blocks are used again while a power cut may still bring back
        /// the file that had them.
        const EARLY_REUSE = 1;
        /// The order of `data=ordered`: a file has new blocks before these have its contents.
        const SKIP_ORDERED = 2;
        /// The list of orphans: what is unlinked while it is open is never freed.
        const DROP_ORPHAN = 4;
        /// Where the blocks of files are: fast commits say only how long these are.
        const FC_MISS = 8;
        /// Nothing: inodes leave memory at each commit, instead of when there are many. No promise
        /// may depend on that.
        const WEED = 16;
    }
}
