//! The way of a write: accepted, transferred into the buffer, collected into a program unit,
//! programmed.
//!
//! Tokens are taken before the transfer and returned when the program ends (thesis section 5.3.2).
//! On a drive without a buffer there are only two steps: what has been transferred is durable.

use super::model::{Happening, Model};
use super::power::EventKind;
use super::undo::Covered;
use super::zones::Cause;
use crate::media::write_failure;
use crate::{Block, Blocks, Lba, Output, Status, ZoneState};

/// A write that is being transferred into the buffer.
#[derive(Debug)]
pub(super) struct Transfer {
    place: Target,
    lba: Lba,
    fua: bool,
    append: bool,
    /// The blocks of a random write. Their versions are consecutive and begin with this one.
    data: Blocks,
    version: u64,
    blocks: u64,
}

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A sequential zone, between two resets.
    Zone { zone: u32, epoch: u32 },
    /// A conventional zone or drive.
    Random,
}

/// A NAND program under way.
#[derive(Debug)]
pub(super) struct Program {
    number: u64,
    place: Target,
    /// Offsets in the zone.
    from: u64,
    to: u64,
    /// The blocks of a random program.
    random: Vec<(Lba, u64, Block)>,
}

/// A command that completes when certain programs have ended.
#[derive(Debug)]
pub(super) struct Waiter {
    slot: u32,
    /// Only programs of this place; `None` means of any.
    place: Option<Target>,
    /// Only programs that began before this one.
    before: u64,
    left: u64,
    then: Promised,
}

/// What else becomes durable when a command completes.
#[derive(Debug, Default)]
pub(super) struct Promised {
    /// Full zones, with their epochs.
    pub(super) seals: Vec<(u32, u32)>,
    /// Discards and resets.
    pub(super) covers: Covered,
}

impl Model {
    pub(super) fn begin_write(
        &mut self,
        slot: u32,
        lba: Lba,
        data: Blocks,
        fua: bool,
    ) -> Result<(), Status> {
        let place = self.accept(lba, &data)?;
        self.queue_transfer(slot, place, lba, data, fua, false);
        Ok(())
    }

    pub(super) fn begin_append(
        &mut self,
        slot: u32,
        zone: Lba,
        data: Blocks,
        fua: bool,
    ) -> Result<(), Status> {
        let lba = self.append_point(zone)?;
        let place = self.accept(lba, &data)?;
        self.queue_transfer(slot, place, lba, data, fua, true);
        Ok(())
    }

    /// Where an append lands to the zone that starts at `zone`.
    pub(super) fn append_point(&self, zone: Lba) -> Result<Lba, Status> {
        let table = self.zones.as_ref().ok_or(Status::InvalidOpcode)?;
        if zone >= self.identify.blocks {
            return Err(Status::LbaOutOfRange);
        }
        let (number, offset) = table.locate(zone);
        if offset != 0 || table.is_conventional(number) {
            return Err(Status::InvalidField);
        }
        // `accept` refuses a zone that takes no writes, whatever the address.
        Ok(zone + table.cells[number].accepted.min(table.geometry.size - 1))
    }

    /// Checks a write in the order of ZNS 1.1, 2.1.1.5 and 3.3, and takes its place: the next write
    /// to the zone starts after this one.
    pub(super) fn accept(&mut self, lba: Lba, data: &Blocks) -> Result<Target, Status> {
        let blocks = data.len() as u64;
        if blocks == 0 || blocks > u64::from(self.identify.max_transfer) {
            return Err(Status::InvalidField);
        }
        if lba.checked_add(blocks).is_none_or(|end| end > self.identify.blocks) {
            return Err(Status::LbaOutOfRange);
        }
        if self.identify.read_only {
            return Err(Status::WriteProtected);
        }
        let Some(table) = &mut self.zones else { return Ok(Target::Random) };
        let (zone, offset) = table.locate(lba);
        if table.is_conventional(zone) {
            let fits = offset + blocks <= table.geometry.size;
            return if fits { Ok(Target::Random) } else { Err(Status::ZoneBoundary) };
        }
        match table.cells[zone].state {
            ZoneState::Full => return Err(Status::ZoneFull),
            ZoneState::ReadOnly => return Err(Status::ZoneReadOnly),
            ZoneState::Offline => return Err(Status::ZoneOffline),
            _ if offset != table.cells[zone].accepted => return Err(Status::ZoneInvalidWrite),
            _ if offset + blocks > table.geometry.capacity => return Err(Status::ZoneBoundary),
            _ => table.transition(zone, Cause::Write)?,
        }
        let cell = &mut table.cells[zone];
        cell.accepted += blocks;
        if cell.accepted == table.geometry.capacity {
            table.transition(zone, Cause::Filled)?;
        }
        Ok(Target::Zone { zone: zone as u32, epoch: table.cells[zone].epoch })
    }

