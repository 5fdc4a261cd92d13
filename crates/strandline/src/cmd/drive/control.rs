//! What can be asked of a drive that is served: power, faults, snapshots, statistics.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use cores::splitmix64;
use drive::Zone;
use nvme_target::control::{CutAfter, CutWhen, Reply, Request, ask_of, is_socket};

use crate::failure::{Failure, Outcome};
use crate::out;
use crate::target::parse_size;

const BLOCK: u64 = drive::BLOCK_SIZE as u64;

/// The control socket of the drive at `path`, if it is served.
pub(super) fn socket_beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".control");
    name.into()
}

/// A server of a drive, to be asked.
pub(super) struct Served {
    socket: PathBuf,
    name: String,
}

impl Served {
    /// The server of the drive at `path`, or that listens on the socket `path`.
    pub(super) fn find(path: &Path) -> Option<Self> {
        let beside = socket_beside(path);
        let socket = [path, &beside].into_iter().find(|path| is_socket(path))?.to_owned();
        // A socket may outlive its server.
        std::os::unix::net::UnixStream::connect(&socket)
            .map(drop)
            .or_else(|error| match error.kind() {
                // The name is too long for this, though not for the server.
                std::io::ErrorKind::InvalidInput => Ok(()),
                _ => Err(error),
            })
            .ok()?;
        Some(Self { socket, name: path.display().to_string() })
    }

    fn must(path: &Path) -> Outcome<Self> {
        Self::find(path).ok_or_else(|| {
            let path = path.display().to_string();
            let why = match std::os::unix::net::UnixStream::connect(socket_beside(Path::new(&path)))
            {
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                    "it is served, but its control socket is another user's"
                }
                _ => "no 'strandline drive serve' serves this drive",
            };
            Failure::Problem(format!("{path}: {why}"))
        })
    }

    /// Asks about the drive that the path names; returns the server's answer.
    pub(super) fn ask(&self, request: &Request) -> Outcome<serde_json::Value> {
        self.ask_of(&Which { namespace: None }, request)
    }

    /// Asks about a drive.
    fn ask_of(&self, which: &Which, request: &Request) -> Outcome<serde_json::Value> {
        match ask_of(&self.socket, which.namespace, request) {
            Ok(Reply::Done(value)) => Ok(value),
            Ok(Reply::Refused(why)) => Err(Failure::Problem(format!("{}: {why}", self.name))),
            Err(error) => Err(Failure::Problem(format!("{}: {error}", self.socket.display()))),
        }
    }

    /// The zones of the drive.
    pub(super) fn zones(&self, which: &Which) -> Outcome<Vec<Zone>> {
        let value = self.ask_of(which, &Request::Zones)?;
        let text = value.as_str().unwrap_or_default();
        drive::blkzone::parse(text).map_err(Failure::on(&self.name))
    }
}

/// Which of several drives served together.
#[derive(Args)]
pub(crate) struct Which {
    /// Among drives served together, the one with this namespace [default: the one that PATH names,
    /// or the first of a control socket]
    #[arg(long, value_name = "NSID")]
    namespace: Option<u32>,
}

impl Which {
    /// Whether it is said.
    pub(super) fn is_given(&self) -> bool {
        self.namespace.is_some()
    }
}

/// When and how the power of a served drive is cut.
#[derive(Args)]
pub(crate) struct CutServed {
    /// Of a served drive: as the Nth command from now on arrives
    #[arg(long, value_name = "N")]
    after: Option<u64>,
    /// Of a served drive: at one of the next N commands, chosen by the seed
    #[arg(long, value_name = "N", conflicts_with = "after")]
    within: Option<u64>,
    /// Of a served drive: the power stays away until `drive restore`
    #[arg(long)]
    stay_off: bool,
    /// Of a served drive: it becomes read only and acknowledges everything, so that a host can
    /// unmount
    #[arg(long, conflicts_with = "stay_off")]
    polite: bool,
}

impl CutServed {
    /// Whether an option needs a served drive.
    pub(super) fn is_asked(&self) -> bool {
        self.after.is_some() || self.within.is_some() || self.stay_off || self.polite
    }

    /// Whether the cut is still to come.
    pub(super) fn is_later(&self) -> bool {
        self.after.is_some() || self.within.is_some()
    }

    pub(super) fn request(&self, seed: u64) -> Request {
        let when = match (self.after, self.within) {
            (Some(n), _) => CutWhen::Commands(n),
            (None, Some(n)) => CutWhen::Commands(splitmix64(seed) % n.max(1)),
            (None, None) => CutWhen::Now,
        };
        let after = match (self.stay_off, self.polite) {
            (true, _) => CutAfter::Off,
            (_, true) => CutAfter::Polite,
            _ => CutAfter::Back,
        };
        Request::Cut { when, seed, after }
    }
}

/// Give a served drive its power back, or the contents of a snapshot. Hosts lose their controllers
/// and connect again; if the power is on and no snapshot named, nothing happens.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline drive restore disk.img
  strandline drive restore disk.img before-mkfs")]
pub(crate) struct Restore {
    /// Drive image, or control socket
    path: PathBuf,
    /// Name of the snapshot to restore; without it the drives keep what they hold
    name: Option<String>,
}

/// Let a served drive hang: nothing is answered, and no connection drops.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline drive freeze disk.img
  strandline drive freeze disk.img --thaw")]
