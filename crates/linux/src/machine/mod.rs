//! The machine whose kernel is judged, seen from the host: a guest in QEMU that `guest/run` boots,
//! or the user's own machine that runs the agent.

pub(crate) mod remote;
#[cfg(test)]
mod tests;
pub(crate) mod wire;

use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use cores::Mutex;
use thiserror::Error;
use vfs::Errno;

use self::wire::{Answer, Ask, LONGEST, Longest, receive, send};
use crate::guest::{Guest, Running};

/// Longest time for an answer: an emulated kernel that recovers takes some.
const ANSWER: u64 = 180 * SECOND;
/// How long a program that connects may take to identify itself as an agent.
const GREETING: u64 = 10 * SECOND;
/// What it may say for that: the name of its kernel.
const GREETING_LONGEST: Longest = Longest { line: 4096, bytes: 4096 };
/// Longest time for a machine to start: an hour, as one guest runs at a time and this one may be
/// the fourth.
const START: u64 = 3600 * SECOND;
/// Longest time for a user's own machine to come back.
const BACK: u64 = 120 * SECOND;
const STEP: u64 = SECOND / 10;
const SECOND: u64 = 1_000_000_000;
/// The guest's name for the host's 127.0.0.1.
const HOST_OF_GUEST: &str = "10.0.2.2";

/// Which machine.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A guest that we boot.
    Guest(Boot),
    /// One on which the user starts the agent.
    Own(Own),
}

/// A guest and its agent.
#[derive(Clone, Debug)]
pub struct Boot {
    /// The script that boots it, `guest/run`.
    pub run: PathBuf,
    /// The program that is the agent when it is given `words` and our address.
    pub program: PathBuf,
    /// Those words.
    pub words: String,
}

/// How a user's own machine connects.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    /// Our address, to which its agent connects.
    pub at: SocketAddr,
    /// Where drives are served for it, if not at the address to which it connects.
    pub listen: Option<SocketAddr>,
}

/// Why a machine does not do what it is asked.
#[derive(Debug, Error)]
pub enum Trouble {
    /// It cannot be started.
    #[error("{0}")]
    Start(String),
    /// It answers no more.
    #[error("the machine answers no more: {0}")]
    Lost(String),
    /// It says no.
    #[error("{what}")]
    Refused {
        /// The number of the error there.
        errno: Errno,
        /// What it says of it.
        what: String,
    },
}

/// What the agent said.
#[derive(Debug, Error)]
#[error("{0}")]
struct Told(String);

impl From<Trouble> for vfs::Error {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Refused { errno, .. } => errno.into(),
            trouble => Self::caused(Errno::IO, Told(trouble.to_string())),
        }
    }
}

/// A machine that runs the agent.
pub struct Machine {
    kind: Kind,
    /// Where agents connect.
    listener: TcpListener,
    /// Protects the connection: one question at a time, and none while the machine starts.
    running: Mutex<Option<Connected>>,
    /// Takes a line for the waiting user.
    pub(crate) tell: fn(&str),
}

/// A stream on which everything has to be done by a deadline, however little comes at a time.
struct Link {
    stream: TcpStream,
    /// On the machine's clock.
    until: u64,
}

impl Link {
    fn left(&self) -> io::Result<Option<Duration>> {
        match self.until.saturating_sub(cores::now()) {
            0 => Err(ErrorKind::WouldBlock.into()),
            left => Ok(Some(Duration::from_nanos(left))),
        }
    }
}

impl Read for Link {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buf)
    }
}

impl Write for Link {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// The connection to an agent.
struct Connected {
    link: BufReader<Link>,
    // Dropped after the link: the agent ends when the link is closed, and with it the guest.
    _guest: Option<Running>,
}

impl Machine {
    /// Boots a guest, or waits until the user starts the agent. `tell` takes messages for the
    /// waiting user, a line at a time.
    pub fn start(kind: Kind, tell: fn(&str)) -> Result<Self, Trouble> {
        let at = match &kind {
            Kind::Guest(_) => SocketAddr::from(([127, 0, 0, 1], 0)),
            Kind::Own(own) => own.at,
        };
        let start = |error: io::Error| Trouble::Start(format!("{at}: {error}"));
        let listener = TcpListener::bind(at).map_err(start)?;
        listener.set_nonblocking(true).map_err(start)?;
        let machine = Self { kind, listener, running: Mutex::named("machine", None), tell };
        machine.run_within(START)?;
        Ok(machine)
    }

    /// Restarts it, whatever it is doing; a user's own machine is waited for.
    pub fn restart(&self) -> Result<(), Trouble> {
        self.run_within(if matches!(self.kind, Kind::Guest(_)) { START } else { BACK })
    }

    fn run_within(&self, limit: u64) -> Result<(), Trouble> {
        let mut running = self.running.lock();
        drop(running.take());
        let until = cores::now().saturating_add(limit);
        let at = self.listener.local_addr().map_err(lost)?;
        let guest = match &self.kind {
            Kind::Guest(boot) => Some(boot.start(at.port())?),
            Kind::Own(_) => {
                let minutes = limit / SECOND / 60;
                (self.tell)(&format!(
                    "waiting {minutes} minutes for a machine: run 'strandline crash agent {at}' \
                     there, as root"
                ));
                None
            }
        };
        *running = Some(self.accept(guest, until)?);
        Ok(())
    }

