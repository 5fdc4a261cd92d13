//! The journal of design `inplace`: "An Efficient Metadata Journaling Scheme for In-memory File
//! Systems" (JIIBC 2023), section II.
//!
//! ```text
//! data to its place, record ‖ mark ‖ apply ‖ clear ‖        ‖ = write back, fence
//! ```
//!
//! *Why every call is atomic and durable.* Before the mark is durable the record counts for nothing
//! and the metadata is old; what was stored is either contents that old metadata covers, of which a
//! cut leaves old or new words, or lies where nothing points to. The first fence makes data and
//! record durable before the mark, so a mark proves both: a new size never shows what was in a
//! block before. From the mark on recovery repeats the record, whatever part of it was applied. The
//! third fence makes all of it durable before the mark goes, and the last one keeps an old mark
//! from coming back over a later change, perhaps of another core. A call returns, and unlocks its
//! inodes, after the last fence: no reader sees what a cut could take back.
//!
//! The paper has the data durable before the record is begun. Both may go together, since it is the
//! mark that counts; that saves a fence.

use super::slots::Slots;
use super::{Change, Done};

/// Makes `change` durable, all of it or nothing.
pub(super) fn commit(slots: &Slots, change: Change<'_>) -> Done {
    slots.commit(change, None).into()
}
