//! Multi-queue block layer: per-core submission, tags, write order per sequential zone.
//!
//! A command goes to a hardware queue of the drive under a tag and comes back by its [`Ticket`].
//! Invariants:
//!
//! - a tag is bound to one command from its submission to the taking of its completion, and free
//!   from then on, whether or not the ticket's owner has asked yet: many more tickets may be out
//!   than the drive has tags;
//! - all writes to one sequential zone use one hardware queue, and no more than one is in flight
//!   unless [`ZoneOrder::Free`] allows it; the others wait in the order of their submission;
//! - in the steady state no command allocates: tickets and tags live in tables that only grow.
#![forbid(unsafe_code)]

mod deadline;
mod error;
mod flush;
mod hw;
mod io;
mod options;
pub mod plan;
mod plug;
mod request;
mod slots;
mod tags;

use std::sync::Arc;

use cores::Stage;
use drive::{Block, Blocks, Command, Drive, Identify, Lba, Output, Status, Zone, ZoneAction};

use deadline::MqDeadline;
pub use error::{IoError, Verb};
use flush::JoinedFlush;
use hw::{HwQueue, Sent, Wire};
pub use io::{Io, WriteSet};
pub use options::{Linux, Options, QueueStats, Scheduler, ZoneOrder};
pub use plug::Plug;
use plug::SoftQueue;
use request::{Limits, Part, Parts, Request};
use slots::Progress;

/// A command under way. Pass it to [`BlockQueue::wait`] or [`BlockQueue::detach`].
#[must_use = "a command that nobody waits for is never known to have succeeded"]
#[derive(Debug)]
pub struct Ticket {
    queue: u16,
    sent: Sent,
    verb: Verb,
    lba: Lba,
    blocks: u64,
    /// It is a forced write, made stable by a flush once the drive has taken it.
    flush_after: bool,
}

impl Ticket {
    /// Whether the drive answered when the command was submitted. False says nothing: the command
    /// may have completed since.
    pub fn is_answered(&self) -> bool {
        matches!(self.sent, Sent::Done(_))
    }
}

/// The block layer over one drive. Share it by reference or in an [`Arc`].
pub struct BlockQueue {
    drive: Arc<dyn Drive>,
    hw: Box<[HwQueue]>,
    identify: Identify,
    options: Options,
    /// One per core. A request lies in that of a core mapped to its hardware queue.
    soft: Box<[SoftQueue]>,
    scheduler: Option<MqDeadline>,
    joined: JoinedFlush,
}

impl BlockQueue {
    /// A block layer over `drive` as a file system in this process wants it: no scheduler, one
    /// write in flight per sequential zone, tags under the lock of their hardware queue.
    pub fn new(drive: Arc<dyn Drive>) -> Self {
        Self::set_up(drive, Options::default(), true)
    }

    /// A block layer over `drive` as Linux's blk-mq, set up by `options`.
    pub fn with(drive: Arc<dyn Drive>, options: Options) -> Self {
        Self::set_up(drive, options, false)
    }

    fn set_up(drive: Arc<dyn Drive>, options: Options, plain: bool) -> Self {
        let identify = drive.identify().clone();
        let queues = 0..identify.queues.max(1);
        let hw = queues.map(|queue| HwQueue::new(&identify, queue, options, plain)).collect();
        let cores = cores::core_count().max(usize::from(identify.queues));
        let zones = identify.zones.map_or(0, |zones| zones.count as usize);
        let scheduled = options.scheduler == Scheduler::MqDeadline;
        Self {
            drive,
            hw,
            identify,
            options,
            soft: (0..cores).map(|_| SoftQueue::new()).collect(),
            scheduler: scheduled.then(|| MqDeadline::new(zones)),
            joined: JoinedFlush::default(),
        }
    }

    /// Size, zones and limits of the drive.
    pub fn identify(&self) -> &Identify {
        &self.identify
    }

    /// The drive below.
    pub fn drive(&self) -> &Arc<dyn Drive> {
        &self.drive
    }

    /// Sends `command`. Sleeps only if every tag of its hardware queue is in use.
    pub fn submit(&self, command: Command) -> Ticket {
        let _span = cores::span(Stage::QueueDispatch);
        self.take_in(command, false)
    }

