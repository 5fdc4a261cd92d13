//! The zones of a drive: state machine, resources, and the pointers of each zone.
//!
//! [`ZoneTable::transition`] is the only place where a zone changes state (ZNS 1.1, section 2.1.1,
//! figure 8 "Zone State Machine"). Four pointers move through a sequential zone. Each is an offset
//! from its start, and they never pass one another:
//!
//! `nand` (programmed) ≤ `scheduled` (program begun) ≤ `buffered` (wp_zns) ≤ `accepted` (where the
//! next write must start). `nand` is the wp_nand of the thesis: blocks above it are in `pending`,
//! blocks below it are on the media.

use std::collections::VecDeque;

use cores::Nanos;
use smallvec::SmallVec;

use super::undo::Before;
use crate::{Block, Lba, Status, Zone, ZoneGeometry, ZoneKind, ZoneState};

/// What makes a zone change its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Write,
    /// The last block of the capacity was taken.
    Filled,
    Open,
    Close,
    Finish,
    Reset,
    /// By command, if the zone is read only.
    Offline,
    /// Another zone needs the open resource.
    Evict,
    /// An injected failure.
    Fail(ZoneState),
}

/// A zone as the drive keeps it.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) state: ZoneState,
    pub(super) accepted: u64,
    pub(super) buffered: u64,
    pub(super) scheduled: u64,
    pub(super) nand: u64,
    /// When the last write under way is in the buffer. No later write may be there earlier.
    pub(super) arrives: Nanos,
    /// Finished by command, durably.
    pub(super) sealed: bool,
    /// While the last reset is not durable: the state to which a cut that undoes it returns.
    pub(super) before: Option<Before>,
    /// Counts resets. Whatever was under way before one is void.
    pub(super) epoch: u32,
    /// Program units begun so far, which select the die.
    pub(super) stripes: u64,
    /// Blocks `nand..accepted`.
    pub(super) pending: VecDeque<Block>,
    /// Programs that ended before an earlier one did, as `from..to`.
    early: SmallVec<[(u64, u64); 2]>,
}

impl Cell {
    fn new(state: ZoneState) -> Self {
        Self {
            state,
            accepted: 0,
            buffered: 0,
            scheduled: 0,
            nand: 0,
            arrives: 0,
            sealed: false,
            before: None,
            epoch: 0,
            stripes: 0,
            pending: VecDeque::new(),
            early: SmallVec::new(),
        }
    }

    /// Sets all four pointers to `wp`, with nothing pending.
    pub(super) fn settle(&mut self, wp: u64) {
        (self.accepted, self.buffered, self.scheduled, self.nand) = (wp, wp, wp, wp);
        self.pending.clear();
        self.early.clear();
    }

    /// The program of `from..to` has ended. Returns how many blocks `nand` may advance, in order.
    pub(super) fn programmed(&mut self, from: u64, to: u64) -> u64 {
        self.early.push((from, to));
        let mut reach = self.nand;
        while let Some(at) = self.early.iter().position(|(from, _)| *from == reach) {
            reach = self.early.swap_remove(at).1;
        }
        reach - self.nand
    }
}

/// All zones of a drive.
#[derive(Debug)]
pub(super) struct ZoneTable {
    pub(super) geometry: ZoneGeometry,
    pub(super) cells: Vec<Cell>,
    open: u32,
    active: u32,
    /// Implicitly open zones, the one open longest first: the order of eviction.
    implicit: VecDeque<u32>,
}

/// Whether it holds an open resource.
fn is_open(state: ZoneState) -> bool {
    matches!(state, ZoneState::ImplicitlyOpen | ZoneState::ExplicitlyOpen)
}

/// Whether it holds an active resource.
fn is_active(state: ZoneState) -> bool {
    is_open(state) || state == ZoneState::Closed
}

impl ZoneTable {
    /// Empty zones behind the conventional ones.
    pub(super) fn new(geometry: ZoneGeometry) -> Self {
        let cell = |zone| {
            let conventional = zone < geometry.conventional;
            Cell::new(if conventional { ZoneState::NotWritePointer } else { ZoneState::Empty })
        };
        let cells = (0..geometry.count).map(cell).collect();
        Self { geometry, cells, open: 0, active: 0, implicit: VecDeque::new() }
    }

    /// Puts a zone into the state in which a drive that was switched off left it.
    pub(super) fn restore(&mut self, zone: usize, state: ZoneState, wp: u64, sealed: bool) {
        let cell = &mut self.cells[zone];
        cell.state = state;
        cell.sealed = sealed;
        cell.settle(wp);
        self.active += u32::from(is_active(state));
    }

