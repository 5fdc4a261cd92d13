//! The control socket of a server: each line is a JSON object, first a request, then its answer.
//!
//! It is a Unix socket to which only its owner can connect. Requests are served one at a time.

use std::fs::{File, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cores::JoinHandle;
use drive::{Command, Drive, FaultOn, Lba, Output, Status, ZoneState, blkzone};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use serde::{Deserialize, Serialize};

use crate::power::{After, When};
use crate::server::Server;

/// Longest line of a request.
const REQUEST_MAX: u64 = 1 << 16;
/// How long a client may take to ask after it has connected.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a server can be asked for. Addresses are in blocks of the drive.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Request {
    /// Cut the power.
    Cut {
        /// When.
        when: CutWhen,
        /// Seed of what the drive leaves to chance.
        seed: u64,
        /// What happens then.
        after: CutAfter,
    },
    /// Restores the power, with what was saved under a name if one is given.
    Restore {
        /// The name.
        name: Option<String>,
    },
    /// Saves what the drives hold under a name.
    Save {
        /// The name.
        name: String,
    },
    /// Forget what was saved.
    Forget {
        /// The name.
        name: String,
    },
    /// Stops answering, or resumes.
    Freeze {
        /// True to stop.
        frozen: bool,
    },
    /// Makes a zone read only or offline.
    FailZone {
        /// Any block of the zone.
        lba: Lba,
        /// `ro` or `of`, as `blkzone` abbreviates them.
        state: String,
    },
    /// Makes commands fail: those that touch a range, or the n-th one.
    Fault {
        /// `read`, `write`, `flush` or `other`.
        on: String,
        /// First block and number of blocks.
        range: Option<(Lba, u64)>,
        /// The number of the command from now on, counted from 0.
        nth: Option<u64>,
    },
    /// Forget all faults.
    ClearFaults,
    /// Returns what `blkzone report` would print for the drive.
    Zones,
    /// Returns what the drive and the server have done.
    Stats,
}

/// A request, and the drive that it is about.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Asked {
    /// A namespace of the drive. Without one, it is the drive to which the socket belongs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<u32>,
    #[serde(flatten)]
    request: Request,
}

/// [`When`], in JSON.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CutWhen {
    /// Now.
    Now,
    /// After so many commands.
    Commands(u64),
    /// After so many NAND programs.
    Programs(u64),
}

/// [`After`], in JSON.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CutAfter {
    /// The power comes back at once.
    Back,
    /// The power stays off.
    Off,
    /// The drive is dead, but acknowledges everything.
    Polite,
}

/// What a server answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// It is done. Some requests have a result.
    Done(serde_json::Value),
    /// It was not done, for this reason.
    Refused(String),
}

/// A control socket on which a server listens. Dropping it removes the socket.
pub struct Control {
    path: PathBuf,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Listens at `path` for requests about drive number `unit` of `server`. Replaces a socket
    /// whose listener has ended.
    ///
    /// # Errors
    ///
    /// Another process listens there, or no socket can be made.
    pub fn start(path: &Path, server: Arc<Server>, unit: usize) -> io::Result<Self> {
        if is_socket(path) {
            if connect(path).is_ok() {
                return Err(io::Error::other("somebody else is listening"));
            }
            std::fs::remove_file(path)?;
        }
        let (dir, name) = near(path)?;
        let listener = UnixListener::bind(&name)?;
        std::fs::set_permissions(&name, Permissions::from_mode(0o600))?;
        drop(dir);
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let ended = bell.clone();
        let serve = move || listen(&listener, &ended, &server, unit);
        let thread = Some(cores::spawn("nvme control", None, serve));
        Ok(Self { path: path.to_owned(), bell, thread })
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // If the pipe is full, the bell has been rung already.
        let _ = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.result();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Asks the server that listens at `path`.
///
/// # Errors
///
/// No process listens there, or the connection failed. If the server refuses, that is
/// [`Reply::Refused`].
pub fn ask(path: &Path, request: &Request) -> io::Result<Reply> {
    ask_of(path, None, request)
}

/// As [`ask`], about the drive that has `namespace`. Addresses are still the drive's.
///
/// # Errors
///
/// Those of [`ask`].
pub fn ask_of(path: &Path, namespace: Option<u32>, request: &Request) -> io::Result<Reply> {
    let mut stream = connect(path)?;
    let mut line = serde_json::to_vec(&Asked { namespace, request: request.clone() })?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}

/// Whether there is a socket at `path`.
pub fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}

fn connect(path: &Path) -> io::Result<UnixStream> {
    let (_dir, name) = near(path)?;
    UnixStream::connect(name)
}

/// A path to `path` that is short enough for a socket as long as the returned directory is open.
fn near(path: &Path) -> io::Result<(File, PathBuf)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let dir = File::open(parent.unwrap_or(Path::new(".")))?;
    let near = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name);
    Ok((dir, near))
}

fn listen(listener: &UnixListener, ended: &OwnedFd, server: &Server, unit: usize) {
    loop {
        let mut fds = [
            PollFd::new(listener, PollFlags::IN),
            PollFd::from_borrowed_fd(ended.as_fd(), PollFlags::IN),
        ];
        let _ = poll(&mut fds, None);
        if fds[1].revents().contains(PollFlags::IN) {
            return;
        }
        if let Ok((stream, _)) = listener.accept() {
            // If the client neither asks nor listens, it is gone.
            let _ = converse(&stream, server, unit);
        }
    }
}

