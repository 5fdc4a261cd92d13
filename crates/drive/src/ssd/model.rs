//! The drive as a small simulation: commands come in, events happen in the order of time, and
//! completions come out.
//!
//! The model does nothing by itself. Any call of the drive first lets it catch up with the present
//! ([`Model::advance`]). Events have their own times, so the result does not depend on who calls
//! when. In [`Timing::Instant`](super::Timing) the model has a time of its own: each command is
//! carried to its end at once, and programs end in the background as later commands take time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use cores::Nanos;

use super::cache::Cache;
use super::nand::Nand;
use super::power::{AfterCut, CutPoint, DriveState, Event, EventKind, Moment, Observer, restore};
use super::stats::Stats;
use super::undo::{Change, Undo};
use super::write::{Program, Transfer, Waiter};
use super::zones::ZoneTable;
use crate::{Command, Completion, Identify, Media, Output, Spec, Status};

pub(super) type Answer = Result<Output, Status>;

/// What will happen at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Happening {
    /// The command in this slot completes with the answer it has.
    Finish(u32),
    /// The blocks of the write in this slot are in the buffer.
    Arrive(u32),
    /// This NAND program ends.
    Program(u32),
    /// The drive flushes by itself.
    Tick,
}

/// A command under way.
#[derive(Debug)]
pub(super) struct Slot {
    queue: u16,
    cid: u16,
    /// It is not done before this.
    pub(super) due: Nanos,
    /// The answer with which [`Happening::Finish`] completes it.
    pub(super) answer: Option<Answer>,
    /// For a write: what is transferred.
    pub(super) transfer: Option<Transfer>,
    /// For a discard or a reset: its number.
    pub(super) change: Option<Change>,
}

#[derive(Debug, Default)]
struct Lane {
    done: VecDeque<Completion>,
    under_way: Vec<u32>,
    /// Its host is gone, so completions are dropped.
    closed: bool,
}

/// The whole state of a drive. One lock protects it.
pub(super) struct Model {
    pub(super) spec: Spec,
    pub(super) identify: Identify,
    pub(super) instant: bool,
    pub(super) media: Media,
    pub(super) zones: Option<ZoneTable>,
    pub(super) cache: Cache,
    pub(super) nand: Nand,
    pub(super) undo: Undo,
    pub(super) stats: Stats,
    pub(super) clock: Nanos,
    events: BinaryHeap<Reverse<(Nanos, u64, Happening)>>,
    sequence: u64,
    pub(super) slots: Vec<Slot>,
    free_slots: Vec<u32>,
    lanes: Vec<Lane>,
    /// Blocks the write buffer still has room for.
    pub(super) tokens: u64,
    /// Writes that wait for tokens.
    pub(super) starving: VecDeque<u32>,
    /// Programs under way; a place that is free is `None`.
    pub(super) programs: Vec<Option<Program>>,
    pub(super) next_program: u64,
    pub(super) random_stripes: u64,
    /// Zones with blocks that wait until they fill a program unit.
    pub(super) gathering: Vec<u32>,
    pub(super) waiters: Vec<Waiter>,
    /// Where flushes do not overlap: the one under way, and those behind it.
    pub(super) flushes: VecDeque<u32>,
    pub(super) ticking: bool,
    /// The media failed after a write had been acknowledged, so no flush may succeed from now on.
    pub(super) write_fault: Option<Status>,
    pub(super) observer: Option<Observer>,
    pub(super) cut_at: Option<(CutPoint, u64)>,
    pub(super) after_cut: AfterCut,
    pub(super) fallen: Option<DriveState>,
    pub(super) log: Option<Box<dyn super::ZoneLog>>,
}

impl Model {
    pub(super) fn new(state: DriveState, seed: u64, instant: bool) -> Self {
        let DriveState { spec, identify, media, zones: saved, .. } = state;
        let lanes = (0..identify.queues).map(|_| Lane::default()).collect();
        let mut zones = identify.zones.map(ZoneTable::new);
        if let Some(table) = &mut zones {
            restore(table, &saved);
        }
        Self {
            instant,
            media,
            zones,
            cache: Cache::default(),
            undo: Undo::default(),
            // Commands that take no time are never late.
            nand: Nand::new(spec.profile().clone(), seed, spec.is_unkind() && !instant),
            stats: Stats::default(),
            clock: 0,
            events: BinaryHeap::new(),
            sequence: 0,
            slots: Vec::new(),
            free_slots: Vec::new(),
            lanes,
            tokens: spec.profile().buffer(),
            starving: VecDeque::new(),
            programs: Vec::new(),
            next_program: 0,
            random_stripes: 0,
            gathering: Vec::new(),
            waiters: Vec::new(),
            flushes: VecDeque::new(),
            ticking: false,
            write_fault: None,
            observer: None,
            cut_at: None,
            after_cut: AfterCut::Dead,
            fallen: None,
            log: None,
            spec,
            identify,
        }
    }

