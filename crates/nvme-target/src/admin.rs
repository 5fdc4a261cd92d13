//! Admin commands, and those fabrics commands that concern more than their own connection.

use std::sync::Arc;

use drive::{Command, Drive};
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::command::{Sqe, Status};
use crate::controller::{Controller, Host, Kind};
use crate::features::{HOST_BEHAVIOUR, HOST_BEHAVIOUR_LEN, QUEUES, WRITE_CACHE};
use crate::identify;
use crate::io::Answer;
use crate::logs;
use crate::subsystem::{DISCOVERY_NQN, Subsystem};

const GET_LOG_PAGE: u8 = 0x02;
const IDENTIFY: u8 = 0x06;
const ABORT: u8 = 0x08;
const SET_FEATURES: u8 = 0x09;
const GET_FEATURES: u8 = 0x0a;
pub(crate) const EVENT_REQUEST: u8 = 0x0c;
const KEEP_ALIVE: u8 = 0x18;

/// Types of fabrics commands.
pub(crate) mod fabrics {
    pub(crate) const PROPERTY_SET: u8 = 0x00;
    pub(crate) const CONNECT: u8 = 0x01;
    pub(crate) const PROPERTY_GET: u8 = 0x04;
}

/// The data of Connect, 1024 bytes (NVMe base 2.0, figure 385).
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ConnectData {
    host_id: [u8; 16],
    controller: U16,
    reserved: [u8; 238],
    subsystem: [u8; 256],
    host: [u8; 256],
    reserved_too: [u8; 256],
}

pub(crate) const CONNECT_LEN: usize = size_of::<ConnectData>();
const _: () = assert!(CONNECT_LEN == 1024);

/// A Connect command, as the host sent it.
pub(crate) struct Connect {
    pub(crate) qid: u16,
    /// Entries of the queue, counted from 0.
    pub(crate) entries: u16,
    /// The host does not use queue heads.
    pub(crate) no_flow_control: bool,
    keep_alive: u32,
    controller: u16,
    host: Host,
    pub(crate) subsystem: String,
}

/// Refuses a Connect: with the offset of the wrong parameter, in the data or in the command.
pub(crate) fn invalid(offset: u16, in_data: bool) -> Answer {
    let result = u64::from(offset) | u64::from(in_data) << 16;
    Answer { result, ..Status::CONNECT_PARAMETERS.into() }
}

impl Connect {
    pub(crate) fn parse(sqe: &Sqe, data: &[u8]) -> Result<Self, Answer> {
        if sqe.cdw10.get() & 0xffff != 0 {
            return Err(Status::CONNECT_FORMAT.into());
        }
        let (parsed, _) =
            ConnectData::ref_from_prefix(data).map_err(|_| Answer::from(Status::SGL_LENGTH))?;
        Ok(Self {
            qid: (sqe.cdw10.get() >> 16) as u16,
            entries: sqe.cdw11.get() as u16,
            no_flow_control: sqe.cdw11.get() >> 18 & 1 != 0,
            keep_alive: sqe.cdw12.get(),
            controller: parsed.controller.get(),
            host: Host {
                id: parsed.host_id,
                nqn: nqn(&parsed.host).ok_or_else(|| invalid(512, true))?,
            },
            subsystem: nqn(&parsed.subsystem).ok_or_else(|| invalid(256, true))?,
        })
    }

    /// Makes the controller for an admin queue, or finds that of an I/O queue.
    pub(crate) fn admit(
        &self,
        subsystem: &Subsystem,
        local: std::net::SocketAddr,
    ) -> Result<Arc<Controller>, Answer> {
        let kind = match &*self.subsystem {
            DISCOVERY_NQN => Kind::Discovery,
            name if name == subsystem.options.nqn => Kind::Storage,
            _ => return Err(invalid(256, true)),
        };
        if self.entries == 0 || self.entries > crate::controller::MAX_ENTRIES {
            return Err(invalid(44, false));
        }
        if self.qid != 0 {
            return self.find(kind, subsystem);
        }
        // Controllers are made when hosts connect, so a host cannot ask for a certain one.
        if self.controller != u16::MAX {
            return Err(invalid(16, true));
        }
        let make = |id| {
            let (host, keep_alive) = (self.host.clone(), self.keep_alive);
            Controller::new(id, kind, host, local, keep_alive).map(Arc::new)
        };
        subsystem.add(make).ok_or_else(|| Status::CONNECT_BUSY.into())
    }

    fn find(&self, kind: Kind, subsystem: &Subsystem) -> Result<Arc<Controller>, Answer> {
        let controller = subsystem.controller(self.controller);
        let controller = controller.filter(|known| known.kind == kind && known.host == self.host);
        let controller = controller.ok_or_else(|| invalid(16, true))?;
        if kind == Kind::Discovery || self.qid > controller.io_queues() {
            return Err(invalid(42, false));
        }
        if !controller.is_ready() {
            return Err(Status::CONNECT_BUSY.into());
        }
        Ok(controller)
    }
}

