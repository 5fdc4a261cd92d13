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
//! - in the steady state no command allocates: tickets and tags live in tables that only grow. Only
//!   a request that was merged to more than four blocks has memory of its own.
#![forbid(unsafe_code)]

mod at_once;
mod deadline;
mod error;
mod failures;
mod flush;
mod hw;
mod io;
mod options;
pub mod plan;
mod plug;
mod request;
mod route;
mod slices;
mod slots;
mod soft;
mod tags;

use std::sync::Arc;

use cores::Stage;
use drive::{Block, Blocks, Command, Drive, Identify, Lba, Output, Status, Zone, ZoneAction};

use at_once::AtOnce;
use deadline::MqDeadline;
pub use error::{IoError, Verb};
use failures::{Failures, What};
use flush::JoinedFlush;
use hw::{HwQueue, Sent};
pub use io::{Io, WriteSet};
pub use options::{Linux, Options, QueueStats, Scheduler, ZoneOrder};
pub use plug::Plug;
use slots::{Answer, Progress};
use soft::SoftQueue;

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
        matches!(self.sent, Sent::Done(_) | Sent::Held { .. })
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
    /// The hardware queues of a drive that answers at once, if no scheduler has a say.
    at_once: Box<[AtOnce]>,
    joined: JoinedFlush,
    failures: Failures,
    fails: Option<Box<Fails>>,
}

/// Says how a command of this kind shall fail although the drive has done it; `None` if it shall
/// not.
type Fails = dyn Fn(Verb) -> Option<Status> + Send + Sync;

impl BlockQueue {
    /// A block layer over `drive` as a file system in this process wants it: no scheduler, one
    /// write in flight per sequential zone, tags under the lock of their hardware queue.
    pub fn new(drive: Arc<dyn Drive>) -> Self {
        Self::for_files(drive, Options::default())
    }

    /// As [`BlockQueue::new`], set up by `options`.
    pub fn for_files(drive: Arc<dyn Drive>, options: Options) -> Self {
        Self::set_up(drive, options, true)
    }

    /// A block layer over `drive` as Linux's blk-mq, set up by `options`.
    pub fn with(drive: Arc<dyn Drive>, options: Options) -> Self {
        Self::set_up(drive, options, false)
    }

    fn set_up(drive: Arc<dyn Drive>, mut options: Options, plain: bool) -> Self {
        let mut identify = drive.identify().clone();
        options.fua &= identify.fua;
        identify.fua = options.fua;
        identify.queues = identify.queues.min(options.nr_hw_queues.unwrap_or(u16::MAX)).max(1);
        let hw = 0..identify.queues;
        let hw = hw.map(|queue| HwQueue::new(&identify, queue, options, plain)).collect();
        let cores = cores::core_count().max(usize::from(identify.queues));
        let zones = identify.zones.map_or(0, |zones| zones.count as usize);
        let scheduled = options.scheduler == Scheduler::MqDeadline;
        let at_once = drive.answers_at_once() && identify.zones.is_none() && !plain && !scheduled;
        let depth = options.nr_requests.unwrap_or(u16::MAX).clamp(1, identify.queue_depth.max(1));
        let queues = if at_once { identify.queues } else { 0 };
        let each = cores.div_ceil(usize::from(identify.queues));
        let at_once = (0..queues).map(|queue| AtOnce::new(depth, queue, each, options.linux));
        Self {
            at_once: at_once.collect(),
            drive,
            hw,
            identify,
            options,
            soft: (0..cores).map(|_| SoftQueue::new()).collect(),
            scheduler: scheduled.then(|| MqDeadline::new(zones)),
            joined: JoinedFlush::default(),
            failures: Failures::default(),
            fails: None,
        }
    }

    /// The same with faults: each command that succeeds fails in the way that `fails` says, once
    /// its caller has waited for it.
    pub fn failing(self, fails: impl Fn(Verb) -> Option<Status> + Send + Sync + 'static) -> Self {
        Self { fails: Some(Box::new(fails)), ..self }
    }

