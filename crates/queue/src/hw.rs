//! One hardware queue: its tags, its tickets, and what waits for a tag or for its turn in a zone.
//!
//! No thread reaps in the background. A waiting thread takes all completions that come before its
//! own and files each under its command's ticket, where the thread that waits for it finds it.

use cores::{Condvar, Mutex, MutexGuard, Nanos, Rank};
use drive::{Command, Completion, Drive, Identify};

use crate::deadline::MqDeadline;
use crate::describe;
use crate::failures::Failures;
use crate::options::{Options, QueueStats, Scheduler};
use crate::request::Request;
use crate::slots::{Answer, Hw, Progress};
use crate::tags::TagSet;

/// What a look in vain costs a waiter that polls. An estimate: a round of `blk_mq_poll`, most of it
/// `cpu_relax`, some 140 cycles on Skylake (Intel's optimization manual, PAUSE).
const LOOK: Nanos = 100;

/// One hardware queue of a drive.
pub(crate) struct HwQueue {
    /// Protects what is under way in this queue, from ticket to completion.
    hw: Mutex<Hw>,
    filed: Condvar,
    zones: usize,
    /// Without a set, tags are a stack under the lock.
    tags: Option<TagSet>,
    limit: usize,
    options: Options,
}

/// What a hardware queue is connected to.
#[derive(Clone, Copy)]
pub(crate) struct Wire<'a> {
    pub(crate) drive: &'a dyn Drive,
    pub(crate) queue: u16,
    pub(crate) scheduler: Option<&'a MqDeadline>,
    pub(crate) failures: &'a Failures,
    /// Sends what is queued, as far as there are tags.
    pub(crate) run: &'a dyn Fn(),
}

/// What became of a submitted command.
#[derive(Debug)]
pub(crate) enum Sent {
    /// The drive answered at once.
    Done(Answer),
    /// The drive answered at once, but the request keeps its tag until a poll (polled).
    Held { tag: u16, answer: Answer },
    /// It is in flight. Its answer will be found under this number.
    Slot(u32),
    /// It is in a software queue, and its answer will be found there.
    Soft { core: u16, slot: u32 },
}

impl HwQueue {
    /// Hardware queue `queue` of the drive; `plain` keeps its tags under the lock.
    pub(crate) fn new(identify: &Identify, queue: u16, options: Options, plain: bool) -> Self {
        let deep = identify.queue_depth.max(1);
        let limit = options.nr_requests.unwrap_or(deep).max(1);
        let depth = if options.scheduler == Scheduler::None { limit.min(deep) } else { deep };
        let mut hw = Hw::new(depth);
        let mut tags = None;
        if plain {
            hw.free_tags = (0..depth).rev().collect();
        } else {
            tags = Some(TagSet::new(depth, queue, options.linux));
        }
        Self {
            hw: Mutex::ranked(Rank::Queue, "hardware queue", hw),
            filed: Condvar::new(),
            zones: identify.zones.map_or(0, |zones| zones.count as usize),
            tags,
            limit: limit.into(),
            options,
        }
    }

    /// Sends `command`, or parks it behind the write in flight on its zone `lane`.
    pub(crate) fn submit(&self, wire: Wire<'_>, lane: Option<u32>, command: Command) -> Sent {
        let mut hw = self.hw.lock();
        let mut command = command;
        self.prepare(&mut hw, wire, lane);
        loop {
            match self.send_now(&mut hw, wire, lane, command) {
                Ok(sent) => return sent,
                Err(back) => command = back,
            }
            hw = self.reap(hw, wire);
        }
    }

    /// As [`HwQueue::submit`], but gives `command` back if there is no tag.
    pub(crate) fn try_submit(
        &self,
        wire: Wire<'_>,
        lane: Option<u32>,
        command: Command,
    ) -> Result<Sent, Command> {
        let mut hw = self.hw.lock();
        self.prepare(&mut hw, wire, lane);
        self.send_now(&mut hw, wire, lane, command)
    }

    /// Files completions before the next command is sent, if commands wait for their turn in a
    /// zone.
    #[inline]
    fn prepare(&self, hw: &mut Hw, wire: Wire<'_>, lane: Option<u32>) {
        if lane.is_some() {
            hw.make_lanes(self.zones);
        }
        while hw.is_anything_parked() {
            let Some(completion) = wire.drive.poll(wire.queue) else { break };
            self.file(hw, wire, completion);
        }
    }

