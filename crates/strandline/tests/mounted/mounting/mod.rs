//! An image, a directory to mount it on, and the process that serves it.

#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod mariadb;
pub(crate) mod programs;

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use cores::{Mutex, MutexGuard};
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

/// How often to look for something that is on its way, and how long to wait in between. Not a
/// deadline by the clock, which goes on while the machine stands still.
const LOOKS: u32 = 12_000;
const PAUSE_NS: u64 = 5_000_000;
/// nobody and nogroup.
pub(crate) const NOBODY: u32 = 65534;

/// One rig at a time: a process that another test starts has all our files open until it executes
/// its program, and a mount with an open file can be neither unmounted nor made read-only.
static ALONE: Mutex<()> = Mutex::new(());

/// Keeps rigs away, for a test without one that must not have its files open elsewhere.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock()
}

/// What a volume is on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Disk {
    /// A plain file of this many MiB: a conventional drive.
    Plain(u64),
    /// An emulated zoned drive: its profile and its zones, of 4 MiB each and writable as a whole,
    /// because `fsck.f2fs` takes a file for a drive whose zones are.
    Zoned(&'static str, u32),
    /// A file in memory, for a pmfs made with these features: how many MiB.
    Memory(&'static str, u64),
}

/// The designs of pmfs: what mkfs is told, and what the mount is.
pub(crate) const DESIGNS: [(&str, &str); 3] = [
    ("design=inplace", "rw"),
    ("design=nova", "rw"),
    ("design=nova", "range_lock=segment,log=core,place=local"),
];

/// A zoned drive with a volatile buffer.
pub(crate) const VOLATILE: &str = "zn540-noplp";
/// A zoned drive whose buffer survives a power cut.
pub(crate) const PROTECTED: &str = "zn540";

/// A volume that is mounted, most of the time.
pub(crate) struct Rig {
    dir: TempDir,
    /// Of the image.
    name: &'static str,
    fs: &'static str,
    server: RefCell<Option<Child>>,
    _alone: MutexGuard<'static, ()>,
}

/// Fails unless `program` is there.
pub(crate) fn require(program: &str, package: &str) {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    assert!(found.unwrap().status.success(), "{program} is missing: install the package {package}");
}

/// The value of the environment variable `name`, or `default`.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number"))
}

/// Runs `strandline` with `args` and then `path`.
pub(crate) fn strandline(args: &[&str], path: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strandline"));
    command.args(args).arg(path).output().expect("strandline runs")
}

/// Runs a program that has to succeed, with `args` and then `path`; returns what it prints.
pub(crate) fn run(program: &str, args: &[&str], path: &Path) -> String {
    let output = Command::new(program).args(args).arg(path).output().expect(program);
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Whether a shell script succeeds in `dir` for a user without privileges.
pub(crate) fn as_nobody(script: &str, dir: &Path) -> bool {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script).current_dir(dir).uid(NOBODY).gid(NOBODY);
    shell.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("sh runs").success()
}

impl Rig {
    /// A new volume in a plain file, mounted with `args`.
    pub(crate) fn new(args: &[&str]) -> Self {
        Self::on(Disk::Plain(128), args)
    }

    /// A new volume on an emulated zoned drive with a volatile buffer, mounted with `args`.
    pub(crate) fn zoned(args: &[&str]) -> Self {
        Self::on(Disk::Zoned(VOLATILE, 64), args)
    }

    /// A new volume of F2FS, mounted with `args`.
    pub(crate) fn on(disk: Disk, args: &[&str]) -> Self {
        Self::of("f2fs", disk, args)
    }

    /// A new volume of the file system `fs`, mounted with `args`.
    pub(crate) fn of(fs: &'static str, disk: Disk, args: &[&str]) -> Self {
        let parent = match disk {
            Disk::Memory(..) => PathBuf::from("/dev/shm"),
            Disk::Plain(_) | Disk::Zoned(..) => std::env::temp_dir(),
        };
        let mut rig = Self::empty_in(&parent);
        rig.fs = fs;
        let mut features: &[&str] = &[];
        let make;
        match disk {
            Disk::Plain(mib) => {
                File::create(rig.image()).unwrap().set_len(mib << 20).unwrap();
            }
            Disk::Zoned(profile, zones) => {
                let zones = zones.to_string();
                let shape = ["--zone-size", "4m", "--zones", &zones, "--conventional", "8"];
                let create = [&["drive", "create", "--profile", profile][..], &shape].concat();
                let created = strandline(&create, &rig.image());
                assert!(created.status.success(), "{created:?}");
            }
            Disk::Memory(design, mib) => {
                rig.name = "image.pm";
                let size = format!("{mib}m");
                let create = ["drive", "create", "--pm", "--size", &size];
                let created = strandline(&create, &rig.image());
                assert!(created.status.success(), "{created:?}");
                make = ["-O", design];
                features = &make;
            }
        }
        rig.format(features, args)
    }