    /// Sends `command`, or queues it if a plug holds it back or a scheduler decides about it.
    fn take_in(&self, mut command: Command, plugged: bool) -> Ticket {
        let (verb, lba, blocks) = describe(&command);
        let zone = self.sequential_zone(verb, lba);
        let queue = self.queue_for(zone);
        let ordered = self.options.zone_order != ZoneOrder::Free && verb == Verb::Write;
        let lane = zone.filter(|_| ordered);
        let flush_after = !self.options.fua && take_force(&mut command);
        let hw = &self.hw[usize::from(queue)];
        let queued =
            (plugged || self.scheduler.is_some()) && matches!(verb, Verb::Read | Verb::Write);
        let sent = self.wired(queue, |wire| {
            if queued { self.queue_up(wire, lane, command) } else { hw.submit(wire, lane, command) }
        });
        if queued && !plugged {
            self.run_queue(queue);
        }
        Ticket { queue, sent, verb, lba, blocks, flush_after }
    }

    /// Leaves `command` to the scheduler, or to the core's software queue if there is none.
    fn queue_up(&self, wire: Wire<'_>, lane: Option<u32>, command: Command) -> Sent {
        let hw = &self.hw[usize::from(wire.queue)];
        let locks = self.scheduler.is_some() && self.options.zone_order == ZoneOrder::WriteLock;
        let ahead = lane.filter(|_| !locks);
        let (_, _, blocks) = describe(&command);
        let (slot, command) = hw.enqueue(wire, ahead, command);
        let Some(command) = command else { return Sent::Slot(slot) };
        let parts = Parts::from_elem(Part { slot, blocks: blocks as u32 }, 1);
        let request = Request { command, queue: wire.queue, lane, parts };
        let limits = Limits {
            max_transfer: self.identify.max_transfer.max(1) as usize,
            zone_blocks: self.identify.zones.map(|zones| zones.size),
        };
        let merged = match &self.scheduler {
            Some(scheduler) => scheduler.insert(request, limits),
            None => self.soft[self.soft_queue(wire.queue)].insert(request, limits),
        };
        if merged {
            hw.count_merge();
        }
        Sent::Slot(slot)
    }

    /// Sends what is queued for hardware queue `queue`, as far as there are tags
    /// (`blk_mq_run_hw_queue`). The scheduler may choose requests of other hardware queues.
    fn run_queue(&self, queue: u16) {
        if self.hw[usize::from(queue)].is_full() {
            return;
        }
        let of_queue = self.soft.iter().skip(queue.into()).step_by(self.hw.len());
        let mut soft = of_queue.filter(|_| self.scheduler.is_none()).peekable();
        loop {
            let request = match (&self.scheduler, soft.peek()) {
                (Some(scheduler), _) => scheduler.next(),
                (None, Some(soft)) => soft.next(),
                (None, None) => None,
            };
            let Some(request) = request else {
                if soft.next().is_none() {
                    break;
                }
                continue;
            };
            let of = request.queue;
            let sent = self.wired(of, |wire| self.hw[usize::from(of)].dispatch(wire, request));
            if !sent && of == queue {
                break;
            }
        }
    }

