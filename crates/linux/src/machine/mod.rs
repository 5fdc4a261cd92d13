//! The machine whose kernel is judged, seen from the host: a guest in QEMU that `guest/run` boots,
//! or somebody's own machine that runs the agent.

#[cfg(test)]
mod line_tests;
pub(crate) mod link;
pub(crate) mod remote;
#[cfg(test)]
mod tests;
pub(crate) mod wire;

use std::fmt::Display;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use cores::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use thiserror::Error;
use vfs::Errno;

pub use self::link::Place;
use self::link::{AGAIN, Link, Patience, SECOND};
use self::wire::{Answer, Ask, Heard, MARK, frame, receive};

/// Longest time for an answer: an emulated kernel that recovers takes some.
const ANSWER: u64 = 180 * SECOND;
/// Longest time for who connects to prove an agent.
const GREETING: u64 = 10 * SECOND;
/// Longest time for an agent to end.
const FAREWELL: u64 = 5 * SECOND;
/// Longest time for a machine to start: an hour, as one guest runs at a time and this one may be
/// the fourth.
const START: u64 = 3600 * SECOND;
/// Longest time for a machine of somebody's own to come back.
const BACK: u64 = 120 * SECOND;
const STEP: u64 = SECOND / 10;
/// How much is told of what a machine said instead of an answer.
const WORDS_MAX: usize = 120;
/// The guest's name for the host's 127.0.0.1.
const HOST_OF_GUEST: &str = "10.0.2.2";

/// Which machine.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A guest that this script boots, `guest/run`.
    Guest(PathBuf),
    /// One on which somebody starts the agent.
    Own(Own),
}

/// How a machine of somebody's own is met.
#[derive(Clone, Debug)]
pub struct Own {
    /// Where it comes, or is found.
    pub at: Place,
    /// Speed of a line.
    pub baud: u32,
    /// Where drives are served for it, unless at the address to which it connects.
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
    way: Way,
    /// Where drives are served for it, if somebody said so.
    listen: Option<SocketAddr>,
    running: Mutex<Option<Running>>,
    /// Takes a line for who waits.
    pub(crate) tell: fn(&str),
}

/// How it is come by: booted by a script, waited for, met at a line of that speed.
enum Way {
    Guest(PathBuf, TcpListener),
    Address(TcpListener),
    Line(PathBuf, u32),
}

pub(super) struct Running {
    link: Link,
    /// Number of the last question.
    asked: u64,
    /// What came last that was no answer.
    said: String,
    // Dropped after the link: the agent ends when nobody listens, and with it the guest.
    guest: Option<Booted>,
}

struct Booted {
    child: Child,
    /// What it sees as /host.
    share: TempDir,
}

impl Machine {
    /// Boots a guest, or waits until somebody starts the agent.
    pub fn start(kind: Kind, tell: fn(&str)) -> Result<Self, Trouble> {
        let (way, listen) = match kind {
            Kind::Guest(script) => {
                (Way::Guest(script, bind(SocketAddr::from(([127, 0, 0, 1], 0)))?), None)
            }
            Kind::Own(Own { at: Place::Address(at), listen, .. }) => {
                (Way::Address(bind(at)?), listen)
            }
            Kind::Own(Own { at: Place::Line(at), baud, listen }) => (Way::Line(at, baud), listen),
        };
        let machine = Self { way, listen, running: Mutex::new(None), tell };
        machine.run_within(START, false)?;
        Ok(machine)
    }

    /// Starts it anew, whatever it is doing; one that is not ours is waited for.
    pub(crate) fn restart(&self) -> Result<(), Trouble> {
        self.run_within(if matches!(self.way, Way::Guest(..)) { START } else { BACK }, true)
    }

    fn run_within(&self, limit: u64, again: bool) -> Result<(), Trouble> {
        let mut running = self.running.lock();
        drop(running.take());
        let until = cores::now().saturating_add(limit);
        let wait = |at: &dyn Display| {
            let minutes = limit / SECOND / 60;
            (self.tell)(&format!(
                "waiting {minutes} minutes for a machine: run `strandline crash agent {at}` there, \
                 as root"
            ));
        };
        *running = Some(match &self.way {
            Way::Guest(script, listener) => {
                let port = listener.local_addr().map_err(lost)?.port();
                accept(listener, Some(Booted::boot(script, port)?), until)?
            }
            Way::Address(listener) => {
                wait(&listener.local_addr().map_err(lost)?);
                accept(listener, None, until)?
            }
            Way::Line(path, baud) => {
                wait(&"LINE");
                greet(path, *baud, again, until)?
            }
        });
        Ok(())
    }

