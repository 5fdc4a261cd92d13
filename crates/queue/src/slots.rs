//! What one hardware queue's lock protects: tickets, tags in use, turns in zones, and what waits.

use std::collections::VecDeque;

use drive::{Command, Output, Status};

use crate::error::Verb;
use crate::failures::What;
use crate::options::QueueStats;
use crate::request::{Part, Parts, Request, Shares};

pub(crate) type Answer = Result<Output, Status>;

/// Where the command of a ticket is.
enum Slot {
    Free,
    /// It waits behind another write to the same zone.
    Parked {
        zone: u32,
    },
    /// A software queue or the scheduler has it, or a thread that is about to send it.
    Queued,
    /// It is at the drive, under this tag.
    InFlight {
        cid: u16,
    },
    Done(Answer),
    /// No thread will ask for the answer. The slot is free when the command is done.
    Detached,
}

/// The request that has a tag.
#[derive(Clone)]
struct Tag {
    slot: u32,
    /// Whose it is, if it was merged of several commands; otherwise empty.
    parts: Parts,
    lane: Option<u32>,
    /// To say what failed.
    what: What,
    /// Counts the commands sent under this tag, so that a waiter does not take a later command for
    /// its own.
    sent: u32,
}

impl Default for Tag {
    fn default() -> Self {
        Self { slot: 0, parts: Parts::new(), lane: None, what: (Verb::Read, 0, 0), sent: 0 }
    }
}

/// Who has the turn in a zone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lane {
    Free,
    /// A write that has not been sent.
    Queued,
    /// The write with this tag.
    InFlight(u16),
}

struct Parked {
    zone: u32,
    slot: u32,
    command: Command,
}

/// What was found for a ticket.
pub(crate) enum Progress {
    Done(Answer),
    /// It has not been sent, or what it waits for has not.
    Queued,
    /// The command to wait for: its tag, and its number among those sent under that tag. `None` if
    /// they are no longer known.
    InFlight(Option<(u16, u32)>),
}

pub(crate) struct Hw {
    slots: Vec<Slot>,
    free_slots: Vec<u32>,
    tags: Box<[Tag]>,
    /// The last one given back is the next one taken. Empty if a tag set hands them out.
    pub(crate) free_tags: Vec<u16>,
    pub(crate) in_flight: u32,
    /// Commands in software queues, in the scheduler and in `dispatch`.
    pub(crate) queued: usize,
    /// By zone. On first use it gets as long as the number of zones.
    lanes: Vec<Lane>,
    parked: VecDeque<Parked>,
    /// Requests that found no tag (`hctx->dispatch`). The next thread to free a tag sends the
    /// first.
    pub(crate) dispatch: VecDeque<Request>,
    pub(crate) sleepers: u32,
    pub(crate) stats: QueueStats,
    /// Counts commands sent and completions filed. If the count has not changed while a poll of the
    /// drive found nothing, another thread has the missing completion and is about to file it.
    pub(crate) moves: u64,
}

impl Hw {
    pub(crate) fn new(depth: u16) -> Self {
        Self {
            slots: Vec::new(),
            free_slots: Vec::new(),
            tags: vec![Tag::default(); usize::from(depth)].into(),
            free_tags: Vec::new(),
            in_flight: 0,
            queued: 0,
            lanes: Vec::new(),
            parked: VecDeque::new(),
            dispatch: VecDeque::new(),
            sleepers: 0,
            stats: QueueStats::default(),
            moves: 0,
        }
    }

    pub(crate) fn make_lanes(&mut self, zones: usize) {
        if self.lanes.is_empty() {
            self.lanes.resize(zones, Lane::Free);
        }
    }

    pub(crate) fn is_busy(&self, zone: u32) -> bool {
        self.lanes[zone as usize] != Lane::Free
    }

    /// Gives the turn in a zone to a write that will be sent later.
    pub(crate) fn claim(&mut self, zone: u32) {
        self.lanes[zone as usize] = Lane::Queued;
    }

