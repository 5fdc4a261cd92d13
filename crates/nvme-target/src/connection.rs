//! One TCP connection, one thread: bytes in, commands, answers out.
//!
//! The thread takes all bytes that are there, works on every whole PDU among them, and sends all
//! answers in one system call before it sleeps. This makes deep queues fast. It never sleeps in a
//! write, so a host that writes much before it reads is served. If a host lets its answers pile up,
//! nothing more is read from it until it reads them.

use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;

use cores::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use zerocopy::FromBytes;

use crate::input::Input;
use crate::pdu::check_header;
use crate::pdu::{COMMON, Common, DIGEST, DataHeader, Digests, Fatal, Initialize, Kind, Shape};
use crate::queue::Queue;
use crate::subsystem::Subsystem;

/// If more bytes of answers than this wait, the host must read some before more is done.
const MAX_ANSWERS: usize = 4 << 20;
/// How long a host may take to read which fatal error it made.
const FAREWELL: Nanos = 1_000_000_000;
/// A second.
const SECOND: Nanos = 1_000_000_000;

/// Why a connection ends.
#[derive(Debug)]
enum End {
    /// The host closed it, or the controller is gone.
    Closed,
    /// The host was silent when it should have sent or read something.
    Silent,
    /// The socket failed.
    Failed,
    /// The drive has no power, so nothing more is sent.
    PowerLost,
    /// The host broke the rules.
    Fatal(Fatal, Vec<u8>),
}

impl From<Errno> for End {
    fn from(_: Errno) -> Self {
        Self::Failed
    }
}

/// What the next bytes are.
#[derive(Clone, Copy)]
enum Reading {
    Header,
    /// Data for the command in this slot.
    Data {
        slot: u16,
        left: usize,
        digest: Option<u32>,
    },
    /// The digest of such data.
    Digest {
        slot: u16,
        expected: u32,
    },
}

struct Connection {
    subsystem: Arc<Subsystem>,
    link: Arc<TcpStream>,
    input: Input,
    queue: Queue,
    reading: Reading,
    initialized: bool,
    /// When the host last met its obligations.
    progress: Nanos,
}

/// Serves `link` until it ends. If there are too many connections, this one is `busy` and is told
/// so.
pub(crate) fn serve(subsystem: Arc<Subsystem>, link: Arc<TcpStream>, busy: bool) {
    prepare(&link);
    let mut connection = Connection {
        queue: Queue::new(subsystem.clone(), link.clone(), busy),
        subsystem,
        link,
        input: Input::new(),
        reading: Reading::Header,
        initialized: false,
        progress: cores::now(),
    };
    match connection.run() {
        End::Fatal(fatal, blamed) => connection.say_farewell(fatal, &blamed),
        End::PowerLost => connection.subsystem.power_lost(),
        End::Closed | End::Silent | End::Failed => {}
    }
    // It was not connected any more, which is all we want.
    let _ = connection.link.shutdown(Shutdown::Both);
}

/// Makes small answers go at once, shows when a host has vanished, and makes timers exact.
fn prepare(link: &TcpStream) {
    // If one of these cannot be set, the connection is slower but not wrong.
    let _ = link.set_nodelay(true);
    let _ = rustix::net::sockopt::set_socket_keepalive(link, true);
    let _ = rustix::net::sockopt::set_tcp_keepidle(link, std::time::Duration::from_secs(30));
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZero::new(1));
}

impl Connection {
    fn run(&mut self) -> End {
        loop {
            if let Err(end) = self.turn() {
                return end;
            }
        }
    }

    /// Does everything that can be done, and waits for more.
    fn turn(&mut self) -> Result<(), End> {
        let subsystem = self.subsystem.clone();
        let gate = subsystem.enter();
        if self.queue.has_ended() {
            return Err(End::Closed);
        }
        let mut worked = self.queue.collect(MAX_ANSWERS);
        worked |= self.process()?;
        self.queue.tell_events();
        if self.queue.power_lost {
            return Err(End::PowerLost);
        }
        drop(gate);
        if std::mem::take(&mut self.queue.power_lost_politely) {
            // Before the host is told of a success that never happened: its reaction would come too
            // late for any drive.
            subsystem.power_lost_politely();
        }
        let stopped = self.queue.answers.output.left() >= MAX_ANSWERS;
        if self.queue.answers.output.send(&self.link)? {
            self.progress = cores::now();
        }
        self.look_at_introduction()?;
        let full = self.queue.answers.output.left() >= MAX_ANSWERS;
        if stopped && !full {
            // Earlier commands are not finished, and the host sends no more.
            return Ok(());
        }
        if worked && !full { self.listen() } else { self.wait(full) }
    }

    /// Ends the connection if the host does not prove its identity in time, or fails to.
    fn look_at_introduction(&self) -> Result<(), End> {
        let Some(deadline) = self.queue.introduce_by() else { return Ok(()) };
        if self.queue.has_failed() && self.queue.answers.output.left() == 0 {
            return Err(End::Closed);
        }
        if deadline <= cores::now() { Err(End::Silent) } else { Ok(()) }
    }

