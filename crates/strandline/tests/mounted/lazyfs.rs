//! `mount -o lazyfs=CONFIG` and `control=SOCKET`: LazyFS's commands and configurations on a mount,
//! with what scripts wait for in its log.
//!
//! Needs root, /dev/fuse and the package fuse3.

mod mapped;
mod scripts;
mod socket;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::Errno;

use crate::mounting::{Disk, Rig, VOLATILE, strandline};

/// A rig whose mounts have a configuration.
struct Lazy {
    rig: Rig,
    /// Where the configuration, the FIFOs and the log are.
    dir: PathBuf,
    options: String,
}

impl Lazy {
    /// A mounted volume of `fs`, whose configuration has this at its end.
    fn new(fs: &'static str, disk: Disk, injections: &str) -> Self {
        let rig = Rig::of(fs, disk, &[]);
        rig.unmount();
        Self::of(rig, injections)
    }

    /// The same, of a rig that is not mounted.
    fn of(rig: Rig, injections: &str) -> Self {
        let dir = rig.image().with_file_name("lazyfs");
        fs::create_dir(&dir).unwrap();
        let options = format!("lazyfs={}", dir.join("config.toml").display());
        let lazy = Self { rig, dir, options };
        lazy.mount(injections);
        lazy
    }

    /// The configuration as Jepsen writes it, and a log.
    fn mount(&self, injections: &str) {
        let path = |name: &str| self.dir.join(name).display().to_string();
        let config = format!(
            "[faults]\nfifo_path=\"{}\"\nfifo_path_completed=\"{}\"\n\
             [cache]\napply_eviction=false\n[cache.simple]\ncustom_size=\"0.5GB\"\n\
             blocks_per_page=1\n[filesystem]\nlogfile=\"{}\"\n{injections}",
            path("fifo"),
            path("completed"),
            path("log"),
        );
        fs::write(self.dir.join("config.toml"), config).unwrap();
        self.rig.mount(&["-o", &self.options]);
        self.await_line("running LazyFS...");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.rig.point().join(name)
    }

    /// As `echo COMMAND > FIFO`.
    fn tell(&self, command: &str) {
        let mut fifo = File::options().write(true).open(self.dir.join("fifo")).unwrap();
        fifo.write_all(format!("{command}\n").as_bytes()).unwrap();
    }

