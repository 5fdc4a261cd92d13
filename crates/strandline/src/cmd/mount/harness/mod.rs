//! `mount -o lazyfs=CONFIG`: a mount under a harness that understands the configuration and the
//! commands of LazyFS (github.com/dsrhaslab/lazyfs), and writes its log; and `-o control=SOCKET`,
//! with the same commands, whose answers are JSON.

mod answer;
mod commands;
mod config;
mod fifo;
mod log;
mod socket;

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use cores::Mutex;
use fuse::KernelCache;
use lab::record::harness::{Below, Call, Fault, Harness, Keeper, NameChange, Report, UnsyncedFile};

use self::answer::Answer;
use self::commands::Command;
use self::config::Config;
use self::fifo::{Line, Lines};
use self::log::{Level, Log};
use self::socket::{Bound, Socket};
use super::failed;
use super::options::{Settings, usage};
use super::source::Served;
use crate::failure::Outcome;
use crate::out::lossy;

/// Where commands come from; some lines of the log begin with it.
const WORKER: &str = "[lazyfs.faults.worker]";
const COMMANDS: &str = "[lazyfs.cmds]";
/// The blocks of reports.
const BLOCK_BYTES: u64 = 4096;
/// The longest configuration, in bytes.
const CONFIG_MAX: u64 = 1 << 20;
/// What the second FIFO is told of each clear.
const FINISHED: &[u8] = b"finished::clear-cache\n";

/// What a mount under a harness is told from the beginning, and from where it will be told more.
pub(super) struct Orders {
    config: Config,
    commands: Option<File>,
    completed: Option<File>,
    socket: Option<Socket>,
    attendant: Arc<Attendant>,
}

impl Orders {
    /// Those of a mount; none if it is not under a harness.
    pub(super) fn open(settings: &Settings, in_background: bool) -> Outcome<Option<Self>> {
        let mut orders = match (&settings.lazyfs, &settings.control) {
            (None, None) => return Ok(None),
            (Some(config), _) => Self::of_lazyfs(config, in_background)?,
            (None, Some(_)) => Self::of(Config::none(), Log::none()),
        };
        if let Some(path) = &settings.control {
            orders.socket = Some(Socket::bind(path).map_err(failed(path))?);
        }
        Ok(Some(orders))
    }

    fn of(config: Config, log: Log) -> Self {
        let attendant = Arc::new(Attendant { log, cache: Mutex::new(None) });
        Self { config, commands: None, completed: None, socket: None, attendant }
    }

    /// Reads the configuration, and makes the FIFOs and the log that it names.
    fn of_lazyfs(path: &Path, in_background: bool) -> Outcome<Self> {
        let mut text = String::new();
        let file = File::open(path).map_err(failed(path))?;
        let read = file.take(CONFIG_MAX).read_to_string(&mut text).map_err(failed(path))?;
        if read as u64 == CONFIG_MAX {
            return Err(usage(format!("{}: longer than any configuration", path.display())));
        }
        let beside = path.parent().unwrap_or(Path::new("/"));
        let config = Config::parse(&text, beside).map_err(|why| {
            usage(format!("{}: {}", path.display(), why.replace('\n', " ").trim()))
        })?;
        let (log, refused) = Log::open(config.logfile.as_deref(), !in_background);
        log.say(Level::Info, "[lazyfs.config]: loading config...");
        log.say(Level::Info, &format!("[lazyfs.args]: config path is '{}'", path.display()));
        if let Some(error) = refused {
            let why = format!("[lazyfs.log] could not create logfile, using stdout only: {error}");
            log.say(Level::Warning, &why);
        }
        config.complaints.iter().for_each(|line| log.say(Level::Error, line));
        let fifo = |path: &Path| -> Outcome<File> {
            let opened = fifo::open(path).map_err(failed(path))?;
            log.say(Level::Info, &format!("[lazyfs.fifo]: fifo {} is open", path.display()));
            Ok(opened)
        };
        let commands = config.fifo.as_deref().map(fifo).transpose()?;
        let completed = config.completed.as_deref().map(fifo).transpose()?;
        Ok(Self { commands, completed, ..Self::of(config, log) })
    }