    /// Where a drive is to be served for it, and what it is told of that address.
    pub(crate) fn drive_address(&self) -> Result<(SocketAddr, Option<IpAddr>), Trouble> {
        if let Some(listen) = self.listen {
            return Ok((listen, Some(listen.ip())));
        }
        let running = self.running.lock();
        let link = &running.as_ref().ok_or_else(gone)?.link;
        Ok(match link.own_address() {
            Some(own) => ((own, 0).into(), None),
            None => (SocketAddr::from(([127, 0, 0, 1], 0)), Some([127, 0, 0, 1].into())),
        })
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask(&self, ask: &Ask, bytes: &[u8]) -> Result<(Answer, Vec<u8>), Trouble> {
        let mut running = self.running.lock();
        let machine = running.as_mut().ok_or_else(gone)?;
        match machine.ask(ask, bytes, ANSWER) {
            Ok((Answer::Failed { errno, what }, _)) => {
                Err(Trouble::Refused { errno: Errno::from_raw_os_error(errno), what })
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

fn lost(error: io::Error) -> Trouble {
    // In the words of strerror(3), without the number that Rust adds.
    let text = error.to_string();
    Trouble::Lost(text.split(" (os error ").next().unwrap_or_default().to_owned())
}

fn gone() -> Trouble {
    Trouble::Lost("it hung up".into())
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(running) = &mut *self.running.lock() {
            // With an answer: what is on its way when the line is closed may be lost.
            let _gone = running.ask(&Ask::Bye, b"", FAREWELL);
        }
    }
}

fn bind(address: SocketAddr) -> Result<TcpListener, Trouble> {
    let start = |error: io::Error| Trouble::Start(format!("{address}: {error}"));
    let listener = TcpListener::bind(address).map_err(start)?;
    listener.set_nonblocking(true).map_err(start)?;
    Ok(listener)
}

/// Waits until an agent connects.
fn accept(
    listener: &TcpListener,
    mut guest: Option<Booted>,
    until: u64,
) -> Result<Running, Trouble> {
    while cores::now() < until {
        match listener.accept() {
            Ok((stream, _)) => {
                // Who has gone again, or does not know the greeting, is none.
                let Ok(link) = Link::tcp(stream) else { continue };
                let mut running = Running::new(link);
                if running.ask(&Ask::Hello, b"", GREETING).is_ok() {
                    // It has its copy by now.
                    if let Some(guest) = &guest {
                        let _gone = fs::remove_file(guest.share.path().join("strandline"));
                    }
                    running.guest = guest;
                    return Ok(running);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => cores::sleep(STEP),
            Err(error) => return Err(lost(error)),
        }
        if let Some(guest) = &mut guest {
            guest.is_alive()?;
        }
    }
    Err(nobody())
}

/// Greets at a line until an agent answers. A line that was there may go and come back with its
/// machine.
pub(super) fn greet(path: &Path, baud: u32, again: bool, until: u64) -> Result<Running, Trouble> {
    while cores::now() < until {
        match Link::line(path, baud) {
            Ok(link) => {
                let mut running = Running::new(link);
                let limit = until.saturating_sub(cores::now());
                if running.ask(&Ask::Hello, b"", limit).is_ok() {
                    return Ok(running);
                }
            }
            Err(error) if !again => {
                return Err(Trouble::Start(format!("{}: {error}", path.display())));
            }
            Err(_) => {}
        }
        cores::sleep(STEP);
    }
    Err(nobody())
}

fn nobody() -> Trouble {
    Trouble::Start("no agent came".into())
}

impl Running {
    fn new(link: Link) -> Self {
        Self { link, asked: 0, said: String::new(), guest: None }
    }

    /// Asks, and again where there is no answer, for so long at most.
    pub(super) fn ask(
        &mut self,
        ask: &Ask,
        bytes: &[u8],
        limit: u64,
    ) -> Result<(Answer, Vec<u8>), Trouble> {
        let hello = matches!(ask, Ask::Hello);
        self.asked = if hello { 0 } else { self.asked + 1 };
        let frame = frame(self.asked, ask, bytes).map_err(lost)?;
        let until = cores::now().saturating_add(limit);
        let mut silence = AGAIN;
        loop {
            self.link.wait(Patience { silence: u64::MAX, until });
            let sent = self.link.to().write_all(&frame);
            self.link.wait(Patience { silence, until });
            match sent.and_then(|()| self.hear(silence)) {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => return Err(self.gone()),
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Err(self.gone()),
                Err(error) if error.kind() != ErrorKind::TimedOut => return Err(lost(error)),
                Err(_) if cores::now() >= until => {
                    let seconds = limit / SECOND;
                    let words = self.words();
                    return Err(Trouble::Lost(format!("no answer for {seconds} s{words}")));
                }
                // A machine that works has more to do than to read a question twice.
                Err(_) => silence *= if hello { 1 } else { 2 },
            }
        }
    }

    /// The answer, if one comes before `silence` has passed; none after the machine has gone.
    fn hear(&mut self, silence: u64) -> io::Result<Option<(Answer, Vec<u8>)>> {
        let again = cores::now().saturating_add(silence);
        loop {
            match receive::<Answer>(self.link.from())? {
                Heard::Message(number, answer, bytes) if number == self.asked => {
                    self.said.clear();
                    return Ok(Some((answer, bytes)));
                }
                // The second answer to what was asked twice.
                Heard::Message(..) => {}
                Heard::Noise(text) => {
                    self.keep(&text);
                    if cores::now() > again {
                        return Err(ErrorKind::TimedOut.into());
                    }
                }
                Heard::End => return Ok(None),
            }
        }
    }

    /// Keeps what may be a kernel's last words; what we said ourselves is none.
    fn keep(&mut self, noise: &str) {
        let words = noise.split(is_unprintable).filter(|word| !word.is_empty());
        let words: String = words.collect::<Vec<_>>().join(" ");
        if !words.trim().is_empty() && !words.contains(MARK) {
            self.said = words.trim().chars().take(WORDS_MAX).collect();
        }
    }

    fn gone(&self) -> Trouble {
        Trouble::Lost(format!("it hung up{}", self.words()))
    }

    fn words(&self) -> String {
        if self.said.is_empty() { String::new() } else { format!("; it said: {}", self.said) }
    }
}

fn is_unprintable(c: char) -> bool {
    c.is_control() || c == char::REPLACEMENT_CHARACTER
}

impl Booted {
    fn boot(script: &Path, port: u16) -> Result<Self, Trouble> {
        if !script.is_file() {
            return Err(Trouble::Start(format!(
                "no guest: {} is not there; run this in a checkout of Strandline, name its \
                 guest/run with --guest, or use a machine of your own with --machine",
                script.display()
            )));
        }
        let share = tempfile::tempdir().map_err(lost)?;
        let at = share.path();
        let agent = at.join("strandline");
        let own = std::env::current_exe().map_err(lost)?;
        // Debug information would have to go through the guest.
        let strip = Command::new("strip").arg("-o").arg(&agent).arg(&own).status();
        if !strip.is_ok_and(|status| status.success()) {
            fs::copy(&own, &agent).map_err(lost)?;
        }
        let text = format!(
            "modprobe -a nvme_tcp f2fs ext4 xfs btrfs\nnetwork || exit 9\n\
             cp /host/strandline /tmp/ && exec /tmp/strandline crash agent {HOST_OF_GUEST}:{port}\n"
        );
        fs::write(at.join("script"), text).map_err(lost)?;
        let said = fs::File::create(at.join("said")).map_err(lost)?;
        let child = Command::new(script)
            .args(["--net", "user", "--memory", "1024", "--timeout", "864000", "--share"])
            .arg(at)
            .arg(at.join("script"))
            .stdin(Stdio::null())
            .stdout(said.try_clone().map_err(lost)?)
            .stderr(said)
            .process_group(0)
            .spawn()
            .map_err(|error| Trouble::Start(format!("{}: {error}", script.display())))?;
        Ok(Self { child, share })
    }

    fn is_alive(&mut self) -> Result<(), Trouble> {
        let Some(status) = self.child.try_wait().map_err(lost)? else { return Ok(()) };
        let said = fs::read_to_string(self.share.path().join("said")).unwrap_or_default();
        let said = said.trim().lines().last().unwrap_or("it said nothing").to_owned();
        Err(Trouble::Start(format!("the guest ended ({status}): {said}")))
    }
}

impl Drop for Booted {
    fn drop(&mut self) {
        for _ in 0..100 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            cores::sleep(STEP);
        }
        let _gone = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ended = self.child.wait();
    }
}
