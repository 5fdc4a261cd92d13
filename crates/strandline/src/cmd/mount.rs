//! `strandline mount`: a volume in the host's tree, through FUSE; and `mount.strandline`, the
//! helper mount(8) calls for it. Exit status as in mount(8).

mod control;
mod harness;
mod log;
mod options;
mod source;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use clap::{Args, Parser};
use drive::linux::Access;
use fuse::{Ended, Session};
use vfs::kind::Format;

use control::Switch;
use harness::{Orders, Running};
use log::Log;
use options::{Settings, usage, with_absolute_paths};
use source::Served;

use crate::block_layer::BlockLayer;
use crate::failure::{Failure, Outcome};
use crate::in_use::is_write_protected;
use crate::mounted::Mounted;
use crate::out;
use crate::target::Kind;

/// mount(8): incorrect invocation.
pub(crate) const USAGE: u8 = 1;
/// mount(8): system error.
const SYSTEM: u8 = 2;
/// mount(8): mount failure.
pub(crate) const FAILED: u8 = 32;
/// What the background process says when the mount is ready.
const READY: &str = "ready";

/// Mount a volume on a directory, through FUSE.
#[derive(Args)]
#[command(mut_arg("named", |named| named.short('t')))]
#[command(after_help = "\
Examples:
  strandline mount disk.img /mnt
  strandline mount disk.img /mnt -o ro,noatime
  strandline mount -t f2fs disk.img /mnt -f -o fsync_mode=strict,cache=1g

Options (-o), those of mount(8): ro rw noatime relatime strictatime nodiratime sync dirsync nosuid
nodev noexec acl noacl remount, and what fstab may hold; allow_other, root's default, and
noallow_other; writeback: the kernel collects writes; io_uring: requests come over rings, for short
writes and fsyncs (Linux 6.14); device=DEVICE, once for each further device of the volume;
threads=N; busy_poll=USEC: how long a thread of the server looks for another request before it
sleeps, by default 20 where waking another CPU takes long, else 0;
timing=instant|paced, of an emulated drive; log=FILE and verbose, as --log and -v;
lazyfs=CONFIG: the mount loses what is not durable when LazyFS's commands or its configuration say
so, and goes on (docs: LazyFS), with modules=subdir and subdir=DIR, the root of CONFIG's paths;
control=SOCKET: the same commands over a Unix socket, each answered by a line of JSON.
Those of F2FS: cache=BYTES, how much memory pages may take, 256m by default, nodes up to three
quarters as much again; fsync_mode=posix|strict|nobarrier, oprw, nobarrier, mode=, background_gc=,
atgc, nodiscard, noinline_data, noinline_dentry, noinline_xattr, noextent_cache, norecovery, hybrid,
disable_roll_forward; range_lock=inode|page: what an overwrite of cached pages locks, page with
hybrid, else inode; reserve_root=BLOCKS, kept for root, resuid=UID and resgid=GID; NAME=VALUE of
`strandline tune --list`; linux=3.8 to 4.16 and without=NAME: without what came to F2FS later, or a
change of it;
sched=none|mq-deadline, zone_order=plug|lock, nr_requests=N, nr_hw_queues=N and poll: the block
layer, as --sched and the others below;
lookup_mode=auto|perf|compat. The others of Linux's F2FS, up to 6.18, are taken and have no effect.
noflush_merge: fsyncs that wait at the same time do not share flushes; nowp_check: recovery believes
what nodes point to, as Linux's does.
Those of ext4: noload, data=ordered|writeback|journal,
journal=jbd2|fast|ijournal|grouped|zjournal|zgrouped, areas=N and record_csum of these, or
journal=none, without one; cache=BYTES, commit=SECONDS, min_batch_time=USEC, max_batch_time=USEC,
errors=, discard, dioread_lock, noauto_da_alloc, grpid, resuid=UID and resgid=GID, alloc=, linux=.
Those of pmfs made with design=nova: range_lock=inode|segment, log=inode|core, place=node0|local.
What an fsync of F2FS waits for: posix (the default), for data, nodes and one flush of the drive;
strict, for a flush before and one after the last node: a file is recovered as one of its fsyncs
left it; nobarrier, for no flush: safe only on drives that keep what they acknowledged. With oprw,
data and nodes are sent at once, and recovery goes by the zones' write pointers. `strandline status`
shows what is in effect.

`umount DIR` ends it, as does SIGTERM; both write everything back first.