    /// The volume under a harness, with the faults of the configuration. Their paths may begin with
    /// `root`.
    pub(super) fn harness(&mut self, served: &Served, options: &str, root: &Path) -> Arc<Harness> {
        let below = Below {
            drive: served.drive.clone(),
            emulated: served.drives.clone(),
            gate: served.gate.clone(),
            format: served.format,
            options: options.to_owned(),
            maintains: self.config.evicts,
        };
        let root = root.as_os_str().as_bytes();
        let harness = Harness::new(served.volume.clone(), below, self.attendant.clone(), root);
        if self.config.logs_calls {
            harness.report_calls();
        }
        for fault in std::mem::take(&mut self.config.injections) {
            if let Err(why) = harness.add(fault) {
                self.attendant.log.say(Level::Error, &format!("[lazyfs.config]: {why}"));
            }
        }
        harness
    }

    /// Carries out commands from now on, in threads that end with the process.
    pub(super) fn start(self, harness: Arc<Harness>, cache: KernelCache) -> Running {
        let Self { config, commands, completed, socket, attendant } = self;
        *attendant.cache.lock() = Some(cache.clone());
        attendant.log.say(Level::Info, "[lazyfs.fifo]: running LazyFS...");
        let cache_bytes = config.cache_bytes;
        let worker = Arc::new(Worker {
            harness,
            attendant: attendant.clone(),
            completed,
            cache,
            cache_bytes,
        });
        if let Some(commands) = commands {
            let worker = worker.clone();
            cores::spawn("lazyfs", None, move || worker.listen(commands));
        }
        let socket = socket.map(|socket| socket.serve(worker));
        Running { attendant, _socket: socket }
    }
}

/// A mount that takes commands.
pub(super) struct Running {
    attendant: Arc<Attendant>,
    /// Removes its name in the end.
    _socket: Option<Bound>,
}

impl Running {
    /// It is unmounted.
    pub(super) fn stop(&self) {
        self.attendant.log.say(Level::Info, "[lazyfs]: stopping LazyFS...");
    }
}

/// What hears a harness.
struct Attendant {
    log: Log,
    /// Protects what the kernel has cached, once it is mounted.
    cache: Mutex<Option<KernelCache>>,
}

impl Attendant {
    /// Lists what no fsync has covered.
    fn report(&self, files: &[UnsyncedFile], names: &[NameChange]) {
        let say = |level, text: String| self.log.say(level, &format!("{COMMANDS}: {text}"));
        say(Level::Warning, "report request submitted...".into());
        say(Level::Warning, "report generated.".into());
        if files.is_empty() && names.is_empty() {
            say(Level::Info, "report: all data blocks are synced!".into());
            return;
        }
        let mut bytes = 0;
        for UnsyncedFile { ino, paths, ranges } in files {
            say(Level::Info, format!("report: [inode {ino}] is not fully synced, info:"));
            for range in ranges {
                let (first, last) = (range.start / BLOCK_BYTES, (range.end - 1) / BLOCK_BYTES);
                let (start, end) = (range.start, range.end - 1);
                let what = format!(
                    "info: (block {first}) to (block {last}) [byte index {start} to index {end}]"
                );
                say(Level::Info, format!("report: [inode {ino}] {what}"));
                bytes += range.end - range.start;
            }
            say(Level::Info, format!("report: [inode {ino}] files mapped to this inode:"));
            for path in paths {
                say(Level::Info, format!("report: [inode {ino}] => file: '{}'", lossy(path)));
            }
        }
        for NameChange { path, added } in names {
            let what = if *added { "new" } else { "removed" };
            say(Level::Info, format!("report: name '{}' ({what}) is not synced", lossy(path)));
        }
        let total = format!("report: total number of bytes un-fsynced: {bytes} bytes.");
        say(Level::Info, total);
    }
}

