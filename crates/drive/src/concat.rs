//! Several drives as one, with their blocks one after the other, for a volume on several devices
//! (`FDEV` in fs/f2fs/f2fs.h).
//!
//! Conventional drives come first, then zoned ones. The layer above sees a conventional drive as
//! conventional zones. Invariants:
//!
//! - a command has at most one part on each drive, under its own queue and identifier, so an
//!   identifier that is free here is free on every drive below;
//! - a part is known here before the drive below has it, and its completion is merged under the
//!   queue's lock before any caller sees it;
//! - a flush goes to each drive that has completed writes since the last *successful* flush of it
//!   began. A flush under way covers nothing yet: a flush requested meanwhile is sent as well.

mod geometry;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cores::{Condvar, Mutex, MutexGuard};
use smallvec::SmallVec;
use thiserror::Error;

use crate::{
    Blocks, Command, Completion, Drive, Identify, Lba, Output, Status, Zone, ZoneAction, ZoneKind,
    ZoneState,
};

/// How many drives can be joined.
const MAX_MEMBERS: usize = 8;

/// Why drives cannot be joined.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("device {}: {what}", member + 1)]
pub struct ConcatError {
    /// Which one, counted from 0.
    pub member: usize,
    /// What is wrong with it.
    pub what: String,
}

struct Member {
    drive: Arc<dyn Drive>,
    start: Lba,
    blocks: u64,
    /// How many writes have completed, and how many of them a flush has covered. At the start one
    /// counts as not covered, because an earlier process may have died between its last write and
    /// its flush.
    written: AtomicU64,
    flushed: AtomicU64,
}

/// Drives joined into one.
pub struct Concat {
    identify: Identify,
    members: Box<[Member]>,
    queues: Box<[Queue]>,
}

struct Queue {
    table: Mutex<Table>,
    merged: Condvar,
}

#[derive(Default)]
struct Table {
    /// By identifier.
    pending: Vec<Option<Pending>>,
    /// Parts in flight on each member.
    in_flight: [u32; MAX_MEMBERS],
    done: VecDeque<Completion>,
    /// Counts merged parts. If the count has not changed while a look at a member found nothing,
    /// another thread has the missing part and is about to merge it.
    merges: u64,
}

/// What a completed part means for its member's counts.
#[derive(Clone, Copy)]
enum Effect {
    None,
    /// It wrote something that a flush has to cover.
    Write,
    /// It covers all writes that were counted, by member, when it began.
    Flush([u64; MAX_MEMBERS]),
}

/// A command with parts that are still in flight.
struct Pending {
    /// Members with a part in flight, as bits.
    outstanding: u8,
    /// What has come in, by member.
    parts: SmallVec<[(usize, Output); 2]>,
    failed: Option<Status>,
    effect: Effect,
}

/// Commands, each for a member.
type Parts = SmallVec<[(usize, Command); 2]>;
/// Ranges on members: the member, the first block there, and the length.
type Spans = SmallVec<[(usize, Lba, u64); 2]>;

impl Concat {
    /// Joins `members`, using as many blocks of each, from its start, as given. Zoned members come
    /// last, their zones have the same size and capacity, and all lengths are whole zones.
    pub fn new(members: Vec<(Arc<dyn Drive>, u64)>) -> Result<Self, ConcatError> {
        let zones = geometry::geometry(&members)?;
        let mut start = 0;
        let mut joined = Vec::with_capacity(members.len());
        for (member, (drive, blocks)) in members.into_iter().enumerate() {
            let has = drive.identify().blocks;
            if blocks == 0 || blocks > has {
                let what = format!("has {has} blocks, the volume wants {blocks}");
                return Err(ConcatError { member, what });
            }
            let (written, flushed) = (AtomicU64::new(1), AtomicU64::new(0));
            joined.push(Member { drive, start, blocks, written, flushed });
            start += blocks;
        }
        let identify = geometry::identity(&joined, start, zones);
        let table = || Table {
            pending: (0..identify.queue_depth).map(|_| None).collect(),
            ..Table::default()
        };
        let queue = |_| Queue { table: Mutex::named("concat", table()), merged: Condvar::new() };
        let queues = (0..identify.queues).map(queue).collect();
        Ok(Self { identify, members: joined.into(), queues })
    }

