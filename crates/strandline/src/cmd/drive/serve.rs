//! `strandline drive serve`: drives for real kernels.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use drive::{Ssd, Timing, image};
#[cfg(feature = "auth")]
use lab::workload::script::read_bounded;
use nvme_target::control::Control;
#[cfg(feature = "auth")]
use nvme_target::{Keys, Secret};
use nvme_target::{Options, Server, Unit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::control::socket_beside;
use crate::failure::{Failure, Outcome};
use crate::out;

/// Longest qualified name.
const NQN_MAX: usize = 223;
/// Longest file of secrets.
#[cfg(feature = "auth")]
const KEYS_MAX: u64 = 1 << 20;
/// The prefix of our names, before the drive's.
const NQN_START: &str = "nqn.2026-11.com.github.strandline:";

/// Serve drives to real kernels, over NVMe/TCP.
///
/// A drive with conventional zones is two namespaces, those zones and the others: what mkfs.f2fs -m
/// -c wants. Several drives are namespaces of one subsystem, and one power supply feeds them all.
/// Until SIGTERM, SIGINT or SIGHUP; kill -9 is a power cut.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline drive create --zone-size 32m --zones 64 --conventional 4 disk.img
  strandline drive serve disk.img
  nvme connect -t tcp -a 127.0.0.1 -s 4420 -n nqn.2026-11.com.github.strandline:disk.img  # as root
  strandline drive cut disk.img --after 1000 --seed 7
  nvme gen-dhchap-key > key; chmod 600 key
  strandline drive serve disk.img --listen 0.0.0.0:4420 --dhchap-key-file key

A QEMU guest with -netdev user finds this machine's 127.0.0.1 at 10.0.2.2.")]
pub(crate) struct Serve {
    /// Drive images, or any files; each one or two namespaces
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Where to listen; on other addresses than this machine's own, only --dhchap-key-file keeps
    /// strangers out
    #[arg(long, default_value = "127.0.0.1:4420", value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// Let anybody in who reaches the address
    #[arg(long)]
    insecure: bool,
    /// Name of the subsystem [default: nqn.2026-11.com.github.strandline:FILE]
    #[arg(long)]
    nqn: Option<String>,
    /// Serve only hosts that authenticate. Line 1 is the hosts' secret, as nvme gen-dhchap-key
    /// prints it; line 2, if there is one, is ours, for hosts that ask. The connection is not
    /// encrypted, and nvme discover, which sends no secret, finds nothing. Only in builds with
    /// --features auth
    #[arg(long, value_name = "FILE")]
    dhchap_key_file: Option<PathBuf>,
    /// Control socket [default: PATH.control, beside each drive]
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// As fast as possible, or as fast as the drive's profile says
    #[arg(long, value_enum, default_value = "instant")]
    timing: Speed,
    /// Say that several controllers may share the drives: Linux then uses its multipath driver
    #[arg(long)]
    shared: bool,
    /// Serve a copy in memory; the files stay as they are
    #[arg(long)]
    in_memory: bool,
}

/// What time a drive takes.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Speed {
    Instant,
    Paced,
}

impl Serve {
    pub(crate) fn run(self) -> Outcome {
        let options = Options { shared: self.shared, ..self.access(Options::new(self.name()?))? };
        let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(Failure::on("signals"))?;
        let units: Vec<Unit> =
            self.paths.iter().map(|path| self.open(path)).collect::<Outcome<_>>()?;
        if !self.listen.ip().is_loopback() && self.dhchap_key_file.is_none() && !self.insecure {
            return Err(Failure::Usage(format!(
                "--listen {}: anybody who reaches this address could read and write the drives; \
                 --dhchap-key-file asks hosts for a secret, --insecure lets all in",
                self.listen
            )));
        }
        let listener = TcpListener::bind(self.listen).map_err(Failure::on(self.listen))?;
        let drives: Vec<Arc<Ssd>> = units.iter().map(|unit| unit.ssd().clone()).collect();
        let server = Server::start(listener, units, options);
        let server = Arc::new(server.map_err(Failure::on(self.listen))?);
        let controls = self.controls(&server)?;
        self.tell(&server, &controls)?;
        let mut signals = signals;
        let _signal = signals.forever().next();
        drop(controls);
        drop(server);
        drives.iter().for_each(|ssd| drop(ssd.power_off()));
        Ok(0)
    }

