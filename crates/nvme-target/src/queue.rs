//! A queue pair: commands of one connection, from their capsules to their answers.
//!
//! Each command holds a slot from its capsule to its answer; the slot's number is the transfer tag
//! of its data and its identifier on the drive. Data that a host is to send is asked for when there
//! is room for it: one transfer a connection may always have, more as long as all connections
//! together stay below a limit, so nobody waits for anybody else.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::sync::Arc;

use cores::Nanos;
use drive::{Drive, Output as DriveOutput, Timing};
use zerocopy::FromBytes;

use crate::admin::{self, Connect, EVENT_REQUEST, fabrics};
use crate::answer::Answers;
use crate::auth::{self, Authentication};
use crate::command::{Cqe, FABRICS, Place, Sqe, Status};
use crate::controller::Controller;
use crate::io::{Answer, Limits, Step, Task};
use crate::pdu::{DataHeader, Fatal, IN_CAPSULE};
use crate::subsystem::Subsystem;
use crate::transfer::Transfer;
use crate::what::{Given, What};

/// Commands a connection may have before it is a queue.
const FRESH_ENTRIES: u16 = 1;

/// Room that a transfer or a read holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    None,
    /// The one that every connection has.
    Own,
    /// So many bytes of what all share.
    Shared(u64),
}

enum Slot {
    Free,
    /// Waits for room.
    Waiting {
        sqe: Sqe,
        what: What,
    },
    /// Waits for the host's data.
    Taking {
        sqe: Sqe,
        what: What,
        transfer: Transfer,
        damaged: bool,
        room: Room,
    },
    /// The drive works on it. The task is out while it is looked at.
    Running {
        sqe: Sqe,
        task: Option<Task>,
        room: Room,
    },
}

/// A queue pair, or a connection that is not one yet.
pub(crate) struct Queue {
    pub(crate) subsystem: Arc<Subsystem>,
    link: Arc<TcpStream>,
    /// The controller and the queue's number in it, once connected.
    role: Option<(Arc<Controller>, u16)>,
    /// When it must be connected.
    connect_by: Nanos,
    /// Of a connected queue, if there are keys.
    authentication: Option<Authentication>,
    pub(crate) answers: Answers,
    slots: Vec<Slot>,
    free: Vec<u16>,
    entries: u16,
    head: u16,
    waiting: VecDeque<u16>,
    /// Whether the room that every connection has is taken.
    own_taken: bool,
    taking: usize,
    running: usize,
    /// The drive's queues, by unit.
    lanes: Vec<Option<u16>>,
    /// No connect is let through: there are too many connections.
    busy: bool,
    pub(crate) power_lost: bool,
    /// A drive lost its power and says yes nonetheless.
    pub(crate) power_lost_politely: bool,
}

impl Queue {
    pub(crate) fn new(subsystem: Arc<Subsystem>, link: Arc<TcpStream>, busy: bool) -> Self {
        let lanes = vec![None; subsystem.units.len()];
        let connect_by = cores::now().saturating_add(subsystem.options.handshake);
        Self {
            subsystem,
            link,
            role: None,
            connect_by,
            authentication: None,
            answers: Answers::default(),
            slots: Vec::new(),
            free: Vec::new(),
            entries: FRESH_ENTRIES,
            head: 0,
            waiting: VecDeque::new(),
            own_taken: false,
            taking: 0,
            running: 0,
            lanes,
            busy,
            power_lost: false,
            power_lost_politely: false,
        }
    }

    pub(crate) fn controller(&self) -> Option<&Arc<Controller>> {
        self.role.as_ref().map(|(controller, _)| controller)
    }

    /// The controller of which this is the admin queue.
    pub(crate) fn administers(&self) -> Option<&Arc<Controller>> {
        self.role.as_ref().filter(|(_, qid)| *qid == 0).map(|(controller, _)| controller)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.controller().is_some_and(|controller| controller.has_ended())
    }