    /// The zone of `lba`, and the offset in it. The caller has checked that there is one.
    pub(super) fn locate(&self, lba: Lba) -> (usize, u64) {
        ((lba / self.geometry.size) as usize, lba % self.geometry.size)
    }

    /// First block of zone number `zone`.
    pub(super) fn start(&self, zone: usize) -> Lba {
        zone as u64 * self.geometry.size
    }

    pub(super) fn is_conventional(&self, zone: usize) -> bool {
        zone < self.geometry.conventional as usize
    }

    /// Blocks that can be written in zone number `zone`.
    pub(super) fn capacity(&self, zone: usize) -> u64 {
        if self.is_conventional(zone) { self.geometry.size } else { self.geometry.capacity }
    }

    /// What a report says of zone number `zone`.
    pub(super) fn describe(&self, zone: usize) -> Zone {
        let (cell, start) = (&self.cells[zone], self.start(zone));
        let conventional = self.is_conventional(zone);
        let wp = match cell.state {
            ZoneState::NotWritePointer | ZoneState::Full => self.geometry.size,
            _ => cell.accepted,
        };
        Zone {
            start,
            size: self.geometry.size,
            capacity: self.capacity(zone),
            wp: start + wp,
            kind: if conventional {
                ZoneKind::Conventional
            } else {
                ZoneKind::SequentialWriteRequired
            },
            state: cell.state,
        }
    }

    /// Changes the state of zone number `zone` if that is allowed, and takes and returns resources.
    pub(super) fn transition(&mut self, zone: usize, cause: Cause) -> Result<(), Status> {
        let from = self.cells[zone].state;
        let to = next_state(from, cause)?;
        if is_active(to) && !is_active(from) && Some(self.active) == self.geometry.max_active {
            return Err(Status::TooManyActiveZones);
        }
        if is_open(to) && !is_open(from) && self.geometry.max_open.is_some_and(|n| self.open >= n) {
            let victim = *self.implicit.front().ok_or(Status::TooManyOpenZones)?;
            self.transition(victim as usize, Cause::Evict)?;
        }
        self.open = self.open + u32::from(is_open(to)) - u32::from(is_open(from));
        self.active = self.active + u32::from(is_active(to)) - u32::from(is_active(from));
        if from != to {
            self.track_implicit(zone as u32, from, to);
            self.cells[zone].state = to;
        }
        Ok(())
    }

    fn track_implicit(&mut self, zone: u32, from: ZoneState, to: ZoneState) {
        if from == ZoneState::ImplicitlyOpen {
            self.implicit.retain(|open| *open != zone);
        }
        if to == ZoneState::ImplicitlyOpen {
            self.implicit.push_back(zone);
        }
    }

    /// How many zones hold an open, and an active, resource.
    #[cfg(test)]
    pub(super) fn resources(&self) -> (u32, u32) {
        (self.open, self.active)
    }
}

/// The state machine itself: ZNS 1.1, 2.1.1.3 and the state tables of 3.4.3 (Zone Management Send).
fn next_state(from: ZoneState, cause: Cause) -> Result<ZoneState, Status> {
    use ZoneState::{
        Closed, Empty, ExplicitlyOpen, Full, ImplicitlyOpen, NotWritePointer, Offline, ReadOnly,
    };
    Ok(match (from, cause) {
        (NotWritePointer, _) => return Err(Status::InvalidField),
        (_, Cause::Fail(to)) => to,
        (Full, Cause::Write) => return Err(Status::ZoneFull),
        (ReadOnly, Cause::Write) => return Err(Status::ZoneReadOnly),
        (Offline, Cause::Write) => return Err(Status::ZoneOffline),
        (ExplicitlyOpen, Cause::Write)
        | (Empty | ImplicitlyOpen | ExplicitlyOpen | Closed, Cause::Open) => ExplicitlyOpen,
        (Empty | ImplicitlyOpen | Closed, Cause::Write) => ImplicitlyOpen,
        (ImplicitlyOpen | ExplicitlyOpen, Cause::Filled) => Full,
        (ImplicitlyOpen, Cause::Evict)
        | (ImplicitlyOpen | ExplicitlyOpen | Closed, Cause::Close) => Closed,
        (Empty | ImplicitlyOpen | ExplicitlyOpen | Closed | Full, Cause::Finish) => Full,
        (Empty | ImplicitlyOpen | ExplicitlyOpen | Closed | Full, Cause::Reset) => Empty,
        (ReadOnly, Cause::Offline) => Offline,
        _ => return Err(Status::InvalidZoneStateTransition),
    })
}
