//! Everything a drive does except writing: reads, flush, discard, reports and zone management, and
//! a shortcut for a drive that has no buffer and takes no time.

use std::io;

use super::model::{Answer, Model};
use super::power::SavedZone;
use super::write::{Promised, Target};
use super::zones::{Cause, Cell};
use crate::media::write_failure;
use crate::{Block, Blocks, Command, Lba, Output, Status, Zone, ZoneAction, ZoneState};

impl Model {
    /// Executes a command completely: [`super::Timing::Instant`] without a write buffer.
    pub(super) fn at_once(&mut self, command: Command) -> Answer {
        match command {
            Command::Read { lba, blocks } => self.read(lba, blocks).map(Output::Data),
            Command::Write { lba, data, .. } => self.write_at_once(lba, data),
            Command::Append { zone, data, .. } => {
                let lba = self.append_point(zone)?;
                self.write_at_once(lba, data).map(|_| Output::Appended(lba))
            }
            Command::Flush => self.recorded(),
            Command::Discard { lba, blocks } => {
                self.discard(lba, blocks)?;
                Ok(Output::Done)
            }
            Command::ReportZones { lba, max } => self.report(lba, max),
            Command::ManageZone { action, zone } => {
                self.manage(action, zone)?;
                self.recorded()
            }
        }
    }

    fn write_at_once(&mut self, lba: Lba, data: Blocks) -> Answer {
        let place = self.accept(lba, &data)?;
        if let (Target::Zone { zone, .. }, Some(table)) = (place, &mut self.zones) {
            let cell = &mut table.cells[zone as usize];
            cell.settle(cell.accepted);
        }
        let stored = self.media.write_run(lba, data);
        let noted = stored.and_then(|()| match place {
            Target::Zone { zone, .. } => self.note(zone as usize),
            Target::Random => Ok(()),
        });
        noted.map(|()| Output::Done).map_err(write_failure)
    }

    pub(super) fn begin_read(&mut self, slot: u32, lba: Lba, blocks: u32) -> Result<(), Status> {
        let data = self.read(lba, blocks)?;
        if self.instant {
            self.complete(slot, Ok(Output::Data(data)));
            return Ok(());
        }
        let unit = self.spec.profile().program_unit();
        let end = lba + u64::from(blocks);
        let mut pieces: smallvec::SmallVec<[(u64, u64); 8]> = smallvec::SmallVec::new();
        let mut at = lba;
        while at < end {
            let next = (at / unit + 1).saturating_mul(unit).min(end);
            if !self.spec.profile().write_through() && self.is_on_nand(at) {
                pieces.push((at / unit, next - at));
            }
            at = next;
        }
        let done = self.nand.transfer_out(self.clock, u64::from(blocks), pieces.into_iter());
        self.finish_at(slot, done, Ok(Output::Data(data)));
        Ok(())
    }

    /// The newest accepted contents of a range, which may cross zones. What was not written is
    /// zero.
    pub(super) fn read(&self, lba: Lba, blocks: u32) -> Result<Blocks, Status> {
        if blocks == 0 || blocks > self.identify.max_transfer {
            return Err(Status::InvalidField);
        }
        let end = lba.checked_add(u64::from(blocks)).ok_or(Status::LbaOutOfRange)?;
        if end > self.identify.blocks {
            return Err(Status::LbaOutOfRange);
        }
        let (mut data, mut at) = (Blocks::with_capacity(blocks as usize), lba);
        while at < end {
            if let Some(block) = self.buffered(at)? {
                data.push(block);
                at += 1;
                continue;
            }
            let stored = (at + 1..end).take_while(|&lba| self.buffered(lba) == Ok(None)).count();
            let run = 1 + stored as u64;
            self.media.read_run(at, run, &mut data).map_err(|_| Status::UnrecoveredRead)?;
            at += run;
        }
        Ok(data)
    }

    /// A block that need not be read from the media.
    fn buffered(&self, lba: Lba) -> Result<Option<Block>, Status> {
        if let Some(table) = &self.zones {
            let (zone, offset) = table.locate(lba);
            let cell = &table.cells[zone];
            if cell.state == ZoneState::Offline {
                return Err(Status::ZoneOffline);
            }
            if !table.is_conventional(zone) && offset >= cell.nand {
                let pending = cell.pending.get((offset - cell.nand) as usize);
                return Ok(Some(pending.cloned().unwrap_or_else(Block::zeroed)));
            }
        }
        let hole = || self.undo.is_hole(lba).then(Block::zeroed);
        Ok(self.cache.newest(lba).cloned().or_else(hole))
    }

