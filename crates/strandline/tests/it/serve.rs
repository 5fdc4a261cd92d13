//! `strandline drive serve` and what can be asked of it, as a user types it and a host sees it.

#[path = "../../../nvme-target/tests/host/mod.rs"]
mod host;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use host::{BLOCK, Data, FUA, HOST_NQN, Queue, Setup, at, pattern};
use rustix::process::{Pid, Signal, kill_process};

const STRANDLINE: &str = env!("CARGO_BIN_EXE_strandline");

fn run(arguments: &[&str]) -> Output {
    Command::new(STRANDLINE).args(arguments).output().expect("strandline")
}

fn ok(arguments: &[&str]) -> String {
    let out = run(arguments);
    assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text")
}

fn refused(arguments: &[&str], code: i32) -> String {
    let out = run(arguments);
    let text = String::from_utf8(out.stderr).expect("text");
    assert_eq!(out.status.code(), Some(code), "{arguments:?}: {text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

/// A server as a process.
struct Served {
    child: Child,
    address: SocketAddr,
    nqn: String,
    control: PathBuf,
}

impl Served {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(STRANDLINE)
            .args(["drive", "serve", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("drive serve");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut line = || lines.next().expect("a line").expect("text");
        let first = line();
        let (address, who) = first.strip_prefix("listening on ").unwrap().split_once(": ").unwrap();
        assert_eq!(who, "only this machine can connect");
        let connect = line();
        assert!(connect.starts_with("nvme connect -t tcp -a 127.0.0.1 -s "), "{connect}");
        let nqn = connect.rsplit(' ').next().unwrap().to_owned();
        let control = line().strip_prefix("control: ").unwrap().into();
        Self { child, address: address.parse().unwrap(), nqn, control }
    }

    fn host(&self) -> (Queue, Queue) {
        let mut admin = Queue::open(self.address, Setup::default());
        let id = admin.connect(0, 0xffff, &self.nqn, 0).ok().result as u16;
        admin.set_property(0x14, 0x0046_0061).ok();
        let mut io = Queue::open(self.address, Setup::default());
        io.connect(1, id, &self.nqn, 0).ok();
        (admin, io)
    }

    fn signal(mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), signal).expect("a signal");
        self.child.wait().expect("its end").code()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn create(path: &Path) {
    ok(&[
        "drive",
        "create",
        "--zone-size",
        "256k",
        "--zones",
        "10",
        "--conventional",
        "2",
        path.to_str().unwrap(),
    ]);
}

#[test]
fn a_drive_is_served_cut_and_brought_back() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("a disk.img");
    create(&image);
    let path = image.to_str().unwrap();
    let served = Served::start(&[path]);
    assert_eq!(served.nqn, "nqn.2026-11.com.github.strandline:a-disk.img");
    assert!(served.control.ends_with("a disk.img.control"));
    assert!(refused(&["drive", "info", path], 1).contains("it is served now"));
    let (mut admin, mut io) = served.host();
    admin.identify(0, 1, 0).ok();
    let (one, two) = (pattern(1, 1), pattern(2, 1));
    io.append(2, 0, &one).ok();
    io.flush(2).ok();
    ok(&["drive", "snapshot", path, "flushed"]);
    io.append(2, 0, &two).ok();
    let zones = || ok(&["drive", "zones", path]).lines().nth(2).unwrap().to_owned();
    assert!(zones().contains("wptr 0x000010"), "{}", zones());
    // The cut comes with the second command from now.
    ok(&["drive", "cut", path, "--after", "1", "--seed", "5"]);
    io.append(2, 0, &two).ok();
    io.submit(&host::sqe(0, 2, &[]), Data::None);
    assert!(io.reap().is_none() && admin.pdu().is_none(), "the controller is lost");
    // Hosts notice the cut before the power is back.
    let (_admin, mut io) = served.host();
    assert!(io.read(2, 0, 1).ok().data == one);
    assert!(zones().contains("wptr 0x000008"), "{}", zones());
    assert_eq!(io.append(2, 0, &two).ok().result, 1);
    ok(&["drive", "restore", path, "flushed"]);
    let (_admin, mut io) = served.host();
    assert_eq!(io.append(2, 0, &two).ok().result, 1, "as it was saved");
    ok(&["drive", "fault", "commands", path, "read", "--at", "512k"]);
    assert_eq!(io.read(2, 0, 1).status, 0x281);
    ok(&["drive", "fault", "clear", path]);
    io.read(2, 0, 1).ok();
    ok(&["drive", "fault", "zone", path, "768k"]);
    assert_eq!(io.append(2, 64, &one).status, 0x1ba);
    ok(&["drive", "cut", path, "--stay-off"]);
    let stats = ok(&["drive", "stats", path, "--json"]);
    assert!(stats.contains("\"power\":\"off\"") && stats.contains("\"cuts\":2"), "{stats}");
    ok(&["drive", "restore", path]);
    assert!(ok(&["drive", "stats", path]).contains("power: on"));
    assert!(ok(&["drive", "restore", path]).contains("the power is on"), "nothing to restore");
    assert!(refused(&["drive", "restore", path, "nothing"], 1).contains("nothing was saved"));
    assert_eq!(served.signal(Signal::TERM), Some(0));
    assert!(!dir.path().join("a disk.img.control").exists());
    ok(&["drive", "info", path]);
    assert!(refused(&["drive", "stats", path], 1).contains("serves this drive"));
    assert!(refused(&["drive", "cut", path, "--polite"], 2).contains("served"));
    ok(&["drive", "cut", path]);
}

/// A fault requested by mistake leaves a drive that can be opened again.
#[test]
fn what_is_no_zone_does_not_fail() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    create(&image);
    let path = image.to_str().unwrap();
    let served = Served::start(&[path]);
    let beyond = refused(&["drive", "fault", "zone", path, "64g"], 1);
    assert!(beyond.contains("byte 68719476736 is beyond the drive's "), "{beyond}");
    let beyond = ["drive", "fault", "commands", path, "read", "--at", "0", "--length", "64g"];
    assert!(refused(&beyond, 1).contains(" is beyond the drive's "));
    let conventional = refused(&["drive", "fault", "zone", path, "256k", "--offline"], 1);
    assert!(conventional.contains("conventional zone"), "{conventional}");
    assert_eq!(served.signal(Signal::TERM), Some(0));
    ok(&["drive", "info", path]);
}

/// Flushed and forced writes are there after kill -9; what is there is a prefix of what was sent.
#[test]
fn killed_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    create(&image);
    let path = image.to_str().unwrap();
    let mut written: Vec<u64> = Vec::new();
    for round in 0..12_u64 {
        let served = Served::start(&[path]);
        let (_admin, mut io) = served.host();
        for (n, stamp) in written.iter().enumerate() {
            assert!(io.read(2, n as u64, 1).ok().data == pattern(*stamp, 1), "block {n}");
        }
        let mut durable = written.len();
        for n in 0..4 {
            let stamp = round * 100 + n;
            let bytes = pattern(stamp, 1);
            let flags = if n == round % 4 { FUA } else { 0 };
            let command = at(0x7d, 2, 0, 1, flags);
            assert_eq!(io.call(&command, Data::Capsule(&bytes)).ok().result, written.len() as u64);
            written.push(stamp);
            if flags != 0 {
                durable = written.len();
            }
        }
        if round % 3 == 0 {
            io.flush(2).ok();
            durable = written.len();
        }
        assert_eq!(served.signal(Signal::KILL), None);
        let zones = ok(&["drive", "zones", "--json", path]);
        let zone: serde_json::Value = serde_json::from_str(zones.lines().nth(2).unwrap()).unwrap();
        let bytes = zone["wp"].as_u64().unwrap() - zone["start"].as_u64().unwrap();
        let found = (bytes / BLOCK as u64) as usize;
        assert!((durable..=written.len()).contains(&found), "{durable} {found}");
        written.truncate(found);
    }
}