    fn queue(&self, queue: u16) -> &Queue {
        &self.queues[usize::from(queue) % self.queues.len()]
    }

    /// The members on which a range lies, and the part on each, in that member's addresses.
    fn split(&self, lba: Lba, blocks: u64) -> Result<Spans, Status> {
        let end = lba.checked_add(blocks).ok_or(Status::LbaOutOfRange)?;
        if blocks == 0 {
            return Err(Status::InvalidField);
        }
        if end > self.identify.blocks {
            return Err(Status::LbaOutOfRange);
        }
        let overlap = |(i, member): (usize, &Member)| {
            let (from, to) = (lba.max(member.start), end.min(member.start + member.blocks));
            (from < to).then(|| (i, from - member.start, to - from))
        };
        Ok(self.members.iter().enumerate().filter_map(overlap).collect())
    }

    /// The parts of `command`, and what is known of its answer without asking the members.
    fn plan(&self, command: Command) -> Result<(Parts, Pending), Status> {
        let mut pending = Pending::new(Effect::None);
        let mut parts = Parts::new();
        match command {
            Command::Read { lba, blocks } => {
                for (member, lba, blocks) in self.split(lba, blocks.into())? {
                    parts.push((member, Command::Read { lba, blocks: blocks as u32 }));
                }
            }
            Command::Write { lba, data, fua } => {
                // Forced writes are stable already.
                pending.effect = if fua { Effect::None } else { Effect::Write };
                let ranges = self.split(lba, data.len() as u64)?;
                let mut rest = data.into_iter();
                for (member, lba, blocks) in ranges {
                    let data: Blocks = rest.by_ref().take(blocks as usize).collect();
                    parts.push((member, Command::Write { lba, data, fua }));
                }
            }
            Command::Append { zone, data, fua } => {
                pending.effect = if fua { Effect::None } else { Effect::Write };
                for (member, zone, _) in self.split(zone, 1)? {
                    parts.push((member, Command::Append { zone, data: data.clone(), fua }));
                }
            }
            Command::Flush => {
                let mut stamps = [0; MAX_MEMBERS];
                for (i, member) in self.members.iter().enumerate() {
                    stamps[i] = member.written.load(Ordering::Acquire);
                    if stamps[i] > member.flushed.load(Ordering::Acquire) {
                        parts.push((i, Command::Flush));
                    }
                }
                pending.effect = Effect::Flush(stamps);
            }
            Command::Discard { lba, blocks } => {
                pending.effect = Effect::Write;
                let ranges = self.split(lba, blocks)?;
                let takes = |member: usize| self.members[member].drive.identify().discard;
                for (member, lba, blocks) in ranges.into_iter().filter(|(m, ..)| takes(*m)) {
                    parts.push((member, Command::Discard { lba, blocks }));
                }
            }
            Command::ReportZones { lba, max } => {
                self.plan_report(lba, max, &mut parts, &mut pending)?;
            }
            Command::ManageZone { action, zone } => {
                pending.effect = Effect::Write;
                self.plan_manage(action, zone, &mut parts)?;
            }
        }
        Ok((parts, pending))
    }

    fn plan_manage(
        &self,
        action: ZoneAction,
        zone: Option<Lba>,
        parts: &mut Parts,
    ) -> Result<(), Status> {
        self.identify.zones.ok_or(Status::InvalidOpcode)?;
        let is_zoned = |member: usize| self.members[member].drive.identify().zones.is_some();
        let Some(zone) = zone else {
            let zoned = (0..self.members.len()).filter(|member| is_zoned(*member));
            parts.extend(zoned.map(|member| (member, Command::ManageZone { action, zone: None })));
            return Ok(());
        };
        for (member, lba, _) in self.split(zone, 1)? {
            if !is_zoned(member) {
                return Err(Status::InvalidZoneStateTransition);
            }
            parts.push((member, Command::ManageZone { action, zone: Some(lba) }));
        }
        Ok(())
    }