    fn queue_transfer(
        &mut self,
        slot: u32,
        place: Target,
        lba: Lba,
        data: Blocks,
        fua: bool,
        append: bool,
    ) {
        let blocks = data.len() as u64;
        let (mut version, mut data) = (0, data);
        if let Target::Zone { zone, .. } = place {
            if let Some(table) = &mut self.zones {
                table.cells[zone as usize].pending.extend(data.drain(..));
            }
            data = Blocks::new();
        } else {
            for (lba, block) in (lba..).zip(&data) {
                version = self.cache.accept(lba, block.clone());
            }
            version = (version + 1).saturating_sub(blocks);
        }
        self.slots[slot as usize].transfer =
            Some(Transfer { place, lba, fua, append, data, version, blocks });
        if self.spec.profile().write_through() {
            self.transfer(slot, blocks);
        } else {
            self.starving.push_back(slot);
            self.feed();
        }
    }

    /// Starts the transfers of waiting writes, in order, as long as there are tokens.
    pub(super) fn feed(&mut self) {
        while let Some(&slot) = self.starving.front() {
            let transfer = &self.slots[slot as usize].transfer;
            let blocks = transfer.as_ref().map_or(0, |transfer| transfer.blocks);
            if blocks > self.tokens {
                break;
            }
            self.tokens -= blocks;
            self.starving.pop_front();
            self.transfer(slot, blocks);
        }
        self.make_room();
    }

    /// Units that never fill must not keep tokens for which others wait.
    fn make_room(&mut self) {
        let stuck = !self.starving.is_empty() && self.programs.iter().all(Option::is_none);
        if stuck && (self.cache.gathered() > 0 || !self.gathering.is_empty()) {
            self.program_everything();
        }
    }

    fn transfer(&mut self, slot: u32, blocks: u64) {
        let in_time = self.nand.transfer_in(self.clock, blocks);
        let mut at = self.nand.late(self.clock, in_time);
        let place = self.slots[slot as usize].transfer.as_ref().map(|transfer| transfer.place);
        if let (Some(Target::Zone { zone, .. }), Some(table)) = (place, &mut self.zones) {
            // A zone fills in order, so a late write delays those after it.
            let cell = &mut table.cells[zone as usize];
            at = at.max(cell.arrives);
            cell.arrives = at;
        }
        self.slots[slot as usize].due = at;
        self.schedule(at, Happening::Arrive(slot));
    }

    /// The blocks of the write in `slot` are in the buffer.
    pub(super) fn arrive(&mut self, slot: u32) {
        let Some(transfer) = self.slots[slot as usize].transfer.take() else { return };
        let Transfer { place, lba, fua, append, data, version, blocks } = transfer;
        let stored = match place {
            Target::Zone { zone, epoch } => self.arrive_in_zone(zone, epoch, blocks),
            Target::Random => self.arrive_random(lba, version, data),
        };
        let answer = if append { Output::Appended(lba) } else { Output::Done };
        let answer = stored.map(|()| answer);
        self.start_ticking();
        if fua && answer.is_ok() && self.must_program() {
            self.slots[slot as usize].answer = Some(answer);
            match place {
                Target::Zone { zone, .. } => self.program_zone(zone as usize, true),
                Target::Random => self.program_range(lba, blocks),
            }
            self.wait_for_programs(slot, Some(place), Promised::default());
        } else {
            let answer = answer.and_then(|output| match fua {
                true => self.record().map(|()| output),
                false => Ok(output),
            });
            self.complete(slot, answer);
        }
        self.make_room();
    }

    fn arrive_in_zone(&mut self, zone: u32, epoch: u32, blocks: u64) -> Result<(), Status> {
        let write_through = self.spec.profile().write_through();
        let Some(table) = &mut self.zones else { return Ok(()) };
        let cell = &mut table.cells[zone as usize];
        if cell.epoch != epoch {
            self.tokens += if write_through { 0 } else { blocks };
            return Ok(());
        }
        if cell.buffered == cell.scheduled && !write_through {
            self.gathering.push(zone);
        }
        cell.buffered += blocks;
        if write_through {
            cell.scheduled = cell.buffered;
        }
        if !self.must_program() {
            // What is acknowledged stays, so earlier contents cannot come back.
            self.settle_reset(zone as usize);
        }
        let kept = if self.outlives_us() { self.keep(zone as usize, blocks) } else { Ok(()) };
        if write_through {
            return kept.and(self.move_to_media(zone as usize, blocks));
        }
        self.program_zone(zone as usize, false);
        kept
    }

