//! What is left when the power fails, and how it comes back.
//!
//! Thesis section 5.3: after a cut, every zone's write pointer is where NAND programs had reached,
//! and the bytes above it are gone. With power-loss protection, everything buffered is there. Of
//! the random-write blocks that are not on NAND, each is old or new, as the seed decides.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use cores::{Nanos, splitmix64};

use super::cache::Pending;
use super::model::Model;
use super::zones::ZoneTable;
use crate::watch::Watch;
use crate::{
    BLOCK_SIZE, Block, Command, Identify, Lba, Media, ProfileError, RamMedia, Spec, ZoneState,
};

/// What a drive without power holds. A clone shares all blocks.
#[derive(Clone, Debug)]
pub struct DriveState {
    pub(crate) spec: Spec,
    pub(crate) identify: Identify,
    pub(crate) media: Media,
    pub(crate) zones: Vec<SavedZone>,
    pub(crate) unreadable: u64,
}

/// A zone of a drive without power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SavedZone {
    pub(crate) state: ZoneState,
    /// Offset from the zone's start.
    pub(crate) wp: u64,
    /// Full because of a command, not because it was written.
    pub(crate) sealed: bool,
}

impl DriveState {
    /// A new drive: all zeroes, all zones empty.
    pub fn new(spec: Spec) -> Result<Self, ProfileError> {
        let identify = spec.identify()?;
        let media = Media::Ram(RamMedia::new());
        Ok(Self { spec, identify, media, zones: Vec::new(), unreadable: 0 })
    }

    /// The parts, each of these blocks, that `look` reads of a drive that holds this, or of what it
    /// makes of it. None if it is not held in memory.
    pub fn reads(
        mut self,
        parts: impl IntoIterator<Item = (Range<Lba>, usize)>,
        look: &mut dyn FnMut(Self),
    ) -> Option<BTreeSet<usize>> {
        let Media::Ram(ram) = &mut self.media else { return None };
        let watch = Arc::new(Watch::new(parts));
        ram.watch(watch.clone());
        look(self);
        Some(watch.read())
    }

    /// What the drive will say about itself.
    pub fn identify(&self) -> &Identify {
        &self.identify
    }

    /// The same, as a drive that can be written, wherever it came from: a copy for experiments.
    #[must_use]
    pub fn writable(mut self) -> Self {
        self.identify.read_only = false;
        self
    }

    /// The drive's specification.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The bytes.
    pub fn media(&self) -> &Media {
        &self.media
    }

    /// How many blocks of a drive in a file could not be read when its state was taken. They are
    /// zero here.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Whether both are known to hold the same without comparing blocks, because nothing became
    /// durable between taking them from one drive. False proves nothing.
    pub fn is_same(&self, other: &Self) -> bool {
        self.zones == other.zones && self.media.is_same(&other.media)
    }

    /// Write pointer of each zone, as offset from its start; empty for a drive without zones.
    pub fn write_pointers(&self) -> impl Iterator<Item = u64> + '_ {
        self.zones.iter().map(|zone| zone.wp)
    }
}

/// When the power will fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutPoint {
    /// When the n-th command since power-on arrives, counted from 0. The command has no effect.
    Command(u64),
    /// Just after the n-th NAND program since power-on has ended, counted from 0.
    Program(u64),
    /// At this time of the drive's machine or, in [`super::Timing::Instant`], of the model.
    Time(Nanos),
}

/// How a drive behaves after its power was cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AfterCut {
    /// Every command completes with [`crate::Status::NotReady`].
    #[default]
    Dead,
    /// It acknowledges writes and drops them, and serves reads, so that a host can unmount (thesis
    /// section 5.3.1).
    SayYes,
}

/// An event before and after which a power cut would leave different things.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// When, in the model's time.
    pub at: Nanos,
    /// What happens.
    pub kind: EventKind<'a>,
}