    /// A directory to mount on, and no image yet.
    pub(crate) fn empty() -> Self {
        Self::empty_in(&std::env::temp_dir())
    }

    fn empty_in(parent: &Path) -> Self {
        let alone = ALONE.lock();
        assert!(
            rustix::process::getuid().is_root(),
            "this test mounts and changes users: run as root"
        );
        assert!(Path::new("/dev/fuse").exists(), "/dev/fuse is missing: load the module fuse");
        require("fusermount3", "fuse3");
        let dir = tempfile::tempdir_in(parent).unwrap();
        // Other users must be able to reach the mount point.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.path(), open).unwrap();
        std::fs::create_dir(dir.path().join("point")).unwrap();
        Self { dir, name: "image", fs: "f2fs", server: RefCell::new(None), _alone: alone }
    }

    fn format(self, features: &[&str], args: &[&str]) -> Self {
        let mkfs = [&["mkfs", "--fs", self.fs, "-q"], features].concat();
        let made = strandline(&mkfs, &self.image());
        assert!(made.status.success(), "{made:?}");
        self.mount(args);
        self
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.dir.path().join(self.name)
    }

    pub(crate) fn point(&self) -> PathBuf {
        self.dir.path().join("point")
    }

    /// Mounts in a foreground process of its own, which can be killed.
    pub(crate) fn mount(&self, args: &[&str]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strandline"));
        command.arg("mount").arg("-f").args(args).arg(self.image()).arg(self.point());
        *self.server.borrow_mut() = Some(command.spawn().expect("strandline runs"));
        self.eventually("the volume is mounted", || {
            let ended = self.server.borrow_mut().as_mut().and_then(|s| s.try_wait().unwrap());
            assert!(ended.is_none(), "mount ended: {ended:?}");
            self.is_mounted()
        });
    }

