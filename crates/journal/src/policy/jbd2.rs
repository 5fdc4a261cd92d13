//! One log, one running transaction: an fsync commits the changes of all files
//! (`jbd2_journal_commit_transaction`).

use queue::plan::{Plan, Step};

use super::{Areas, CLOSE, COMMIT, COMMIT_FORCED, DATA, LOG, Policy, WAIT_DATA, WAIT_META};

/// The kernel's journal, as ext4 mounts it without further options.
pub const JBD2: Policy = Policy {
    name: "jbd2",
    plan: Plan {
        name: "jbd2",
        steps: &[
            DATA,
            WAIT_DATA,
            CLOSE,
            LOG,
            WAIT_META,
            Step::PreFlush,
            COMMIT,
            WAIT_META,
            Step::Flush,
        ],
        durable: true,
        data_consistent: true,
        atomic: false,
    },
    forced: Plan {
        name: "jbd2",
        steps: &[DATA, WAIT_DATA, CLOSE, LOG, WAIT_META, Step::PreFlush, COMMIT_FORCED, WAIT_META],
        durable: true,
        data_consistent: true,
        atomic: false,
    },
    areas: Areas::One,
    records: None,
};