impl Keeper for Attendant {
    fn hear(&self, report: Report<'_>) {
        let say = |level, text: String| self.log.say(level, &text);
        match report {
            Report::Called { call, from, to, range } => {
                let from = lossy(from);
                let about = match (to, range) {
                    (Some(to), _) => format!("from={from},to={}", lossy(to)),
                    (None, Some((size, _))) if call == Call::Truncate => {
                        format!("path={from},size={size}")
                    }
                    (None, Some((offset, size))) => format!("path={from},size={size},off={offset}"),
                    (None, None) => format!("path={from}"),
                };
                say(Level::Info, format!("[lazyfs.ops]: lfs_{}({about})", call.name()));
            }
            Report::Closed { path } => {
                say(Level::Info, format!("[lazyfs.ops]: lfs_release(path={})", lossy(path)));
            }
            Report::Triggered { call, when, files, names } => {
                let (op, timing) = (call.name(), when.name());
                let what = format!("Triggered fault condition (op={op},timing={timing})");
                say(Level::Critical, what);
                self.report(files, names);
            }
            Report::Torn { path, ranges } => {
                for (offset, bytes) in ranges {
                    let what = format!("will persist {bytes} bytes from offset {offset}");
                    let path = lossy(path);
                    say(Level::Warning, format!("[lazyfs.faults]: Write to path {path}: {what}"));
                }
                let what = "Triggered fault condition (op=write,timing=after)";
                say(Level::Critical, what.into());
            }
            Report::Unfit { path, why } => {
                let path = lossy(path);
                let what = format!("Could not inject fault of split write for file {path}: {why}");
                say(Level::Warning, format!("[lazyfs.faults]: {what}"));
            }
            Report::Lost => {
                say(Level::Warning, format!("{COMMANDS}: cache is cleared."));
                // The call that met the fault is not answered yet, and the kernel may hold what it
                // is to forget until it is.
                if let Some(cache) = self.cache.lock().clone()
                    && let Err(error) =
                        cores::try_spawn("lazyfs forget", None, move || cache.forget())
                {
                    say(Level::Error, format!("{COMMANDS}: the kernel keeps its cache: {error}"));
                }
            }
            Report::Ended(why) => say(Level::Critical, ended(why)),
        }
    }

    fn die(&self) -> ! {
        let process = rustix::process::getpid();
        let id = process.as_raw_nonzero();
        self.log.say(Level::Critical, &format!("Killing LazyFS pid {id}!"));
        // The first process of a container does not get it, and aborts.
        let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
        std::process::abort()
    }
}

fn ended(why: &str) -> String {
    format!("{COMMANDS}: what is left cannot be mounted, every call fails now: {why}")
}

/// Carries out commands.
struct Worker {
    harness: Arc<Harness>,
    attendant: Arc<Attendant>,
    completed: Option<File>,
    cache: KernelCache,
    /// What the configuration says that the cache holds.
    cache_bytes: u64,
}

impl Worker {
    fn say(&self, level: Level, text: &str) {
        self.attendant.log.say(level, &format!("{WORKER}: {text}"));
    }

    fn command(&self, text: &str) {
        self.attendant.log.say(Level::Warning, &format!("{COMMANDS}: {text}"));
    }

    /// Carries out the commands of a FIFO.
    fn listen(&self, fifo: File) {
        self.say(Level::Info, "waiting for fault commands...");
        match Lines::of(fifo) {
            Ok(lines) => lines.for_each(|line| drop(self.carry_out(&line, Command::parse))),
            Err(error) => self.say(Level::Critical, &format!("failed to read: {error}")),
        }
        self.say(Level::Info, "worker stopped");
    }