    /// When the host must have connected, or proved who it is; `None` if it has, or need not.
    pub(crate) fn introduce_by(&self) -> Option<Nanos> {
        match self.role {
            None => Some(self.connect_by),
            Some(_) => self.authentication.as_ref().and_then(Authentication::deadline),
        }
    }

    /// Whether the host is not who it says, and knows that we know.
    pub(crate) fn has_failed(&self) -> bool {
        self.authentication.as_ref().is_some_and(Authentication::has_failed)
    }

    /// Whether the host owes data.
    pub(crate) fn is_owed(&self) -> bool {
        self.taking > 0
    }

    /// When the drive is to be asked for completions; `None` if nothing is under way.
    pub(crate) fn due(&self) -> Option<Nanos> {
        if self.running == 0 {
            return None;
        }
        let lanes = self.subsystem.units.iter().zip(&self.lanes);
        lanes.filter_map(|(unit, lane)| unit.ssd().due((*lane)?)).min()
    }

    /// A command capsule, with the data in it; `damaged` if that has not the digest it should have.
    pub(crate) fn capsule(&mut self, sqe: &[u8], data: &[u8], damaged: bool) -> Result<(), Fatal> {
        let (sqe, _) = Sqe::read_from_prefix(sqe).map_err(|_| Fatal::HeaderField(2))?;
        if self.slots.len() - self.free.len() > usize::from(self.entries) {
            return Err(Fatal::Limit);
        }
        self.head = if self.head >= self.entries { 0 } else { self.head + 1 };
        if let Some(controller) = self.administers() {
            controller.heard();
        }
        if damaged {
            self.reply(&sqe, Status::TRANSPORT.into());
            return Ok(());
        }
        match self.classify(&sqe) {
            Ok(what) => self.admit(&sqe, what, data),
            Err(status) => self.reply(&sqe, status.into()),
        }
        Ok(())
    }

    fn classify(&self, sqe: &Sqe) -> Result<What, Status> {
        sqe.check_flags()?;
        let Some((controller, qid)) = &self.role else {
            let connect = sqe.opcode == FABRICS && sqe.fabrics_kind() == fabrics::CONNECT;
            return if connect { Ok(What::Connect) } else { Err(Status::COMMAND_SEQUENCE) };
        };
        if let Some(authentication) = &self.authentication {
            match auth::Transfer::parse(sqe)? {
                Some(transfer) => return Ok(What::Authenticate(transfer)),
                None if authentication.has_passed() => {}
                None => return Err(Status::AUTHENTICATION_REQUIRED),
            }
        }
        match (sqe.opcode, qid) {
            (FABRICS, _) => match (sqe.fabrics_kind(), qid) {
                (fabrics::CONNECT, _) => Err(Status::COMMAND_SEQUENCE),
                (fabrics::PROPERTY_GET | fabrics::PROPERTY_SET, 0) => Ok(What::Property),
                _ => Err(Status::INVALID_OPCODE),
            },
            (EVENT_REQUEST, 0) => Ok(What::EventRequest),
            (_, 0) => Ok(What::Admin),
            _ => {
                let namespace = self.subsystem.namespace(sqe.nsid.get());
                let namespace = namespace.ok_or(Status::INVALID_NAMESPACE)?;
                let transfer = self.subsystem.transfer();
                let limits = Limits { transfer, force: controller.forces_writes() };
                Task::parse(sqe, namespace, limits).map(What::Io)
            }
        }
    }

    /// Takes the command's data, now or later.
    fn admit(&mut self, sqe: &Sqe, what: What, data: &[u8]) {
        match what.placed(sqe, data) {
            Ok(Some(data)) => {
                let slot = self.take_slot();
                let (large, paced) = (what.wants() > IN_CAPSULE, self.is_paced());
                if large && paced {
                    // The drive holds what was read until it is due: that is to be bounded, too.
                    self.slots[usize::from(slot)] = Slot::Waiting { sqe: *sqe, what };
                    self.waiting.push_back(slot);
                    return self.give_room_to_the_waiting();
                }
                self.run(slot, sqe, what, Given::Bytes(data), Room::None);
            }
            Ok(None) => {
                let slot = self.take_slot();
                self.slots[usize::from(slot)] = Slot::Waiting { sqe: *sqe, what };
                self.waiting.push_back(slot);
                self.give_room_to_the_waiting();
            }
            Err(status) => self.reply(sqe, status.into()),
        }
    }