    fn name(&self) -> Outcome<String> {
        let Some(nqn) = &self.nqn else {
            let first = self.paths.first().and_then(|path| path.file_name()).unwrap_or_default();
            let plain =
                |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
            let name: String = first.to_string_lossy().chars().map(plain).collect();
            let room = NQN_MAX - NQN_START.len();
            return Ok(format!("{NQN_START}{}", &name[..name.len().min(room)]));
        };
        if !nqn.starts_with("nqn.") || nqn.len() > NQN_MAX {
            return Err(Failure::Usage(format!(
                "'{nqn}': a qualified name begins with nqn. and has up to {NQN_MAX} bytes"
            )));
        }
        Ok(nqn.clone())
    }

    /// `options` with whom to let in.
    #[cfg(not(feature = "auth"))]
    fn access(&self, options: Options) -> Outcome<Options> {
        let Some(path) = &self.dhchap_key_file else { return Ok(options) };
        Err(Failure::Usage(format!(
            "{}: this strandline cannot authenticate hosts; one built with --features auth can",
            path.display()
        )))
    }

    /// `options` with whom to let in.
    #[cfg(feature = "auth")]
    fn access(&self, options: Options) -> Outcome<Options> {
        let keys = self.keys()?.map(Arc::new);
        Ok(Options { keys, ..options })
    }

    #[cfg(feature = "auth")]
    fn keys(&self) -> Outcome<Option<Keys>> {
        let Some(path) = &self.dhchap_key_file else { return Ok(None) };
        let text = read_bounded(path, KEYS_MAX)?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let parse = |line: &str| line.parse::<Secret>().map_err(Failure::host(path));
        match *lines.collect::<Vec<_>>() {
            [host] => Ok(Some(Keys { host: parse(host)?, controller: None })),
            [host, own] => Ok(Some(Keys { host: parse(host)?, controller: Some(parse(own)?) })),
            _ => Err(Failure::Problem(format!("{}: one or two secrets", path.display()))),
        }
    }

    fn open(&self, path: &Path) -> Outcome<Unit> {
        let problem = |error: image::ImageError| Failure::Problem(error.to_string());
        let timing = match self.timing {
            Speed::Instant => Timing::Instant,
            Speed::Paced => Timing::Paced,
        };
        let ssd = if self.in_memory {
            let from = image::open(path, true, Timing::Instant).map_err(problem)?;
            let state = from.survivors(0).writable();
            if state.unreadable() > 0 {
                let path = path.display();
                let blocks = state.unreadable();
                return Err(Failure::Problem(format!("{path}: {blocks} blocks cannot be read")));
            }
            Ssd::power_on(state, timing, 1)
        } else {
            image::open(path, false, timing).map_err(problem)?
        };
        let name = std::fs::canonicalize(path).map_err(Failure::host(path))?;
        Ok(Unit::new(name, ssd))
    }

    fn controls(&self, server: &Arc<Server>) -> Outcome<Vec<Control>> {
        let start = |path: PathBuf, unit| {
            Control::start(&path, server.clone(), unit).map_err(Failure::host(&path))
        };
        match &self.control {
            Some(path) => Ok(vec![start(path.clone(), 0)?]),
            None => {
                let beside = self.paths.iter().map(|path| socket_beside(path));
                beside.enumerate().map(|(unit, path)| start(path, unit)).collect()
            }
        }
    }

    /// Prints what to type, and who can connect.
    fn tell(&self, server: &Server, controls: &[Control]) -> Outcome<()> {
        let address = server.address();
        let (ip, port) = (address.ip(), address.port());
        let who = match (ip.is_loopback(), &self.dhchap_key_file) {
            (true, None) => "only this machine can connect",
            (true, Some(_)) => "only this machine can connect, and only with the secret",
            (false, None) => "anybody who reaches this address can read and write the drives",
            (false, Some(_)) => "anybody who knows the secret can connect",
        };
        out::line(format!("listening on {address}: {who}"))?;
        let secret = self.dhchap_key_file.as_ref().map_or_else(String::new, |path| {
            format!(" --dhchap-secret \"$(head -1 '{}')\"", path.display())
        });
        let ip = if ip.is_unspecified() { "HOST".to_owned() } else { ip.to_string() };
        out::line(format!("nvme connect -t tcp -a {ip} -s {port} -n {}{secret}", server.nqn()))?;
        for control in controls {
            out::line(format!("control: {}", control.path().display()))?;
        }
        out::flush()
    }
}