    /// Writes the newest `blocks` of a zone's buffer to the file, and only then its write pointer:
    /// where the pointer is found, everything below it is there too.
    fn keep(&mut self, zone: usize, blocks: u64) -> Result<(), Status> {
        let Some(table) = &self.zones else { return Ok(()) };
        let (cell, start) = (&table.cells[zone], table.start(zone));
        let held = (cell.buffered - cell.nand) as usize;
        let newest = cell.pending.range(held - blocks as usize..held).cloned();
        let stored = self.media.write_run(start + cell.buffered - blocks, newest);
        stored.and_then(|()| self.note(zone)).map_err(write_failure)
    }

    fn arrive_random(&mut self, lba: Lba, version: u64, data: Blocks) -> Result<(), Status> {
        let gather = !self.spec.profile().write_through();
        let at_once = !gather || self.outlives_us();
        for ((lba, version), block) in (lba..).zip(version..).zip(data) {
            let wanted = self.cache.arrive(lba, version, block.clone(), gather);
            self.tokens += u64::from(gather && !wanted);
            if at_once && self.cache.programmed(lba, version) {
                self.store(lba, block)?;
            }
        }
        if gather {
            self.program_random(false);
        }
        Ok(())
    }

    /// Starts programs for the full units of a zone, and with `partial` also for the rest. A zone
    /// that takes no more writes need not wait for more.
    pub(super) fn program_zone(&mut self, zone: usize, partial: bool) {
        let unit = self.spec.profile().program_unit();
        loop {
            let Some(table) = &mut self.zones else { return };
            let cell = &mut table.cells[zone];
            let last = cell.state == ZoneState::Full && cell.buffered == cell.accepted;
            let gathered = cell.buffered - cell.scheduled;
            if gathered == 0 {
                break self.gathering.retain(|other| *other as usize != zone);
            }
            if gathered < unit && !partial && !last {
                break;
            }
            let (from, to) = (cell.scheduled, cell.scheduled + gathered.min(unit));
            cell.scheduled = to;
            // Zones begin on different dies, and take all dies in turn.
            let stripe = (zone as u64).wrapping_mul(7).wrapping_add(cell.stripes);
            cell.stripes += 1;
            let place = Target::Zone { zone: zone as u32, epoch: cell.epoch };
            self.give_out(place, stripe, from, to, Vec::new());
        }
    }

    /// As [`Self::program_zone`], for random writes.
    pub(super) fn program_random(&mut self, partial: bool) {
        let unit = self.spec.profile().program_unit();
        while self.cache.gathered() >= unit || (partial && self.cache.gathered() > 0) {
            let random = self.cache.take(unit);
            self.random_stripes += 1;
            let blocks = random.len() as u64;
            self.give_out(Target::Random, self.random_stripes, 0, blocks, random);
        }
    }

    /// Starts programs for these blocks alone. That they are forced out says nothing about others.
    fn program_range(&mut self, lba: Lba, blocks: u64) {
        let unit = usize::try_from(self.spec.profile().program_unit()).unwrap_or(usize::MAX);
        for random in self.cache.take_range(lba, blocks).chunks(unit) {
            self.random_stripes += 1;
            let blocks = random.len() as u64;
            self.give_out(Target::Random, self.random_stripes, 0, blocks, random.to_vec());
        }
    }

    /// Starts programs for everything in the buffer.
    pub(super) fn program_everything(&mut self) {
        self.program_random(true);
        for zone in std::mem::take(&mut self.gathering) {
            self.program_zone(zone as usize, true);
        }
    }

    fn give_out(
        &mut self,
        place: Target,
        stripe: u64,
        from: u64,
        to: u64,
        random: Vec<(Lba, u64, Block)>,
    ) {
        let end = self.nand.program(self.clock, stripe, to - from);
        let program = Program { number: self.next_program, place, from, to, random };
        self.next_program += 1;
        let at = self.programs.iter().position(Option::is_none).unwrap_or_else(|| {
            self.programs.push(None);
            self.programs.len() - 1
        });
        self.programs[at] = Some(program);
        self.schedule(end, Happening::Program(at as u32));
    }