/// Drives served together through one control socket are told apart by their namespaces.
#[test]
fn one_of_several_drives() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (plain, zoned, socket) = (path("plain.img"), path("zoned.img"), path("socket"));
    ok(&["drive", "create", "--profile", "conventional-noplp", "--size", "16m", &plain]);
    create(zoned.as_ref());
    let served = Served::start(&[&plain, &zoned, "--control", &socket]);
    let (_admin, mut io) = served.host();
    assert!(refused(&["drive", "zones", &socket], 1).contains("no zones"));
    let zones = ok(&["drive", "zones", &socket, "--namespace", "2"]);
    assert_eq!(zones, ok(&["drive", "zones", &socket, "--namespace", "3"]), "of one drive");
    ok(&["drive", "fault", "commands", &socket, "write", "--namespace", "2"]);
    io.write(1, 0, &pattern(1, 1)).ok();
    assert_eq!(io.write(2, 0, &pattern(1, 1)).status, 0x280, "write fault");
    let writes = |which: &[&str]| {
        let stats = ok(&[&["drive", "stats", &socket, "--json"], which].concat());
        serde_json::from_str::<serde_json::Value>(&stats).unwrap()["blocks_written"].as_u64()
    };
    assert_eq!((writes(&[]), writes(&["--namespace", "2"])), (Some(1), Some(0)));
    assert!(refused(&["drive", "stats", &socket, "--namespace", "9"], 1).contains("no namespace"));
    refused(&["drive", "zones", &zoned, "--namespace", "1"], 2);
}

