//! A guest that runs Debian's kernel, through the script `guest/run`.
//!
//! The guest sees a directory of the host as `/host`: what [`Guest::file`] and [`Guest::program`]
//! put there, and what its script writes there, which outlives a reset. Without QEMU and the other
//! Debian packages there is no judge and no verdict: [`Guest::run`] panics naming them.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

/// A machine about to be switched on. Disks are `/dev/vda`, `/dev/vdb`, … in the order added.
#[derive(Debug)]
pub struct Guest {
    run: PathBuf,
    share: TempDir,
    arguments: Vec<String>,
    kernel: Option<String>,
}

/// What became of a script.
#[derive(Debug)]
pub struct Output {
    /// What it printed, both streams.
    pub text: String,
    /// Its exit status; `None` if the machine stopped before it ended.
    pub status: Option<i32>,
    /// The kernel's messages of warning and worse.
    pub console: String,
    share: TempDir,
}

/// A running machine. When dropped, it has ten seconds to end on its own.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    share: TempDir,
}

/// `guest/run`: the machine stopped before the script ended.
const STOPPED: i32 = 125;
/// `guest/run`: the script took too long.
const TOO_LONG: i32 = 124;

/// Where `guest/run` of a [`Running`] machine complains.
const SAID: &str = "said";
/// Nanoseconds between two looks at whether it has ended.
const STEP: u64 = 100_000_000;

impl Guest {
    /// A machine with one CPU, 1 GiB of memory, five minutes to live and no disk.
    #[expect(clippy::new_without_default, reason = "making one creates a directory")]
    pub fn new() -> Self {
        let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest/run");
        Self::booted_by(&run).expect("a temporary directory")
    }

    /// The same, booted by `guest/run` of another place.
    pub fn booted_by(run: &Path) -> io::Result<Self> {
        let (run, share) = (run.to_owned(), tempfile::tempdir()?);
        Ok(Self { run, share, arguments: Vec::new(), kernel: None })
    }

    fn with(mut self, option: &str, value: impl Into<String>) -> Self {
        self.arguments.extend([option.to_owned(), value.into()]);
        self
    }

    /// Adds the disk in the raw image `path`.
    pub fn drive(self, path: &Path) -> Self {
        self.with("--drive", plain(path))
    }

    /// Adds an NVMe ZNS namespace, `/dev/nvme0nN`, of zones of `zone` bytes of which `capacity` can
    /// be written. QEMU keeps the contents of `path` but not the states of the zones.
    pub fn zns(self, path: &Path, zone: u64, capacity: u64) -> Self {
        self.with("--zns", format!("{},{zone},{capacity}", plain(path)))
    }

    /// As [`Guest::zns`], with other properties of QEMU's `nvme-ns`: `zoned.max_open=4,...`.
    pub fn zns_with(self, path: &Path, zone: u64, capacity: u64, properties: &str) -> Self {
        self.with("--zns", format!("{},{zone},{capacity},{properties}", plain(path)))
    }

    /// Boots the kernel of another Debian package than `guest/prepare` does, unless `GUEST_KERNEL`
    /// has chosen one.
    pub fn kernel(mut self, package: &str) -> Self {
        self.kernel = Some(package.to_owned());
        self
    }

    /// Adds a network, in which the host's 127.0.0.1 is 10.0.2.2 after the script says `network`.
    pub fn network(self) -> Self {
        self.with("--net", "user")
    }

    /// The host's side of `/host`, to talk to a script while it runs.
    pub fn share(&self) -> &Path {
        self.share.path()
    }

    /// Memory in MiB. Drives of `null_blk` come out of it.
    pub fn memory(self, mib: u32) -> Self {
        self.with("--memory", mib.to_string())
    }

    /// The number of CPUs.
    pub fn cpus(self, count: u32) -> Self {
        self.with("--cpus", count.to_string())
    }

    /// Seconds after which the machine is switched off and the run fails.
    pub fn timeout(self, seconds: u32) -> Self {
        self.with("--timeout", seconds.to_string())
    }

