//! One hardware queue: its tags, its tickets, and the writes that wait behind a zone's write lock.
//!
//! Nobody reaps in the background. A waiting thread takes whatever completions come before its own
//! and files each under its command's ticket, where the thread to which it belongs finds it.

use std::collections::VecDeque;

use cores::{Condvar, Mutex, MutexGuard, Rank};
use drive::{Command, Completion, Drive, Identify, Output, Status};

pub(crate) type Answer = Result<Output, Status>;

/// Where the command of a ticket is.
enum Slot {
    Free,
    /// It waits behind another write to the same zone.
    Parked {
        zone: u32,
    },
    /// It is at the drive, under this tag.
    InFlight {
        cid: u16,
    },
    Done(Answer),
    /// Nobody will ask for the answer. The slot is free when the command is done.
    Detached,
}

/// The command that has a tag.
#[derive(Clone, Copy, Default)]
struct Tag {
    slot: u32,
    lane: Option<u32>,
    /// Counts the commands sent under this tag, so that a waiter does not take a later command for
    /// its own.
    sent: u32,
}

struct Parked {
    zone: u32,
    slot: u32,
    command: Command,
}

struct Hw {
    slots: Vec<Slot>,
    free_slots: Vec<u32>,
    tags: Box<[Tag]>,
    free_tags: Vec<u16>,
    /// For each zone, the tag of the write in flight. On first use it gets as long as the number of
    /// zones.
    lanes: Vec<Option<u16>>,
    parked: VecDeque<Parked>,
    sleepers: u32,
    /// Counts commands sent and completions filed. If the count has not changed while a look at the
    /// drive found nothing, another thread has the missing completion and is about to file it.
    moves: u64,
}

/// One hardware queue of a drive.
pub(crate) struct HwQueue {
    hw: Mutex<Hw>,
    filed: Condvar,
    zones: usize,
}

/// What became of a submitted command.
#[derive(Debug)]
pub(crate) enum Sent {
    /// The drive answered at once.
    Done(Answer),
    /// It is under way. Its answer will be found under this number.
    Slot(u32),
}

/// What was found for a ticket.
pub(crate) enum Progress {
    Done(Answer),
    /// The command to wait for: its tag, and its number among those sent under that tag. `None` if
    /// they are no longer known.
    InFlight(Option<(u16, u32)>),
}

impl HwQueue {
    pub(crate) fn new(identify: &Identify) -> Self {
        let depth = identify.queue_depth.max(1);
        let hw = Hw {
            slots: Vec::new(),
            free_slots: Vec::new(),
            tags: vec![Tag::default(); usize::from(depth)].into(),
            free_tags: (0..depth).rev().collect(),
            lanes: Vec::new(),
            parked: VecDeque::new(),
            sleepers: 0,
            moves: 0,
        };
        let zones = identify.zones.map_or(0, |zones| zones.count as usize);
        let hw = Mutex::ranked(Rank::Queue, "hardware queue", hw);
        Self { hw, filed: Condvar::new(), zones }
    }

    /// Sends `command`, or parks it behind the write in flight on its zone `lane`.
    pub(crate) fn submit(
        &self,
        drive: &dyn Drive,
        queue: u16,
        lane: Option<u32>,
        command: Command,
    ) -> Sent {
        let mut hw = self.hw.lock();
        if lane.is_some() && hw.lanes.is_empty() {
            hw.lanes.resize(self.zones, None);
        }
        while !hw.parked.is_empty() {
            let Some(completion) = drive.poll(queue) else { break };
            self.file(&mut hw, drive, queue, completion);
        }
        loop {
            if let Some(zone) = lane.filter(|zone| hw.busy(*zone)) {
                let slot = hw.take_slot(Slot::Parked { zone });
                hw.parked.push_back(Parked { zone, slot, command });
                return Sent::Slot(slot);
            }
            if let Some(cid) = hw.free_tags.pop() {
                if let Some(completion) = drive.issue(queue, cid, command) {
                    hw.free_tags.push(cid);
                    return Sent::Done(completion.result);
                }
                let slot = hw.take_slot(Slot::InFlight { cid });
                hw.sent(cid, slot, lane);
                return Sent::Slot(slot);
            }
            hw = self.reap(hw, drive, queue);
        }
    }

    /// Sleeps until the ticket `slot` has its answer.
    pub(crate) fn wait(&self, drive: &dyn Drive, queue: u16, slot: u32) -> Answer {
        cores::may_sleep();
        let mut hw = self.hw.lock();
        loop {
            let command = match hw.take(slot) {
                Progress::Done(answer) => return answer,
                Progress::InFlight(command) => command,
            };
            drop(hw);
            let completion = command.and_then(|(cid, _)| drive.wait_for(queue, cid));
            hw = self.hw.lock();
            match completion {
                Some(completion) => self.file(&mut hw, drive, queue, completion),
                // Another thread took it and has not filed it yet. It needs our lock to do that.
                None if hw.stands_at(slot, command) => self.sleep(&mut hw),
                None => {}
            }
        }
    }