    /// Clears, and waits until that is done.
    fn clear(&self) {
        self.tell("lazyfs::clear-cache");
        let mut said = String::new();
        let completed = File::open(self.dir.join("completed")).unwrap();
        BufReader::new(completed).read_line(&mut said).unwrap();
        assert_eq!(said, "finished::clear-cache\n");
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    fn await_line(&self, what: &str) {
        self.rig.eventually(&format!("the log says '{what}'"), || self.log().contains(what));
    }

    /// The server has killed itself: clears its mount away.
    fn await_death(&self) {
        self.await_line("Killing LazyFS");
        self.rig.await_death();
        self.rig.clear();
    }
}

/// A new file, or one that was emptied.
fn new(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap()
}

fn synced(path: &Path, data: &[u8]) -> File {
    let mut file = new(path);
    file.write_all(data).unwrap();
    file.sync_all().unwrap();
    file
}

/// What was not fsynced is lost if anything `is_lost`, and the mount goes on with the rest.
fn clears(lazy: &Lazy, is_lost: bool) {
    let kept = synced(&lazy.path("kept"), b"synced");
    File::open(lazy.rig.point()).unwrap().sync_all().unwrap();
    kept.write_all_at(b"secret", 0).unwrap();
    fs::write(lazy.path("new"), "never synced").unwrap();
    assert_eq!(fs::read(lazy.path("kept")).unwrap(), b"secret");
    lazy.clear();
    let left: &[u8] = if is_lost { b"synced" } else { b"secret" };
    // Through the open file, and through its name.
    let mut through = [0; 6];
    kept.read_exact_at(&mut through, 0).unwrap();
    assert_eq!(through, *left);
    assert_eq!(fs::read(lazy.path("kept")).unwrap(), left);
    assert_eq!(lazy.path("new").exists(), !is_lost);
    assert_eq!(kept.sync_all().is_ok(), !is_lost);
    drop(kept);
    drop(synced(&lazy.path("later"), b"more"));
    File::open(lazy.rig.point()).unwrap().sync_all().unwrap();
    lazy.clear();
    assert_eq!(fs::read(lazy.path("later")).unwrap(), b"more");
    lazy.rig.unmount();
    assert!(lazy.log().contains("stopping LazyFS"));
}

/// On a drive that loses nothing, on one that loses what was not flushed, and on zones; with pmfs
/// each call is durable when it returns.
#[test]
fn a_clear_takes_what_no_fsync_covered_on_every_file_system() {
    for (fs, disk) in [
        ("f2fs", Disk::Plain(128)),
        ("f2fs", Disk::Zoned(VOLATILE, 64)),
        ("ext4", Disk::Plain(128)),
        ("pmfs", Disk::Memory("design=nova", 64)),
    ] {
        let lazy = Lazy::new(fs, disk, "");
        clears(&lazy, fs != "pmfs");
        let checked = strandline(&["fsck", "-n"], &lazy.rig.image());
        assert!(checked.status.success(), "{fs}: {checked:?}");
    }
}

#[cfg(feature = "plainfs")]
#[test]
fn a_clear_takes_what_no_fsync_covered_on_plainfs() {
    let rig = Rig::empty();
    crate::plainfs::make(&rig.image());
    clears(&Lazy::of(rig, ""), true);
}

/// In a process of its own, which works elsewhere: paths are those of the caller.
#[test]
fn a_mount_in_the_background_finds_its_configuration() {
    let lazy = Lazy::new("f2fs", Disk::Plain(128), "");
    lazy.rig.unmount();
    let mut mount = Command::new(env!("CARGO_BIN_EXE_strandline"));
    mount.args(["mount", "-o", "lazyfs=config.toml"]).current_dir(&lazy.dir);
    let mounted = mount.arg(lazy.rig.image()).arg(lazy.rig.point()).output().unwrap();
    assert!(mounted.status.success() && mounted.stdout.is_empty(), "{mounted:?}");
    lazy.await_line("running LazyFS...");
    drop(synced(&lazy.path("kept"), b"synced"));
    fs::write(lazy.path("lost"), "not").unwrap();
    lazy.clear();
    assert!(lazy.path("kept").exists() && !lazy.path("lost").exists());
    let unmounted = strandline(&["umount"], &lazy.rig.point());
    assert!(unmounted.status.success(), "{unmounted:?}");
}

#[test]
fn names_stay_with_dirsync_as_they_do_in_lazyfs() {
    let mut lazy = Lazy::new("f2fs", Disk::Plain(128), "");
    lazy.rig.unmount();
    lazy.options += ",dirsync";
    lazy.mount("");
    let file = new(&lazy.path("file"));
    for _ in 0..2 {
        file.write_all_at(&[b'A'; 4096], 0).unwrap();
        lazy.clear();
        assert_eq!(file.read_at(&mut [0; 4096], 0).unwrap(), 0);
    }
    assert_eq!(fs::metadata(lazy.path("file")).unwrap().len(), 0);
}

#[test]
fn an_fsync_does_not_confirm_what_a_clear_took() {
    let lazy = Lazy::new("ext4", Disk::Plain(128), "");
    let file = synced(&lazy.path("file"), b"0");
    let other = File::open(lazy.path("file")).unwrap();
    file.write_all_at(b"1", 0).unwrap();
    let lost = new(&lazy.path("new"));
    lazy.clear();
    let errno = |done: std::io::Result<()>| done.err().and_then(|error| error.raw_os_error());
    let eio = Some(Errno::IO.raw_os_error());
    // As a kernel tells of write-back that failed: each open file once.
    for file in [&file, &other] {
        assert_eq!([errno(file.sync_all()), errno(file.sync_all())], [eio, None]);
    }
    assert_eq!(errno(lost.sync_all()), Some(Errno::STALE.raw_os_error()));
    assert_eq!(errno(File::open(lazy.path("file")).unwrap().sync_all()), None);
    // Of the directory whose new name is lost, too.
    let dir = || File::open(lazy.rig.point()).unwrap().sync_all();
    assert_eq!([errno(dir()), errno(dir())], [eio, None]);
    file.write_all_at(b"2", 0).unwrap();
    file.sync_all().unwrap();
    lazy.clear();
    assert_eq!(fs::read(lazy.path("file")).unwrap(), b"2");
}

/// As after a crash: a program that starts when nothing is open any more meets no error.
#[test]
fn what_was_lost_before_a_program_starts_is_no_error_to_it() {
    let lazy = Lazy::new("ext4", Disk::Plain(128), "");
    drop(synced(&lazy.path("file"), b"0"));
    fs::write(lazy.path("file"), "1").unwrap();
    fs::write(lazy.path("new"), "2").unwrap();
    lazy.clear();
    File::open(lazy.path("file")).unwrap().sync_all().unwrap();
    File::open(lazy.rig.point()).unwrap().sync_all().unwrap();
}

#[test]
fn the_report_names_files_blocks_and_names() {
    let lazy = Lazy::new("f2fs", Disk::Plain(128), "");
    lazy.tell("lazyfs::unsynced-data-report");
    lazy.await_line("report: all data blocks are synced!");
    let file = synced(&lazy.path("file"), &[1; 8192]);
    file.write_all_at(&[2; 5000], 4000).unwrap();
    fs::rename(lazy.path("file"), lazy.path("renamed")).unwrap();
    lazy.tell("lazyfs::unsynced-data-report");
    lazy.await_line("(block 0) to (block 2) [byte index 4000 to index 8999]");
    lazy.await_line(&format!("=> file: '{}'", lazy.path("renamed").display()));
    lazy.await_line("total number of bytes un-fsynced: 5000 bytes.");
    assert!(lazy.log().contains("/file' (removed) is not synced"), "{}", lazy.log());
    lazy.tell("lazyfs::display-cache-usage");
    lazy.await_line("cache usage (%pages) is 0.000931%");
    let status = strandline(&["status"], &lazy.rig.point());
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(status.contains("harness/unsynced_bytes"), "{status}");
    lazy.tell("lazyfs::cache-checkpoint");
    lazy.await_line("checkpoint is done.");
    lazy.clear();
    assert_eq!(fs::read(lazy.path("renamed")).unwrap()[3999..4001], [1, 2]);
    lazy.tell("lazyfs::help");
    lazy.await_line("help: 'lazyfs::clear-cache' =>");
}

#[test]
fn a_crash_comes_before_or_after_a_call() {
    let lazy = Lazy::new("f2fs", Disk::Plain(128), "");
    for (timing, left) in [("before", &b"0"[..]), ("after", b"1")] {
        drop(synced(&lazy.path("wal"), b"0"));
        let crash = format!("lazyfs::crash::timing={timing}::op=fsync::from_rgx=/w[a]l$");
        lazy.tell(&crash);
        lazy.await_line("received: VALID crash fault");
        drop(synced(&lazy.path("log"), b"0"));
        let file = File::options().write(true).open(lazy.path("wal")).unwrap();
        file.write_all_at(b"1", 0).unwrap();
        let error = file.sync_all().unwrap_err().raw_os_error();
        assert!(
            [Errno::CONNABORTED, Errno::NOTCONN].iter().any(|e| Some(e.raw_os_error()) == error),
            "{error:?}"
        );
        drop(file);
        lazy.await_death();
        lazy.mount("");
        assert_eq!(fs::read(lazy.path("wal")).unwrap(), left, "{timing}");
    }
    lazy.tell("lazyfs::crash::timing=now::op=rename");
    lazy.await_line("received: INVALID crash fault");
    assert!(lazy.log().contains("should specify") || lazy.log().contains("timing should be"));
    lazy.tell("lazyfs::crash::timing=before::op=rename::to_rgx=renamed");
    lazy.await_line("received: VALID crash fault");
    fs::rename(lazy.path("wal"), lazy.path("other")).unwrap();
    fs::rename(lazy.path("other"), lazy.path("renamed")).unwrap_err();
    lazy.await_death();
}

#[test]
fn a_write_or_an_fsync_fails() {
    let lazy = Lazy::new("f2fs", Disk::Plain(128), "");
    let file = synced(&lazy.path("wal.1"), b"0");
    for op in ["write", "fsync"] {
        lazy.tell(&format!("lazyfs::fail::op={op}::from_rgx=wal"));
    }
    lazy.await_line("=> fail: op = fsync, from_rgx = wal");
    drop(synced(&lazy.path("log.1"), b"0"));
    let errno = |error: std::io::Error| error.raw_os_error();
    let eio = Some(Errno::IO.raw_os_error());
    assert_eq!(errno(file.write_all_at(b"1", 0).unwrap_err()), eio);
    file.write_all_at(b"2", 0).unwrap();
    assert_eq!(errno(file.sync_all().unwrap_err()), eio);
    lazy.clear();
    assert_eq!(fs::read(lazy.path("wal.1")).unwrap(), b"0");
}

#[test]
fn a_clear_with_a_seed_keeps_a_choice() {
    let lazy = Lazy::new("f2fs", Disk::Plain(128), "");
    let file = synced(&lazy.path("file"), &[1; 32 << 12]);
    file.write_all_at(&[2; 32 << 12], 0).unwrap();
    lazy.tell("lazyfs::clear-cache::seed=3");
    lazy.await_line("cache is cleared.");
    let left = fs::read(lazy.path("file")).unwrap();
    let kept = left.chunks(4096).filter(|page| **page == [2; 4096]).count();
    let lost = left.chunks(4096).filter(|page| **page == [1; 4096]).count();
    assert!(kept > 4 && lost > 4 && kept + lost == 32, "{kept} kept, {lost} lost");
}

#[test]
fn what_comes_through_the_fifo_harms_nothing() {
    let lazy = Lazy::new("f2fs", Disk::Plain(128), "");
    let mut fifo = File::options().write(true).open(lazy.dir.join("fifo")).unwrap();
    fifo.write_all(&vec![b'x'; 200_000]).unwrap();
    fifo.write_all(b"\n\n\xff\xfe\nlazyfs::\nlazyfs::clear-cache::seed=\nlazyfs::crash\n").unwrap();
    fifo.write_all(b"lazyfs::crash::timing=after::op=write::from_rgx=((((\nlazyfs::to").unwrap();
    drop(fifo);
    lazy.tell("rn-op::file=f::parts=0::persist=99999999999999999999");
    for line in [
        "command too long",
        "command unknown ''",
        "command unknown 'lazyfs::clear-cache::seed='",
        "received: INVALID crash fault",
        "received: INVALID torn-op fault",
    ] {
        lazy.await_line(line);
    }
    drop(synced(&lazy.path("file"), b"here"));
    lazy.clear();
    assert_eq!(fs::read(lazy.path("file")).unwrap(), b"here");
}

#[test]
fn a_configuration_that_makes_no_sense_is_refused_in_one_line() {
    let rig = Rig::new(&[]);
    rig.unmount();
    let config = rig.image().with_file_name("config");
    let image = rig.image();
    let mount = |options: &str| {
        let args = ["mount", "-o", options, image.to_str().unwrap()];
        let refused = strandline(&args, &rig.point());
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(said.lines().count(), 1, "{said}");
        (refused.status.code().unwrap(), said)
    };
    let with = format!("lazyfs={}", config.display());
    assert_eq!(mount(&with).0, 32, "it is not there");
    fs::write(&config, "[faults\n").unwrap();
    assert_eq!(mount(&with).0, 1);
    fs::write(&config, vec![b'#'; 2 << 20]).unwrap();
    assert_eq!(mount(&with).0, 1);
    let taken = config.with_file_name("taken");
    fs::write(&taken, "text").unwrap();
    fs::write(&config, format!("[faults]\nfifo_path=\"{}\"", taken.display())).unwrap();
    let (code, said) = mount(&with);
    assert!(code == 32 && said.contains("no FIFO"), "{said}");
    for wrong in ["ro", "writeback"] {
        assert_eq!(mount(&format!("{with},{wrong}")).0, 1, "{wrong}");
    }
}