Exit status, as in mount(8): 0 mounted, 1 wrong usage, 2 system error, 32 it cannot be mounted.")]
pub(crate) struct Mount {
    /// Image of a drive, any file with a volume in it, or a block device. With -o remount the
    /// directory is enough
    image: PathBuf,
    /// Directory to mount on
    dir: Option<PathBuf>,
    #[command(flatten)]
    kind: Kind,
    /// Mount options, separated by commas
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Mount read-only, as -o ro
    #[arg(long, short = 'r')]
    read_only: bool,
    /// Stay in the foreground
    #[arg(long, short = 'f')]
    foreground: bool,
    /// Append errors to FILE. Otherwise they go to standard error in the foreground, and to syslog
    /// in the background
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Log what is done, too, not only errors
    #[arg(long, short = 'v')]
    verbose: bool,
    /// Stay in the foreground, say when the mount is ready, and detach from the terminal
    #[arg(long, hide = true)]
    in_background: bool,
    #[command(flatten)]
    block_layer: BlockLayer,
}

/// Mount a volume: the helper mount(8) calls for file systems of type strandline.
#[derive(Parser)]
#[command(name = "mount.strandline", version)]
pub(crate) struct Helper {
    /// Image of a drive, any file with a volume in it, or a block device
    image: PathBuf,
    /// Directory to mount on
    dir: PathBuf,
    /// Mount options, separated by commas
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Ignore options unknown to the file system
    #[arg(short = 's')]
    sloppy: bool,
    /// Check everything, but do not mount
    #[arg(short = 'f')]
    fake: bool,
    /// Do not write /etc/mtab, which is never done
    #[arg(short = 'n')]
    no_mtab: bool,
    /// Say what is done
    #[arg(short = 'v')]
    verbose: bool,
    /// strandline, or with the volume's file system behind a dot
    #[arg(short = 't', value_name = "TYPE[.NAME]", value_parser = kind_behind_dot)]
    kind: Option<Kind>,
}

impl Helper {
    /// The same command line as a [`Mount`].
    pub(crate) fn run(self) -> Outcome {
        let (image, dir) = (self.image, self.dir);
        let kind = self.kind.unwrap_or_default();
        let parse = |options: &[String]| Settings::parse(options, kind, &image);
        let options = if self.sloppy { known(&self.options, parse) } else { self.options };
        if self.fake {
            parse(&options)?;
            return Ok(0);
        }
        if self.verbose {
            out::line(format!("{} on {}", image.display(), dir.display()))?;
        }
        Mount {
            image,
            dir: Some(dir),
            kind,
            options,
            read_only: false,
            foreground: false,
            in_background: false,
            log: None,
            verbose: self.verbose,
            block_layer: BlockLayer::default(),
        }
        .run()
    }
}

/// For clap: `strandline`, `fuse.strandline`, or one of them with `.f2fs` behind it.
fn kind_behind_dot(text: &str) -> Result<Kind, String> {
    match text.rsplit_once('.') {
        Some((_, name)) if name != "strandline" => Kind::called(name).map_err(|e| e.to_string()),
        _ => Ok(Kind::default()),
    }
}

/// `-s`: only the options that make sense.
fn known(options: &[String], parse: impl Fn(&[String]) -> Outcome<Settings>) -> Vec<String> {
    let all = options.iter().flat_map(|list| list.split(','));
    all.filter(|option| parse(&[(*option).to_owned()]).is_ok()).map(str::to_owned).collect()
}

impl Mount {
    pub(crate) fn run(mut self) -> Outcome {
        if self.read_only {
            self.options.push("ro".into());
        }
        self.options.extend(self.block_layer.options());
        let mut settings = self.settings()?;
        let absolute = |path: &Path| std::fs::canonicalize(path).map_err(failed(path));
        // remount needs the directory only.
        let dir = match &self.dir {
            Some(dir) => dir,
            None if settings.remount => &self.image,
            None => return Err(usage("on which directory? see mount --help".into())),
        };
        if let Some(mounted) = Mounted::find(dir).filter(Mounted::is_dead) {
            mounted.ask("status").map_err(failed_plainly)?;
        }
        if settings.remount {
            return remount(&absolute(dir)?, &settings);
        }
        let (image, dir) = (absolute(&self.image)?, absolute(dir)?);
        if !settings.mount.read_only && is_write_protected(&image) {
            // As mount(8) does.
            let image = image.display();
            out::complain(&format!("{image}: write-protected, mounted read-only"));
            self.options.push("ro".into());
            settings = self.settings()?;
        }
        if self.foreground || self.in_background {
            return serve(&image, &dir, &settings, self.in_background);
        }
        self.start_in_background(&image, &dir)
    }

