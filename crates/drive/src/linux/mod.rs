//! The drives of the machine: a Linux block device, conventional or zoned, as a [`Drive`].
//!
//! Reads, writes and flushes go through one `io_uring` per hardware queue, straight from and to the
//! 4 KiB frames of the blocks (`O_DIRECT`); where the kernel refuses rings, through `preadv2` and
//! `pwritev2`, the short ones already in `submit`. FUA is `RWF_DSYNC`, a flush `fdatasync`, a
//! discard `BLKDISCARD`; zones are reported, reset, opened, closed and finished by the ioctls of
//! `linux/blkzoned.h`. Discards, reports and zone management have no asynchronous system calls, so
//! they are done when `submit` returns.
//!
//! Zone append is answered with [`Status::InvalidOpcode`]: the block layer offers it to file
//! systems in the kernel, but not to programs.
//!
//! Logical blocks of 512 bytes to 4 KiB are seen as 4 KiB blocks; writes of one command are not
//! torn below the device's own atomicity.

mod device;
mod errno;
pub mod interface;
mod ioctl;
mod ring;
mod sysfs;
mod zones;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cores::Mutex;
use thiserror::Error;

use crate::{Command, Completion, Drive, Identify, Lba, Output, Status};
use device::Device;
use ring::{Ring, Transfer};

/// What a device is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To change it. No other process has it open meanwhile.
    Write,
    /// To read it. No other process writes to it meanwhile.
    Read,
    /// To ask what it is, even while it is in use.
    Inspect,
}

/// Transfers of at least this many blocks are long: copying them takes longer than passing them to
/// another thread.
const LONG_BLOCKS: usize = 16;

/// Why a device cannot be used.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which device.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process has it open.
    #[error("{}: in use: it is mounted, or another program has it open", .0.display())]
    Busy(PathBuf),
    /// A directory, a character device, a socket.
    #[error("{}: neither a block device nor a file", .0.display())]
    Kind(PathBuf),
    /// A device that cannot be used because of what it is.
    #[error("{}: cannot be used: {what}", path.display())]
    Unusable {
        /// Which device.
        path: PathBuf,
        /// What it has.
        what: String,
    },
}

impl OpenError {
    fn io(path: &Path) -> impl Fn(io::Error) -> Self + '_ {
        |source| Self::Io { path: path.to_owned(), source }
    }
}

/// How commands reach the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// `io_uring`, or system calls where there is no `io_uring`.
    Best,
    /// One system call for each command: when it is submitted or, if the transfer is long, when a
    /// caller waits for it.
    Syscalls,
}

/// A Linux block device, or a plain file used like one.
pub struct BlockDevice {
    device: Arc<Device>,
    queues: Queues,
}

enum Queues {
    Rings(Box<[Ring]>),
    Syscalls(Box<[Mutex<Lane>]>),
}

/// The state of a queue without a ring.
#[derive(Default)]
struct Lane {
    /// Answers that have not been taken yet.
    done: VecDeque<Completion>,
    /// Long transfers. The thread that waits for one carries it out; meanwhile the queue is free,
    /// and so is the thread that submitted it.
    long: VecDeque<(u16, Transfer)>,
}

/// How far a command has come.
enum Begun {
    Done(Output),
    Send(Transfer),
}

impl BlockDevice {
    /// Opens the device at `path`.
    pub fn open(path: &Path, access: Access) -> Result<Self, OpenError> {
        Self::open_with(path, access, Engine::Best)
    }

    /// Opens the device at `path`, with a choice of how to talk to the kernel.
    pub fn open_with(path: &Path, access: Access, engine: Engine) -> Result<Self, OpenError> {
        let device = Arc::new(Device::open(path, access)?);
        let all = 0..device.identify.queues;
        let rings: io::Result<Box<[Ring]>> = match engine {
            Engine::Best => all.clone().map(|_| Ring::new(device.clone())).collect(),
            Engine::Syscalls => Err(io::ErrorKind::Unsupported.into()),
        };
        let queues = match rings {
            Ok(rings) => Queues::Rings(rings),
            // There is no such system call, or a filter forbids it, or no locked memory is left.
            Err(_) => Queues::Syscalls(all.map(|_| Mutex::new(Lane::default())).collect()),
        };
        Ok(Self { device, queues })
    }

