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
//!
//! Where single files have records ([`crate::ondisk::record`]), those that count are part of the
//! answer. The caller applies them through a [`crate::Journal`] on the same log and closes that;
//! until then the next recovery finds them again. The same goes for what fast commits say
//! ([`crate::ondisk::fast`]).

mod fast;
mod judge;
mod records;
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
    /// Takes what is sound of the transactions, as `e2fsck` does before it checks everything, and
    /// neither records nor fast commits, which build on them.
    Lenient,
}

/// Recovers a volume from its log. Does nothing if that was closed in good order. Afterwards it is
/// a single log, whatever areas it had.
pub fn recover(mut log: Log<'_>, strictness: Strictness) -> Result<Replayed> {
    let scanned = log.scan()?;
    let is_strict = strictness == Strictness::Strict;
    // Only a log without areas has fast commits.
    let first = scanned.first().cloned().unwrap_or_default();
    let fast = if is_strict { log.fast_commits(&first)? } else { Vec::new() };
    log.stay_open((!fast.is_empty()).then_some(first.end));
    let judged = judge(scanned);
    let (mut records, mut floors) = (Vec::new(), None);
    if is_strict {
        let all = log.floors(&judged)?;
        records = log.live_records(&all)?;
        floors = (!records.is_empty()).then_some(all);
    }
    let had_records = log.keep_records(floors);
    let done = judged.order(strictness)?.replay(&mut log)?;
    if had_records && !first.was_open {
        log.close(first.end)?;
    }
    Ok(Replayed { records, fast, ..done })
}