    /// Waits until an agent connects.
    fn accept(&self, mut guest: Option<Running>, until: u64) -> Result<Connected, Trouble> {
        while cores::now() < until {
            match self.listener.accept() {
                // A program that has gone again, or does not know the first question, is not an
                // agent.
                Ok((stream, _)) => {
                    if let Ok(link) = greet(stream, until.min(cores::now() + GREETING)) {
                        return Ok(Connected { link, _guest: guest });
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => cores::sleep(STEP),
                Err(error) => return Err(lost(error)),
            }
            if let Some(ended) = guest.as_mut().and_then(Running::ended) {
                return Err(Trouble::Start(format!("the guest ended {ended}")));
            }
        }
        Err(Trouble::Start("no agent came".into()))
    }

    /// Where to serve a drive for it, and the address to tell it.
    pub(crate) fn drive_address(&self) -> Result<(SocketAddr, Option<IpAddr>), Trouble> {
        if let Kind::Own(Own { listen: Some(listen), .. }) = self.kind {
            return Ok((listen, Some(listen.ip())));
        }
        let running = self.running.lock();
        let link = &running.as_ref().ok_or_else(gone)?.link;
        Ok(((link.get_ref().stream.local_addr().map_err(lost)?.ip(), 0).into(), None))
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask(&self, ask: &Ask, bytes: &[u8]) -> Result<(Answer, Vec<u8>), Trouble> {
        let mut running = self.running.lock();
        let machine = running.as_mut().ok_or_else(gone)?;
        machine.link.get_mut().until = cores::now() + ANSWER;
        match question(&mut machine.link, ask, bytes, &LONGEST) {
            Ok((Answer::Failed { errno, what }, _)) => {
                let known = (1..4096).contains(&errno);
                let errno = if known { Errno::from_raw_os_error(errno) } else { Errno::IO };
                Err(Trouble::Refused { errno, what })
            }
            Err(trouble) => {
                drop(running.take());
                Err(trouble)
            }
            answer => answer,
        }
    }

    /// Runs a program there; what it printed, and its exit status.
    pub(crate) fn run(&self, argv: &[String]) -> Result<(i32, String), Trouble> {
        match self.ask(&Ask::Run { argv: argv.to_vec() }, b"")? {
            (Answer::Ran { status }, said) => {
                Ok((status, String::from_utf8_lossy(&said).into_owned()))
            }
            (answer, _) => Err(Trouble::Lost(format!("it said {answer:?}"))),
        }
    }
}

/// The link to the program that has connected, if that is an agent.
fn greet(stream: TcpStream, until: u64) -> Result<BufReader<Link>, Trouble> {
    // Accepted from a listener that does not block.
    stream.set_nonblocking(false).map_err(lost)?;
    stream.set_nodelay(true).map_err(lost)?;
    let mut link = BufReader::new(Link { stream, until });
    match question(&mut link, &Ask::Uname, b"", &GREETING_LONGEST)? {
        (Answer::Done, _) => Ok(link),
        (answer, _) => Err(Trouble::Lost(format!("it said {answer:?}"))),
    }
}

fn question(
    link: &mut BufReader<Link>,
    ask: &Ask,
    bytes: &[u8],
    longest: &Longest,
) -> Result<(Answer, Vec<u8>), Trouble> {
    send(link.get_mut(), ask, bytes).map_err(lost)?;
    receive(link, longest).map_err(lost)?.ok_or_else(gone)
}

fn lost(error: io::Error) -> Trouble {
    Trouble::Lost(match error.kind() {
        ErrorKind::WouldBlock => format!("no answer for {} s", ANSWER / SECOND),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => return gone(),
        _ => error.to_string(),
    })
}

fn gone() -> Trouble {
    Trouble::Lost("it hung up".into())
}

impl Boot {
    /// Boots it, for an agent that connects to our `port`.
    fn start(&self, port: u16) -> Result<Running, Trouble> {
        let Self { run, program, words } = self;
        if !run.is_file() {
            return Err(Trouble::Start(format!(
                "no guest: {} is not there; run this in a checkout of Strandline, name its \
                 guest/run with --guest, or use a machine of your own with --machine",
                run.display()
            )));
        }
        let start = |error: io::Error| Trouble::Start(format!("{}: {error}", run.display()));
        let name = program.file_name().unwrap_or_default().display();
        let script = format!(
            "modprobe -a nvme_tcp f2fs ext4 xfs btrfs\nnetwork || exit 9\n\
             mv /host/{name} /tmp/ && exec /tmp/{name} {words} {HOST_OF_GUEST}:{port}\n"
        );
        let guest = Guest::booted_by(run).map_err(start)?.network().timeout(864_000);
        guest.copy_program(program).map_err(start)?;
        guest.start(&script).map_err(start)
    }
}