    /// Whether commands go through `io_uring`.
    pub fn has_rings(&self) -> bool {
        matches!(self.queues, Queues::Rings(_))
    }

    /// Carries out `command`, or returns what is left for the queue to do.
    fn begin(&self, command: Command) -> Result<Begun, Status> {
        self.check(&command)?;
        let output = match command {
            Command::Read { lba, blocks } => {
                return Ok(Begun::Send(Transfer::Read { lba, blocks }));
            }
            Command::Write { lba, data, fua } => {
                return Ok(Begun::Send(Transfer::Write { lba, data, fua }));
            }
            Command::Flush => return Ok(Begun::Send(Transfer::Flush)),
            Command::Append { .. } => Err(Status::InvalidOpcode),
            Command::Discard { lba, blocks } => self.device.discard_now(lba, blocks),
            Command::ReportZones { lba, max } => self.device.report_now(lba, max),
            Command::ManageZone { action, zone } => self.device.manage_now(action, zone),
        };
        output.map(Begun::Done)
    }

    /// Refuses what a drive would refuse, before the kernel says `EINVAL` or `EIO`.
    fn check(&self, command: &Command) -> Result<(), Status> {
        let identify = &self.device.identify;
        let is_read =
            matches!(command, Command::Read { .. } | Command::ReportZones { .. } | Command::Flush);
        if identify.read_only && !is_read {
            return Err(Status::WriteProtected);
        }
        match command {
            Command::Read { lba, blocks } => self.check_transfer(*lba, u64::from(*blocks)),
            Command::Write { lba, data, .. } => {
                self.check_transfer(*lba, data.len() as u64)?;
                self.check_zone(*lba, data.len() as u64)
            }
            Command::Append { .. } | Command::Flush => Ok(()),
            Command::Discard { lba, blocks } => {
                self.check_range(*lba, *blocks)?;
                let last = lba + blocks.saturating_sub(1);
                let sequential = self.device.is_sequential(*lba) || self.device.is_sequential(last);
                if sequential || *blocks == 0 { Err(Status::InvalidField) } else { Ok(()) }
            }
            Command::ReportZones { lba, .. } => {
                identify.zones.ok_or(Status::InvalidOpcode)?;
                self.check_range(*lba, 1)
            }
            Command::ManageZone { zone, .. } => {
                let zones = identify.zones.ok_or(Status::InvalidOpcode)?;
                let lba = zone.unwrap_or(0);
                self.check_range(lba, 1)?;
                if lba.is_multiple_of(zones.size) { Ok(()) } else { Err(Status::InvalidField) }
            }
        }
    }

    fn check_transfer(&self, lba: Lba, blocks: u64) -> Result<(), Status> {
        if blocks == 0 || blocks > u64::from(self.device.identify.max_transfer) {
            return Err(Status::InvalidField);
        }
        self.check_range(lba, blocks)
    }

    fn check_range(&self, lba: Lba, blocks: u64) -> Result<(), Status> {
        let end = lba.checked_add(blocks).ok_or(Status::LbaOutOfRange)?;
        if end > self.device.identify.blocks { Err(Status::LbaOutOfRange) } else { Ok(()) }
    }

    /// A write to a sequential zone must end within the zone's writable part.
    fn check_zone(&self, lba: Lba, blocks: u64) -> Result<(), Status> {
        let Some(zones) = &self.device.identify.zones else { return Ok(()) };
        let last = lba + blocks - 1;
        if !self.device.is_sequential(lba) && !self.device.is_sequential(last) {
            return Ok(());
        }
        let end = lba % zones.size + blocks;
        if end > zones.capacity { Err(Status::ZoneBoundary) } else { Ok(()) }
    }