    fn wired<R>(&self, queue: u16, act: impl FnOnce(Wire<'_>) -> R) -> R {
        let run = || self.run_queue(queue);
        let scheduler = self.scheduler.as_ref();
        act(Wire { drive: self.drive.as_ref(), queue, scheduler, run: &run })
    }

    /// What the hardware queues have done, in order.
    pub fn stats(&self) -> Vec<QueueStats> {
        self.hw.iter().map(HwQueue::stats).collect()
    }

    /// Sleeps until the command of `ticket` is done.
    pub fn wait(&self, ticket: Ticket) -> Result<Output, IoError> {
        let Ticket { queue, sent, verb, lba, blocks, flush_after } = ticket;
        let answer = match sent {
            Sent::Done(answer) => answer,
            Sent::Slot(slot) => {
                self.wired(queue, |wire| self.hw[usize::from(queue)].wait(wire, slot))
            }
        };
        if flush_after && answer.is_ok() {
            self.flush_joined()?;
        }
        let _span = cores::span(Stage::QueueComplete);
        answer.map_err(|status| IoError { verb, lba, blocks, status })
    }

    /// The answer for `ticket`'s command if it is done, or else the ticket again. Never sleeps.
    pub fn try_wait(&self, ticket: Ticket) -> Result<Result<Output, IoError>, Ticket> {
        let answer = match &ticket.sent {
            Sent::Done(_) if !ticket.flush_after => return Ok(self.wait(ticket)),
            Sent::Done(answer) => answer.clone(),
            Sent::Slot(slot) => {
                let hw = &self.hw[usize::from(ticket.queue)];
                self.wired(ticket.queue, |wire| hw.poll(wire));
                match hw.take(*slot) {
                    Progress::Done(answer) => answer,
                    Progress::InFlight(_) | Progress::Queued => return Err(ticket),
                }
            }
        };
        let Ticket { verb, lba, blocks, flush_after, .. } = ticket;
        if flush_after && answer.is_ok() && self.identify.volatile_cache {
            let flush = self.submit(Command::Flush);
            return Err(Ticket { verb, lba, blocks, ..flush });
        }
        Ok(answer.map_err(|status| IoError { verb, lba, blocks, status }))
    }

    /// Sleeps until every command sent before has completed, whoever waits for it. A checkpoint
    /// needs this: what other threads have submitted must be done before a flush can cover it.
    pub fn drain(&self) {
        for (queue, hw) in (0..).zip(&self.hw) {
            self.wired(queue, |wire| hw.drain(wire));
        }
    }

    /// Lets the command run by itself and drops its answer. For hints such as discards.
    pub fn detach(&self, ticket: Ticket) {
        if let Sent::Slot(slot) = ticket.sent {
            self.hw[usize::from(ticket.queue)].detach(slot);
        }
    }

    /// Sends `command` and waits for it.
    pub fn run(&self, command: Command) -> Result<Output, IoError> {
        self.wait(self.submit(command))
    }

    /// Reads one block.
    pub fn read_block(&self, lba: Lba) -> Result<Block, IoError> {
        let mut data = self.run_read(lba, 1)?;
        data.pop().ok_or(short_read(lba, 1))
    }

    /// Reads `n` blocks. If they do not fit one command, all pieces are in flight at once.
    pub fn read_blocks(&self, lba: Lba, n: u32) -> Result<Blocks, IoError> {
        let max = self.identify.max_transfer.max(1);
        if n <= max {
            return self.run_read(lba, n);
        }
        let pieces: Vec<(Lba, u32, Ticket)> = (0..n)
            .step_by(max as usize)
            .map(|at| {
                let (lba, blocks) = (lba + u64::from(at), max.min(n - at));
                (lba, blocks, self.submit(Command::Read { lba, blocks }))
            })
            .collect();
        let mut all = Ok(Blocks::with_capacity(n as usize));
        for (lba, blocks, ticket) in pieces {
            let piece = self.wait(ticket).and_then(|out| data_of(out, lba, blocks));
            match (&mut all, piece) {
                (Ok(all), Ok(piece)) => all.extend(piece),
                (Ok(_), Err(error)) => all = Err(error),
                (Err(_), _) => {}
            }
        }
        all
    }

    fn run_read(&self, lba: Lba, n: u32) -> Result<Blocks, IoError> {
        data_of(self.run(Command::Read { lba, blocks: n })?, lba, n)
    }

    /// Sends one write of at most [`Identify::max_transfer`] blocks. With `fua` it completes only
    /// when the blocks are stable.
    pub fn write(&self, lba: Lba, data: impl Into<Blocks>, fua: bool) -> Ticket {
        self.submit(Command::Write { lba, data: data.into(), fua })
    }

    /// Writes any number of blocks, in as many commands as needed, and waits.
    pub fn write_blocks(
        &self,
        lba: Lba,
        data: impl Into<Blocks>,
        fua: bool,
    ) -> Result<(), IoError> {
        let (max, data) = (self.identify.max_transfer.max(1) as usize, data.into());
        if data.len() <= max {
            return self.wait(self.write(lba, data, fua)).map(drop);
        }
        let tickets: Vec<Ticket> = data
            .chunks(max)
            .zip((lba..).step_by(max))
            .map(|(piece, lba)| self.write(lba, Blocks::from(piece), fua))
            .collect();
        let mut all = Ok(());
        for ticket in tickets {
            let done = self.wait(ticket).map(drop);
            all = all.and(done);
        }
        all
    }

    /// Makes every completed write stable, and waits for that. A drive without a volatile cache is
    /// not sent a flush (`submit_bio_noacct`).
    pub fn flush(&self) -> Result<(), IoError> {
        if !self.identify.volatile_cache {
            return Ok(());
        }
        self.run(Command::Flush).map(drop)
    }

    /// As [`BlockQueue::flush`], with one command for all callers that wait at the same time.
    pub fn flush_joined(&self) -> Result<(), IoError> {
        if !self.identify.volatile_cache {
            return Ok(());
        }
        self.joined.run(|| self.flush())
    }

    /// Tells the drive that the contents of `blocks` blocks are no longer needed, and waits.
    pub fn discard(&self, lba: Lba, blocks: u64) -> Result<(), IoError> {
        self.run(Command::Discard { lba, blocks }).map(drop)
    }

    /// All zones of the drive; none if it is not zoned.
    pub fn report_zones(&self) -> Result<Vec<Zone>, IoError> {
        if self.identify.zones.is_none() {
            return Ok(Vec::new());
        }
        match self.run(Command::ReportZones { lba: 0, max: u32::MAX })? {
            Output::Zones(zones) => Ok(zones),
            _ => Err(IoError {
                verb: Verb::ReportZones,
                lba: 0,
                blocks: 0,
                status: Status::InvalidField,
            }),
        }
    }

    /// Empties the zone that starts at `lba`.
    pub fn reset_zone(&self, lba: Lba) -> Result<(), IoError> {
        self.manage(ZoneAction::Reset, lba)
    }

    /// Fills the zone that starts at `lba`: it takes no more writes.
    pub fn finish_zone(&self, lba: Lba) -> Result<(), IoError> {
        self.manage(ZoneAction::Finish, lba)
    }

    fn manage(&self, action: ZoneAction, lba: Lba) -> Result<(), IoError> {
        self.run(Command::ManageZone { action, zone: Some(lba) }).map(drop)
    }

    /// The sequential zone to which `verb` would write at `lba`, if any.
    fn sequential_zone(&self, verb: Verb, lba: Lba) -> Option<u32> {
        let zones = self.identify.zones.as_ref()?;
        if !matches!(verb, Verb::Write | Verb::Append) {
            return None;
        }
        let zone = u32::try_from(lba.checked_div(zones.size)?).ok()?;
        (zones.conventional..zones.count).contains(&zone).then_some(zone)
    }

    fn queue_for(&self, zone: Option<u32>) -> u16 {
        let queues = self.hw.len();
        if queues == 1 {
            return 0;
        }
        let pick = zone.map_or_else(cores::current_core, |zone| zone as usize) % queues;
        u16::try_from(pick).unwrap_or(0)
    }

    /// The caller's software queue, if its core is mapped to hardware queue `queue`; otherwise that
    /// of the first core that is.
    fn soft_queue(&self, queue: u16) -> usize {
        let (core, queue) = (cores::current_core(), usize::from(queue));
        if core < self.soft.len() && core % self.hw.len() == queue { core } else { queue }
    }
}

/// Turns a forced write into a plain one; true if it was forced.
fn take_force(command: &mut Command) -> bool {
    match command {
        Command::Write { fua, .. } | Command::Append { fua, .. } => std::mem::take(fua),
        _ => false,
    }
}

fn describe(command: &Command) -> (Verb, Lba, u64) {
    match command {
        Command::Read { lba, blocks } => (Verb::Read, *lba, u64::from(*blocks)),
        Command::Write { lba, data, .. } => (Verb::Write, *lba, data.len() as u64),
        Command::Append { zone, data, .. } => (Verb::Append, *zone, data.len() as u64),
        Command::Flush => (Verb::Flush, 0, 0),
        Command::Discard { lba, blocks } => (Verb::Discard, *lba, *blocks),
        Command::ReportZones { lba, .. } => (Verb::ReportZones, *lba, 0),
        Command::ManageZone { zone, .. } => (Verb::ManageZone, zone.unwrap_or(0), 0),
    }
}

fn data_of(output: Output, lba: Lba, n: u32) -> Result<Blocks, IoError> {
    match output {
        Output::Data(data) if data.len() == n as usize => Ok(data),
        _ => Err(short_read(lba, n)),
    }
}

fn short_read(lba: Lba, n: u32) -> IoError {
    IoError { verb: Verb::Read, lba, blocks: u64::from(n), status: Status::UnrecoveredRead }
}
