//! The interfaces that Linux offers a program for reading and writing a file or a device, one file
//! per interface, behind one trait: to compare them, not to build on them.
//!
//! An interface makes transfers of one size and one direction, so many at a time. Each transfer has
//! a slot, and each slot a buffer that belongs to the interface, so what is in flight when an
//! interface is dropped is waited for first, and the kernel never writes to memory of others.

mod aio;
mod buffers;
mod polled;
mod sync;
mod target;
#[cfg(test)]
mod tests;
mod uring;
mod usage;

use std::fmt;
use std::io;
use std::str::FromStr;

use rustix::io::ReadWriteFlags;

pub use super::errno::Way;
pub use target::Target;
pub use usage::Usage;

/// The most bytes of one transfer.
const BLOCK_MAX: usize = 16 << 20;
/// The most transfers at a time.
const DEPTH_MAX: u16 = 4096;
/// The most memory for buffers; also the most that `io_uring` registers as one.
const BUFFERS_MAX: usize = 1 << 30;

/// One way to read or write.
pub trait Interface: Send {
    /// Begins a transfer of `slot`, which must be free, at byte `at`.
    fn start(&mut self, slot: u16, at: u64) -> io::Result<()>;

    /// Hands over what was begun, waits until at least one transfer is done, and appends the slots
    /// of all that are. An error if one of them failed or came short.
    fn wait(&mut self, done: &mut Vec<u16>) -> io::Result<()>;

    /// System calls made so far to begin and complete transfers; `None` if they are not counted.
    fn calls(&self) -> Option<u64>;
}

/// What an interface is to do.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Reads or writes.
    pub way: Way,
    /// Bytes of a transfer.
    pub block: usize,
    /// Transfers at a time; those that block the caller make one.
    pub depth: u16,
    /// Past the page cache.
    pub direct: bool,
    /// Which of the jobs on one target this is, from 0.
    pub job: u16,
    /// Seed of the bytes written.
    pub seed: u64,
}