    /// Mounts under a limit of the shell's `ulimit`, with the output in a file; returns the exit
    /// status if that fails.
    pub(crate) fn attempt(&self, limit: &str, args: &[&str], said: File) -> Result<(), ExitStatus> {
        let limited = format!("ulimit {limit}; exec \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &limited, "sh", env!("CARGO_BIN_EXE_strandline"), "mount", "-f"]);
        command.args(args).arg(self.image()).arg(self.point()).stderr(said);
        *self.server.borrow_mut() = Some(command.spawn().expect("sh runs"));
        let mut ended = None;
        self.eventually("the volume is mounted, or not", || {
            ended = self.server.borrow_mut().as_mut().and_then(|s| s.try_wait().unwrap());
            ended.is_some() || self.is_mounted()
        });
        let Some(status) = ended else { return Ok(()) };
        self.server.take();
        Err(status)
    }

    /// The most memory the server ever had, in KiB.
    pub(crate) fn memory(&self) -> u64 {
        let path = format!("/proc/{}/status", self.server_id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Process that serves the mount.
    pub(crate) fn server_id(&self) -> u32 {
        self.server.borrow().as_ref().expect("mounted").id()
    }

    pub(crate) fn is_mounted(&self) -> bool {
        let device = |path: &Path| std::fs::metadata(path).map(|m| m.dev()).ok();
        device(&self.point()) != device(self.dir.path())
    }

    /// Unmounts with `umount` and mounts again.
    pub(crate) fn remount(&self, args: &[&str]) {
        self.unmount();
        self.mount(args);
    }

    /// Unmounts with `umount`; the server must succeed.
    pub(crate) fn unmount(&self) {
        self.umount();
        let status = self.ended();
        assert!(status.success(), "mount ended with {status}");
    }

    /// Waits for the server of a volume that was unmounted; it must succeed.
    pub(crate) fn await_end(&self) {
        let status = self.ended();
        assert!(status.success(), "mount ended with {status}");
    }

    /// Unmounts what can no longer be written back; the server must report it.
    pub(crate) fn give_up(&self) {
        self.umount();
        assert_eq!(self.ended().code(), Some(32));
    }

    /// As soon as it is idle: the kernel closes the files of a process that had an `io_uring` some
    /// time after it was killed.
    fn umount(&self) {
        self.eventually("the volume can be unmounted", || {
            let umount = Command::new("umount").arg(self.point()).output().expect("umount runs");
            let said = String::from_utf8_lossy(&umount.stderr);
            assert!(umount.status.success() || said.contains("busy"), "{umount:?}");
            umount.status.success()
        });
    }

    /// What mount(8) calls for a file system of type strandline; the error is its output.
    pub(crate) fn helper(&self, options: &str) -> Result<(), String> {
        let mut helper = Command::new(env!("CARGO_BIN_EXE_strandline"));
        helper.arg0("mount.strandline").arg(self.image()).arg(self.point()).args(["-o", options]);
        let output = helper.output().expect("strandline runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(said) }
    }

    /// Kills the server; the mount stays.
    pub(crate) fn die(&self) {
        self.signal(Signal::KILL);
        assert!(!self.ended().success());
    }

    /// Kills the server and clears the mount away.
    pub(crate) fn kill(&self) {
        self.die();
        self.clear();
    }

    /// Waits for a server that kills itself; the mount stays.
    pub(crate) fn await_death(&self) {
        assert!(!self.ended().success());
    }

    /// Clears the mount of a dead server away.
    pub(crate) fn clear(&self) {
        run("umount", &["-l"], &self.point());
    }

    /// Asks the server to end.
    pub(crate) fn terminate(&self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.ended()
    }

    fn signal(&self, signal: Signal) {
        let server = self.server.borrow();
        let server = server.as_ref().expect("a server runs");
        rustix::process::kill_process(Pid::from_child(server), signal).unwrap();
    }

    fn ended(&self) -> ExitStatus {
        let mut server = self.server.borrow_mut().take().expect("a server runs");
        let mut status = None;
        self.eventually("the server ends", || {
            status = server.try_wait().unwrap();
            status.is_some()
        });
        status.expect("it has ended")
    }

    /// Copies the image, and what the drive knows of itself, into a directory.
    pub(crate) fn copy_image(&self, dir: &Path) {
        let mut copy = Command::new("cp");
        copy.arg("--sparse=always").arg(self.image());
        let zones = self.dir.path().join("image.zones");
        copy.args(zones.exists().then_some(zones)).arg(dir);
        assert!(copy.status().expect("cp runs").success(), "{copy:?}");
    }

    /// fsck finds nothing, neither ours nor, where there is one, that of f2fs-tools or e2fsprogs.
    pub(crate) fn check(&self) {
        let checked = strandline(&["fsck", "--dry-run"], &self.image());
        let said = String::from_utf8_lossy(&checked.stdout);
        // Not even a recovery is due.
        assert!(checked.status.success() && !said.contains("recovery is due"), "{checked:?}");
        match self.fs {
            "ext4" => return drop(run("/usr/sbin/e2fsck", &["-fn"], &self.image())),
            // No other program checks it.
            "pmfs" => return,
            _ => {}
        }
        require("fsck.f2fs", "f2fs-tools");
        let judged = Command::new("fsck.f2fs").arg("--dry-run").arg(self.image()).output().unwrap();
        let said = String::from_utf8_lossy(&judged.stdout);
        assert!(judged.status.success() && !said.contains("[Fail]"), "fsck.f2fs: {said}");
    }

    /// Waits until something is so.
    pub(crate) fn eventually(&self, what: &str, is_so: impl FnMut() -> bool) {
        eventually(what, is_so);
    }
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..LOOKS {
        if is_so() {
            return;
        }
        cores::sleep(PAUSE_NS);
    }
    panic!("waited in vain: {what}");
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.borrow_mut().take() {
            // After a failed test; a failure here is not reported.
            let _ = Command::new("umount").arg("-l").arg(self.point()).status();
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}