    /// Plans a zone report. Zones of conventional members are made up here; those of the others are
    /// asked for.
    fn plan_report(
        &self,
        lba: Lba,
        max: u32,
        parts: &mut Parts,
        pending: &mut Pending,
    ) -> Result<(), Status> {
        let size = self.identify.zones.ok_or(Status::InvalidOpcode)?.size;
        let left = self.identify.blocks.checked_sub(lba).filter(|left| *left > 0);
        let wanted = left.ok_or(Status::LbaOutOfRange)?.div_ceil(size).min(max.into());
        let from = lba / size * size;
        let blocks = (wanted * size).min(self.identify.blocks - from);
        if blocks == 0 {
            pending.parts.push((0, Output::Zones(Vec::new())));
            return Ok(());
        }
        for (member, lba, blocks) in self.split(from, blocks)? {
            if self.members[member].drive.identify().zones.is_some() {
                let max = u32::try_from(blocks / size).unwrap_or(u32::MAX);
                parts.push((member, Command::ReportZones { lba, max }));
                continue;
            }
            let zones = (0..blocks / size).map(|i| {
                let start = lba + i * size;
                let (kind, state) = (ZoneKind::Conventional, ZoneState::NotWritePointer);
                Zone { start, size, capacity: size, wp: start + size, kind, state }
            });
            pending.parts.push((member, Output::Zones(zones.collect())));
        }
        Ok(())
    }

    /// Submits the parts of a command. Returns its completion if all of them answered at once.
    fn dispatch(&self, number: u16, cid: u16, command: Command) -> Option<Completion> {
        let queue = self.queue(number);
        let mut table = queue.table.lock();
        let taken = table.pending.get(usize::from(cid)).is_none_or(Option::is_some);
        let planned = if taken { Err(Status::InvalidField) } else { self.plan(command) };
        let (parts, mut pending) = match planned {
            Ok(planned) => planned,
            Err(status) => return Some(Completion { cid, result: Err(status) }),
        };
        if parts.is_empty() {
            return Some(Completion { cid, result: pending.finish(&self.members) });
        }
        for (member, _) in &parts {
            pending.outstanding |= 1 << member;
            table.in_flight[*member] += 1;
        }
        table.pending[usize::from(cid)] = Some(pending);
        let mut finished = None;
        for (member, part) in parts {
            if let Some(answer) = self.members[member].drive.issue(number, cid, part) {
                finished = self.merge(&mut table, queue, member, answer);
            }
        }
        finished
    }

    /// Records a part's completion. Returns that of the whole command if it was the last part.
    fn merge(
        &self,
        table: &mut Table,
        queue: &Queue,
        member: usize,
        part: Completion,
    ) -> Option<Completion> {
        table.merges += 1;
        table.in_flight[member] = table.in_flight[member].saturating_sub(1);
        let place = table.pending.get_mut(usize::from(part.cid))?;
        let pending = place.as_mut()?;
        pending.outstanding &= !(1 << member);
        let counts = &self.members[member];
        match (pending.effect, &part.result) {
            (Effect::Write, _) => {
                counts.written.fetch_add(1, Ordering::AcqRel);
            }
            (Effect::Flush(stamps), Ok(_)) => {
                counts.flushed.fetch_max(stamps[member], Ordering::AcqRel);
            }
            _ => {}
        }
        match part.result {
            Ok(output) => pending.parts.push((member, output)),
            Err(status) => pending.failed = Some(status),
        }
        let finished = pending.outstanding == 0;
        let whole = if finished { place.take() } else { None };
        queue.merged.notify_all();
        whole.map(|whole| Completion { cid: part.cid, result: whole.finish(&self.members) })
    }