    /// The answer, or the fault that takes its place.
    #[inline]
    fn with_faults(&self, what: (Verb, Lba, u64), answer: Answer) -> Answer {
        match &self.fails {
            Some(fails) if answer.is_ok() => match fails(what.0) {
                Some(status) => {
                    self.failures.note(what, &Err(status));
                    Err(status)
                }
                None => answer,
            },
            _ => answer,
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

    /// What the hardware queues have done, in order.
    pub fn stats(&self) -> Vec<QueueStats> {
        if self.at_once.is_empty() {
            return self.hw.iter().map(HwQueue::stats).collect();
        }
        self.at_once.iter().map(AtOnce::stats).collect()
    }

    /// Sleeps until the command of `ticket` is done.
    pub fn wait(&self, ticket: Ticket) -> Result<Output, IoError> {
        let Ticket { queue, sent, verb, lba, blocks, flush_after } = ticket;
        let answer = match sent {
            Sent::Done(answer) => answer,
            Sent::Held { tag, answer } => {
                self.at_once[usize::from(queue)].end(tag);
                answer
            }
            Sent::Slot(slot) => {
                self.wired(queue, |wire| self.hw[usize::from(queue)].wait(wire, slot))
            }
            Sent::Soft { core, slot } => {
                let soft = &self.soft[usize::from(core)];
                soft.take(slot).unwrap_or_else(|| {
                    self.run_queue(queue);
                    soft.wait(slot)
                })
            }
        };
        if flush_after && answer.is_ok() {
            self.flush_joined()?;
        }
        let _span = cores::span(Stage::QueueComplete);
        let answer = self.with_faults((verb, lba, blocks), answer);
        answer.map_err(|status| IoError { verb, lba, blocks, status })
    }

    /// The answer for `ticket`'s command if it is done, or else the ticket again. Never sleeps.
    pub fn try_wait(&self, ticket: Ticket) -> Result<Result<Output, IoError>, Ticket> {
        let answer = match &ticket.sent {
            Sent::Done(_) if !ticket.flush_after => return Ok(self.wait(ticket)),
            Sent::Held { tag, answer } => {
                self.at_once[usize::from(ticket.queue)].end(*tag);
                answer.clone()
            }
            Sent::Done(answer) => answer.clone(),
            Sent::Slot(slot) => {
                let hw = &self.hw[usize::from(ticket.queue)];
                self.wired(ticket.queue, |wire| hw.poll(wire));
                match hw.take(*slot) {
                    Progress::Done(answer) => answer,
                    Progress::InFlight(_) | Progress::Queued => return Err(ticket),
                }
            }
            Sent::Soft { core, slot } => {
                self.run_queue(ticket.queue);
                match self.soft[usize::from(*core)].take(*slot) {
                    Some(answer) => answer,
                    None => return Err(ticket),
                }
            }
        };
        let Ticket { verb, lba, blocks, flush_after, .. } = ticket;
        if flush_after && answer.is_ok() && self.identify.volatile_cache {
            let flush = self.submit(Command::Flush);
            return Err(Ticket { verb, lba, blocks, ..flush });
        }
        let answer = self.with_faults((verb, lba, blocks), answer);
        Ok(answer.map_err(|status| IoError { verb, lba, blocks, status }))
    }

    /// How many writes and flushes of all threads have failed so far. Give it to
    /// [`BlockQueue::drain`].
    pub fn failures(&self) -> u64 {
        self.failures.count()
    }

    /// Blocks that were to be written and were not, because their command failed.
    pub fn blocks_lost(&self) -> u64 {
        self.failures.blocks()
    }

    /// Sleeps until every command sent before, by any thread, has completed, and fails if one of
    /// them was a write or a flush that failed since `failures` was counted. A checkpoint needs
    /// this: what other threads have submitted must be done before a flush can cover it.
    pub fn drain(&self, failures: u64) -> Result<(), IoError> {
        for (queue, hw) in (0..).zip(&self.hw) {
            self.wired(queue, |wire| hw.drain(wire));
        }
        if !self.at_once.is_empty() {
            (0..).take(self.at_once.len()).for_each(|queue| self.run_queue(queue));
            self.soft.iter().for_each(SoftQueue::drain);
        }
        self.failures.check(failures)
    }

    /// Lets the command run by itself and drops its answer. For hints such as discards.
    pub fn detach(&self, ticket: Ticket) {
        match ticket.sent {
            Sent::Done(_) => {}
            Sent::Held { tag, .. } => self.at_once[usize::from(ticket.queue)].end(tag),
            Sent::Slot(slot) => self.hw[usize::from(ticket.queue)].detach(slot),
            Sent::Soft { core, slot } => self.soft[usize::from(core)].detach(slot),
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
}

fn describe(command: &Command) -> What {
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
