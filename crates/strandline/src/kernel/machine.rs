//! The machine whose kernel is judged, seen from the host: a guest in QEMU that `guest/run` boots,
//! or somebody's own machine that runs the agent.

use std::fs;
use std::io::{self, BufReader, ErrorKind};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cores::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use thiserror::Error;
use vfs::Errno;

use super::wire::{Answer, Ask, receive, send};
use crate::out;

/// Longest time for an answer: an emulated kernel that recovers takes some.
const ANSWER: Duration = Duration::from_secs(180);
/// Longest time for a machine to start, in steps of a tenth of a second: an hour, as one guest runs
/// at a time and this one may be the fourth.
const START_STEPS: usize = 36_000;
const STEP: u64 = 100_000_000;
/// The guest's name for the host's 127.0.0.1.
const HOST_OF_GUEST: &str = "10.0.2.2";

/// Which machine.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// A guest that this script boots, `guest/run`.
    Guest(PathBuf),
    /// One on which somebody starts the agent; it is to come to this address.
    Own(SocketAddr),
}

/// Why a machine does not do what it is asked.
#[derive(Debug, Error)]
pub(crate) enum Trouble {
    /// It cannot be started.
    #[error("{0}")]
    Start(String),
    /// It answers no more.
    #[error("the machine answers no more: {0}")]
    Lost(String),
    /// It says no.
    #[error("{what}")]
    Refused { errno: Errno, what: String },
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
pub(crate) struct Machine {
    kind: Kind,
    listener: TcpListener,
    running: Mutex<Option<Running>>,
}

struct Running {
    from: BufReader<TcpStream>,
    to: TcpStream,
    guest: Option<Guest>,
}

struct Guest {
    child: Child,
    /// What it sees as /host.
    share: TempDir,
}

impl Machine {
    /// Boots a guest, or waits until somebody starts the agent.
    pub(crate) fn start(kind: Kind) -> Result<Self, Trouble> {
        let address = match &kind {
            Kind::Guest(_) => SocketAddr::from(([127, 0, 0, 1], 0)),
            Kind::Own(address) => *address,
        };
        let start = |error: io::Error| Trouble::Start(format!("{address}: {error}"));
        let listener = TcpListener::bind(address).map_err(start)?;
        listener.set_nonblocking(true).map_err(start)?;
        let machine = Self { kind, listener, running: Mutex::new(None) };
        machine.restart()?;
        Ok(machine)
    }

    /// Starts it anew, whatever it is doing.
    pub(crate) fn restart(&self) -> Result<(), Trouble> {
        let mut running = self.running.lock();
        drop(running.take());
        let port = self.port()?;
        let mut guest = match &self.kind {
            Kind::Guest(script) => Some(Guest::boot(script, port)?),
            Kind::Own(address) => {
                out::complain(&format!(
                    "waiting for a machine: run `strandline crash agent {address}` there, as root"
                ));
                None
            }
        };
        for _ in 0..START_STEPS {
            match self.listener.accept() {
                Ok((link, _)) => {
                    // It has its copy by now.
                    if let Some(guest) = &guest {
                        let _gone = fs::remove_file(guest.share.path().join("strandline"));
                    }
                    *running = Some(Running::new(link, guest).map_err(lost)?);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => cores::sleep(STEP),
                Err(error) => return Err(lost(error)),
            }
            if let Some(guest) = &mut guest {
                guest.is_alive()?;
            }
        }
        Err(Trouble::Start("no agent came within an hour".into()))
    }

    fn port(&self) -> Result<u16, Trouble> {
        self.listener.local_addr().map(|address| address.port()).map_err(lost)
    }

    /// Where a drive is to be served for it, and by which name it finds that address.
    pub(crate) fn drive_address(&self) -> Result<(IpAddr, String), Trouble> {
        let running = self.running.lock();
        let to = running.as_ref().map(|running| running.to.local_addr());
        let address = to.ok_or_else(gone)?.map_err(lost)?.ip();
        let name = match self.kind {
            Kind::Guest(_) => HOST_OF_GUEST.into(),
            Kind::Own(_) => address.to_string(),
        };
        Ok((address, name))
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask(&self, ask: &Ask, bytes: &[u8]) -> Result<(Answer, Vec<u8>), Trouble> {
        let mut running = self.running.lock();
        let link = running.as_mut().ok_or_else(gone)?;
        let answer = send(&mut link.to, ask, bytes).and_then(|()| receive(&mut link.from));
        match answer {
            Ok(Some((Answer::Failed { errno, what }, _))) => {
                Err(Trouble::Refused { errno: Errno::from_raw_os_error(errno), what })
            }
            Ok(Some(answer)) => Ok(answer),
            broken => {
                // Neither side knows any more where a message begins.
                drop(running.take());
                Err(broken.err().map_or_else(gone, lost))
            }
        }
    }

    /// Runs a program there; what it printed, and its exit status.
    pub(crate) fn run(&self, argv: &[String]) -> Result<(i32, String), Trouble> {
        match self.ask(&Ask::Run { argv: argv.to_vec() }, b"")? {
            (Answer::Ran { status }, said) => Ok((status, out::lossy(&said))),
            (answer, _) => Err(Trouble::Lost(format!("it said {answer:?}"))),
        }
    }
}

fn lost(error: io::Error) -> Trouble {
    Trouble::Lost(out::plain(error))
}

fn gone() -> Trouble {
    Trouble::Lost("it hung up".into())
}

impl Running {
    fn new(link: TcpStream, guest: Option<Guest>) -> io::Result<Self> {
        link.set_nonblocking(false)?;
        link.set_nodelay(true)?;
        link.set_read_timeout(Some(ANSWER))?;
        Ok(Self { from: BufReader::new(link.try_clone()?), to: link, guest })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The agent ends when nobody listens, and with it the guest.
        let _gone = self.to.shutdown(Shutdown::Both);
        drop(self.guest.take());
    }
}

impl Guest {
    fn boot(script: &Path, port: u16) -> Result<Self, Trouble> {
        if !script.is_file() {
            return Err(Trouble::Start(format!(
                "no guest: {} is not there; run this in a checkout of Strandline, name its \
                 guest/run with --guest, or have a machine of yours come with --machine",
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

impl Drop for Guest {
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