    /// Takes what has arrived. Sleeps only if nothing else can happen.
    fn listen(&mut self) -> Result<(), End> {
        // While data streams in, there is nearly always more.
        let streams = matches!(self.reading, Reading::Data { .. });
        if (self.may_sleep_in_receive() || streams) && self.receive(!streams)? {
            return Ok(());
        }
        self.wait(false)
    }

    /// Whether only the host's next bytes can end a sleep.
    fn may_sleep_in_receive(&self) -> bool {
        let io = self.queue.introduce_by().is_none() && self.queue.administers().is_none();
        io && self.queue.answers.output.left() == 0 && self.queue.due().is_none() && !self.is_owed()
    }

    /// Whether the host has begun something that it has to finish.
    fn is_owed(&self) -> bool {
        self.queue.is_owed()
            || self.queue.answers.output.left() > 0
            || !matches!(self.reading, Reading::Header)
            || !self.input.bytes().is_empty()
    }

    /// Receives once. True if anything came.
    fn receive(&mut self, wait: bool) -> Result<bool, End> {
        let read = match self.reading {
            Reading::Data { slot, left, digest } if self.input.bytes().is_empty() => {
                let transfer = self.queue.transfer(slot).ok_or(End::Closed)?;
                let read = self.input.receive_for(&self.link, transfer, left);
                if let Ok(read) = read {
                    let now = read.min(left);
                    let digest = transfer.advance(now, digest);
                    self.reading = Reading::Data { slot, left: left - now, digest };
                }
                read
            }
            _ => self.input.receive(&self.link, wait),
        };
        match read {
            Ok(0) => Err(End::Closed),
            Ok(_) => {
                self.progress = cores::now();
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sleeps until there is something to do: bytes, room for answers, a completion, an event, or a
    /// deadline. With `full`, nothing is read from the host.
    fn wait(&mut self, full: bool) -> Result<(), End> {
        let limits = &self.subsystem.options;
        let now = cores::now();
        let stalled = self.is_owed().then(|| self.progress.saturating_add(limits.patience));
        let admin = self.queue.administers().cloned();
        let silent = admin.as_ref().and_then(|controller| controller.deadline());
        let deadlines = [self.queue.due(), stalled, silent, self.queue.introduce_by()];
        let wake = deadlines.into_iter().flatten().min();
        let timeout = wake.map(|at| span(at.saturating_sub(now)));
        let left = self.queue.answers.output.left() > 0;
        let mut interest = PollFlags::empty();
        interest.set(PollFlags::IN, !full);
        interest.set(PollFlags::OUT, left);
        let mut fds = [PollFd::new(&*self.link, interest), PollFd::new(&*self.link, interest)];
        let mut used = 1;
        if let Some(controller) = &admin {
            fds[1] = PollFd::from_borrowed_fd(controller.bell().as_fd(), PollFlags::IN);
            used = 2;
        }
        let ready = match poll(&mut fds[..used], timeout.as_ref()) {
            Ok(ready) => ready,
            Err(Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        let seen = fds[0].revents();
        let rung = used == 2 && fds[1].revents().contains(PollFlags::IN);
        if let Some(controller) = admin.filter(|_| rung) {
            let mut count = [0; 8];
            // It does not matter if it was rung again, because all events are handled next.
            let _ = rustix::io::read(controller.bell(), &mut count);
        }
        if seen.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) && !full {
            return self.receive(false).map(drop);
        }
        if full && seen.intersects(PollFlags::HUP | PollFlags::ERR) {
            return Err(End::Closed);
        }
        let now = cores::now();
        let over = |at: Option<Nanos>| ready == 0 && at.is_some_and(|at| at <= now);
        if (over(stalled) || over(silent)) && !self.subsystem.is_frozen() {
            Err(End::Silent)
        } else {
            Ok(())
        }
    }

    /// Works on what has arrived. True if there was anything.
    fn process(&mut self) -> Result<bool, End> {
        let mut any = false;
        while self.queue.answers.output.left() < MAX_ANSWERS && !self.queue.power_lost {
            let went_on = match self.reading {
                Reading::Header => self.next_pdu()?,
                Reading::Data { slot, left, digest } => self.take_data(slot, left, digest),
                Reading::Digest { slot, expected } => self.take_digest(slot, expected),
            };
            if !went_on {
                break;
            }
            any = true;
        }
        Ok(any)
    }

    fn take_data(&mut self, slot: u16, left: usize, digest: Option<u32>) -> bool {
        let bytes = self.input.bytes();
        let now = &bytes[..bytes.len().min(left)];
        if now.is_empty() && left > 0 {
            return false;
        }
        let digest = digest.map(|digest| crc32c::crc32c_append(digest, now));
        let (len, left) = (now.len(), left - now.len());
        if let Some(transfer) = self.queue.transfer(slot) {
            transfer.put(now);
        }
        self.input.skip(len);
        self.reading = match digest {
            _ if left > 0 => Reading::Data { slot, left, digest },
            Some(expected) => Reading::Digest { slot, expected },
            None => {
                self.queue.received(slot, false);
                Reading::Header
            }
        };
        true
    }

    fn take_digest(&mut self, slot: u16, expected: u32) -> bool {
        let Some(digest) = self.input.bytes().first_chunk::<DIGEST>().copied() else {
            return false;
        };
        self.input.skip(DIGEST);
        self.queue.received(slot, u32::from_le_bytes(digest) != expected);
        self.reading = Reading::Header;
        true
    }

    /// Works on the next PDU, if enough of it has arrived.
    fn next_pdu(&mut self) -> Result<bool, End> {
        let bytes = self.input.bytes();
        let Ok((common, _)) = Common::read_from_prefix(bytes) else { return Ok(false) };
        let blame = |fatal| End::Fatal(fatal, bytes[..bytes.len().min(128)].to_vec());
        let digests = self.queue.answers.digests();
        let shape = Shape::of(&common, digests).map_err(blame)?;
        let in_order = self.initialized == (shape.kind != Kind::IcReq);
        if !in_order && shape.kind != Kind::H2cTermReq {
            return Err(blame(Fatal::Sequence));
        }
        let streamed = shape.kind == Kind::H2cData;
        let enough = if streamed { shape.data_at } else { shape.whole };
        let Some(pdu) = bytes.get(..enough) else { return Ok(false) };
        match shape.kind {
            Kind::H2cTermReq => return Err(End::Closed),
            Kind::IcReq => {
                let (digests, align) = initialize(pdu).map_err(blame)?;
                self.initialized = true;
                self.queue.answers.initialize(digests, align);
            }
            Kind::CapsuleCmd => {
                check_header(pdu, shape.header, digests).map_err(blame)?;
                let data = &pdu[shape.data_at..shape.data_at + shape.data];
                let digest = pdu[shape.data_at + shape.data..].first_chunk::<DIGEST>();
                let damaged = digests.data
                    && digest.is_some_and(|d| u32::from_le_bytes(*d) != crc32c::crc32c(data));
                self.queue.capsule(&pdu[COMMON..shape.header], data, damaged).map_err(blame)?;
            }
            Kind::H2cData => {
                check_header(pdu, shape.header, digests).map_err(blame)?;
                let (header, _) =
                    DataHeader::read_from_prefix(pdu).map_err(|_| blame(Fatal::HeaderField(2)))?;
                if header.length.get() as usize != shape.data {
                    return Err(blame(Fatal::HeaderField(16)));
                }
                let slot = self.queue.expect(&header, shape.last).map_err(blame)?;
                let digest = digests.data.then_some(0);
                self.reading = Reading::Data { slot, left: shape.data, digest };
            }
        }
        self.input.skip(enough);
        Ok(true)
    }

    /// Tells the host why the connection ends, and gives it time to read that. If a socket is
    /// closed with unread bytes, the message is lost.
    fn say_farewell(&mut self, fatal: Fatal, blamed: &[u8]) {
        self.queue.answers.terminate(fatal, blamed);
        let end = cores::now().saturating_add(FAREWELL);
        let mut rest = vec![0; 1 << 16];
        let mut said = false;
        while cores::now() < end {
            if self.queue.answers.output.send(&self.link).is_err() {
                return;
            }
            let left = self.queue.answers.output.left() > 0;
            if !left && !said {
                said = true;
                let _ = self.link.shutdown(Shutdown::Write);
            }
            let interest = if left { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            let mut fds = [PollFd::new(&*self.link, interest)];
            let _ = poll(&mut fds, Some(&span(end.saturating_sub(cores::now()))));
            if fds[0].revents().contains(PollFlags::IN)
                && !matches!(rustix::io::read(&*self.link, &mut rest), Ok(1..))
            {
                return;
            }
        }
    }
}

/// Checks ICReq, and returns what it asks for.
fn initialize(pdu: &[u8]) -> Result<(Digests, u8), Fatal> {
    let (request, _) = Initialize::read_from_prefix(pdu).map_err(|_| Fatal::HeaderField(4))?;
    if request.pfv.get() != 0 {
        return Err(Fatal::Unsupported(8));
    }
    if request.align > 31 {
        return Err(Fatal::HeaderField(10));
    }
    if request.digests > 3 {
        return Err(Fatal::HeaderField(11));
    }
    Ok((Digests::from_bits(request.digests), request.align))
}

fn span(time: Nanos) -> Timespec {
    Timespec { tv_sec: (time / SECOND) as i64, tv_nsec: (time % SECOND) as i64 }
}

const _: () = assert!(size_of::<Common>() == COMMON);
