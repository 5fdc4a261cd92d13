//! Discards and zone resets that a cut may undo.
//!
//! A drive that keeps its mapping in memory answers a deallocation or a reset before the mapping on
//! NAND has changed. A later flush makes the change durable, if it came after the change had
//! completed (NVMe base 2.0, Flush: it covers all commands completed before it). A reset is also
//! durable once a block written to the zone since then is, because its write pointer shows that the
//! zone had been emptied. Until then the media keep the old contents, which reads do not see. A
//! drive that loses nothing with its power can undo what is under way, but nothing that has
//! completed.

use std::collections::BTreeMap;

use super::model::Model;
use super::power::{Luck, SavedZone};
use crate::media::write_failure;
use crate::{Lba, Media, Status, ZoneState};

/// Which change it was. Later ones have higher numbers.
pub(super) type Change = u64;

/// How many random choices there are for a discarded range. In a longer range, neighbouring blocks
/// share one.
const COINS: u64 = 4096;

/// The state that a zone returns to if a cut undoes its reset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    change: Change,
    zone: SavedZone,
}

/// The changes that are not durable.
#[derive(Debug, Default)]
pub(super) struct Undo {
    /// The last change that began.
    pub(super) last: Change,
    /// Discarded ranges that the media still hold: start, end and the first change that discarded
    /// them.
    holes: BTreeMap<Lba, (Lba, Change)>,
    /// Zones that were reset and have held nothing durable since then.
    zones: Vec<u32>,
}

/// The changes that a flush covers.
#[derive(Debug, Default)]
pub(super) struct Covered {
    up_to: Change,
    under_way: Vec<Change>,
}

impl Covered {
    fn has(&self, change: Change) -> bool {
        change <= self.up_to && !self.under_way.contains(&change)
    }
}

impl Undo {
    /// Whether `lba` was discarded and the media still hold it.
    pub(super) fn is_hole(&self, lba: Lba) -> bool {
        self.discard_of(lba).is_some()
    }

    /// The discard that emptied `lba`, if that is not durable.
    pub(super) fn discard_of(&self, lba: Lba) -> Option<Change> {
        let (_, (end, change)) = self.holes.range(..=lba).next_back()?;
        (lba < *end).then_some(*change)
    }

    /// Marks the range as discarded by the last change. Blocks that an earlier discard emptied keep
    /// that one: once it is durable, nothing is left that could come back.
    pub(super) fn dig(&mut self, lba: Lba, end: Lba) {
        let mut at =
            self.holes.range(..=lba).next_back().map_or(lba, |(_, (end, _))| lba.max(*end));
        while at < end {
            let next = self.holes.range(at..end).next().map(|(start, (end, _))| (*start, *end));
            let (start, after) = next.unwrap_or((end, end));
            if at < start {
                self.holes.insert(at, (start, self.last));
            }
            at = after;
        }
    }

    /// The media have a new block at `lba`, so whatever was there before cannot come back.
    pub(super) fn fill(&mut self, lba: Lba) {
        let Some((&start, &(end, change))) = self.holes.range(..=lba).next_back() else { return };
        if lba >= end {
            return;
        }
        self.holes.remove(&start);
        for (start, end) in [(start, lba), (lba + 1, end)] {
            if start < end {
                self.holes.insert(start, (end, change));
            }
        }
    }
}

impl Model {
    /// Whether a cut may undo a discard or a reset for some time: on an unkind drive, until a flush
    /// or, if the drive loses nothing with its power, while the change is under way.
    fn can_undo(&self) -> bool {
        self.spec.is_unkind() && (self.must_program() || !self.instant)
    }

    /// The command in `slot` begins to change what is there.
    pub(super) fn begin_change(&mut self, slot: u32) {
        self.undo.last += 1;
        self.slots[slot as usize].change = Some(self.undo.last);
    }

    /// The change has completed. On a drive that loses nothing, it is now durable.
    pub(super) fn end_change(&mut self, change: Change) {
        if !self.must_program() {
            self.settle(|other| other == change);
        }
    }

    /// Which changes a flush would cover that comes now.
    pub(super) fn changes_completed(&self) -> Covered {
        Covered { up_to: self.undo.last, under_way: self.changes_under_way().collect() }
    }

    pub(super) fn settle_covered(&mut self, covered: &Covered) {
        self.settle(|change| covered.has(change));
    }

    /// Makes all changes durable.
    pub(super) fn settle_all(&mut self) {
        self.settle(|_| true);
    }

