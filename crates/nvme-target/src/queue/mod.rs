//! A queue pair: the commands of one connection, from their capsules to their answers.
//!
//! Each command has a slot from its capsule to its answer. The slot's number is the transfer tag of
//! its data, and its identifier on the drive. Data is requested from a host when there is room for
//! it: a connection may always have one transfer, and more as long as all connections together stay
//! below a limit. So no connection waits for another one.

mod access;
mod running;
mod transfers;

use std::collections::VecDeque;
use std::net::TcpStream;
use std::sync::Arc;

use cores::Nanos;
use drive::Timing;
use zerocopy::FromBytes;

use crate::admin::{self, EVENT_REQUEST, fabrics};
use crate::answer::Answers;
use crate::auth::{self, Authentication};
use crate::command::{Cqe, FABRICS, HostData, Sqe, Status};
use crate::controller::Controller;
use crate::io::{Answer, Limits, Task};
use crate::pdu::{Fatal, IN_CAPSULE};
use crate::request::{Given, Request};
use crate::subsystem::Subsystem;
use crate::transfer::Transfer;

/// How many commands a connection may have before it is a queue.
const FRESH_ENTRIES: u16 = 1;

/// The room that a transfer or a read takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    None,
    /// The one that every connection has.
    Own,
    /// This many bytes of the room that all share.
    Shared(u64),
}

enum Slot {
    Free,
    /// Waits for room.
    Waiting {
        sqe: Sqe,
        request: Request,
    },
    /// Waits for the host's data.
    Taking {
        sqe: Sqe,
        request: Request,
        transfer: Transfer,
        damaged: bool,
        room: Room,
    },
    /// The drive works on it. The task is taken out while it is being handled.
    Running {
        sqe: Sqe,
        task: Option<Task>,
        room: Room,
    },
}

/// A queue pair, or a connection that has not become one yet.
pub(crate) struct Queue {
    pub(crate) subsystem: Arc<Subsystem>,
    link: Arc<TcpStream>,
    /// The controller and the queue's number in it, once connected.
    role: Option<(Arc<Controller>, u16)>,
    /// When it must be connected.
    connect_by: Nanos,
    /// For a connected queue, if there are keys.
    authentication: Option<Authentication>,
    pub(crate) answers: Answers,
    slots: Vec<Slot>,
    free: Vec<u16>,
    entries: u16,
    head: u16,
    waiting: VecDeque<u16>,
    /// Whether the room that every connection has is in use.
    own_taken: bool,
    taking: usize,
    running: usize,
    /// The drive's queues, by unit.
    lanes: Vec<Option<u16>>,
    /// Every Connect is refused, because there are too many connections.
    busy: bool,
    pub(crate) power_lost: bool,
    /// A drive lost its power, and its commands succeed all the same.
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

    /// The controller that has this as its admin queue.
    pub(crate) fn administers(&self) -> Option<&Arc<Controller>> {
        self.role.as_ref().filter(|(_, qid)| *qid == 0).map(|(controller, _)| controller)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.controller().is_some_and(|controller| controller.has_ended())
    }

    /// Whether the host has to send data.
    pub(crate) fn is_owed(&self) -> bool {
        self.taking > 0
    }

    /// Takes a command capsule with the data in it; `damaged` if the data's digest is wrong.
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
            Ok(request) => self.admit(&sqe, request, data),
            Err(status) => self.reply(&sqe, status.into()),
        }
        Ok(())
    }

    fn classify(&self, sqe: &Sqe) -> Result<Request, Status> {
        sqe.check_flags()?;
        let Some((controller, qid)) = &self.role else {
            let connect = sqe.opcode == FABRICS && sqe.fabrics_kind() == fabrics::CONNECT;
            return if connect { Ok(Request::Connect) } else { Err(Status::COMMAND_SEQUENCE) };
        };
        if let Some(authentication) = &self.authentication {
            match auth::Transfer::parse(sqe)? {
                Some(transfer) => return Ok(Request::Authenticate(transfer)),
                None if authentication.has_passed() => {}
                None => return Err(Status::AUTHENTICATION_REQUIRED),
            }
        }
        match (sqe.opcode, qid) {
            (FABRICS, _) => match (sqe.fabrics_kind(), qid) {
                (fabrics::CONNECT, _) => Err(Status::COMMAND_SEQUENCE),
                (fabrics::PROPERTY_GET | fabrics::PROPERTY_SET, 0) => Ok(Request::Property),
                _ => Err(Status::INVALID_OPCODE),
            },
            (EVENT_REQUEST, 0) => Ok(Request::AwaitEvent),
            (_, 0) => Ok(Request::Admin),
            _ => {
                let namespace = self.subsystem.namespace(sqe.nsid.get());
                let namespace = namespace.ok_or(Status::INVALID_NAMESPACE)?;
                let transfer = self.subsystem.transfer();
                let limits = Limits { transfer, force: controller.forces_writes() };
                Task::parse(sqe, namespace, limits).map(Request::Io)
            }
        }
    }

    /// Takes the command's data, now or later.
    fn admit(&mut self, sqe: &Sqe, request: Request, data: &[u8]) {
        match request.placed(sqe, data) {
            Ok(Some(data)) => {
                let slot = self.take_slot();
                let (large, paced) = (request.wants() > IN_CAPSULE, self.is_paced());
                if large && paced {
                    // The drive holds the data of a read until it is due, so that must be limited
                    // too.
                    self.slots[usize::from(slot)] = Slot::Waiting { sqe: *sqe, request };
                    self.waiting.push_back(slot);
                    return self.give_room_to_the_waiting();
                }
                self.run(slot, sqe, request, Given::Bytes(data), Room::None);
            }
            Ok(None) => {
                let slot = self.take_slot();
                self.slots[usize::from(slot)] = Slot::Waiting { sqe: *sqe, request };
                self.waiting.push_back(slot);
                self.give_room_to_the_waiting();
            }
            Err(status) => self.reply(sqe, status.into()),
        }
    }

    fn is_paced(&self) -> bool {
        self.subsystem.units.iter().any(|unit| unit.ssd().timing() != Timing::Instant)
    }

    /// Executes a command that has its data.
    fn run(&mut self, slot: u16, sqe: &Sqe, request: Request, given: Given<'_>, room: Room) {
        let bytes = || match &given {
            Given::Bytes(bytes) => bytes,
            Given::Pages(pages) => pages.first().map_or(&[][..], |page| &page.bytes()[..]),
        };
        let controller = self.controller().cloned();
        let answer = match (request, controller) {
            (Request::Connect, _) => self.connect(sqe, bytes()).unwrap_or_else(|refused| refused),
            (Request::Io(mut task), Some(_)) => {
                let step = task.start(given.into_pages());
                return self.go(slot, sqe, task, step, room);
            }
            (Request::Property, Some(controller)) => {
                admin::property(sqe, &self.subsystem, &controller)
            }
            (Request::Authenticate(transfer), Some(_)) => self.authenticate(transfer, bytes()),
            (Request::Admin, Some(controller)) => {
                admin::execute(sqe, bytes(), &self.subsystem, &controller)
            }
            (Request::AwaitEvent, Some(controller)) => match controller.ask_event(sqe.cid.get()) {
                Ok(()) => return self.release(slot, room),
                Err(status) => status.into(),
            },
            (_, None) => Status::COMMAND_SEQUENCE.into(),
        };
        self.finish(slot, sqe, answer, room);
    }

    /// Reports the events that the host asked for.
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
        let room = match sqe.host_data() {
            Ok(HostData::Transport { length }) => length,
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