    /// Sleeps for `wanted`, or for any command.
    fn sleep_for(&self, number: u16, wanted: Option<u16>) -> Option<Completion> {
        let queue = self.queue(number);
        let mut table = queue.table.lock();
        loop {
            if let Some(done) = table.take_done(wanted) {
                return Some(done);
            }
            let member = table.member_to_wait_for(wanted)?;
            let merges = table.merges;
            drop(table);
            let drive = &self.members[member].drive;
            let part = match wanted {
                Some(cid) => drive.wait_for(number, cid),
                None => drive.wait(number),
            };
            table = queue.table.lock();
            match part {
                Some(part) => {
                    if let Some(whole) = self.merge(&mut table, queue, member, part) {
                        return Some(whole);
                    }
                }
                None => wait_for_merge(queue, &mut table, merges),
            }
        }
    }
}

/// Another thread has taken a part and not merged it yet. It needs the lock to do that.
fn wait_for_merge(queue: &Queue, table: &mut MutexGuard<'_, Table>, merges: u64) {
    if table.merges == merges {
        queue.merged.wait(table);
    }
}

impl Table {
    fn take_done(&mut self, wanted: Option<u16>) -> Option<Completion> {
        let at = match wanted {
            None => 0,
            Some(cid) => self.done.iter().position(|done| done.cid == cid)?,
        };
        self.done.remove(at)
    }

    fn member_to_wait_for(&self, wanted: Option<u16>) -> Option<usize> {
        match wanted {
            None => self.in_flight.iter().position(|parts| *parts > 0),
            Some(cid) => {
                let pending = self.pending.get(usize::from(cid))?.as_ref()?;
                Some(pending.outstanding.trailing_zeros() as usize)
            }
        }
    }
}

impl Pending {
    fn new(effect: Effect) -> Self {
        Self { outstanding: 0, parts: SmallVec::new(), failed: None, effect }
    }

    /// The answer, put together from all parts.
    fn finish(mut self, members: &[Member]) -> Result<Output, Status> {
        if let Some(status) = self.failed {
            return Err(status);
        }
        self.parts.sort_by_key(|(member, _)| *member);
        let mut whole = Output::Done;
        for (member, part) in self.parts {
            let start = members.get(member).map_or(0, |member| member.start);
            match (&mut whole, part) {
                (Output::Data(data), Output::Data(more)) => data.extend(more),
                (Output::Zones(zones), Output::Zones(more)) => {
                    zones.extend(more.into_iter().map(|zone| zone.moved_by(start)));
                }
                (whole, Output::Zones(zones)) => {
                    let zones = zones.into_iter().map(|zone| zone.moved_by(start));
                    *whole = Output::Zones(zones.collect());
                }
                (whole, Output::Appended(lba)) => *whole = Output::Appended(start + lba),
                (whole, Output::Data(data)) => *whole = Output::Data(data),
                (_, Output::Done) => {}
            }
        }
        Ok(whole)
    }
}

impl Zone {
    fn moved_by(self, blocks: u64) -> Self {
        Self { start: self.start + blocks, wp: self.wp + blocks, ..self }
    }
}

impl Drive for Concat {
    fn identify(&self) -> &Identify {
        &self.identify
    }

    fn submit(&self, queue: u16, cid: u16, command: Command) {
        if let Some(done) = self.dispatch(queue, cid, command) {
            self.queue(queue).table.lock().done.push_back(done);
        }
    }

    fn issue(&self, queue: u16, cid: u16, command: Command) -> Option<Completion> {
        self.dispatch(queue, cid, command)
    }

    fn poll(&self, queue: u16) -> Option<Completion> {
        let of = self.queue(queue);
        let mut table = of.table.lock();
        if let Some(done) = table.take_done(None) {
            return Some(done);
        }
        for (i, member) in self.members.iter().enumerate() {
            while table.in_flight[i] > 0 {
                let Some(part) = member.drive.poll(queue) else { break };
                if let Some(whole) = self.merge(&mut table, of, i, part) {
                    return Some(whole);
                }
            }
        }
        None
    }

    fn wait(&self, queue: u16) -> Option<Completion> {
        self.sleep_for(queue, None)
    }

    fn wait_for(&self, queue: u16, cid: u16) -> Option<Completion> {
        self.sleep_for(queue, Some(cid))
    }
}

#[cfg(test)]
mod tests;