pub(crate) struct Freeze {
    /// Drive image, or control socket
    path: PathBuf,
    /// Answer again
    #[arg(long)]
    thaw: bool,
}

/// Keep what served drives hold, under a name. Costs memory for later changes; for a drive in a
/// file, a copy of the whole drive.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline drive snapshot disk.img before-mkfs
  strandline drive restore disk.img before-mkfs
  strandline drive snapshot disk.img before-mkfs --forget")]
pub(crate) struct Snapshot {
    /// Drive image, or control socket
    path: PathBuf,
    /// Name
    name: String,
    /// Forget it
    #[arg(long)]
    forget: bool,
}

/// Show what a served drive has done.
#[derive(Args)]
#[command(after_help = "\
Example:
  strandline drive stats disk.img --json")]
pub(crate) struct Stats {
    /// Drive image, or control socket
    path: PathBuf,
    #[command(flatten)]
    which: Which,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Let a served drive fail.
#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  strandline drive fault commands disk.img write --nth 100
  strandline drive fault commands disk.img read --at 64m --length 4k
  strandline drive fault zone disk.img 128m --offline
  strandline drive fault clear disk.img")]
pub(crate) enum Fault {
    /// Fail commands: one of them, or all that touch a range
    Commands(FaultCommands),
    /// Make a zone read only, or offline
    Zone(FaultZone),
    /// Forget all faults except those of zones, which stay
    #[command(after_help = "Example:\n  strandline drive fault clear disk.img")]
    Clear {
        /// Drive image, or control socket
        path: PathBuf,
        #[command(flatten)]
        which: Which,
    },
}

/// Fail commands.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline drive fault commands disk.img write --nth 100
  strandline drive fault commands disk.img read --at 64m --length 4k")]
pub(crate) struct FaultCommands {
    /// Drive image, or control socket
    path: PathBuf,
    /// Which: read, write, flush, other
    on: String,
    /// The Nth from now on, counted from 0 [default: the next one]
    #[arg(long, value_name = "N", conflicts_with = "at")]
    nth: Option<u64>,
    /// All that touch a range, which starts at this byte of the drive
    #[arg(long, value_parser = parse_size, value_name = "OFFSET")]
    at: Option<u64>,
    /// Bytes of the range
    #[arg(long, value_parser = parse_size, default_value = "4k", requires = "at")]
    length: u64,
    #[command(flatten)]
    which: Which,
}

/// Make a zone fail.
#[derive(Args)]
#[command(after_help = "Example:\n  strandline drive fault zone disk.img 128m --offline")]
pub(crate) struct FaultZone {
    /// Drive image, or control socket
    path: PathBuf,
    /// A byte address in the zone, with k, m, g or t
    #[arg(value_parser = parse_size)]
    at: u64,
    /// Offline: its contents are gone. Without this it is read only
    #[arg(long)]
    offline: bool,
    #[command(flatten)]
    which: Which,
}

fn tell(path: &Path, request: &Request, done: &str) -> Outcome {
    tell_of(path, &Which { namespace: None }, request, done)
}

fn tell_of(path: &Path, which: &Which, request: &Request, done: &str) -> Outcome {
    Served::must(path)?.ask_of(which, request)?;
    out::line(format!("{}: {done}", path.display()))?;
    Ok(0)
}

impl Restore {
    pub(crate) fn run(self) -> Outcome {
        let given = Served::must(&self.path)?.ask(&Request::Restore { name: self.name })?;
        let done = match given.as_bool() {
            Some(false) => "the power is on, nothing to restore",
            _ => "power restored",
        };
        out::line(format!("{}: {done}", self.path.display()))?;
        Ok(0)
    }
}

impl Freeze {
    pub(crate) fn run(self) -> Outcome {
        let done = if self.thaw { "answers again" } else { "frozen" };
        tell(&self.path, &Request::Freeze { frozen: !self.thaw }, done)
    }
}

impl Snapshot {
    pub(crate) fn run(self) -> Outcome {
        let name = self.name;
        let (request, done) = if self.forget {
            (Request::Forget { name }, "snapshot forgotten")
        } else {
            (Request::Save { name }, "snapshot taken")
        };
        tell(&self.path, &request, done)
    }
}

impl Stats {
    pub(crate) fn run(self) -> Outcome {
        let stats = Served::must(&self.path)?.ask_of(&self.which, &Request::Stats)?;
        if self.json {
            out::json(&stats)?;
            return Ok(0);
        }
        for (name, value) in stats.as_object().into_iter().flatten() {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            out::line(format!("{name}: {text}"))?;
        }
        Ok(0)
    }
}

impl Fault {
    pub(crate) fn run(self) -> Outcome {
        match self {
            Self::Commands(fault) => {
                let range = fault.at.map(|at| {
                    let end = at.saturating_add(fault.length).div_ceil(BLOCK);
                    (at / BLOCK, end.saturating_sub(at / BLOCK))
                });
                let request = Request::Fault { on: fault.on, range, nth: fault.nth };
                tell_of(&fault.path, &fault.which, &request, "fault set")
            }
            Self::Zone(fault) => {
                let state = if fault.offline { "of" } else { "ro" };
                let request = Request::FailZone { lba: fault.at / BLOCK, state: state.into() };
                tell_of(&fault.path, &fault.which, &request, "zone failed")
            }
            Self::Clear { path, which } => {
                tell_of(&path, &which, &Request::ClearFaults, "faults cleared")
            }
        }
    }
}