    #[inline]
    fn send_now(
        &self,
        hw: &mut Hw,
        wire: Wire<'_>,
        lane: Option<u32>,
        command: Command,
    ) -> Result<Sent, Command> {
        if let Some(zone) = lane.filter(|zone| hw.is_busy(*zone)) {
            hw.stats.submitted += 1;
            return Ok(Sent::Slot(hw.park(zone, command)));
        }
        let Some(cid) = self.take_tag(hw) else {
            hw.stats.tag_waits += 1;
            return Err(command);
        };
        hw.stats.submitted += 1;
        let what = describe(&command);
        if let Some(completion) = wire.drive.issue(wire.queue, cid, command) {
            wire.failures.note(what, &completion.result);
            hw.stats.sent += 1;
            hw.stats.answered += 1;
            self.put_tag(hw, cid);
            return Ok(Sent::Done(completion.result));
        }
        Ok(Sent::Slot(hw.sent_now(cid, lane, what)))
    }

    /// A ticket for a command that will be sent later, and whether that must wait for others in the
    /// zone `lane`; then the command is kept here. Sleeps while too much is queued.
    pub(crate) fn enqueue(
        &self,
        wire: Wire<'_>,
        lane: Option<u32>,
        command: Command,
    ) -> (u32, Option<Command>) {
        let mut hw = self.hw.lock();
        hw.stats.submitted += 1;
        if let Some(zone) = lane {
            hw.make_lanes(self.zones);
            if hw.is_busy(zone) {
                return (hw.park(zone, command), None);
            }
            hw.claim(zone);
        }
        if hw.queued >= self.limit {
            hw.stats.tag_waits += 1;
        }
        while hw.queued >= self.limit {
            hw = self.push_on(hw, wire);
        }
        (hw.queue_slot(), Some(command))
    }

    pub(crate) fn count_merge(&self) {
        self.hw.lock().stats.merged += 1;
    }

    /// Sends a request that was queued; false if it has to wait for a tag.
    pub(crate) fn dispatch(&self, wire: Wire<'_>, request: Request) -> bool {
        let mut hw = self.hw.lock();
        let tag = if hw.dispatch.is_empty() { self.take_tag(&mut hw) } else { None };
        if let Some(cid) = tag {
            self.send(&mut hw, wire, cid, request);
        } else {
            hw.stats.tag_waits += 1;
            hw.dispatch.push_back(request);
        }
        if hw.sleepers > 0 {
            self.filed.notify_all();
        }
        tag.is_some()
    }

    /// Whether requests wait for tags, so that no more should be taken out of the scheduler.
    pub(crate) fn is_full(&self) -> bool {
        !self.hw.lock().dispatch.is_empty()
    }

    fn send(&self, hw: &mut Hw, wire: Wire<'_>, cid: u16, request: Request) {
        let Request { command, lane, parts, .. } = request;
        hw.queued -= parts.len();
        if lane.is_some() {
            hw.make_lanes(self.zones);
        }
        hw.sent_later(cid, parts, lane, describe(&command));
        if let Some(completion) = wire.drive.issue(wire.queue, cid, command) {
            self.file(hw, wire, completion);
        }
    }

    /// Sleeps until the ticket `slot` has its answer.
    pub(crate) fn wait(&self, wire: Wire<'_>, slot: u32) -> Answer {
        let Wire { drive, queue, .. } = wire;
        cores::may_sleep();
        let mut hw = self.hw.lock();
        loop {
            let command = match hw.take(slot) {
                Progress::Done(answer) => return answer,
                Progress::Queued => {
                    hw = self.push_on(hw, wire);
                    continue;
                }
                Progress::InFlight(command) => command,
            };
            drop(hw);
            let completion = match command {
                Some(_) if self.options.polled => drive.poll(queue),
                Some((cid, _)) => drive.wait_for(queue, cid),
                None => None,
            };
            if self.options.polled && completion.is_none() {
                cores::spend(LOOK);
                cores::yield_now();
            }
            hw = self.hw.lock();
            match completion {
                Some(completion) => {
                    self.file(&mut hw, wire, completion);
                    hw = self.run_on(hw, wire);
                }
                None if self.options.polled => {}
                // Another thread took it and has not filed it yet. It needs our lock to do that.
                None if hw.stands_at(slot, command) => self.sleep(&mut hw),
                None => {}
            }
        }
    }

