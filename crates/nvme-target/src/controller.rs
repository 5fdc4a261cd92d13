//! A controller: the properties a host sets and reads (NVMe base 2.0, section 3.1.3), its features,
//! its asynchronous events, and the connections that are its queues.

use std::collections::VecDeque;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cores::{Mutex, Nanos};
use rustix::event::EventfdFlags;
use rustix::io::Errno;

use crate::command::Status;
use crate::features::Features;

/// Entries of a queue, counted from 0.
pub(crate) const MAX_ENTRIES: u16 = 127;
/// I/O queues of a controller.
pub(crate) const MAX_IO_QUEUES: u16 = 64;
/// Asynchronous event requests a host may have outstanding.
pub(crate) const MAX_EVENT_REQUESTS: usize = 4;
/// The most events that wait for a request. The newest are dropped first.
const MAX_EVENTS: usize = 64;

/// NVMe base 2.0, figure 36: entries, contiguous queues, 15 s until ready, the NVM command set, and
/// others by their identifiers.
const CAP: u64 = MAX_ENTRIES as u64 | 1 << 16 | 30 << 24 | 1 << 37 | 1 << 43;
const VERSION: u32 = 0x0002_0000;

const CC_ENABLE: u32 = 1;
const CC_SHUTDOWN: u32 = 3 << 14;
const CSTS_READY: u32 = 1;
const CSTS_FATAL: u32 = 1 << 1;
const CSTS_SHUTDOWN_DONE: u32 = 2 << 2;

/// The subsystem to which a controller belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Discovery,
    Storage,
}

/// The host that connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) id: [u8; 16],
    pub(crate) nqn: String,
}

/// Something that a host asked to be notified about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Type, information and log page, in the form of a completion.
    dword: u32,
    namespace: u32,
    /// Its bit in the event configuration feature.
    enabled_by: u32,
}

impl Event {
    /// A zone's descriptor changed: notice, EFh, log BFh.
    pub(crate) fn zones_changed(namespace: u32) -> Self {
        Self { dword: 0x00bf_ef02, namespace, enabled_by: ZONES_CHANGED }
    }

    /// Dwords 0 and 1 of the completion.
    pub(crate) fn result(self) -> u64 {
        u64::from(self.dword) | u64::from(self.namespace) << 32
    }
}

/// Event configuration: zone descriptors changed.
pub(crate) const ZONES_CHANGED: u32 = 1 << 27;

pub(crate) struct Controller {
    pub(crate) id: u16,
    pub(crate) kind: Kind,
    pub(crate) host: Host,
    /// The address to which the host connected.
    pub(crate) local: SocketAddr,
    state: Mutex<State>,
    /// It has ended: nothing more is done for it, and nothing is sent.
    ended: AtomicBool,
    /// Writes are forced, because the host turned the write cache off.
    force: AtomicBool,
    /// Woken when there is an event to report.
    bell: OwnedFd,
}

struct State {
    cc: u32,
    csts: u32,
    keep_alive: Nanos,
    heard: Nanos,
    features: Features,
    io_queues: u16,
    requests: VecDeque<u16>,
    events: VecDeque<Event>,
    /// Reported events of which the log has not been read since.
    told: Vec<Event>,
    changed_zones: Vec<(u32, u64)>,
    links: Vec<(u16, Arc<TcpStream>)>,
}

