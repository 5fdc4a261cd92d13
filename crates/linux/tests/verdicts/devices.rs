//! Real devices: the backend of `drive::linux` on loop devices, where a load is killed in the
//! middle and what it was promised is looked for.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::AGENT;
use linux::Guest;
use tempfile::TempDir;

/// A loop device over a file of zeroes.
struct Loop {
    path: PathBuf,
    _dir: TempDir,
}

impl Loop {
    fn new(bytes: u64) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = dir.path().join("disk");
        File::create(&file).and_then(|file| file.set_len(bytes)).expect("room for a disk");
        let path = succeed("losetup", &["--find", "--show", file.to_str().expect("UTF-8")]);
        Self { path: path.trim().into(), _dir: dir }
    }

    fn name(&self) -> &str {
        self.path.to_str().expect("UTF-8")
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        drop(Command::new("losetup").arg("--detach").arg(&self.path).status());
    }
}

/// What a program printed that must succeed.
fn succeed(program: &str, arguments: &[&str]) -> String {
    let out = Command::new(program).args(arguments).output();
    let out = out.unwrap_or_else(|e| panic!("{program}: {e}; is it installed?"));
    let (said, complaint) =
        (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{program} {arguments:?} (as root?): {said}{complaint}");
    said.into_owned()
}

/// Runs a load until it has acknowledged `more` steps, and kills it.
fn kill_after(more: u64, options: &str, from: u64, device: &str) -> u64 {
    let mut load = Command::new(AGENT)
        .args(["load", options, "7", &from.to_string(), device])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the load starts");
    let mut acknowledged = from;
    let out = BufReader::new(load.stdout.take().expect("a pipe"));
    let mut lines = out.lines().map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("mounted"));
    for line in lines {
        acknowledged = line.parse().expect("a number");
        if acknowledged == from + more {
            load.kill().expect("a running load");
        }
    }
    load.wait().expect("a dead load");
    acknowledged
}

fn lives_on_a_loop_device(options: &str) {
    let disk = Loop::new(256 << 20);
    succeed(AGENT, &["mkfs", disk.name()]);
    let mut steps = 0;
    for more in [1, 30, 77, 150] {
        steps = kill_after(more, options, steps, disk.name());
        let said = succeed(AGENT, &["verify", options, "7", &steps.to_string(), disk.name()]);
        assert!(said.starts_with("verified"), "{said}");
        succeed("fsck.f2fs", &["--dry-run", disk.name()]);
        // The next life takes the step that was in flight once more: that makes it whole.
    }
}

#[test]
#[ignore = "needs root, for loop devices"]
fn a_killed_load_keeps_what_it_fsynced_on_a_loop_device() {
    for options in ["", "fsync_mode=strict"] {
        lives_on_a_loop_device(options);
    }
}

/// Shell functions for a load that is killed, again and again, on the device or devices in `$D`,
/// mounted with `$O`.
const KILLS: &str = r#"
fail() { echo "$*"; exit 1; }
kill_after() { # MORE: steps acknowledged before the kill
    strandline-agent load "$O" 7 $steps $D >log &
    while
        last=$(tail -n 1 log)
        [ "${last:-mounted}" = mounted ] || [ "$last" -lt $((steps + $1)) ]
    do
        kill -0 $! 2>/dev/null || fail "the load ended by itself"
    done
    kill -9 $! && wait $!
    steps=$(tail -n 1 log)
}
lives() { # MORE...
    strandline-agent mkfs $D || exit
    steps=0
    for more; do
        kill_after $more
        strandline-agent verify "$O" 7 $steps $D || exit
    done
}
same_zones() { # DEVICE
    blkzone report $1 >theirs && strandline-agent zones $1 >ours || exit
    cmp theirs ours || { cat theirs ours; exit 1; }
}
"#;

fn run(guest: Guest, script: &str) -> String {
    let guest = guest.memory(1536).timeout(900).program(Path::new(AGENT));
    guest.run(&format!("{KILLS}\n{script}")).success().to_owned()
}

fn guest(script: &str) -> String {
    run(Guest::new(), script)
}

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn zoned_null_blk_in_the_guest() {
    let said = guest(
        r#"
        null_blk 0 512 8 8 6
        D=/dev/nullb0
        same_zones $D
        for O in fsync_mode=strict oprw; do
            lives 30 100 200
            same_zones $D
            fsck.f2fs --dry-run $D >fsck || { cat fsck; exit 1; }
        done
        "#,
    );
    assert_eq!(said.matches("verified").count(), 6, "{said}");
}

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn conventional_null_blk_in_the_guest() {
    let said = guest(
        r#"
        null_blk 0 256
        D=/dev/nullb0
        O=fsync_mode=strict
        lives 30 100
        fsck.f2fs --dry-run $D >fsck || { cat fsck; exit 1; }
        mount -t f2fs $D /mnt && ls /mnt | grep -c file
        strandline-agent mkfs $D && exit 1
        umount /mnt
        "#,
    );
    assert!(said.contains("in use") && said.matches("verified").count() == 2, "{said}");
}

/// A conventional disk for the metadata, and an NVMe ZNS namespace: it has no conventional zones.
/// `fsck.f2fs` wants both to have logical blocks of one size, which virtio-blk here would not.
#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn nvme_zns_with_a_conventional_disk_in_the_guest() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let zns = dir.path().join("zns");
    File::create(&zns).and_then(|file| file.set_len(512 << 20)).expect("room for a disk");
    let said = run(
        Guest::new().zns(&zns, 8 << 20, 6 << 20),
        r#"
        null_blk 0 96
        modprobe nvme; while [ ! -e /dev/nvme0n1 ]; do sleep 0.1; done
        same_zones /dev/nvme0n1
        strandline-agent mkfs /dev/nvme0n1 && exit 1
        D="/dev/nullb0 /dev/nvme0n1"
        for O in fsync_mode=strict oprw; do
            lives 30 100 200
            same_zones /dev/nvme0n1
            fsck.f2fs --dry-run /dev/nullb0 >fsck || { cat fsck; exit 1; }
        done
        blkzone report /dev/nvme0n1 | grep -c -e oi -e cl -e fu
        "#,
    );
    assert!(said.contains("metadata needs"), "{said}");
    assert_eq!(said.matches("verified").count(), 6, "{said}");
    let written: u32 = said.lines().last().and_then(|line| line.parse().ok()).expect("a count");
    assert!(written > 0, "nothing went to the zones: {said}");
}