    /// A program has ended: its blocks are durable, and its tokens come back.
    pub(super) fn end_program(&mut self, at: u32) {
        let Some(program) = self.programs[at as usize].take() else { return };
        let blocks = program.to - program.from;
        let mut lba = program.random.first().map_or(0, |(lba, ..)| *lba);
        let stored = match program.place {
            Target::Zone { zone, epoch } => {
                let Some(table) = &mut self.zones else { return };
                lba = table.start(zone as usize) + program.from;
                let cell = &mut table.cells[zone as usize];
                let current = cell.epoch == epoch;
                let moved = if current { cell.programmed(program.from, program.to) } else { 0 };
                self.move_to_media(zone as usize, moved)
            }
            Target::Random => self.store_random(program.random),
        };
        self.write_fault = self.write_fault.or(stored.err());
        self.tokens += blocks;
        let number = self.stats.programs;
        self.stats.programs += 1;
        self.stats.blocks_programmed += blocks;
        if self.observer.is_some() || self.cut_at.is_some() {
            self.witness(EventKind::Program { number, lba, blocks });
        }
        if self.fallen.is_none() {
            self.wake_waiters(program.number, program.place);
            self.feed();
        }
    }

    fn store_random(&mut self, blocks: Vec<(Lba, u64, Block)>) -> Result<(), Status> {
        for (lba, version, block) in blocks {
            if self.cache.programmed(lba, version) {
                self.store(lba, block)?;
            }
        }
        Ok(())
    }

    fn store(&mut self, lba: Lba, block: Block) -> Result<(), Status> {
        self.undo.fill(lba);
        self.media.write(lba, block).map_err(write_failure)
    }

    /// Moves a zone's wp_nand up by `blocks`, whose bytes go to the media.
    pub(super) fn move_to_media(&mut self, zone: usize, blocks: u64) -> Result<(), Status> {
        if blocks > 0 {
            self.settle_reset(zone);
        }
        let kept = self.outlives_us();
        let Some(table) = &mut self.zones else { return Ok(()) };
        let start = table.start(zone);
        let cell = &mut table.cells[zone];
        let blocks = cell.pending.len().min(blocks as usize);
        let run = cell.pending.drain(..blocks);
        if kept {
            drop(run);
        } else {
            self.media.write_run(start + cell.nand, run).map_err(write_failure)?;
        }
        cell.nand += blocks as u64;
        Ok(())
    }

    /// Completes `slot` when the programs that have begun so far, or only those of `place`, have
    /// ended. If there are none, completes it after the firmware's time.
    pub(super) fn wait_for_programs(&mut self, slot: u32, place: Option<Target>, then: Promised) {
        let programs = self.programs.iter().flatten();
        let left = programs.filter(|p| place.is_none_or(|place| p.place == place)).count() as u64;
        let waiter = Waiter { slot, place, before: self.next_program, left, then };
        if left == 0 {
            self.release(&waiter);
        } else {
            self.waiters.push(waiter);
        }
    }

    fn wake_waiters(&mut self, number: u64, place: Target) {
        for waiter in &mut self.waiters {
            let concerned = waiter.place.is_none_or(|wanted| wanted == place);
            waiter.left -= u64::from(concerned && number < waiter.before);
        }
        while let Some(at) = self.waiters.iter().position(|waiter| waiter.left == 0) {
            let waiter = self.waiters.remove(at);
            self.release(&waiter);
        }
    }

    fn release(&mut self, waiter: &Waiter) {
        for &(zone, epoch) in &waiter.then.seals {
            let Some(table) = &mut self.zones else { break };
            let cell = &mut table.cells[zone as usize];
            cell.sealed |= cell.epoch == epoch;
            if cell.sealed {
                self.settle_reset(zone as usize);
            }
        }
        self.settle_covered(&waiter.then.covers);
        let answer = self.slots[waiter.slot as usize].answer.take().unwrap_or(Ok(Output::Done));
        let answer = answer.and_then(|output| {
            self.write_fault.map_or_else(|| self.record(), Err).map(|()| output)
        });
        let firmware = self.spec.profile().firmware_flush_ns.value;
        self.finish_at(waiter.slot, self.clock + firmware, answer);
    }

    /// Starts the clock of the internal flush if there is something to flush.
    fn start_ticking(&mut self) {
        let period = self.spec.profile().internal_flush_ns.value;
        let something = self.cache.gathered() > 0 || !self.gathering.is_empty();
        if period > 0 && something && !self.ticking {
            self.ticking = true;
            let next = (self.clock / period + 1).saturating_mul(period);
            self.schedule(next, Happening::Tick);
        }
    }

    /// The drive flushes by itself.
    pub(super) fn tick(&mut self) {
        self.ticking = false;
        self.stats.internal_flushes += 1;
        self.program_everything();
    }
}