    /// Shows one block as [`Self::read`] returns it, or zeroes instead of an error.
    pub(super) fn look(&self, lba: Lba, see: &mut dyn FnMut(&Block)) {
        let buffered = if lba < self.identify.blocks { self.buffered(lba) } else { Ok(None) };
        match buffered {
            Ok(Some(block)) => see(&block),
            Ok(None) if self.media.look(lba, see).is_ok() => {}
            Ok(None) | Err(_) => see(&Block::zeroed()),
        }
    }

    fn is_on_nand(&self, lba: Lba) -> bool {
        if let Some(table) = &self.zones {
            let (zone, offset) = table.locate(lba);
            if !table.is_conventional(zone) {
                return offset < table.cells[zone].nand;
            }
        }
        self.cache.newest(lba).is_none() && !self.undo.is_hole(lba)
    }

    /// Begins a flush, at once or after those that came before.
    pub(super) fn queue_flush(&mut self, slot: u32) {
        if self.spec.profile().flushes_alone() {
            self.flushes.push_back(slot);
            if self.flushes.len() > 1 {
                return;
            }
        }
        self.begin_flush(slot);
    }

    /// If `slot` was the flush under way, the next one begins.
    pub(super) fn flush_ended(&mut self, slot: u32) {
        if self.flushes.front() == Some(&slot) && self.fallen.is_none() {
            self.flushes.pop_front();
            if let Some(&next) = self.flushes.front() {
                self.begin_flush(next);
            }
        }
    }

    fn begin_flush(&mut self, slot: u32) {
        if self.must_program() {
            let covers = self.changes_completed();
            self.program_everything();
            self.wait_for_programs(slot, None, Promised { covers, ..Promised::default() });
        } else {
            let at = self.clock + self.spec.profile().firmware_flush_ns.value;
            let answer = self.recorded();
            self.finish_at(slot, at, answer);
        }
    }

    /// Whether a flush has to program what is buffered.
    pub(super) fn must_program(&self) -> bool {
        self.spec.profile().volatile()
    }

    /// Whether acknowledged data outlives this process: on a drive in a file that loses nothing
    /// with its power. The data goes to the file at once, and not again when it is programmed.
    pub(super) fn outlives_us(&self) -> bool {
        self.log.is_some() && !self.spec.profile().volatile()
    }

    pub(super) fn begin_discard(&mut self, slot: u32, lba: Lba, n: u64) -> Result<(), Status> {
        self.begin_change(slot);
        self.discard(lba, n)?;
        let at = self.clock + self.spec.profile().firmware_manage_ns.value;
        self.finish_at(slot, at, Ok(Output::Done));
        Ok(())
    }

    /// Deallocates a range of random-write blocks. Sequential zones are reset instead.
    fn discard(&mut self, lba: Lba, blocks: u64) -> Result<(), Status> {
        let end = lba.checked_add(blocks).ok_or(Status::LbaOutOfRange)?;
        if end > self.identify.blocks {
            return Err(Status::LbaOutOfRange);
        }
        if self.identify.read_only {
            return Err(Status::WriteProtected);
        }
        if let Some(table) = &self.zones {
            let random = u64::from(table.geometry.conventional) * table.geometry.size;
            if end > random {
                return Err(Status::InvalidField);
            }
        }
        self.cache.discard(lba, blocks);
        self.forget_range(lba, end)
    }

    pub(super) fn begin_report(&mut self, slot: u32, lba: Lba, max: u32) -> Result<(), Status> {
        let zones = self.report(lba, max)?;
        let at = self.clock + self.spec.profile().firmware_manage_ns.value;
        self.finish_at(slot, at, Ok(zones));
        Ok(())
    }

    pub(super) fn report(&self, lba: Lba, max: u32) -> Answer {
        let table = self.zones.as_ref().ok_or(Status::InvalidOpcode)?;
        if lba >= self.identify.blocks {
            return Err(Status::LbaOutOfRange);
        }
        let (first, _) = table.locate(lba);
        let zones: Vec<Zone> = (first..table.cells.len())
            .take(max as usize)
            .map(|zone| table.describe(zone))
            .collect();
        Ok(Output::Zones(zones))
    }

    pub(super) fn begin_manage(
        &mut self,
        slot: u32,
        action: ZoneAction,
        zone: Option<Lba>,
    ) -> Result<(), Status> {
        if action == ZoneAction::Reset {
            self.begin_change(slot);
        }
        let seals = self.manage(action, zone)?;
        let profile = self.spec.profile();
        let erase = if action == ZoneAction::Reset { profile.erase_ns.value } else { 0 };
        let at = self.clock + profile.firmware_manage_ns.value + erase;
        if action == ZoneAction::Finish && self.must_program() {
            self.wait_for_programs(slot, None, Promised { seals, ..Promised::default() });
        } else {
            let answer = self.recorded();
            self.finish_at(slot, at, answer);
        }
        Ok(())
    }