    fn settings(&self) -> Outcome<Settings> {
        let mut settings = Settings::parse(&self.options, self.kind, &self.image)?;
        settings.log = self.log.clone().or(settings.log);
        settings.verbose |= self.verbose;
        Ok(settings)
    }

    /// Starts this program again, and waits until it has mounted or failed.
    fn start_in_background(&self, image: &Path, dir: &Path) -> Outcome {
        let system = |error| Failure::Coded { message: format!("mount: {error}"), code: SYSTEM };
        let mut child = Command::new(std::env::current_exe().map_err(system)?);
        child.arg("mount").arg("--in-background");
        if let Some(name) = self.kind.name() {
            child.args(["-t", name]);
        }
        for list in &self.options {
            child.arg("-o").arg(with_absolute_paths(list));
        }
        if let Some(file) = &self.log {
            child.arg("--log").arg(std::path::absolute(file).map_err(system)?);
        }
        child.args(self.verbose.then_some("-v"));
        child.arg("--").arg(image).arg(dir).current_dir("/");
        let mut child =
            child.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(system)?;
        let mut said = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout.take(64)).read_line(&mut said).map_err(system)?;
        }
        if said.trim_end() == READY {
            return Ok(0);
        }
        // It has reported why on the standard error that it shares with us.
        let code = child.wait().map_err(system)?.code();
        Ok(code
            .and_then(|code| u8::try_from(code).ok())
            .filter(|code| *code != 0)
            .unwrap_or(SYSTEM))
    }
}

/// Changes the flags of a mount. A volume that was mounted read-only is mounted again for writing,
/// below the same mount.
fn remount(dir: &Path, settings: &Settings) -> Outcome {
    let mounted = Mounted::on(dir).map_err(failed_plainly)?;
    check_unchanged(&mounted, &settings.volume)?;
    if !settings.mount.read_only {
        let refused = mounted.ask("remount=rw").map_err(failed_plainly)?;
        if !refused.is_empty() {
            return Err(failed(dir)(String::from_utf8_lossy(&refused)));
        }
    }
    fuse::remount(&mounted.dir, &settings.mount).map_err(failed(dir))?;
    // When a mount has become read-only, everything written before is durable.
    let lost = mounted.ask("sync").map_err(failed_plainly)?;
    match lost.is_empty() {
        true => Ok(0),
        false => Err(failed(dir)(String::from_utf8_lossy(&lost))),
    }
}

/// Fails if the volume's own options would change: they cannot while it is mounted.
fn check_unchanged(mounted: &Mounted, wanted: &str) -> Outcome<()> {
    let failed = failed(&mounted.dir);
    let status = mounted.ask("status").map_err(failed_plainly)?;
    let status: serde_json::Value = serde_json::from_slice(&status).map_err(&failed)?;
    let now = status["mount_options"].as_str().unwrap_or_default().to_owned();
    let then = format!("{now},{wanted}");
    let wrong = |error: vfs::kind::Error| usage(error.to_string());
    let format = subjects::with_options(&then).or_else(|_| subjects::with_options(&now));
    let format = format.map_err(wrong)?;
    // Whether it is read-only is the mount's matter.
    let canonical = |options: &str| format.check_options(&format!("{options},rw")).map_err(wrong);
    if canonical(&then)? == canonical(&now)? {
        return Ok(());
    }
    let dir = mounted.dir.display();
    let message = format!(
        "{dir}: mounted {now}; only ro, rw and the mount's own flags can change on remount: \
         unmount first"
    );
    Err(Failure::Coded { message, code: FAILED })
}

fn failed_plainly(failure: Failure) -> Failure {
    Failure::Coded { message: failure.to_string(), code: FAILED }
}

/// Printed for a mount that cannot have its `io_uring`.
const NO_RINGS: &str = "mounted without io_uring, which the kernel does not offer; \
    from Linux 6.14 on it does after: echo 1 >/sys/module/fuse/parameters/enable_uring";