    /// Lets the machine's clock count instructions, so that it measures the same on a busy host.
    pub fn clock_of_instructions(self) -> Self {
        self.with("--clock", "instructions")
    }

    /// Puts a file in `/host`.
    pub fn file(self, name: &str, contents: impl AsRef<[u8]>) -> Self {
        fs::write(self.share.path().join(name), contents).expect("the shared directory");
        self
    }

    /// Puts a program in `/host`, which is on the guest's path: statically linked, or with glibc,
    /// libgcc and nothing else.
    ///
    /// # Panics
    ///
    /// If it cannot be read.
    pub fn program(self, path: &Path) -> Self {
        self.copy_program(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self
    }

    /// As [`Guest::program`], for callers that can do without it.
    pub(crate) fn copy_program(&self, path: &Path) -> io::Result<()> {
        let target = self.share.path().join(path.file_name().unwrap_or_default());
        // Debug information is most of a program here, and would have to go through the guest.
        let strip = Command::new("strip").arg("-o").arg(&target).arg(path).status();
        if !strip.is_ok_and(|status| status.success()) {
            fs::copy(path, &target)?;
        }
        Ok(())
    }

    /// Boots, runs `script` with the guest's `sh`, and returns when the machine has stopped.
    ///
    /// # Panics
    ///
    /// If the guest cannot be started, or the script does not end in time.
    pub fn run(self, script: &str) -> Output {
        let out = self.command(script).and_then(|mut run| run.output());
        let out = out.unwrap_or_else(|e| panic!("{}: {e}", self.run.display()));
        let share = self.share.path();
        let complaint = String::from_utf8_lossy(&out.stderr);
        let read = |name| lossy(&share.join(name)).unwrap_or_default();
        let (text, console) = (read("output"), read("console"));
        let ended = share.join("status").exists();
        let status = out.status.code().filter(|code| ended || *code != STOPPED);
        let started = ended || status.is_none();
        let in_time = status != Some(TOO_LONG) || ended;
        assert!(started && in_time, "{complaint}\n{text}\n{console}");
        Output { text, status, console, share: self.share }
    }

    /// Boots and runs `script`, and returns at once.
    pub(crate) fn start(self, script: &str) -> io::Result<Running> {
        let said = File::create(self.share.path().join(SAID))?;
        let mut run = self.command(script)?;
        let child = run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        Ok(Running { child: child.process_group(0).spawn()?, share: self.share })
    }

    fn command(&self, script: &str) -> io::Result<Command> {
        let share = self.share.path();
        fs::write(share.join("script"), script)?;
        let mut run = Command::new(&self.run);
        run.args(&self.arguments).arg("--share").arg(share).arg(share.join("script"));
        let chosen = std::env::var_os("GUEST_KERNEL").is_some();
        if let Some(kernel) = self.kernel.as_ref().filter(|_| !chosen) {
            run.env("GUEST_KERNEL", kernel);
        }
        Ok(run)
    }
}

impl Running {
    /// Why it has stopped, if it has.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let status = match self.child.try_wait() {
            Ok(None) => return None,
            Ok(Some(status)) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let texts = [SAID, "output"].map(|name| lossy(&self.share.path().join(name)));
        let words = texts.iter().flatten().find_map(|text| text.trim().lines().last());
        Some(format!("({status}): {}", words.unwrap_or("it said nothing")))
    }
}

impl Drop for Running {
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

impl Output {
    /// What the script printed, if all went well.
    ///
    /// # Panics
    ///
    /// If the script failed or the machine stopped early.
    pub fn success(&self) -> &str {
        assert_eq!(self.status, Some(0), "the script said\n{}\n{}", self.text, self.console);
        &self.text
    }

    /// A file of `/host` as the script left it.
    pub fn file(&self, name: &str) -> Vec<u8> {
        let path = self.path(name);
        fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}\n{}", path.display(), self.text))
    }

    /// Where a file of `/host` is, as long as this value lives.
    pub fn path(&self, name: &str) -> PathBuf {
        self.share.path().join(name)
    }
}

fn plain(path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    path.into_os_string().into_string().expect("a path in UTF-8")
}

fn lossy(path: &Path) -> Option<String> {
    fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}
