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
    }
}

/// All that the option `inject` takes.
pub(super) const NAMES: [&str; 17] = [
    "drop-flush",
    "plain-commit",
    "skip-revoke",
    "skip-escape",
    "early-tail",
    "drop-chain",
    "tail-ahead",
    "late-mark",
    "record-late",
    "record-shared",
    "split-group",
    "skip-sums",
    "fc-late",
    "early-reuse",
    "skip-ordered",
    "drop-orphan",
    "fc-miss",
];