/// Mounts and stays until the end.
fn serve(image: &Path, dir: &Path, settings: &Settings, in_background: bool) -> Outcome {
    let log = open_log(dir, settings, in_background)?;
    let access = if settings.mount.read_only { Access::Read } else { Access::Write };
    let source = settings.source(image);
    let mut orders = Orders::open(settings, in_background)?;
    let mut served = source.open(access)?;
    let format = served.format;
    let root = settings.subdir.as_deref().unwrap_or(dir);
    let harness = orders.as_mut().map(|orders| orders.harness(&served, &source.options, root));
    if let Some(harness) = &harness {
        served.volume = harness.clone();
    }
    let speakers = cores::Mutex::new(Vec::new());
    let switch =
        Arc::new(Switch { served: cores::Mutex::new(None), source, log: log.clone(), speakers });
    let volume = switch.serve(served);
    let session = Session::start(volume, Some(switch.clone()), image, dir, &settings.mount)
        .map_err(failed(dir))?;
    if settings.mount.io_uring && !session.has_rings() {
        out::complain(&format!("{}: {NO_RINGS}", dir.display()));
    }
    let idle: Vec<&str> =
        settings.volume.split(',').filter(|option| format.without_effect(option)).collect();
    if !idle.is_empty() {
        out::complain(&format!("{}: without effect here: {}", dir.display(), idle.join(", ")));
    }
    if in_background {
        let_go().map_err(failed(dir))?;
    }
    switch.maintain();
    let orders = orders.zip(harness);
    let running = orders.map(|(orders, harness)| orders.start(harness, session.kernel_cache()));
    let ended = session.wait();
    let mut served = switch.served.lock().take();
    if ended == Ok(Ended::Panicked) {
        // Ending would wait for threads and write back what may be half changed.
        std::mem::forget(served);
        let message = format!(
            "{}: a fault in this program ended the mount; unmount and mount again, which recovers \
             the volume",
            dir.display()
        );
        log.fail(&message);
        return Err(Failure::Coded { message, code: SYSTEM });
    }
    let unmounted = served.as_mut().map_or(Ok(()), |Served { maintenance, volume, .. }| {
        drop(maintenance.take());
        volume.unmount().map_err(|error| switch.lost(&**volume, &error))
    });
    running.iter().for_each(Running::stop);
    // While the image is still locked: `umount` listens until it is free.
    switch.end(unmounted.as_ref().err().map(String::as_str));
    let failure = match (ended, unmounted) {
        (Err(errno), _) => failed(dir)(errno),
        (_, Err(lost)) => failed(image)(lost),
        _ => {
            log.note("unmounted");
            return Ok(0);
        }
    };
    if in_background || settings.log.is_some() {
        log.fail(&format!("unmounted, but not everything was written: {failure}"));
    }
    Err(failure)
}

/// The log; panics of all threads go there, too.
fn open_log(dir: &Path, settings: &Settings, in_background: bool) -> Outcome<Arc<Log>> {
    let file = settings.log.as_deref();
    let about = dir.display().to_string();
    let log = Log::open(about, file, settings.verbose, in_background);
    let log = Arc::new(log.map_err(failed(file.unwrap_or(dir)))?);
    if in_background || file.is_some() {
        let of_panics = log.clone();
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            of_panics.fail(&panic.to_string());
            default(panic);
        }));
    }
    Ok(log)
}

/// Why a volume cannot be mounted, and what can be done about it.
fn unmountable(image: &Path, format: &dyn Format, error: &vfs::kind::Error) -> Failure {
    let shown = image.display();
    let next = match (format.repaired_by(), format.rescued_from()) {
        _ if !error.is_corruption() => String::new(),
        (Some(other), _) => {
            format!("; 'strandline fsck {shown}' and then '{other} {shown}' repair it")
        }
        (None, None) => format!("; 'strandline fsck {shown}' repairs it"),
        (None, Some(source)) => format!(
            "; 'strandline fsck {shown}' repairs it or, with --rescue, rebuilds it from {source}"
        ),
    };
    failed(image)(format!("{error}{next}"))
}

/// Leaves the session and the terminal of the caller.
fn let_go() -> std::io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    // A process that already leads a session may stay in it.
    let _ = rustix::process::setsid();
    // In one write, and before the descriptors are closed: the caller waits for this.
    rustix::io::write(rustix::stdio::stdout(), format!("{READY}\n").as_bytes())?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

fn failed<E: std::fmt::Display>(what: &Path) -> impl Fn(E) -> Failure {
    let what = what.display().to_string();
    move |error| Failure::Coded { message: format!("{what}: {error}"), code: FAILED }
}