    /// Takes a command at the model's present time.
    pub(super) fn submit(&mut self, queue: u16, cid: u16, command: Command) {
        if self.lanes.get(usize::from(queue)).is_none_or(|lane| lane.closed) {
            return;
        }
        let number = self.stats.commands;
        self.stats.count(&command);
        if self.fallen.is_none() && (self.observer.is_some() || self.cut_at.is_some()) {
            self.witness(EventKind::Command { number, command: &command });
        }
        if self.fallen.is_some() {
            let answer = self.answer_without_power(command);
            return self.done(queue, cid, answer);
        }
        if self.instant && self.spec.profile().write_through() {
            let answer = self.at_once(command);
            return self.done(queue, cid, answer);
        }
        let slot = self.take_slot(queue, cid);
        if let Err(status) = self.begin(slot, command) {
            self.complete(slot, Err(status));
        }
        while self.instant && self.is_under_way(queue, slot) && self.step(Nanos::MAX) {}
    }

    fn begin(&mut self, slot: u32, command: Command) -> Result<(), Status> {
        match command {
            Command::Read { lba, blocks } => self.begin_read(slot, lba, blocks),
            Command::Write { lba, data, fua } => self.begin_write(slot, lba, data, fua),
            Command::Append { zone, data, fua } => self.begin_append(slot, zone, data, fua),
            Command::Flush => {
                self.queue_flush(slot);
                Ok(())
            }
            Command::Discard { lba, blocks } => self.begin_discard(slot, lba, blocks),
            Command::ReportZones { lba, max } => self.begin_report(slot, lba, max),
            Command::ManageZone { action, zone } => self.begin_manage(slot, action, zone),
        }
    }

    /// Carries out everything that is due by `now`.
    pub(super) fn advance(&mut self, now: Nanos) {
        while self.step(now) {}
        self.clock = self.clock.max(now);
    }

    /// Carries out the next event if it is due by `limit`; false if none is.
    pub(super) fn step(&mut self, limit: Nanos) -> bool {
        let next = self.next_event().filter(|at| *at <= limit);
        if let Some((CutPoint::Time(cut), seed)) = self.cut_at {
            let cut_is_next = next.map_or(cut <= limit, |at| cut < at);
            if cut_is_next && limit != Nanos::MAX || next.is_some_and(|at| cut < at) {
                self.clock = self.clock.max(cut);
                self.fall(seed);
                return false;
            }
        }
        let Some(Reverse((at, _, happening))) = next.and_then(|_| self.events.pop()) else {
            return false;
        };
        self.clock = self.clock.max(at);
        match happening {
            Happening::Finish(slot) => self.finish(slot),
            Happening::Arrive(slot) => self.arrive(slot),
            Happening::Program(program) => self.end_program(program),
            Happening::Tick => self.tick(),
        }
        true
    }

    pub(super) fn next_event(&self) -> Option<Nanos> {
        self.events.peek().map(|Reverse((at, ..))| *at)
    }