/// A qualified name: up to 223 bytes of UTF-8 and a zero.
fn nqn(field: &[u8; 256]) -> Option<String> {
    let end = field.iter().position(|&byte| byte == 0)?;
    let name = std::str::from_utf8(&field[..end]).ok()?;
    (name.starts_with("nqn.") && name.len() <= 223).then(|| name.to_owned())
}

/// How many bytes the host has to send with an admin command.
pub(crate) fn takes(sqe: &Sqe) -> usize {
    match (sqe.opcode, sqe.cdw10.get() as u8) {
        (SET_FEATURES, HOST_BEHAVIOUR) => HOST_BEHAVIOUR_LEN,
        _ => 0,
    }
}

/// Executes an admin command. Event requests are not among them, because they wait.
pub(crate) fn execute(
    sqe: &Sqe,
    data: &[u8],
    subsystem: &Subsystem,
    controller: &Controller,
) -> Answer {
    let answer = match sqe.opcode {
        // These are allowed before a controller is ready; the others are of no use then.
        _ if !controller.is_ready() => Err(Status::COMMAND_SEQUENCE),
        IDENTIFY => identify::identify(sqe, subsystem, controller).map(Answer::bytes),
        GET_LOG_PAGE => logs::page(sqe, subsystem, controller).map(Answer::bytes),
        SET_FEATURES => set_feature(sqe, data, subsystem, controller),
        GET_FEATURES => get_feature(sqe, controller),
        // Commands end soon by themselves, so none is aborted.
        ABORT => Ok(Answer::with(1)),
        KEEP_ALIVE => Ok(Answer::done()),
        _ => Err(Status::INVALID_OPCODE),
    };
    answer.unwrap_or_else(Answer::from)
}

fn set_feature(
    sqe: &Sqe,
    data: &[u8],
    subsystem: &Subsystem,
    controller: &Controller,
) -> Result<Answer, Status> {
    if sqe.cdw10.get() as u8 == QUEUES {
        if controller.kind == Kind::Discovery {
            return Err(Status::INVALID_FIELD);
        }
        let (submission, completion) = (sqe.cdw11.get() as u16, (sqe.cdw11.get() >> 16) as u16);
        if submission == u16::MAX || completion == u16::MAX {
            return Err(Status::INVALID_FIELD);
        }
        let granted = u64::from(controller.grant_io_queues(submission.min(completion))?);
        return Ok(Answer::with(granted | granted << 16));
    }
    let cached = subsystem.units.iter().any(|unit| unit.ssd().identify().volatile_cache);
    controller.features(|features| features.set(sqe, data, cached))?;
    if sqe.cdw10.get() as u8 == WRITE_CACHE {
        // When the cache is switched off, its contents must be written first.
        flush(subsystem).map_err(Status::from)?;
    }
    Ok(Answer::done())
}

fn get_feature(sqe: &Sqe, controller: &Controller) -> Result<Answer, Status> {
    if sqe.cdw10.get() as u8 == QUEUES && sqe.cdw10.get() >> 8 & 7 == 0 {
        let granted = u64::from(controller.io_queues() - 1);
        return Ok(Answer::with(granted | granted << 16));
    }
    let (value, data) = controller.features(|features| features.get(sqe))?;
    let answer = if data.is_empty() { Answer::done() } else { Answer::bytes(data) };
    Ok(Answer { result: value.into(), ..answer })
}

/// Property Get and Set.
pub(crate) fn property(sqe: &Sqe, subsystem: &Subsystem, controller: &Controller) -> Answer {
    let (offset, long) = (sqe.cdw11.get(), sqe.cdw10.get() & 7 == 1);
    if sqe.fabrics_kind() == fabrics::PROPERTY_GET {
        return controller.property(offset, long).map_or_else(Answer::from, Answer::with);
    }
    let value = u64::from(sqe.cdw12.get()) | u64::from(sqe.cdw13.get()) << 32;
    match controller.set_property(offset, long, value) {
        Ok(true) => {
            // After an orderly shutdown everything that the host wrote is durable. A drive that
            // fails to flush shuts down all the same, as a real one would.
            let _lost = flush(subsystem);
            controller.is_shut_down();
            Answer::done()
        }
        Ok(false) => Answer::done(),
        Err(status) => status.into(),
    }
}

/// Flushes all drives, and waits until they have.
pub(crate) fn flush(subsystem: &Subsystem) -> Result<(), drive::Status> {
    let flush = |unit: &crate::namespace::Unit| {
        let Some(queue) = unit.ssd().open_queue() else { return Err(drive::Status::NotReady) };
        let done = unit.drive().issue(queue, 0, Command::Flush);
        let done = done.or_else(|| unit.drive().wait_for(queue, 0));
        unit.ssd().close_queue(queue);
        done.map_or(Err(drive::Status::NotReady), |done| done.result.map(drop))
    };
    subsystem.units.iter().try_for_each(flush)
}