    /// Sleeps until nothing is in flight or parked.
    pub(crate) fn drain(&self, drive: &dyn Drive, queue: u16) {
        let mut hw = self.hw.lock();
        while hw.free_tags.len() < hw.tags.len() || !hw.parked.is_empty() {
            hw = self.reap(hw, drive, queue);
        }
    }

    /// Sleeps until some completion is filed. At least one tag is in use.
    fn reap<'a>(
        &'a self,
        hw: MutexGuard<'a, Hw>,
        drive: &dyn Drive,
        queue: u16,
    ) -> MutexGuard<'a, Hw> {
        let moves = hw.moves;
        drop(hw);
        cores::may_sleep();
        let completion = drive.wait(queue);
        let mut hw = self.hw.lock();
        match completion {
            Some(completion) => self.file(&mut hw, drive, queue, completion),
            None if hw.moves == moves => self.sleep(&mut hw),
            None => {}
        }
        hw
    }

    /// Files what has completed by now.
    pub(crate) fn poll(&self, drive: &dyn Drive, queue: u16) {
        let mut hw = self.hw.lock();
        while let Some(completion) = drive.poll(queue) {
            self.file(&mut hw, drive, queue, completion);
        }
    }

    /// The answer for ticket `slot`, if it is there.
    pub(crate) fn take(&self, slot: u32) -> Progress {
        self.hw.lock().take(slot)
    }

    pub(crate) fn detach(&self, slot: u32) {
        let mut hw = self.hw.lock();
        if let Slot::Done(_) = hw.slots[slot as usize] {
            hw.slots[slot as usize] = Slot::Free;
            hw.free_slots.push(slot);
        } else {
            hw.slots[slot as usize] = Slot::Detached;
        }
    }

    /// Stores a completion under its ticket, frees the tag, and sends the write that was parked
    /// behind it.
    fn file(&self, hw: &mut Hw, drive: &dyn Drive, queue: u16, completion: Completion) {
        hw.moves += 1;
        let cid = completion.cid;
        let Tag { slot, lane, .. } = hw.tags[usize::from(cid)];
        match &mut hw.slots[slot as usize] {
            state @ Slot::Detached => {
                *state = Slot::Free;
                hw.free_slots.push(slot);
            }
            state => *state = Slot::Done(completion.result),
        }
        match lane.and_then(|zone| hw.next_parked(zone)) {
            Some(next) => {
                if let state @ Slot::Parked { .. } = &mut hw.slots[next.slot as usize] {
                    *state = Slot::InFlight { cid };
                }
                hw.sent(cid, next.slot, lane);
                drive.submit(queue, cid, next.command);
            }
            None => {
                if let Some(zone) = lane {
                    hw.lanes[zone as usize] = None;
                }
                hw.free_tags.push(cid);
            }
        }
        if hw.sleepers > 0 {
            self.filed.notify_all();
        }
    }

    fn sleep(&self, hw: &mut MutexGuard<'_, Hw>) {
        hw.sleepers += 1;
        self.filed.wait(hw);
        hw.sleepers -= 1;
    }
}

impl Hw {
    fn busy(&self, zone: u32) -> bool {
        self.lanes[zone as usize].is_some()
    }

    /// The answer for ticket `slot`, which is then free, or the command that has to complete first.
    fn take(&mut self, slot: u32) -> Progress {
        let state = &mut self.slots[slot as usize];
        match std::mem::replace(state, Slot::Free) {
            Slot::Done(answer) => {
                self.free_slots.push(slot);
                Progress::Done(answer)
            }
            other => {
                *state = other;
                Progress::InFlight(self.blocking_tag(slot))
            }
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

    /// Records which command has tag `cid` from now on. The sender holds the lock until both are
    /// done, so its completion cannot be filed before.
    fn sent(&mut self, cid: u16, slot: u32, lane: Option<u32>) {
        self.moves += 1;
        let tag = &mut self.tags[usize::from(cid)];
        *tag = Tag { slot, lane, sent: tag.sent.wrapping_add(1) };
        if let Some(zone) = lane {
            self.lanes[zone as usize] = Some(cid);
        }
    }

    fn next_parked(&mut self, zone: u32) -> Option<Parked> {
        let at = self.parked.iter().position(|parked| parked.zone == zone)?;
        self.parked.remove(at)
    }

    /// The tag whose completion ticket `slot` needs next.
    fn blocking_tag(&self, slot: u32) -> Option<(u16, u32)> {
        let cid = match self.slots[slot as usize] {
            Slot::InFlight { cid } => cid,
            Slot::Parked { zone } => self.lanes[zone as usize]?,
            _ => return None,
        };
        Some((cid, self.tags[usize::from(cid)].sent))
    }

    /// Whether ticket `slot` still waits for `command`.
    fn stands_at(&self, slot: u32, command: Option<(u16, u32)>) -> bool {
        !matches!(self.slots[slot as usize], Slot::Done(_)) && self.blocking_tag(slot) == command
    }
}