impl Controller {
    pub(crate) fn new(
        id: u16,
        kind: Kind,
        host: Host,
        local: SocketAddr,
        keep_alive: u32,
    ) -> Result<Self, Errno> {
        let bell = rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let state = State {
            cc: 0,
            csts: 0,
            keep_alive: Nanos::from(keep_alive) * 1_000_000,
            heard: cores::now(),
            features: Features::new(keep_alive),
            io_queues: MAX_IO_QUEUES,
            requests: VecDeque::new(),
            events: VecDeque::new(),
            told: Vec::new(),
            changed_zones: Vec::new(),
            links: Vec::new(),
        };
        let (ended, force) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { id, kind, host, local, state: Mutex::new(state), ended, force, bell })
    }

    /// Whether both are the same controller.
    pub(crate) fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }

    /// Adds a connection as queue `qid`.
    pub(crate) fn attach(&self, qid: u16, link: &Arc<TcpStream>) -> Result<(), Status> {
        let mut state = self.state.lock();
        if self.has_ended() || state.links.iter().any(|(known, _)| *known == qid) {
            return Err(Status::COMMAND_SEQUENCE);
        }
        state.links.push((qid, link.clone()));
        Ok(())
    }

    /// Removes a connection that has ended.
    pub(crate) fn detach(&self, qid: u16) {
        self.state.lock().links.retain(|(known, _)| *known != qid);
    }

    /// Ends all connections. Their threads notice it.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.cut_links(|_| true);
    }

    fn cut_links(&self, which: impl Fn(u16) -> bool) {
        let links: Vec<_> = {
            let mut state = self.state.lock();
            let (gone, kept) =
                std::mem::take(&mut state.links).into_iter().partition(|(qid, _)| which(*qid));
            state.links = kept;
            gone
        };
        for (_, link) in links {
            // It was not connected any more, which is all we want.
            let _ = link.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub(crate) fn forces_writes(&self) -> bool {
        self.force.load(Ordering::Relaxed)
    }

    pub(crate) fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.state.lock().csts & (CSTS_READY | CSTS_FATAL) == CSTS_READY
    }

    /// Which command sets the host selected. False means the NVM command set alone.
    pub(crate) fn all_command_sets(&self) -> bool {
        self.state.lock().cc >> 4 & 7 == 6
    }

    /// Reads a property. The host says whether it reads 4 bytes or 8.
    pub(crate) fn property(&self, offset: u32, long: bool) -> Result<u64, Status> {
        let state = self.state.lock();
        match (offset, long) {
            (0x00, true) => Ok(CAP),
            (0x08, false) => Ok(VERSION.into()),
            (0x14, false) => Ok(state.cc.into()),
            (0x1c, false) => Ok(state.csts.into()),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// Sets a property. True if the host asked for a shutdown, which the caller then carries out.
    pub(crate) fn set_property(&self, offset: u32, long: bool, value: u64) -> Result<bool, Status> {
        if offset != 0x14 || long {
            return Err(Status::INVALID_FIELD);
        }
        let cc = value as u32;
        let mut state = self.state.lock();
        let before = std::mem::replace(&mut state.cc, cc);
        let mut reset = false;
        match (before & CC_ENABLE != 0, cc & CC_ENABLE != 0) {
            (false, true) => {
                // Pages of 4 KiB, entries of 64 and 16 bytes (the latter may be set later), and the
                // NVM command set, all of them, or none.
                let (sets, pages) = (cc >> 4 & 7, cc >> 7 & 15);
                let fine = matches!(sets, 0 | 6) && pages == 0;
                state.csts = if fine { CSTS_READY } else { CSTS_FATAL };
            }
            (true, false) => {
                state.csts = 0;
                state.features = Features::new(state.features.keep_alive());
                self.force.store(false, Ordering::Relaxed);
                (state.requests, state.events) = Default::default();
                state.told.clear();
                reset = true;
            }
            _ => {}
        }
        let shutdown = cc & CC_SHUTDOWN != 0 && before & CC_SHUTDOWN == 0;
        drop(state);
        if reset {
            self.cut_links(|qid| qid != 0);
        }
        Ok(shutdown)
    }

    /// Notes that the requested shutdown is complete.
    pub(crate) fn is_shut_down(&self) {
        self.state.lock().csts |= CSTS_SHUTDOWN_DONE;
    }

    /// Notes that the host was heard from.
    pub(crate) fn heard(&self) {
        self.state.lock().heard = cores::now();
    }

    /// By when the host must be heard from again. `None` if it set no keep-alive timeout.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        let state = self.state.lock();
        // One more step of the granularity that Identify reports.
        let patience = state.keep_alive.saturating_add(1_000_000_000);
        (state.keep_alive > 0).then(|| state.heard.saturating_add(patience))
    }

    /// How many I/O queues the host may have.
    pub(crate) fn io_queues(&self) -> u16 {
        self.state.lock().io_queues
    }

    /// Grants I/O queues, counted from 0, if the host has none yet.
    pub(crate) fn grant_io_queues(&self, wanted: u16) -> Result<u16, Status> {
        let mut state = self.state.lock();
        if state.links.iter().any(|(qid, _)| *qid != 0) {
            return Err(Status::COMMAND_SEQUENCE);
        }
        state.io_queues = wanted.saturating_add(1).min(MAX_IO_QUEUES);
        Ok(state.io_queues - 1)
    }

    /// Reads and changes the features.
    pub(crate) fn features<T>(&self, change: impl FnOnce(&mut Features) -> T) -> T {
        let mut state = self.state.lock();
        let value = change(&mut state.features);
        state.keep_alive = Nanos::from(state.features.keep_alive()) * 1_000_000;
        self.force.store(!state.features.write_cache(), Ordering::Relaxed);
        value
    }

    /// Takes an event request.
    pub(crate) fn ask_event(&self, cid: u16) -> Result<(), Status> {
        let mut state = self.state.lock();
        if state.requests.len() >= MAX_EVENT_REQUESTS {
            return Err(Status::EVENT_LIMIT);
        }
        state.requests.push_back(cid);
        Ok(())
    }

    /// The event to report now, and the request that it answers.
    pub(crate) fn take_event(&self) -> Option<(u16, Event)> {
        let mut state = self.state.lock();
        let State { requests, events, told, features, .. } = &mut *state;
        let enabled = features.events();
        let wanted = |event: &Event| event.enabled_by & enabled != 0 && !told.contains(event);
        let at = events.iter().position(wanted)?;
        let cid = requests.pop_front()?;
        let event = events.remove(at)?;
        told.push(event);
        Some((cid, event))
    }

    fn tell(&self, state: &mut State, event: Event) {
        if state.events.len() < MAX_EVENTS && !state.events.contains(&event) {
            state.events.push_back(event);
        }
        // If the pipe is full, the bell has been rung already.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Notes that the zone that starts at `lba` of a namespace is no longer as the host left it.
    pub(crate) fn zone_changed(&self, namespace: u32, lba: u64) {
        let mut state = self.state.lock();
        if !state.changed_zones.contains(&(namespace, lba)) {
            state.changed_zones.push((namespace, lba));
        }
        self.tell(&mut state, Event::zones_changed(namespace));
    }

    /// Zones of a namespace that have changed since the host last asked.
    pub(crate) fn changed_zones(&self, namespace: u32, retain: bool) -> Vec<u64> {
        let mut state = self.state.lock();
        let of = |(nsid, _): &&(u32, u64)| *nsid == namespace;
        let zones = state.changed_zones.iter().filter(of).map(|(_, lba)| *lba).collect();
        if !retain {
            state.changed_zones.retain(|(nsid, _)| *nsid != namespace);
            // Events that came meanwhile were read along with it.
            let other = |event: &Event| *event != Event::zones_changed(namespace);
            state.told.retain(other);
            state.events.retain(other);
        }
        zones
    }
}
