//! `mount -o control=SOCKET`: the same commands as lines over a socket, answered in JSON.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{Lazy, new, synced};
use crate::common::program;
use crate::mounting::{Disk, Rig, run};

/// A rig whose mount has a socket and no configuration.
struct Controlled {
    rig: Rig,
    socket: PathBuf,
}

impl Controlled {
    fn new(fs: &'static str) -> Self {
        let rig = Rig::of(fs, Disk::Plain(128), &[]);
        rig.unmount();
        let controlled = Self::of(rig);
        controlled.mount();
        controlled
    }

    /// One that is not mounted.
    fn of(rig: Rig) -> Self {
        let socket = rig.image().with_file_name("control");
        Self { rig, socket }
    }

    fn mount(&self) {
        self.rig.mount(&["-o", &format!("control={}", self.socket.display())]);
        self.rig.eventually("it answers", || UnixStream::connect(&self.socket).is_ok());
    }

    fn path(&self, name: &str) -> PathBuf {
        self.rig.point().join(name)
    }

    /// What is answered to a line.
    fn ask(&self, line: &str) -> Value {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        // One that is refused may be closed already, and what it was told can still be read.
        let _ = stream.write_all(format!("{line}\n").as_bytes());
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    }
}

#[test]
fn a_socket_says_what_is_not_durable_and_loses_it() {
    for fs in ["f2fs", "ext4"] {
        let mount = Controlled::new(fs);
        let file = synced(&mount.path("file"), &[1; 8192]);
        File::open(mount.rig.point()).unwrap().sync_all().unwrap();
        let clean = mount.ask("unsynced-data-report");
        assert_eq!(clean["files"].as_array().map(Vec::len), Some(0), "{fs}: {clean}");
        file.write_all_at(&[2; 5000], 4000).unwrap();
        fs::write(mount.path("new"), "lost").unwrap();
        let report = mount.ask("lazyfs::unsynced-data-report");
        assert_eq!(report["bytes"], 5004, "{fs}: {report}");
        let range = &report["files"][0]["ranges"][0];
        assert_eq!((&range["first_block"], &range["last_block"]), (&0.into(), &2.into()));
        assert_eq!((&range["first_byte"], &range["last_byte"]), (&4000.into(), &8999.into()));
        let new = mount.path("new").display().to_string();
        assert!(report["names"].as_array().unwrap().iter().any(|name| name["path"] == *new));
        let lost = mount.ask("clear-cache");
        assert_eq!(lost, serde_json::json!({"ok": true, "losses": 1}), "{fs}");
        assert_eq!(fs::read(mount.path("file")).unwrap(), [1; 8192], "{fs}");
        assert!(!mount.path("new").exists(), "{fs}");
        file.write_all_at(&[3; 8192], 0).unwrap();
        assert_eq!(mount.ask("cache-checkpoint")["ok"], true);
        mount.ask("clear-cache::seed=1");
        assert_eq!(fs::read(mount.path("file")).unwrap(), [3; 8192], "{fs}");
        drop(file);
        mount.rig.unmount();
        mount.rig.eventually("the socket is gone", || !mount.socket.exists());
        mount.rig.check();
    }
}