    fn settle(&mut self, covered: impl Fn(Change) -> bool) {
        self.undo.holes.retain(|&start, &mut (end, change)| {
            let durable = covered(change);
            if durable {
                let emptied = self.media.discard(start, end - start).map_err(write_failure);
                self.write_fault = self.write_fault.or(emptied.err());
            }
            !durable
        });
        let Some(table) = &self.zones else { return };
        let of = |zone: u32| table.cells[zone as usize].before.as_ref();
        let mut zones = self.undo.zones.clone();
        zones.retain(|&zone| of(zone).is_some_and(|before| covered(before.change)));
        for zone in zones {
            self.settle_reset(zone as usize);
        }
    }

    /// Makes the reset of a zone durable.
    pub(super) fn settle_reset(&mut self, zone: usize) {
        let Some(table) = &mut self.zones else { return };
        if table.cells[zone].before.take().is_some() {
            let (start, size) = (table.start(zone), table.geometry.size);
            self.undo.zones.retain(|other| *other as usize != zone);
            let emptied = self.media.discard(start, size).map_err(write_failure);
            self.write_fault = self.write_fault.or(emptied.err());
        }
    }

    /// The media forget what a zone held, or are about to: the zone becomes empty.
    pub(super) fn forget_zone(&mut self, zone: usize) -> Result<(), Status> {
        if self.can_undo() {
            self.keep_zone(zone)
        } else {
            let Some(table) = &self.zones else { return Ok(()) };
            let (start, size) = (table.start(zone), table.geometry.size);
            self.media.discard(start, size).map_err(write_failure)
        }
    }

    fn keep_zone(&mut self, zone: usize) -> Result<(), Status> {
        if !self.must_program() {
            // What such a drive has buffered is part of the zone's contents.
            let cell = self.zones.as_ref().map(|table| &table.cells[zone]);
            let buffered = cell.map_or(0, |cell| cell.buffered - cell.nand);
            self.move_to_media(zone, buffered)?;
        }
        let wp = self.zones.as_ref().map_or(0, |table| table.cells[zone].nand);
        let before = Before { change: self.undo.last, zone: self.saved_zone(zone, wp) };
        let Some(table) = &mut self.zones else { return Ok(()) };
        let cell = &mut table.cells[zone];
        // Of several resets, the first one matters.
        if before.zone.state != ZoneState::Empty && cell.before.is_none() {
            cell.before = Some(before);
            self.undo.zones.push(zone as u32);
        }
        Ok(())
    }

    /// As [`Self::forget_zone`], for random-write blocks.
    pub(super) fn forget_range(&mut self, lba: Lba, end: Lba) -> Result<(), Status> {
        if self.can_undo() {
            self.undo.dig(lba, end);
            return Ok(());
        }
        self.media.discard(lba, end - lba).map_err(write_failure)
    }

    /// Lets `luck` decide for each change whether it is undone. Empties in `media` what is not
    /// undone.
    pub(super) fn settle_changes(&self, luck: Luck, media: &mut Media, zones: &mut [SavedZone]) {
        for (&start, &(end, _)) in &self.undo.holes {
            let step = (end - start).div_ceil(COINS);
            for at in (start..end).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
                if luck.coin(at, 5) & 1 == 0 {
                    let _lost = media.discard(at, step.min(end - at));
                }
            }
        }
        let Some(table) = &self.zones else { return };
        for &zone in &self.undo.zones {
            let Some(before) = table.cells[zone as usize].before else { continue };
            let (zone, start) = (zone as usize, table.start(zone as usize));
            let wp = zones[zone].wp;
            // A drive that has given the zone's resources to another zone has forgotten its
            // contents.
            let active = zones.iter().filter(|zone| zone.state == ZoneState::Closed).count() as u32;
            let fits = before.zone.state != ZoneState::Closed
                || table.geometry.max_active.is_none_or(|most| active < most);
            if wp == 0 && fits && luck.coin(start, 4) & 1 == 1 {
                zones[zone] = before.zone;
            } else {
                let _lost = media.discard(start + wp, table.geometry.size - wp);
            }
        }
    }

    /// A zone's state without power, if nothing more becomes durable.
    pub(super) fn zone_before(&self, zone: usize) -> Option<SavedZone> {
        let cell = self.zones.as_ref()?.cells.get(zone)?;
        cell.before.map(|before| before.zone)
    }
}