    fn is_paced(&self) -> bool {
        self.subsystem.units.iter().any(|unit| unit.ssd().timing() != Timing::Instant)
    }

    fn take_slot(&mut self) -> u16 {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::Free);
            (self.slots.len() - 1) as u16
        })
    }

    /// Lets waiting commands go on, in order, as far as there is room.
    fn give_room_to_the_waiting(&mut self) {
        while let Some(&slot) = self.waiting.front() {
            let Slot::Waiting { sqe, what } = &self.slots[usize::from(slot)] else {
                self.waiting.pop_front();
                continue;
            };
            let (sqe, takes) = (*sqe, what.takes(sqe));
            let bytes = takes.max(what.wants()) as u64;
            let room = if !self.own_taken {
                self.own_taken = true;
                Room::Own
            } else if self.subsystem.take_room(bytes) {
                Room::Shared(bytes)
            } else {
                return;
            };
            self.waiting.pop_front();
            let waiting = std::mem::replace(&mut self.slots[usize::from(slot)], Slot::Free);
            let Slot::Waiting { what, .. } = waiting else { continue };
            if takes == 0 {
                self.run(slot, &sqe, what, Given::Bytes(&[]), room);
                continue;
            }
            let transfer = Transfer::new(takes);
            self.slots[usize::from(slot)] =
                Slot::Taking { sqe, what, transfer, damaged: false, room };
            self.taking += 1;
            self.answers.ready_to_transfer(sqe.cid.get(), slot, takes as u32);
        }
    }

    fn give_back(&mut self, room: Room) {
        match room {
            Room::None => {}
            Room::Own => self.own_taken = false,
            Room::Shared(bytes) => self.subsystem.give_room(bytes),
        }
    }

    /// The header of an H2CData PDU: whose data follows.
    pub(crate) fn expect(&self, header: &DataHeader, last: bool) -> Result<u16, Fatal> {
        let tag = header.tag.get();
        let Some(Slot::Taking { sqe, transfer, .. }) = self.slots.get(usize::from(tag)) else {
            return Err(Fatal::HeaderField(10));
        };
        if sqe.cid != header.cid {
            return Err(Fatal::HeaderField(8));
        }
        let (offset, length) = (header.offset.get() as usize, header.length.get() as usize);
        let end = offset.saturating_add(length);
        if offset != transfer.got() || end > transfer.length() {
            return Err(Fatal::DataRange);
        }
        if last != (end == transfer.length()) {
            return Err(Fatal::HeaderField(1));
        }
        Ok(tag)
    }

    /// Where data for `slot` goes.
    pub(crate) fn transfer(&mut self, slot: u16) -> Option<&mut Transfer> {
        match self.slots.get_mut(usize::from(slot)) {
            Some(Slot::Taking { transfer, .. }) => Some(transfer),
            _ => None,
        }
    }

    /// A PDU of data for `slot` is over; `damaged` if it has not the digest it should have.
    pub(crate) fn received(&mut self, slot: u16, now_damaged: bool) {
        let place = &mut self.slots[usize::from(slot)];
        let Slot::Taking { transfer, damaged, .. } = place else { return };
        *damaged |= now_damaged;
        if !transfer.is_whole() {
            return;
        }
        let taken = std::mem::replace(place, Slot::Free);
        let Slot::Taking { sqe, what, transfer, damaged, room } = taken else { return };
        self.taking -= 1;
        if damaged {
            self.finish(slot, &sqe, Status::TRANSPORT.into(), room);
        } else {
            self.run(slot, &sqe, what, Given::Pages(transfer.into_data()), room);
        }
    }

    /// Executes a command whose data is there.
    fn run(&mut self, slot: u16, sqe: &Sqe, what: What, given: Given<'_>, room: Room) {
        let bytes = || match &given {
            Given::Bytes(bytes) => bytes,
            Given::Pages(pages) => pages.first().map_or(&[][..], |page| &page.bytes()[..]),
        };
        let controller = self.controller().cloned();
        let answer = match (what, controller) {
            (What::Connect, _) => self.connect(sqe, bytes()).unwrap_or_else(|refused| refused),
            (What::Io(mut task), Some(_)) => {
                let step = task.start(given.into_pages());
                return self.go(slot, sqe, task, step, room);
            }
            (What::Property, Some(controller)) => {
                admin::property(sqe, &self.subsystem, &controller)
            }
            (What::Authenticate(transfer), Some(_)) => self.authenticate(transfer, bytes()),
            (What::Admin, Some(controller)) => {
                admin::execute(sqe, bytes(), &self.subsystem, &controller)
            }
            (What::EventRequest, Some(controller)) => match controller.ask_event(sqe.cid.get()) {
                Ok(()) => return self.release(slot, room),
                Err(status) => status.into(),
            },
            (_, None) => Status::COMMAND_SEQUENCE.into(),
        };
        self.finish(slot, sqe, answer, room);
    }

    fn connect(&mut self, sqe: &Sqe, data: &[u8]) -> Result<Answer, Answer> {
        if self.busy {
            return Err(Status::CONNECT_BUSY.into());
        }
        // Nobody is there to answer.
        self.power_lost = self.subsystem.is_off();
        let connect = Connect::parse(sqe, data)?;
        let local = self.link.local_addr().unwrap_or(self.subsystem.address);
        let controller = connect.admit(&self.subsystem, local)?;
        controller.attach(connect.qid, &self.link).map_err(Answer::from)?;
        self.entries = connect.entries;
        self.head = if self.entries == 0 { 0 } else { 1 };
        self.answers.no_flow_control = connect.no_flow_control;
        let options = &self.subsystem.options;
        self.authentication = options.keys.as_ref().map(|keys| {
            let host = &controller.host.nqn;
            Authentication::new(keys.clone(), host, &connect.subsystem, options.handshake)
        });
        // AUTHREQ, bit 1: an authentication transaction is required.
        let required = u64::from(self.authentication.is_some()) << 17;
        let id = controller.id;
        self.role = Some((controller, connect.qid));
        Ok(Answer::with(u64::from(id) | required))
    }

    fn authenticate(&mut self, transfer: auth::Transfer, bytes: &[u8]) -> Answer {
        let Some(authentication) = &mut self.authentication else {
            return Status::COMMAND_SEQUENCE.into();
        };
        match transfer {
            auth::Transfer::Send(length) => {
                authentication.hear(bytes.get(..length).unwrap_or_default());
                Answer::done()
            }
            auth::Transfer::Receive(room) => {
                authentication.say(room).map_or_else(Answer::from, Answer::bytes)
            }
        }
    }

    /// Goes on with a task until the drive has to be waited for.
    fn go(&mut self, slot: u16, sqe: &Sqe, mut task: Task, mut step: Step, room: Room) {
        loop {
            let command = match step {
                Step::Done(answer) => return self.finish(slot, sqe, answer, room),
                Step::Command(command) => command,
            };
            let subsystem = self.subsystem.clone();
            let (unit, number) = (&subsystem.units[task.unit], task.unit);
            let lane = match self.lanes[number] {
                Some(lane) => Some(lane),
                None => unit.ssd().open_queue(),
            };
            self.lanes[number] = lane;
            let Some(lane) = lane else {
                let none = Status::from(drive::Status::NotReady);
                return self.finish(slot, sqe, none.into(), room);
            };
            let Some(done) = unit.drive().issue(lane, slot, command) else {
                self.slots[usize::from(slot)] = Slot::Running { sqe: *sqe, task: Some(task), room };
                self.running += 1;
                return;
            };
            self.look_for_power(number, &done.result);
            match task.after(done.result) {
                (Some(again), next) => (task, step) = (again, next),
                (None, Step::Done(answer)) => return self.finish(slot, sqe, answer, room),
                (None, Step::Command(_)) => return,
            }
        }
    }

    fn look_for_power(&mut self, unit: usize, result: &Result<DriveOutput, drive::Status>) {
        if matches!(result, Err(drive::Status::NotReady)) {
            self.power_lost |= self.subsystem.units[unit].ssd().is_off();
        } else if self.subsystem.expects_polite_cut() {
            self.power_lost_politely |= self.subsystem.units[unit].ssd().is_off();
        }
    }

    /// Takes completions of the drive, while the answers of the connection are fewer than `most`
    /// bytes. True if there was one.
    pub(crate) fn collect(&mut self, most: usize) -> bool {
        let mut any = false;
        for unit in 0..self.lanes.len() {
            let Some(lane) = self.lanes[unit] else { continue };
            while self.running > 0 && self.answers.output.left() < most {
                let Some(done) = self.subsystem.units[unit].drive().poll(lane) else { break };
                any = true;
                let slot = done.cid;
                let Some(Slot::Running { sqe, task, room }) = self.slots.get_mut(usize::from(slot))
                else {
                    continue;
                };
                let (sqe, task, room) = (*sqe, task.take(), *room);
                self.running -= 1;
                self.look_for_power(unit, &done.result);
                let Some(task) = task else { continue };
                match task.after(done.result) {
                    (Some(task), step) => self.go(slot, &sqe, task, step, room),
                    (None, Step::Done(answer)) => self.finish(slot, &sqe, answer, room),
                    (None, Step::Command(_)) => {}
                }
            }
        }
        any
    }

    /// Tells the host what it asked to be told of.
    pub(crate) fn tell_events(&mut self) {
        let Some(controller) = self.administers().cloned() else { return };
        while let Some((cid, event)) = controller.take_event() {
            let cqe = self.cqe(cid, event.result(), Status::SUCCESS);
            self.answers.complete(&cqe);
        }
    }

    fn finish(&mut self, slot: u16, sqe: &Sqe, answer: Answer, room: Room) {
        self.reply(sqe, answer);
        self.release(slot, room);
    }

    fn release(&mut self, slot: u16, room: Room) {
        self.slots[usize::from(slot)] = Slot::Free;
        self.free.push(slot);
        self.give_back(room);
        if !self.waiting.is_empty() {
            self.give_room_to_the_waiting();
        }
    }

    fn cqe(&self, cid: u16, result: u64, status: Status) -> Cqe {
        let sq_id = self.role.as_ref().map_or(0, |(_, qid)| *qid);
        Cqe {
            result: result.into(),
            sq_head: self.head.into(),
            sq_id: sq_id.into(),
            cid: cid.into(),
            status: status.field().into(),
        }
    }

    fn reply(&mut self, sqe: &Sqe, answer: Answer) {
        let room = match sqe.place() {
            Ok(Place::Transport { length }) => length,
            _ => 0,
        };
        let cid = sqe.cid.get();
        if answer.data.len() > room {
            let cqe = self.cqe(cid, 0, Status::SGL_LENGTH);
            return self.answers.complete(&cqe);
        }
        let cqe = self.cqe(cid, answer.result, answer.status);
        self.answers.answer(&cqe, answer.data);
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        for (unit, lane) in self.subsystem.units.iter().zip(&self.lanes) {
            if let Some(lane) = lane {
                unit.ssd().close_queue(*lane);
            }
        }
        for slot in &self.slots {
            if let Slot::Taking { room: Room::Shared(bytes), .. }
            | Slot::Running { room: Room::Shared(bytes), .. } = slot
            {
                self.subsystem.give_room(*bytes);
            }
        }
        if let Some((controller, qid)) = &self.role {
            controller.detach(*qid);
            if *qid == 0 {
                self.subsystem.remove(controller);
            }
        }
    }
}
