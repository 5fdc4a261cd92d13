//! Recovery: what a power cut left in the log goes home (`jbd2_journal_recover`).
//!
//! Each step is a type that only the step before makes:
//! [`scan`](Log::scan) finds the committed transactions of a log, or of each of its areas
//! ([`Scanned`]); [`judge`] decides which of them count ([`Judged`]); [`Judged::order`] leaves of
//! each block the newest image that is not revoked ([`Ordered`]); [`Ordered::replay`] writes those
//! home, flushes, and closes the log.
//! Nothing is written before the last step, so a log that is corrupt leaves all as it was; and a
//! cut during the last step leaves the log open, so the next recovery does it again. A log takes
//! memory by the blocks it has in use, some 40 bytes each.

mod judge;
mod replay;
mod scan;

pub use judge::{Judged, judge};
pub use replay::{Ordered, Replayed};
pub use scan::{Damage, Image, Scanned, Transaction};

use crate::error::Result;
use crate::volume::Log;

/// Whether recovery goes on over transactions that cannot be read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// Fails and changes nothing, as a mount should.
    Strict,
    /// Takes what is sound, as `e2fsck` does before it checks everything.
    Lenient,
}

/// Recovers a volume from its log. Does nothing if that was closed in good order. Afterwards it is
/// a single log, whatever areas it had.
pub fn recover(mut log: Log<'_>, strictness: Strictness) -> Result<Replayed> {
    let scanned = log.scan()?;
    judge(scanned).order(strictness)?.replay(&mut log)
}