    /// Whether a transfer is worth putting off. Not in a sequential zone, where the next one may
    /// continue it.
    fn is_long(&self, transfer: &Transfer) -> bool {
        let blocks = match transfer {
            Transfer::Read { blocks, .. } => *blocks as usize,
            Transfer::Write { data, .. } => data.len(),
            Transfer::Flush => 0,
        };
        blocks >= LONG_BLOCKS && self.device.identify.zones.is_none()
    }

    /// An answer from `lane`, or the one for `cid`. Carries out the transfer now if necessary.
    fn carry_out(&self, lane: &Mutex<Lane>, cid: Option<u16>) -> Option<Completion> {
        let mut held = lane.lock();
        let wanted = |of: u16| cid.is_none_or(|cid| cid == of);
        if let Some(at) = held.done.iter().position(|done| wanted(done.cid)) {
            return held.done.remove(at);
        }
        let at = held.long.iter().position(|(cid, _)| wanted(*cid))?;
        let (cid, transfer) = held.long.remove(at)?;
        drop(held);
        Some(Completion { cid, result: self.transfer_now(transfer) })
    }

    /// Carries out what the ring would do, and returns when that is done.
    fn transfer_now(&self, transfer: Transfer) -> Result<Output, Status> {
        match transfer {
            Transfer::Read { lba, blocks } => self.device.read_now(lba, blocks),
            Transfer::Write { lba, data, fua } => self.device.write_now(lba, &data, fua),
            Transfer::Flush => self.device.flush_now(),
        }
    }
}

impl Queues {
    fn count(&self) -> usize {
        match self {
            Self::Rings(rings) => rings.len(),
            Self::Syscalls(lanes) => lanes.len(),
        }
    }
}

impl Drive for BlockDevice {
    fn identify(&self) -> &Identify {
        &self.device.identify
    }

    fn submit(&self, queue: u16, cid: u16, command: Command) {
        let Some(completion) = self.issue(queue, cid, command) else { return };
        let queue = usize::from(queue) % self.queues.count();
        match &self.queues {
            Queues::Rings(rings) => rings[queue].file(completion),
            Queues::Syscalls(lanes) => lanes[queue].lock().done.push_back(completion),
        }
    }

    fn issue(&self, queue: u16, cid: u16, command: Command) -> Option<Completion> {
        let queue = usize::from(queue) % self.queues.count();
        let result = match (self.begin(command), &self.queues) {
            (Err(status), _) => Err(status),
            (Ok(Begun::Done(output)), _) => Ok(output),
            (Ok(Begun::Send(transfer)), Queues::Rings(rings)) => {
                return rings[queue].send(cid, transfer);
            }
            (Ok(Begun::Send(transfer)), Queues::Syscalls(lanes)) if self.is_long(&transfer) => {
                lanes[queue].lock().long.push_back((cid, transfer));
                return None;
            }
            (Ok(Begun::Send(transfer)), Queues::Syscalls(_)) => self.transfer_now(transfer),
        };
        Some(Completion { cid, result })
    }

    fn poll(&self, queue: u16) -> Option<Completion> {
        let queue = usize::from(queue) % self.queues.count();
        match &self.queues {
            Queues::Rings(rings) => rings[queue].poll(),
            Queues::Syscalls(lanes) => self.carry_out(&lanes[queue], None),
        }
    }

    fn wait(&self, queue: u16) -> Option<Completion> {
        match &self.queues {
            Queues::Rings(rings) => rings[usize::from(queue) % rings.len()].wait(None),
            Queues::Syscalls(_) => self.poll(queue),
        }
    }

    fn wait_for(&self, queue: u16, cid: u16) -> Option<Completion> {
        let queue = usize::from(queue) % self.queues.count();
        match &self.queues {
            Queues::Rings(rings) => rings[queue].wait(Some(cid)),
            Queues::Syscalls(lanes) => self.carry_out(&lanes[queue], Some(cid)),
        }
    }
}