/// The kinds of [`Event`]; each is numbered from 0 since power-on, as in [`CutPoint`].
#[derive(Clone, Copy, Debug)]
pub enum EventKind<'a> {
    /// A command arrives and has had no effect yet.
    Command {
        /// Its number.
        number: u64,
        /// The command.
        command: &'a Command,
    },
    /// A NAND program has just ended.
    Program {
        /// Its number.
        number: u64,
        /// First block it carried: the lowest address in a sequential zone, otherwise the oldest
        /// block.
        lba: Lba,
        /// How many blocks.
        blocks: u64,
    },
}

impl Event<'_> {
    /// The point at which to cut in order to be exactly here.
    pub fn cut_point(&self) -> CutPoint {
        match self.kind {
            EventKind::Command { number, .. } => CutPoint::Command(number),
            EventKind::Program { number, .. } => CutPoint::Program(number),
        }
    }
}

/// The drive at the instant of an [`Event`].
pub struct Moment<'a> {
    pub(super) model: &'a Model,
}

impl Moment<'_> {
    /// What would be left if the power failed now. Changes nothing.
    pub fn survivors(&self, seed: u64) -> DriveState {
        self.model.survivors(seed)
    }
}

/// Called for every command and for every program's end, in the order of the model's time. It runs
/// under the drive's lock and must not call the drive.
pub type Observer = Box<dyn FnMut(&Event<'_>, &Moment<'_>) + Send>;

impl Model {
    pub(super) fn survivors(&self, seed: u64) -> DriveState {
        if let Some(state) = &self.fallen {
            return state.clone();
        }
        self.copy(Luck::Seed(seed))
    }

    /// What the drive holds if everything acknowledged is kept, whatever its specification.
    pub(super) fn hold(&self) -> DriveState {
        match &self.fallen {
            Some(state) => state.clone(),
            None => self.copy(Luck::Acknowledged),
        }
    }

    fn copy(&self, luck: Luck) -> DriveState {
        let (ram, unreadable) = self.media.snapshot();
        let mut media = Media::Ram(ram);
        let zones = self.settle_into(luck, &mut media);
        self.state_of(media, zones, unreadable)
    }

    /// Writes those blocks to `media` that survive and are not there yet. Returns the zones. A
    /// block that cannot be written is lost, as on a real drive.
    fn settle_into(&self, luck: Luck, media: &mut Media) -> Vec<SavedZone> {
        let plp = self.spec.profile().plp.value || luck == Luck::Acknowledged;
        let mut zones = self.zones.as_ref().map_or_else(Vec::new, |table| {
            let cells = table.cells.iter().enumerate();
            cells.map(|(zone, _)| self.settle_zone(luck, zone, plp, media)).collect()
        });
        self.settle_changes(luck, media, &mut zones);
        for (lba, pending) in self.cache.pending() {
            if let Some(block) = self.survivor(luck, lba, pending, plp, media) {
                let _lost = media.write(lba, block);
            }
        }
        zones
    }

    /// What is left of a random-write block that is not on NAND; `None` if it is what the media
    /// have.
    ///
    /// With sectors of 512 bytes, each sector of a block that is being transferred or is in a
    /// volatile buffer is old or new by itself: NVMe promises no more (AWUPF) than single logical
    /// blocks. In a sequential zone nothing is torn. Its write pointer counts logical blocks, and a
    /// host that writes 4 KiB at a time finds the rest of a torn block above it, where everything
    /// reads as zero.
    fn survivor(
        &self,
        luck: Luck,
        lba: Lba,
        pending: Pending<'_>,
        plp: bool,
        media: &Media,
    ) -> Option<Block> {
        let of_sector =
            |sector: u64| pending.survivor(plp, |salt| luck.coin(lba, salt | sector << 3) & 1 == 1);
        let size = self.spec.atomic_write();
        if size >= BLOCK_SIZE {
            return of_sector(0).cloned();
        }
        let mut left = None;
        for (sector, from) in (0..).zip((0..BLOCK_SIZE).step_by(size)) {
            let Some(new) = of_sector(sector) else { continue };
            let old = || media.read(lba).unwrap_or_else(|_| Block::zeroed());
            let bytes = left.get_or_insert_with(old).make_mut();
            bytes[from..from + size].copy_from_slice(&new[from..from + size]);
        }
        left
    }