/// The interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `pread` and `pwrite`.
    Psync,
    /// `preadv2` and `pwritev2`.
    Pvsync2,
    /// The same with `RWF_HIPRI`: the kernel polls.
    Pvsync2Hipri,
    /// `io_submit` and `io_getevents`.
    Libaio,
    /// `io_uring`, completed by interrupts.
    IoUring,
    /// The same with a registered file and registered buffers.
    IoUringFixed,
    /// `io_uring` whose completions the kernel polls for in the caller's system call.
    IoUringHipri,
    /// `io_uring` with a kernel thread that looks for submissions; the caller never sleeps.
    IoUringSqpoll,
    /// All at once: the kernel's thread submits and polls, with registered file and buffers.
    Polled,
    /// This project's own drives, polled without sleeping.
    Drive,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Psync,
        Self::Pvsync2,
        Self::Pvsync2Hipri,
        Self::Libaio,
        Self::IoUring,
        Self::IoUringFixed,
        Self::IoUringHipri,
        Self::IoUringSqpoll,
        Self::Polled,
        Self::Drive,
    ];

    /// Name on the command line: fio's name for the engine, and for its options behind it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Psync => "psync",
            Self::Pvsync2 => "pvsync2",
            Self::Pvsync2Hipri => "pvsync2-hipri",
            Self::Libaio => "libaio",
            Self::IoUring => "io_uring",
            Self::IoUringFixed => "io_uring-fixed",
            Self::IoUringHipri => "io_uring-hipri",
            Self::IoUringSqpoll => "io_uring-sqpoll",
            Self::Polled => "polled",
            Self::Drive => "drive",
        }
    }

    /// What it is, in a few words.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Psync => "pread and pwrite, one at a time",
            Self::Pvsync2 => "preadv2 and pwritev2, one at a time",
            Self::Pvsync2Hipri => "the same with RWF_HIPRI: the kernel may poll",
            Self::Libaio => "io_submit and io_getevents, by system calls",
            Self::IoUring => "io_uring, interrupts",
            Self::IoUringFixed => "io_uring, interrupts, registered file and buffers",
            Self::IoUringHipri => "io_uring, the kernel polls in the caller's call (IOPOLL)",
            Self::IoUringSqpoll => "io_uring, a kernel thread submits (SQPOLL); never sleeps",
            Self::Polled => "IOPOLL, SQPOLL and registered: no call, no interrupt, no sleep",
            Self::Drive => "our own drives, polled without sleeping; files through a ring",
        }
    }

    /// How many transfers at a time it makes when asked for `depth`.
    pub const fn depth(self, depth: u16) -> u16 {
        match self {
            Self::Psync | Self::Pvsync2 | Self::Pvsync2Hipri => 1,
            _ => depth,
        }
    }

    /// What a reader of its figures has to know about this machine.
    pub fn remark(self) -> Option<&'static str> {
        let ignored = "this kernel takes RWF_HIPRI and ignores it (Linux 5.19 and later)";
        (self == Self::Pvsync2Hipri && kernel_is_at_least(5, 19)).then_some(ignored)
    }

    /// Opens it on `target`.
    pub fn open(self, target: &Target, setup: &Setup) -> io::Result<Box<dyn Interface>> {
        let bytes = setup.block.checked_mul(usize::from(self.depth(setup.depth)));
        let fits = bytes.is_some_and(|bytes| (1..=BUFFERS_MAX).contains(&bytes));
        if !fits || setup.block > BLOCK_MAX || setup.depth > DEPTH_MAX {
            return Err(invalid(format!(
                "{} transfers of {} bytes: 1 to {DEPTH_MAX}, of up to {} MiB, 1 GiB in all",
                setup.depth,
                setup.block,
                BLOCK_MAX >> 20
            )));
        }
        let file = match (target, self) {
            (Target::File { file, .. }, _) => file.clone(),
            (Target::Drive(drive), Self::Drive) => {
                return Ok(Box::new(polled::Polled::new(drive.clone(), setup)?));
            }
            (Target::Drive(_), _) => return Err(invalid(format!("{self} is for files"))),
        };
        if let Some(options) = self.ring() {
            return Ok(Box::new(uring::Uring::new(file, setup, options)?));
        }
        let vectors = |file, flags| Ok(Box::new(sync::Sync::vectored(file, setup, flags)?) as _);
        match self {
            Self::Psync => Ok(Box::new(sync::Sync::plain(file, setup)?)),
            Self::Pvsync2 => vectors(file, ReadWriteFlags::empty()),
            Self::Pvsync2Hipri => vectors(file, ReadWriteFlags::HIPRI),
            Self::Libaio => Ok(Box::new(aio::Aio::new(file, setup)?)),
            _ => Err(invalid(format!("{self} is for drives"))),
        }
    }

    /// How its ring works, if it has one.
    const fn ring(self) -> Option<uring::Options> {
        let (registered, iopoll, sqpoll) = match self {
            Self::IoUring => (false, false, false),
            Self::IoUringFixed => (true, false, false),
            Self::IoUringHipri => (false, true, false),
            Self::IoUringSqpoll => (false, false, true),
            Self::Polled => (true, true, true),
            _ => return None,
        };
        Some(uring::Options { registered, iopoll, sqpoll })
    }

    /// Why it does not work here, in words, given the error of [`Kind::open`] or of its transfers.
    pub fn explain(self, error: &io::Error) -> String {
        let ring = self.ring();
        let polls = self == Self::Pvsync2Hipri || ring.is_some_and(|ring| ring.iopoll);
        match error.raw_os_error() {
            Some(libc::ENOSYS) => format!("this kernel has no {self}"),
            Some(libc::EPERM | libc::EACCES) if ring.is_some() => {
                let thread =
                    if ring.is_some_and(|ring| ring.sqpoll) { " or its SQPOLL" } else { "" };
                format!(
                    "io_uring{thread} is forbidden here (kernel.io_uring_disabled, or a filter)"
                )
            }
            Some(libc::ENOMEM) if ring.is_some() => {
                "too little memory may be locked (ulimit -l)".into()
            }
            Some(libc::EOPNOTSUPP) if polls => {
                "no polled completions: the file system or the device has no queue for them".into()
            }
            Some(libc::EAGAIN) if self == Self::Libaio => "fs.aio-max-nr is used up".into(),
            _ => error.to_string(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| format!("unknown interface '{name}'; known: {}", known()))
    }
}

fn kernel_is_at_least(major: u32, minor: u32) -> bool {
    let release = rustix::system::uname();
    let mut numbers = release.release().to_str().unwrap_or_default().split(['.', '-']);
    let mut next = || numbers.next().and_then(|number| number.parse().ok()).unwrap_or(0);
    (next(), next()) >= (major, minor)
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// Checks what a transfer of `wanted` bytes returned.
fn whole(moved: i64, wanted: usize) -> io::Result<()> {
    match usize::try_from(moved) {
        Ok(moved) if moved == wanted => Ok(()),
        Ok(moved) => {
            let what = format!("a transfer of {wanted} bytes ended after {moved}");
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, what))
        }
        Err(_) => Err(io::Error::from_raw_os_error(i32::try_from(-moved).unwrap_or(libc::EIO))),
    }
}