    /// Changes the state of one zone, or of all to which the action applies. Returns which, with
    /// their epochs.
    fn manage(&mut self, action: ZoneAction, zone: Option<Lba>) -> Result<Vec<(u32, u32)>, Status> {
        let table = self.zones.as_ref().ok_or(Status::InvalidOpcode)?;
        if self.identify.read_only {
            return Err(Status::WriteProtected);
        }
        let zones: Vec<usize> = match zone {
            Some(lba) if lba >= self.identify.blocks => return Err(Status::LbaOutOfRange),
            Some(lba) => match table.locate(lba) {
                (zone, 0) => vec![zone],
                _ => return Err(Status::InvalidField),
            },
            None => {
                let cells = table.cells.iter().enumerate();
                cells.filter(|(_, cell)| action.selects(cell.state)).map(|(z, _)| z).collect()
            }
        };
        zones.into_iter().map(|zone| self.manage_one(action, zone)).collect()
    }

    fn manage_one(&mut self, action: ZoneAction, zone: usize) -> Result<(u32, u32), Status> {
        let must_program = self.must_program();
        let table = self.zones.as_mut().ok_or(Status::InvalidOpcode)?;
        match action {
            ZoneAction::Open => table.transition(zone, Cause::Open)?,
            ZoneAction::Close => table.transition(zone, Cause::Close)?,
            ZoneAction::Finish => {
                table.transition(zone, Cause::Finish)?;
                let cell = &mut table.cells[zone];
                cell.sealed |= !must_program || cell.pending.is_empty();
                if cell.sealed {
                    self.settle_reset(zone);
                }
                self.program_zone(zone, true);
            }
            ZoneAction::Reset => {
                table.transition(zone, Cause::Reset)?;
                self.empty_zone(zone)?;
            }
            ZoneAction::Offline => table.transition(zone, Cause::Offline)?,
        }
        let epoch = self.zones.as_ref().map_or(0, |table| table.cells[zone].epoch);
        Ok((zone as u32, epoch))
    }

    /// Everything a reset does besides changing the state.
    fn empty_zone(&mut self, zone: usize) -> Result<(), Status> {
        self.forget_zone(zone)?;
        let Some(table) = &mut self.zones else { return Ok(()) };
        let cell = &mut table.cells[zone];
        // Blocks that are being transferred or programmed return their tokens when that ends.
        self.tokens += cell.buffered - cell.scheduled;
        cell.epoch = cell.epoch.wrapping_add(1);
        cell.sealed = false;
        cell.settle(0);
        self.gathering.retain(|other| *other as usize != zone);
        self.stats.resets += 1;
        self.feed();
        Ok(())
    }

    /// Makes a zone fail: it becomes read only or offline.
    pub(super) fn fail_zone(&mut self, lba: Lba, state: ZoneState) -> Result<(), Status> {
        let table = self.zones.as_mut().ok_or(Status::InvalidOpcode)?;
        if lba >= self.identify.blocks {
            return Err(Status::LbaOutOfRange);
        }
        let (zone, _) = table.locate(lba);
        if !matches!(state, ZoneState::ReadOnly | ZoneState::Offline) {
            return Err(Status::InvalidField);
        }
        table.transition(zone, Cause::Fail(state))?;
        self.settle_reset(zone);
        Ok(())
    }

    /// `Done`, once the media and the zone log are on stable storage.
    pub(super) fn recorded(&mut self) -> Answer {
        self.record().map(|()| Output::Done)
    }

    /// Makes the media survive the host's power, if a file is behind them.
    pub(super) fn record(&mut self) -> Result<(), Status> {
        let zones = if self.log.is_some() { self.durable_zones() } else { Vec::new() };
        let synced = self.media.sync();
        let recorded = synced.and_then(|()| match &mut self.log {
            Some(log) => log.record(&zones),
            None => Ok(()),
        });
        recorded.map_err(write_failure)
    }

    /// Records a zone's write pointer for the next process that opens the drive. The bytes are
    /// there already.
    pub(super) fn note(&mut self, zone: usize) -> io::Result<()> {
        if !self.outlives_us() {
            return Ok(());
        }
        let wp = self.zones.as_ref().map_or(0, |table| table.cells[zone].buffered);
        let state = self.saved_zone(zone, wp);
        self.log.as_mut().map_or(Ok(()), |log| log.note(zone, state))
    }

    /// The zones, as the next process would find them if this one died.
    pub(super) fn durable_zones(&self) -> Vec<SavedZone> {
        let cells = self.zones.as_ref().map_or(&[][..], |table| &table.cells);
        let buffer_too = self.outlives_us();
        let wp = |cell: &Cell| if buffer_too { cell.buffered } else { cell.nand };
        let saved = |(zone, cell)| {
            self.zone_before(zone).unwrap_or_else(|| self.saved_zone(zone, wp(cell)))
        };
        cells.iter().enumerate().map(saved).collect()
    }
}
