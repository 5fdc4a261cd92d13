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
//! inodes, after the last fence: nobody sees what a cut could take back.
//!
//! The paper has the data durable before the record is begun. Both may go together, since it is the
//! mark that counts; that saves a fence.

use std::ops::Range;
use std::sync::Arc;

use cores::{Mutex, Rank, slot};
use drive::pm::Pm;
use drive::pm::typed::{Durable, Flying, Obj, fence};
use zerocopy::{FromBytes, IntoBytes};

use super::Change;
use crate::ondisk::Corrupt;
use crate::ondisk::record::{self, PATCHES_MAX, RECORD_AT, RawRecord};
use crate::ondisk::superblock::Layout;

/// The slots of all cores.
pub(crate) struct Journal {
    pm: Arc<dyn Pm>,
    slots: Box<[Slot]>,
}

/// Aligned so that cores do not share lines.
#[repr(align(128))]
struct Slot {
    at: u64,
    /// The number of the next record. Held while one call uses the slot.
    next: Mutex<u64>,
}

/// A whole record in its slot.
enum Record {}
/// The word that makes it count.
enum Mark {}
enum Marked {}
/// Words of metadata that have got their new value.
enum Applied {}
enum Cleared {}

/// Shows that a change is durable, and its record cleared.
#[must_use = "a call returns when its change is durable"]
pub(crate) struct Done(());

impl From<Obj<'_, Cleared, Durable>> for Done {
    fn from(_: Obj<'_, Cleared, Durable>) -> Self {
        Self(())
    }
}

impl Journal {
    pub(crate) fn new(pm: Arc<dyn Pm>, layout: &Layout) -> Self {
        let slots = (0..layout.cores).map(|core| {
            let at = layout.slot_at(core);
            // Beyond the last record's, so that two records of a slot are told apart.
            let last = head(&*pm, at).number.get();
            let next = last.wrapping_add(1).max(1);
            Slot { at, next: Mutex::ranked(Rank::Log, "pmfs journal slot", next) }
        });
        let slots = slots.collect();
        Self { pm, slots }
    }

    /// Makes `change` durable, all of it or nothing.
    pub(crate) fn commit(&self, change: Change<'_>) -> Done {
        let pm = &*self.pm;
        let slot = &self.slots[slot() % self.slots.len()];
        let mut next = slot.next.lock();
        let number = *next;
        *next = number.wrapping_add(1).max(1);
        let record = write(pm, slot.at, number, &change.patches);
        let (stored, record) = fence(pm, (change.stored, record));
        let mark = Obj::<Mark>::settled(pm, slot.at, 8);
        let mark = mark.commit::<Marked>(0, number, (&stored, &record)).write_back();
        let mark = fence(pm, mark);
        let applied = apply(pm, &change.patches, &mark);
        let applied = fence(pm, applied);
        let cleared = mark.commit::<Cleared>(0, 0, &applied).write_back();
        fence(pm, cleared).into()
    }
}

fn write<'pm>(pm: &'pm dyn Pm, at: u64, number: u64, patches: &[u8]) -> Obj<'pm, Record, Flying> {
    let head = RawRecord::new(number, patches);
    let len = size_of::<RawRecord>() as u64;
    let record = Obj::<Record>::settled(pm, at + RECORD_AT, len + patches.len() as u64);
    record.store(0, head.as_bytes()).store(len, patches).write_back()
}

/// Stores patches to their places. The mark is the witness that recovery would do so, too.
fn apply<'pm>(
    pm: &'pm dyn Pm,
    patches: &[u8],
    _mark: &Obj<'pm, Marked, Durable>,
) -> Vec<Obj<'pm, Applied, Flying>> {
    let mut applied = Vec::with_capacity(8);
    let mut rest = patches;
    while let Ok((patch, bytes)) = record::RawPatch::read_from_prefix(rest) {
        let (at, len) = (patch.at.get(), patch.len.get());
        let Some((new, behind)) = bytes.split_at_checked(len as usize) else { break };
        applied.push(Obj::settled(pm, at, len).store(0, new).write_back());
        rest = behind;
    }
    applied
}

fn head(pm: &dyn Pm, slot_at: u64) -> RawRecord {
    let mut bytes = [0; size_of::<RawRecord>()];
    pm.read(slot_at + RECORD_AT, &mut bytes);
    zerocopy::transmute!(bytes)
}

/// A record whose mark is there: it was about to be applied.
pub(crate) struct Left {
    slot_at: u64,
    patches: Vec<u8>,
}

impl Left {
    /// Bytes of its patches.
    pub(crate) fn bytes(&self) -> u64 {
        self.patches.len() as u64
    }
}

/// The records that a cut left marked.
pub(crate) fn left(pm: &dyn Pm, layout: &Layout) -> Result<Vec<Left>, Corrupt> {
    let slots = (0..layout.cores).map(|core| layout.slot_at(core));
    slots.filter_map(|at| left_in(pm, layout, at).transpose()).collect()
}

/// The record that a cut left marked in a slot. A mark without its record is damage: the mark was
/// stored when the record was durable.
pub(crate) fn left_in(pm: &dyn Pm, layout: &Layout, slot_at: u64) -> Result<Option<Left>, Corrupt> {
    let mark = pm.load(slot_at);
    if mark == 0 {
        return Ok(None);
    }
    let head = head(pm, slot_at);
    let at = slot_at + RECORD_AT;
    let len = u64::from(head.len.get());
    if len > PATCHES_MAX {
        let (structure, what, allowed) = ("record", "length", "within its slot");
        return Err(Corrupt { structure, at, what, found: len, allowed });
    }
    let mut patches = vec![0; len as usize];
    pm.read(at + size_of::<RawRecord>() as u64, &mut patches);
    head.check(at, mark, &patches)?;
    record::patches(at, &patches, layout)?;
    Ok(Some(Left { slot_at, patches }))
}

/// Repeats what a cut interrupted, then clears the marks. Calls under way at the same time had
/// different inodes locked, so the order does not matter; and repeating is harmless, however often
/// recovery is cut itself, because no mark goes before everything is applied and durable.
pub(crate) fn redo(pm: &dyn Pm, left: Vec<Left>) -> usize {
    if left.is_empty() {
        return 0;
    }
    // What is read after a restart is durable.
    let marks: Vec<_> =
        left.iter().map(|left| Obj::<Marked>::settled(pm, left.slot_at, 8)).collect();
    let applied = left.iter().zip(&marks).map(|(left, mark)| apply(pm, &left.patches, mark));
    let applied: Vec<_> = applied.collect();
    let applied = fence(pm, applied);
    let cleared = marks.into_iter().map(|mark| mark.commit::<Cleared>(0, 0, &applied).write_back());
    let cleared: Vec<_> = cleared.collect();
    fence(pm, cleared).len()
}

/// The bytes of a slot that a fresh volume must have as zeroes.
pub(crate) fn to_clear(slot_at: u64) -> Range<u64> {
    slot_at..slot_at + RECORD_AT + size_of::<RawRecord>() as u64
}
