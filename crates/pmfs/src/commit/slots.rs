//! The journal's slots, one per core: a record of words of metadata, and the mark that makes it
//! count. What recovery does with a marked record is the design's: [`super::inplace`] repeats it,
//! [`super::lite`] takes it back.

use std::ops::Range;
use std::sync::Arc;

use cores::{Mutex, MutexGuard, Rank, slot};
use drive::pm::Pm;
use drive::pm::typed::{Durable, Flying, Group, Obj, fence};
use zerocopy::{FromBytes, IntoBytes};

use super::Change;
use crate::ondisk::Corrupt;
use crate::ondisk::record::{self, PATCHES_MAX, RECORD_AT, RawRecord};
use crate::ondisk::superblock::Layout;

/// The slots of all cores.
pub(crate) struct Slots {
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
/// Words of metadata that have got a value of a record.
enum Applied {}
pub(super) enum Cleared {}

impl Slots {
    pub(crate) fn new(pm: &Arc<dyn Pm>, layout: &Layout) -> Self {
        let slots = (0..layout.cores).map(|core| {
            let at = layout.slot_at(core);
            // Beyond the last record's, so that two records of a slot are told apart.
            let last = head(&**pm, at).number.get();
            let next = last.wrapping_add(1).max(1);
            Slot { at, next: Mutex::ranked(Rank::Log, "pmfs journal slot", next) }
        });
        Self { slots: slots.collect() }
    }

    /// The slot of the calling core, with the number of its next record.
    fn lock(&self) -> (u64, u64, MutexGuard<'_, u64>) {
        let slot = &self.slots[slot() % self.slots.len()];
        let mut next = slot.next.lock();
        let number = *next;
        *next = number.wrapping_add(1).max(1);
        (slot.at, number, next)
    }
}

impl Slots {
    /// Makes `change` durable, all of it or nothing, by way of a record: of the patches themselves,
    /// or, with `undo`, of what they replace.
    ///
    /// ```text
    /// data, record ‖ mark ‖ patches in place ‖ clear ‖                 ‖ = write back, fence
    /// ```
    ///
    /// The record and what was stored are durable before the mark, so a mark proves both; all
    /// patches are before it goes; and the last fence keeps an old mark from coming back over a
    /// later change, perhaps of another core.
    pub(super) fn commit<'pm>(
        &self,
        change: Change<'pm>,
        undo: Option<&[u8]>,
    ) -> Obj<'pm, Cleared, Durable> {
        let pm = change.pm;
        let (at, number, _slot) = self.lock();
        let record = write(pm, at, number, undo.unwrap_or(&change.patches));
        let (stored, record) = fence(pm, (change.stored, record));
        let mark = Obj::<Mark>::settled(pm, at, 8);
        let mark = mark.commit::<Marked>(0, number, (&stored, &record)).write_back();
        let mark = fence(pm, mark);
        let applied = apply(pm, &change.patches, &mark);
        let applied = fence(pm, applied);
        fence(pm, mark.commit::<Cleared>(0, 0, &applied).write_back())
    }
}

fn write<'pm>(pm: &'pm dyn Pm, at: u64, number: u64, patches: &[u8]) -> Obj<'pm, Record, Flying> {
    let head = RawRecord::new(number, patches);
    let len = size_of::<RawRecord>() as u64;
    let record = Obj::<Record>::settled(pm, at + RECORD_AT, len + patches.len() as u64);
    record.store(0, head.as_bytes()).store(len, patches).write_back()
}

/// Stores patches to their places. The mark is the witness that a cut would not leave some of them.
fn apply<'pm>(
    pm: &'pm dyn Pm,
    patches: &[u8],
    _mark: &Obj<'pm, Marked, Durable>,
) -> Group<'pm, Applied, Flying> {
    split(patches)
        .map(|(at, new)| Obj::settled(pm, at, new.len() as u64).store(0, new).write_back())
        .collect()
}

/// The patches of a change: where, and which bytes.
pub(super) fn split(patches: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut rest = patches;
    std::iter::from_fn(move || {
        let (patch, bytes) = record::RawPatch::read_from_prefix(rest).ok()?;
        let (new, behind) = bytes.split_at_checked(patch.len.get() as usize)?;
        rest = behind;
        Some((patch.at.get(), new))
    })
}

fn head(pm: &dyn Pm, slot_at: u64) -> RawRecord {
    let mut bytes = [0; size_of::<RawRecord>()];
    pm.read(slot_at + RECORD_AT, &mut bytes);
    zerocopy::transmute!(bytes)
}

/// A record whose mark a cut left.
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

/// Stores what the records say, then clears the marks: what recovery does in every design. Calls
/// under way at the same time had different inodes locked, so the order does not matter; and
/// repeating is harmless, however often recovery is cut itself, because no mark goes before
/// everything is stored and durable. (NOVA's recovery clears its journal without that fence.)
pub(crate) fn finish(pm: &dyn Pm, left: Vec<Left>) -> usize {
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