    /// Carries out a line, which `parse` understands.
    fn carry_out(&self, line: &Line, parse: impl Fn(&str) -> Command) -> Answer {
        let text = match line {
            Line::Whole(bytes) => lossy(bytes),
            Line::TooLong => {
                self.say(Level::Warning, "command too long");
                return Answer::refused(["command too long"]);
            }
        };
        let command = parse(&text);
        match command {
            Command::Help => self.say(Level::Info, &format!("<{text}>")),
            Command::Fault { .. } | Command::Unknown => {}
            _ => self.say(Level::Info, &format!("received '{text}'")),
        }
        match command {
            Command::Clear { seed } => self.clear(seed),
            Command::Checkpoint => self.checkpoint(),
            Command::Usage => {
                let bytes = self.unsynced_bytes();
                let percent = bytes as f64 * 100.0 / self.cache_bytes as f64;
                self.command(&format!("cache usage (%pages) is {percent:.6}%"));
                Answer::usage(bytes, percent)
            }
            Command::Report => {
                let (files, names) = self.harness.unsynced();
                self.attendant.report(&files, &names);
                Answer::unsynced(&files, &names)
            }
            Command::Help => {
                for (name, what) in commands::HELP {
                    self.say(Level::Info, &format!("help: '{name}' => {what}"));
                }
                Answer::help()
            }
            Command::Fault { kind, fault } => self.add(&text, kind, fault),
            Command::Unknown => {
                let why = format!("command unknown '{text}'");
                self.say(Level::Info, &why);
                Answer::refused([why])
            }
        }
    }

    fn checkpoint(&self) -> Answer {
        self.command("cache checkpoint request submitted...");
        // What programs have changed through mappings is written back first.
        self.cache.forget();
        match self.harness.checkpoint() {
            Ok(()) => {
                self.command("checkpoint is done.");
                Answer::done()
            }
            Err(error) => {
                self.command(&format!("checkpoint failed: {error}"));
                Answer::refused([error.to_string()])
            }
        }
    }

    /// Adds a fault, or says what is wrong with it.
    fn add(&self, text: &str, kind: &str, fault: Result<(Fault, String), Vec<String>>) -> Answer {
        let added = fault.and_then(|(fault, shown)| {
            self.harness.add(fault).map(|()| shown).map_err(|why| vec![why.to_string()])
        });
        match added {
            Ok(shown) => {
                self.say(Level::Critical, &format!("received: VALID {kind} fault:"));
                self.say(Level::Critical, &format!("=> {kind}: {shown}"));
                // What LazyFS says instead, of torn writes only.
                self.say(Level::Info, &format!("configured successfully '{text}'"));
                Answer::done()
            }
            Err(errors) => {
                self.say(Level::Warning, &format!("received: INVALID {kind} fault:"));
                for error in &errors {
                    self.say(Level::Warning, &format!("{kind} fault error: {error}"));
                }
                Answer::refused(errors)
            }
        }
    }

    /// Loses what is not durable, with all that the kernel has cached of it; with a seed, a part.
    fn clear(&self, seed: Option<u64>) -> Answer {
        self.command("clear cache request submitted...");
        // What programs have changed through mappings comes to the volume, and is lost there.
        self.cache.forget();
        let lost = match seed {
            None => self.harness.lose(0),
            Some(seed) => self.harness.lose_some(seed),
        };
        self.cache.forget();
        let answer = match lost {
            Ok(()) => {
                self.command("cache is cleared.");
                Answer::lost(self.harness.losses())
            }
            Err(why) => {
                self.attendant.log.say(Level::Critical, &ended(&why));
                Answer::refused([why])
            }
        };
        if let Some(mut completed) = self.completed.as_ref()
            && let Err(error) = completed.write_all(FINISHED)
        {
            self.say(Level::Warning, &format!("failed to write to notifier fifo: {error}"));
        }
        answer
    }

    fn unsynced_bytes(&self) -> u64 {
        let (files, _) = self.harness.unsynced();
        files.iter().flat_map(|file| &file.ranges).map(|range| range.end - range.start).sum()
    }
}