#[cfg(not(feature = "auth"))]
#[test]
fn without_authentication_a_secret_is_refused() {
    let serve = ["drive", "serve", "disk.img", "--dhchap-key-file", "key"];
    assert!(refused(&serve, 2).contains("--features auth"));
}

/// The secrets come from a file, never from a command line, which all users can list.
#[cfg(feature = "auth")]
#[test]
fn secrets_come_from_a_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let (image, keys) = (dir.path().join("disk.img"), dir.path().join("key"));
    create(&image);
    let (image, file) = (image.to_str().unwrap(), keys.to_str().unwrap());
    let secret = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    let serve = ["drive", "serve", image, "--dhchap-key-file", file];
    assert!(refused(&serve, 1).contains("No such file"));
    for (text, why) in [
        (String::new(), "one or two secrets"),
        (format!("{secret}\n{secret}\n{secret}\n"), "one or two secrets"),
        ("DHHC-1:00:AAED:\n".into(), "its key has"),
        (secret.replace("AAEC", "AAED"), "mistyped?"),
    ] {
        std::fs::write(&keys, &text).expect("a file");
        let told = refused(&serve, 1);
        assert!(told.contains(why) && !told.contains("AAE"), "{told}");
    }
    std::fs::write(&keys, format!("{secret}\n\n{secret}\n")).expect("a file");
    let mut child = Command::new(STRANDLINE)
        .args(["drive", "serve", "--listen", "127.0.0.1:0", image, "--dhchap-key-file", file])
        .stdout(Stdio::piped())
        .spawn()
        .expect("drive serve");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let first = lines.next().expect("a line").expect("text");
    let connect = lines.next().expect("a line").expect("text");
    let address = first.strip_prefix("listening on ").unwrap().split_once(": ").unwrap().0;
    assert!(first.ends_with("only with the secret"), "{first}");
    assert!(connect.ends_with(&format!("--dhchap-secret \"$(head -1 '{file}')\"")), "{connect}");
    let nqn = connect.split(' ').nth(9).unwrap();
    let mut queue = Queue::open(address.parse().unwrap(), Setup::default());
    assert_eq!(queue.connect(0, 0xffff, nqn, 0).ok().result >> 16, 2, "asked who it is");
    assert_eq!(queue.property(0, true).status, 0x191, "and nothing is served before");
    let _ = child.kill();
    let _ = child.wait();
}

#[test]
fn usage_is_told_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    create(&image);
    let path = image.to_str().unwrap();
    assert!(refused(&["drive", "serve", path, "--nqn", "disk"], 2).contains("qualified name"));
    assert!(refused(&["drive", "serve", "/nowhere/disk.img"], 1).contains("/nowhere/disk.img"));
    let served = Served::start(&[path, "--in-memory"]);
    let (_admin, mut io) = served.host();
    io.append(2, 0, &pattern(1, 1)).ok();
    io.flush(2).ok();
    let taken = served.address.to_string();
    assert!(refused(&["drive", "serve", path, "--listen", &taken], 1).contains(&taken));
    assert_eq!(served.signal(Signal::INT), Some(0));
    assert!(ok(&["drive", "zones", path]).lines().nth(2).unwrap().contains("wptr 0x000000"));
    assert!(!HOST_NQN.is_empty());
}
