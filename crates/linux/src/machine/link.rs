//! The way between host and agent: a TCP connection, or a serial line with nobody else on it.
//!
//! A line is a terminal device, as both ends of a cable are, or what stands for one: the Unix
//! socket at which QEMU has a guest's serial port, the character device of a virtio port. What
//! comes over it may be anything, or nothing: a machine that boots writes there, bytes get lost. So
//! whoever reads or writes says how long at most.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::termios::{
    ControlModes, OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcsetattr,
};

/// Nanoseconds of a second.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// What is not answered after this long is asked again. A test has no slow kernel before it.
pub(crate) const AGAIN: u64 = if cfg!(test) { SECOND / 2 } else { 2 * SECOND };

/// Where a machine is met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// An address of ours, to which it connects.
    Address(SocketAddr),
    /// A line to it.
    Line(PathBuf),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(line) = line(text) {
            return Ok(Self::Line(line));
        }
        let wanted = |_| format!("'{text}': wants ADDRESS:PORT, or the path of a serial line");
        text.parse().map(Self::Address).map_err(wanted)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Line(path) => path.display().fmt(f),
        }
    }
}

/// The line that `text` names, unless it is an address.
pub(crate) fn line(text: &str) -> Option<PathBuf> {
    text.contains('/').then(|| text.into())
}

/// One end of the way.
pub(crate) struct Link(BufReader<End>);

/// What it is made of.
struct End {
    fd: OwnedFd,
    /// A terminal's settings, as we found them.
    found: Option<Termios>,
    /// Addresses of a connection: ours, theirs.
    addresses: Option<[IpAddr; 2]>,
    patience: Patience,
}

/// How long an end waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Nanoseconds in which nothing comes or goes.
    pub(crate) silence: u64,
    /// Until when, by [`cores::now`], whatever comes.
    pub(crate) until: u64,
}

impl Patience {
    /// So long in which nothing happens, however long it takes.
    pub(crate) const fn silence(silence: u64) -> Self {
        Self { silence, until: u64::MAX }
    }
}

impl Link {
    /// Over a connection.
    pub(crate) fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let addresses = [stream.local_addr()?.ip(), stream.peer_addr()?.ip()];
        Self::new(stream.into(), Some(addresses), None)
    }

    /// Over a socket that has somebody's serial port.
    pub(crate) fn over(stream: UnixStream) -> io::Result<Self> {
        Self::new(stream.into(), None, None)
    }

    /// Over the line at `path`; a terminal device is set to `baud` bits a second.
    pub(crate) fn line(path: &Path, baud: u32) -> io::Result<Self> {
        let kind = std::fs::metadata(path)?.file_type();
        if kind.is_socket() {
            return Self::over(UnixStream::connect(path)?);
        }
        if !kind.is_char_device() {
            let what = "neither a serial line nor a socket";
            return Err(io::Error::new(ErrorKind::InvalidInput, what));
        }
        // Without waiting for a carrier, and without becoming our terminal.
        let flags = (OFlags::NOCTTY | OFlags::NONBLOCK).bits() as i32;
        let device = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
        let found = match tcgetattr(&device) {
            Ok(found) => Some(found),
            Err(Errno::NOTTY) => None,
            Err(error) => return Err(error.into()),
        };
        let link = Self::new(device.into(), None, found)?;
        link.0.get_ref().set_up(baud)?;
        Ok(link)
    }

    fn new(
        fd: OwnedFd,
        addresses: Option<[IpAddr; 2]>,
        found: Option<Termios>,
    ) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        let patience = Patience::silence(u64::MAX);
        Ok(Self(BufReader::new(End { fd, found, addresses, patience })))
    }

    /// From now on it waits so long, then [`ErrorKind::TimedOut`].
    pub(crate) fn wait(&mut self, patience: Patience) {
        self.0.get_mut().patience = patience;
    }

    /// Our own address, of a connection.
    pub(crate) fn own_address(&self) -> Option<IpAddr> {
        self.0.get_ref().addresses.map(|[own, _]| own)
    }

    /// The address of the other side, of a connection.
    pub(crate) fn their_address(&self) -> Option<IpAddr> {
        self.0.get_ref().addresses.map(|[_, their]| their)
    }

    /// To receive messages from.
    pub(crate) fn from(&mut self) -> &mut impl io::BufRead {
        &mut self.0
    }

    /// To send messages to.
    pub(crate) fn to(&mut self) -> &mut impl Write {
        self.0.get_mut()
    }
}

impl End {
    /// Bytes as they are, whatever modem or cable there is; what came before us is not for us.
    fn set_up(&self, baud: u32) -> io::Result<()> {
        let Some(found) = &self.found else { return Ok(()) };
        let mut raw = found.clone();
        raw.make_raw();
        raw.control_modes |= ControlModes::CLOCAL | ControlModes::CREAD;
        raw.control_modes -= ControlModes::CSTOPB | ControlModes::CRTSCTS;
        raw.set_speed(baud)?;
        tcsetattr(&self.fd, OptionalActions::Drain, &raw)?;
        // A driver takes what it can and says nothing.
        let speed = tcgetattr(&self.fd)?.output_speed();
        if speed != baud {
            let what = format!("has {speed} baud and not {baud}");
            return Err(io::Error::new(ErrorKind::InvalidInput, what));
        }
        Ok(tcflush(&self.fd, QueueSelector::IFlush)?)
    }

    /// Waits until there is something to read, or room to write: whether the other end is there.
    fn ready(&self, flags: PollFlags) -> io::Result<bool> {
        loop {
            let Patience { silence, until } = self.patience;
            let left = silence.min(until.saturating_sub(cores::now())).min(i64::MAX as u64);
            let (tv_sec, tv_nsec) = ((left / SECOND) as i64, (left % SECOND) as i64);
            let mut fds = [PollFd::new(&self.fd, flags)];
            match poll(&mut fds, Some(&Timespec { tv_sec, tv_nsec })) {
                // However much there is to read.
                Ok(count) if count == 0 || left == 0 => return Err(ErrorKind::TimedOut.into()),
                Ok(_) => return Ok(!fds[0].revents().intersects(PollFlags::HUP)),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Read for End {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let there = self.ready(PollFlags::IN)?;
            match rustix::io::read(&self.fd, &mut *buf) {
                Err(Errno::AGAIN | Errno::INTR) if there => {}
                Err(Errno::AGAIN) => return Ok(0),
                // So a terminal says that the other end is gone.
                Err(Errno::IO) if self.found.is_some() => return Ok(0),
                read => return Ok(read?),
            }
        }
    }
}

impl Write for End {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        loop {
            let there = self.ready(PollFlags::OUT)?;
            match rustix::io::write(&self.fd, buf) {
                Err(Errno::AGAIN | Errno::INTR) if there => {}
                Err(Errno::AGAIN) => return Err(ErrorKind::BrokenPipe.into()),
                Err(Errno::IO) if self.found.is_some() => return Err(ErrorKind::BrokenPipe.into()),
                written => return Ok(written?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if let Some(found) = &self.found {
            // Whoever has the line next finds it as it was. If it is gone, so is that.
            let _set = tcsetattr(&self.fd, OptionalActions::Drain, found);
        }
    }
}