fn converse(stream: &UnixStream, server: &Server, unit: usize) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(REQUEST_MAX)).read_line(&mut line)?;
    let reply = match serde_json::from_str(&line) {
        Ok(Asked { namespace, request }) => {
            let unit = namespace.map_or(Ok(unit), |nsid| {
                server.unit_of(nsid).ok_or_else(|| format!("no namespace {nsid}"))
            });
            match unit.and_then(|unit| answer(server, unit, request)) {
                Ok(value) => Reply::Done(value),
                Err(refused) => Reply::Refused(refused),
            }
        }
        Err(error) => Reply::Refused(format!("not a request: {error}")),
    };
    let mut text = serde_json::to_vec(&reply)?;
    text.push(b'\n');
    (&mut &*stream).write_all(&text)
}

/// Fails if a drive has no block `last`.
fn check_within(unit: &crate::Unit, last: Lba) -> Result<(), String> {
    let blocks = unit.drive().identify().blocks;
    let bytes = |blocks: u64| u128::from(blocks) * drive::BLOCK_SIZE as u128;
    if last < blocks {
        return Ok(());
    }
    Err(format!("byte {} is beyond the drive's {} bytes", bytes(last), bytes(blocks)))
}

fn answer(server: &Server, unit: usize, request: Request) -> Result<serde_json::Value, String> {
    let drive = server.units().get(unit).ok_or("no such drive")?;
    let told = |error: io::Error| error.to_string();
    match request {
        Request::Cut { when, seed, after } => {
            let when = match when {
                CutWhen::Now => When::Now,
                CutWhen::Commands(n) => When::Commands(n),
                CutWhen::Programs(n) => When::Programs(n),
            };
            let after = match after {
                CutAfter::Back => After::Back,
                CutAfter::Off => After::Off,
                CutAfter::Polite => After::Polite,
            };
            server.cut(when, seed, after).map_err(told)?;
        }
        Request::Restore { name } => {
            return server.restore(name.as_deref()).map(serde_json::Value::from).map_err(told);
        }
        Request::Save { name } => server.save(&name),
        Request::Forget { name } if server.forget(&name) => {}
        Request::Forget { name } => return Err(format!("nothing was saved as '{name}'")),
        Request::Freeze { frozen } => server.freeze(frozen),
        Request::FailZone { lba, state } => {
            let state = blkzone::state_named(&state)
                .filter(|state| matches!(state, ZoneState::ReadOnly | ZoneState::Offline))
                .ok_or("a zone fails as ro (read only) or of (offline)")?;
            check_within(drive, lba)?;
            server.fail_zone(unit, lba, state).map_err(|status| match status {
                Status::InvalidOpcode => "the drive has no zones".to_owned(),
                Status::InvalidField => "a conventional zone has no state that could fail".into(),
                status => status.to_string(),
            })?;
        }
        Request::Fault { on, range, nth } => {
            let (on, status) = match &*on {
                "read" => (FaultOn::Read, Status::UnrecoveredRead),
                "write" => (FaultOn::Write, Status::WriteFault),
                "flush" => (FaultOn::Flush, Status::WriteFault),
                "other" => (FaultOn::Other, Status::InvalidField),
                _ => return Err(format!("'{on}' is not read, write, flush or other")),
            };
            match (range, nth) {
                (Some((lba, blocks)), None) => {
                    check_within(drive, lba.saturating_add(blocks.saturating_sub(1)))?;
                    drive.drive().fail_range(on, lba..lba.saturating_add(blocks), status);
                }
                (None, nth) => drive.drive().fail_nth(on, nth.unwrap_or(0), status),
                (Some(_), Some(_)) => return Err("either a range or a number".into()),
            }
        }
        Request::ClearFaults => drive.drive().clear(),
        Request::Zones => return report(drive.drive()).map(serde_json::Value::from),
        Request::Stats => return Ok(stats(server, unit)),
    }
    Ok(serde_json::Value::Null)
}

/// What `blkzone report` would print.
fn report(drive: &impl Drive) -> Result<String, String> {
    if drive.identify().zones.is_none() {
        return Err("the drive has no zones".into());
    }
    drive.submit(0, 0, Command::ReportZones { lba: 0, max: u32::MAX });
    match drive.wait_for(0, 0).map(|done| done.result) {
        Some(Ok(Output::Zones(zones))) => Ok(blkzone::print(&zones)),
        Some(Err(status)) => Err(format!("zone report: {status}")),
        _ => Err("zone report: the drive gave no answer".into()),
    }
}

fn stats(server: &Server, unit: usize) -> serde_json::Value {
    let stats = server.units().get(unit).map(|unit| unit.ssd().stats()).unwrap_or_default();
    serde_json::json!({
        "power": if server.is_off() { "off" } else { "on" },
        "cuts": server.cuts(),
        "saved": server.saved(),
        "connections": server.connections(),
        "controllers": server.controllers(),
        "commands": stats.commands,
        "reads": stats.reads,
        "writes": stats.writes,
        "appends": stats.appends,
        "flushes": stats.flushes,
        "discards": stats.discards,
        "zone_reports": stats.reports,
        "zone_management": stats.manages,
        "blocks_read": stats.blocks_read,
        "blocks_written": stats.blocks_written,
        "programs": stats.programs,
        "resets": stats.resets,
    })
}