#[test]
fn a_socket_injects_failures_and_a_crash() {
    let mount = Controlled::new("f2fs");
    assert_eq!(mount.ask("fail::op=write::from_rgx=wal")["ok"], true);
    let file = new(&mount.path("wal.1"));
    drop(synced(&mount.path("log"), b"1"));
    file.write_all_at(b"1", 0).unwrap_err();
    file.write_all_at(b"2", 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(mount.ask("crash::timing=before::op=fsync::from_rgx=wal")["ok"], true);
    file.sync_all().unwrap_err();
    drop(file);
    mount.rig.await_death();
    mount.rig.clear();
    // The dead server has left its socket.
    assert!(mount.socket.exists());
    mount.mount();
    assert_eq!(fs::read(mount.path("wal.1")).unwrap(), b"2");
}

/// A loop device, taken away at the end.
struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// Its power cannot be cut, but what it was not sent is lost all the same.
#[test]
fn a_real_drive_loses_what_no_fsync_covered() {
    for fs in ["f2fs", "ext4"] {
        let rig = Rig::of(fs, Disk::Plain(128), &[]);
        rig.unmount();
        let mount = Controlled::of(rig);
        let device = Loop(run("losetup", &["--find", "--show"], &mount.rig.image()).trim().into());
        let option = format!("control={}", mount.socket.display());
        let point = mount.rig.point();
        run(program().to_str().unwrap(), &["mount", "-o", &option, &device.0], &point);
        for round in 1..=3 {
            let kept = synced(&mount.path("kept"), b"synced");
            File::open(&point).unwrap().sync_all().unwrap();
            kept.write_all_at(b"secret", 0).unwrap();
            fs::write(mount.path("lost"), "lost").unwrap();
            assert_eq!(mount.ask("clear-cache")["losses"], round);
            assert_eq!(fs::read(mount.path("kept")).unwrap(), b"synced", "{fs}");
            assert!(!mount.path("lost").exists(), "{fs}");
        }
        run(program().to_str().unwrap(), &["umount"], &point);
        run(program().to_str().unwrap(), &["fsck", "-n"], Path::new(&device.0));
    }
}

/// Other users of the socket, and other things than commands.
#[test]
fn what_comes_through_a_socket_harms_nothing() {
    let mount = Controlled::new("f2fs");
    for line in ["", "nothing", "\u{1}\u{fffd}", "lazyfs::", "crash", "fail::op=read::from_rgx=("] {
        let answer = mount.ask(line);
        let errors = answer["errors"].as_array().map_or(0, Vec::len);
        assert!(answer["ok"] == false && errors > 0, "{line}: {answer}");
    }
    assert_eq!(mount.ask(&"x".repeat(200_000))["errors"][0], "command too long");
    // More at a time than are served; those that wait for nothing do not hold the others up.
    let idle: Vec<UnixStream> =
        (0..40).map(|_| UnixStream::connect(&mount.socket).unwrap()).collect();
    let refused = mount.ask("help");
    assert_eq!(refused["ok"], false, "{refused}");
    drop(idle);
    mount.rig.eventually("others are served", || mount.ask("help")["ok"] == true);
    // Several commands at once, the last one without an end of line, as `printf | socat` sends.
    let mut stream = UnixStream::connect(&mount.socket).unwrap();
    stream.write_all(b"help\ndisplay-cache-usage\nclear-cache").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    let answers: Vec<Value> =
        answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((answers.len(), &answers[2]["losses"]), (3, &1.into()));
}

/// The FIFO and the socket of one mount do the same.
#[test]
fn a_socket_goes_with_a_configuration() {
    let mut lazy = Lazy::new("f2fs", Disk::Plain(128), "");
    lazy.rig.unmount();
    let socket = lazy.dir.join("control");
    lazy.options += &format!(",control={}", socket.display());
    lazy.mount("");
    fs::write(lazy.path("lost"), "lost").unwrap();
    let script = "import socket,sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
f = s.makefile('rw'); f.write('clear-cache\\n'); f.flush(); print(f.readline(), end='')";
    let asked = Command::new("python3").args(["-c", script]).arg(&socket).output().unwrap();
    assert_eq!(asked.stdout, b"{\"ok\":true,\"losses\":1}\n", "{asked:?}");
    lazy.await_line("received 'clear-cache'");
    assert!(!lazy.path("lost").exists());
    lazy.clear();
}

#[test]
fn a_socket_s_place_that_is_taken_is_refused_in_one_line() {
    let rig = Rig::new(&[]);
    rig.unmount();
    let taken = rig.image().with_file_name("taken");
    fs::write(&taken, "text").unwrap();
    let (image, option) = (rig.image(), format!("control={}", taken.display()));
    let args = ["mount", "-o", &option, image.to_str().unwrap()];
    let refused = crate::mounting::strandline(&args, &rig.point());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!((refused.status.code(), said.lines().count()), (Some(32), 1), "{said}");
    assert_eq!(fs::read(&taken).unwrap(), b"text");
}