    pub(super) fn schedule(&mut self, at: Nanos, happening: Happening) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, happening)));
    }

    /// Completes `slot` with `answer` at `at`, or later if the command is late.
    pub(super) fn finish_at(&mut self, slot: u32, at: Nanos, answer: Answer) {
        let at = self.nand.late(self.clock, at);
        let place = &mut self.slots[slot as usize];
        place.due = at;
        place.answer = Some(answer);
        self.schedule(at, Happening::Finish(slot));
    }

    fn finish(&mut self, slot: u32) {
        let answer = self.slots[slot as usize].answer.take();
        self.complete(slot, answer.unwrap_or(Ok(Output::Done)));
    }

    pub(super) fn complete(&mut self, slot: u32, answer: Answer) {
        let place = &mut self.slots[slot as usize];
        let (queue, cid) = (place.queue, place.cid);
        place.transfer = None;
        let change = place.change.take();
        let lane = &mut self.lanes[usize::from(queue)];
        lane.under_way.retain(|other| *other != slot);
        if !lane.closed {
            lane.done.push_back(Completion { cid, result: answer });
        }
        self.free_slots.push(slot);
        self.flush_ended(slot);
        if let Some(change) = change.filter(|_| self.fallen.is_none()) {
            self.end_change(change);
        }
    }

    /// Discards and resets that have not completed.
    pub(super) fn changes_under_way(&self) -> impl Iterator<Item = Change> + '_ {
        let slots = self.lanes.iter().flat_map(|lane| &lane.under_way);
        slots.filter_map(|slot| self.slots[*slot as usize].change)
    }

    /// A queue for the caller alone; `None` if there can be no more.
    pub(super) fn open_lane(&mut self) -> Option<u16> {
        let own = usize::from(self.identify.queues);
        let spare = |lane: &Lane| lane.closed && lane.under_way.is_empty();
        let at = self.lanes.iter().skip(own).position(spare).map_or(self.lanes.len(), |n| own + n);
        let queue = u16::try_from(at).ok()?;
        if at == self.lanes.len() {
            self.lanes.push(Lane::default());
        }
        self.lanes[at].closed = false;
        Some(queue)
    }

    /// Gives back a queue of [`Self::open_lane`]. Commands under way in it still take effect.
    pub(super) fn close_lane(&mut self, queue: u16) {
        if queue < self.identify.queues {
            return;
        }
        if let Some(lane) = self.lanes.get_mut(usize::from(queue)) {
            lane.closed = true;
            lane.done.clear();
        }
    }

    /// Whether `queue` has a completion to take.
    pub(super) fn is_done(&self, queue: u16) -> bool {
        self.lanes.get(usize::from(queue)).is_some_and(|lane| !lane.done.is_empty())
    }

    /// Restores the power, with the drive holding what `state` holds. Queues stay open; earlier
    /// commands are no longer under way and are never answered.
    pub(super) fn power_again(&mut self, state: DriveState, seed: u64) {
        let lanes = self.lanes.iter().map(|lane| Lane { closed: lane.closed, ..Lane::default() });
        let (lanes, log) = (lanes.collect(), self.log.take());
        *self = Self { lanes, log, ..Self::new(state, seed, self.instant) };
    }

    fn done(&mut self, queue: u16, cid: u16, result: Answer) {
        self.lanes[usize::from(queue)].done.push_back(Completion { cid, result });
    }

    fn take_slot(&mut self, queue: u16, cid: u16) -> u32 {
        let place =
            Slot { queue, cid, due: self.clock, answer: None, transfer: None, change: None };
        let slot = if let Some(slot) = self.free_slots.pop() {
            self.slots[slot as usize] = place;
            slot
        } else {
            self.slots.push(place);
            self.slots.len() as u32 - 1
        };
        self.lanes[usize::from(queue)].under_way.push(slot);
        slot
    }

    fn is_under_way(&self, queue: u16, slot: u32) -> bool {
        self.lanes[usize::from(queue)].under_way.contains(&slot)
    }

    /// Takes a completion of `queue`, or that of `cid` if one is named.
    pub(super) fn take_done(&mut self, queue: u16, cid: Option<u16>) -> Option<Completion> {
        let done = &mut self.lanes.get_mut(usize::from(queue))?.done;
        match cid {
            None => done.pop_front(),
            Some(cid) if done.front().is_some_and(|first| first.cid == cid) => done.pop_front(),
            Some(cid) => {
                let at = done.iter().position(|completion| completion.cid == cid)?;
                done.remove(at)
            }
        }
    }

    /// Until when to sleep for a completion of `queue`, or of its command `cid`; `None` if none
    /// will come.
    pub(super) fn wake_at(&self, queue: u16, cid: Option<u16>) -> Option<Nanos> {
        let under_way = self.lanes.get(usize::from(queue))?.under_way.iter();
        let slots = under_way.map(|slot| &self.slots[*slot as usize]);
        let wanted = slots.filter(|slot| cid.is_none_or(|cid| slot.cid == cid));
        let due = wanted.map(|slot| slot.due).min()?;
        // It is unknown when a command will be done that waits for room in the buffer.
        let next = self.next_event().unwrap_or(due);
        let cut = match self.cut_at {
            Some((CutPoint::Time(at), _)) => at,
            _ => Nanos::MAX,
        };
        Some(due.max(next).min(cut))
    }

    /// Shows an event to the observer, and lets the power fail if it has to fail here.
    pub(super) fn witness(&mut self, kind: EventKind<'_>) {
        let event = Event { at: self.clock, kind };
        if let Some(mut observer) = self.observer.take() {
            observer(&event, &Moment { model: self });
            self.observer = Some(observer);
        }
        if let Some((point, seed)) = self.cut_at
            && point == event.cut_point()
        {
            self.fall(seed);
        }
    }

    /// Ends everything under way, because the power fails.
    pub(super) fn abandon(&mut self) {
        self.events.clear();
        self.waiters.clear();
        self.starving.clear();
        let under_way: Vec<u32> =
            self.lanes.iter().flat_map(|lane| lane.under_way.iter().copied()).collect();
        for slot in under_way {
            let answer = match self.after_cut {
                AfterCut::Dead => Err(Status::NotReady),
                AfterCut::SayYes => {
                    self.slots[slot as usize].answer.take().unwrap_or(Ok(Output::Done))
                }
            };
            self.complete(slot, answer);
        }
    }

    /// How a drive without power answers.
    fn answer_without_power(&mut self, command: Command) -> Answer {
        if self.after_cut == AfterCut::Dead {
            return Err(Status::NotReady);
        }
        match command {
            Command::Read { lba, blocks } => self.read(lba, blocks).map(Output::Data),
            Command::ReportZones { lba, max } => self.report(lba, max),
            Command::Append { zone, .. } => Ok(Output::Appended(zone)),
            _ => Ok(Output::Done),
        }
    }
}