    fn settle_zone(&self, luck: Luck, zone: usize, plp: bool, media: &mut Media) -> SavedZone {
        let Some(table) = &self.zones else { unreachable!("called for each zone") };
        let (cell, start) = (&table.cells[zone], table.start(zone));
        if cell.state == ZoneState::NotWritePointer {
            return self.saved_zone(zone, 0);
        }
        let mut wp = cell.nand;
        if plp {
            // Any prefix of a write that was under way may be there.
            let under_way = cell.accepted - cell.buffered;
            wp = cell.buffered + luck.coin(start, 3) % (under_way + 1);
            for (lba, block) in (start + cell.nand..start + wp).zip(&cell.pending) {
                let _lost = media.write(lba, block.clone());
            }
        }
        self.saved_zone(zone, wp)
    }

    /// The state of a zone without power if its write pointer is at `wp`.
    pub(super) fn saved_zone(&self, zone: usize, wp: u64) -> SavedZone {
        let Some(table) = &self.zones else { unreachable!("called for each zone") };
        let cell = &table.cells[zone];
        let state = match cell.state {
            state @ (ZoneState::NotWritePointer | ZoneState::ReadOnly | ZoneState::Offline) => {
                state
            }
            _ if cell.sealed || wp == table.capacity(zone) => ZoneState::Full,
            _ if wp == 0 => ZoneState::Empty,
            _ => ZoneState::Closed,
        };
        SavedZone { state, wp, sealed: cell.sealed }
    }

    /// The power fails: decides what survives, and ends everything under way.
    pub(super) fn fall(&mut self, seed: u64) {
        if self.fallen.is_some() {
            return;
        }
        let mut media = self.media.clone();
        let zones = self.settle_into(Luck::Seed(seed), &mut media);
        self.fallen = Some(self.state_of(media, zones, 0));
        if let (Some(log), Some(state)) = (&mut self.log, &self.fallen) {
            // The power is gone, so a failure to write the log cannot be reported.
            let _lost = self.media.sync().and_then(|()| log.record(&state.zones));
        }
        self.abandon();
    }

    /// The power is switched off after everything written has become durable.
    pub(super) fn switch_off(&mut self) {
        if self.fallen.is_some() {
            return;
        }
        (self.cut_at, self.observer) = (None, None);
        self.program_everything();
        while self.next_event().is_some() {
            self.step(Nanos::MAX);
            self.program_everything();
        }
        self.settle_all();
        self.fall(0);
    }

    fn state_of(&self, media: Media, zones: Vec<SavedZone>, unreadable: u64) -> DriveState {
        let (spec, identify) = (self.spec.clone(), self.identify.clone());
        DriveState { spec, identify, media, zones, unreadable }
    }
}

/// What becomes of blocks that are not on NAND.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Luck {
    /// The drive's specification and this seed decide.
    Seed(u64),
    /// Everything acknowledged survives, and nothing else.
    Acknowledged,
}

impl Luck {
    pub(super) fn coin(self, lba: Lba, salt: u64) -> u64 {
        match self {
            Self::Seed(seed) => coin(seed, lba, salt),
            Self::Acknowledged => 0,
        }
    }
}

/// A number from a seed, an address and a salt.
fn coin(seed: u64, lba: Lba, salt: u64) -> u64 {
    splitmix64(splitmix64(seed ^ salt.rotate_left(56)) ^ lba)
}

/// The power comes back, and the zones are as they were left.
pub(super) fn restore(table: &mut ZoneTable, zones: &[SavedZone]) {
    for (zone, saved) in zones.iter().enumerate().take(table.cells.len()) {
        if !table.is_conventional(zone) {
            let wp = saved.wp.min(table.geometry.capacity);
            table.restore(zone, saved.state, wp, saved.sealed);
        }
    }
}