    pub(crate) fn is_anything_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Whether nothing is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.parked.is_empty() && self.queued == 0
    }

    /// The answer for ticket `slot`, which is then free, or what has to happen first.
    pub(crate) fn take(&mut self, slot: u32) -> Progress {
        let state = &mut self.slots[slot as usize];
        match std::mem::replace(state, Slot::Free) {
            Slot::Done(answer) => {
                self.free_slots.push(slot);
                Progress::Done(answer)
            }
            other => {
                *state = other;
                if self.waits_for_queued(slot) {
                    return Progress::Queued;
                }
                Progress::InFlight(self.blocking_tag(slot))
            }
        }
    }

    /// No thread will ask for the answer of ticket `slot`.
    pub(crate) fn detach(&mut self, slot: u32) {
        let state = &mut self.slots[slot as usize];
        if let Slot::Done(_) = std::mem::replace(state, Slot::Detached) {
            *state = Slot::Free;
            self.free_slots.push(slot);
        }
    }

    fn take_slot(&mut self, state: Slot) -> u32 {
        if let Some(slot) = self.free_slots.pop() {
            self.slots[slot as usize] = state;
            return slot;
        }
        self.slots.push(state);
        u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
    }

    pub(crate) fn queue_slot(&mut self) -> u32 {
        self.queued += 1;
        self.take_slot(Slot::Queued)
    }

    pub(crate) fn park(&mut self, zone: u32, command: Command) -> u32 {
        let slot = self.take_slot(Slot::Parked { zone });
        self.parked.push_back(Parked { zone, slot, command });
        slot
    }

    /// A command that is sent under `cid` as soon as it has come.
    pub(crate) fn sent_now(&mut self, cid: u16, lane: Option<u32>, what: What) -> u32 {
        let slot = self.take_slot(Slot::InFlight { cid });
        self.sent(cid, slot, Parts::new(), lane, what);
        slot
    }

    /// A request that has waited, in a zone or in a queue, is sent under `cid`.
    pub(crate) fn sent_later(&mut self, cid: u16, parts: Parts, lane: Option<u32>, what: What) {
        for part in &parts {
            let state = &mut self.slots[part.slot as usize];
            if let Slot::Queued | Slot::Parked { .. } = state {
                *state = Slot::InFlight { cid };
            }
        }
        let first = parts.first().map_or(0, |part| part.slot);
        let merged = if parts.len() > 1 { parts } else { Parts::new() };
        self.sent(cid, first, merged, lane, what);
    }

    /// Records what has tag `cid` from now on. The sender holds the lock until both are done, so
    /// its completion cannot be filed before.
    fn sent(&mut self, cid: u16, slot: u32, parts: Parts, lane: Option<u32>, what: What) {
        self.moves += 1;
        self.in_flight += 1;
        self.stats.sent += 1;
        let tag = &mut self.tags[usize::from(cid)];
        *tag = Tag { slot, parts, lane, what, sent: tag.sent.wrapping_add(1) };
        if let Some(zone) = lane {
            self.lanes[zone as usize] = Lane::InFlight(cid);
        }
    }

    /// The command with tag `cid`.
    pub(crate) fn what(&self, cid: u16) -> What {
        self.tags[usize::from(cid)].what
    }

    /// Stores the answer to the command with tag `cid` under its tickets. Returns its zone.
    pub(crate) fn answer(&mut self, cid: u16, answer: Answer) -> Option<u32> {
        self.moves += 1;
        self.in_flight -= 1;
        self.stats.answered += 1;
        let tag = &mut self.tags[usize::from(cid)];
        let (slot, lane, parts) = (tag.slot, tag.lane, std::mem::take(&mut tag.parts));
        if parts.is_empty() {
            self.finish(slot, answer);
            return lane;
        }
        let mut shares = Shares::of(answer);
        for part in &parts {
            let share = shares.next(part.blocks);
            self.finish(part.slot, share);
        }
        lane
    }

    fn finish(&mut self, slot: u32, answer: Answer) {
        match &mut self.slots[slot as usize] {
            state @ Slot::Detached => {
                *state = Slot::Free;
                self.free_slots.push(slot);
            }
            state => *state = Slot::Done(answer),
        }
    }

    /// The write whose turn it is in `zone`; if there is none, the zone is free.
    pub(crate) fn next_parked(&mut self, zone: u32) -> Option<(Command, Parts)> {
        let at = self.parked.iter().position(|parked| parked.zone == zone);
        let Some(Parked { slot, command, .. }) = at.and_then(|at| self.parked.remove(at)) else {
            self.lanes[zone as usize] = Lane::Free;
            return None;
        };
        let part = Part { slot, blocks: 0 };
        Some((command, std::iter::once(part).collect()))
    }

    /// Whether ticket `slot` waits for something that has not been sent.
    fn waits_for_queued(&self, slot: u32) -> bool {
        match self.slots[slot as usize] {
            Slot::Queued => true,
            Slot::Parked { zone } => self.lanes[zone as usize] == Lane::Queued,
            _ => false,
        }
    }

    /// The tag whose completion ticket `slot` needs next.
    fn blocking_tag(&self, slot: u32) -> Option<(u16, u32)> {
        let cid = match self.slots[slot as usize] {
            Slot::InFlight { cid } => cid,
            Slot::Parked { zone } => match self.lanes[zone as usize] {
                Lane::InFlight(cid) => cid,
                Lane::Free | Lane::Queued => return None,
            },
            _ => return None,
        };
        Some((cid, self.tags[usize::from(cid)].sent))
    }

    /// Whether ticket `slot` still waits for `command`.
    pub(crate) fn stands_at(&self, slot: u32, command: Option<(u16, u32)>) -> bool {
        !matches!(self.slots[slot as usize], Slot::Done(_)) && self.blocking_tag(slot) == command
    }
}
