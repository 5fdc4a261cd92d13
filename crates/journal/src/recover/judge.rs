//! The second step: which committed transactions count.
//!
//! In one log all of them do, up to the first that is missing, where the scan has ended.

use super::scan::Scanned;

/// Logs whose transactions all count, in the order of the logs.
pub struct Judged {
    pub(super) logs: Vec<Scanned>,
}

/// Decides which transactions count.
pub fn judge(logs: Vec<Scanned>) -> Judged {
    Judged { logs }
}