    /// Sleeps until nothing is in flight, queued or parked.
    pub(crate) fn drain(&self, wire: Wire<'_>) {
        let mut hw = self.hw.lock();
        while !hw.is_idle() {
            hw = if hw.queued > 0 { self.push_on(hw, wire) } else { self.reap(hw, wire) };
        }
    }

    /// Something that is queued has to be sent first: sends it, or sleeps until something has
    /// completed.
    fn push_on<'a>(&'a self, hw: MutexGuard<'a, Hw>, wire: Wire<'_>) -> MutexGuard<'a, Hw> {
        let moves = hw.moves;
        drop(hw);
        (wire.run)();
        let mut hw = self.hw.lock();
        if hw.moves != moves {
            return hw;
        }
        if hw.in_flight > 0 {
            hw = self.reap(hw, wire);
            return self.run_on(hw, wire);
        }
        // Another thread has taken it out of its queue and is about to send it.
        self.sleep(&mut hw);
        hw
    }

    /// Something has completed: sends what waited for that.
    fn run_on<'a>(&'a self, hw: MutexGuard<'a, Hw>, wire: Wire<'_>) -> MutexGuard<'a, Hw> {
        if hw.queued == 0 {
            return hw;
        }
        drop(hw);
        (wire.run)();
        self.hw.lock()
    }

    /// Sleeps until some completion is filed. At least one tag is in use.
    fn reap<'a>(&'a self, hw: MutexGuard<'a, Hw>, wire: Wire<'_>) -> MutexGuard<'a, Hw> {
        let moves = hw.moves;
        drop(hw);
        cores::may_sleep();
        let completion = wire.drive.wait(wire.queue);
        let mut hw = self.hw.lock();
        match completion {
            Some(completion) => self.file(&mut hw, wire, completion),
            None if hw.moves == moves => self.sleep(&mut hw),
            None => {}
        }
        hw
    }

    /// Files what has completed by now.
    pub(crate) fn poll(&self, wire: Wire<'_>) {
        let mut hw = self.hw.lock();
        while let Some(completion) = wire.drive.poll(wire.queue) {
            self.file(&mut hw, wire, completion);
        }
        drop(self.run_on(hw, wire));
    }

    /// The answer for ticket `slot`, if it is there.
    pub(crate) fn take(&self, slot: u32) -> Progress {
        self.hw.lock().take(slot)
    }

    pub(crate) fn detach(&self, slot: u32) {
        self.hw.lock().detach(slot);
    }

    /// What the queue has done so far.
    pub(crate) fn stats(&self) -> QueueStats {
        self.hw.lock().stats
    }

    /// Stores a completion under its ticket, and sends the write that was parked behind it, or what
    /// waits for its tag.
    fn file(&self, hw: &mut Hw, wire: Wire<'_>, completion: Completion) {
        let cid = completion.cid;
        wire.failures.note(hw.what(cid), &completion.result);
        let lane = hw.answer(cid, completion.result);
        if let (Some(zone), Some(scheduler)) = (lane, wire.scheduler) {
            scheduler.unlock(zone);
        }
        match lane.and_then(|zone| hw.next_parked(zone)) {
            Some((command, parts)) => {
                hw.sent_later(cid, parts, lane, describe(&command));
                wire.drive.submit(wire.queue, cid, command);
            }
            None => match hw.dispatch.pop_front() {
                Some(request) => self.send(hw, wire, cid, request),
                None => self.put_tag(hw, cid),
            },
        }
        if hw.sleepers > 0 {
            self.filed.notify_all();
        }
    }

    fn take_tag(&self, hw: &mut Hw) -> Option<u16> {
        match &self.tags {
            Some(tags) => tags.get(),
            None => hw.free_tags.pop(),
        }
    }

    fn put_tag(&self, hw: &mut Hw, cid: u16) {
        match &self.tags {
            Some(tags) => tags.put(cid),
            None => hw.free_tags.push(cid),
        }
    }

    fn sleep(&self, hw: &mut MutexGuard<'_, Hw>) {
        hw.sleepers += 1;
        self.filed.wait(hw);
        hw.sleepers -= 1;
    }
}
