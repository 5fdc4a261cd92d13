//! Real devices: the backend of `drive::linux` on loop devices, where a load is killed in the
//! middle and what it was promised is looked for.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

const DEVICE_LOAD: &str = env!("CARGO_BIN_EXE_device_load");

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
    let mut load = Command::new(DEVICE_LOAD)
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
    succeed(DEVICE_LOAD, &["mkfs", disk.name()]);
    let mut steps = 0;
    for more in [1, 30, 77, 150] {
        steps = kill_after(more, options, steps, disk.name());
        let said = succeed(DEVICE_LOAD, &["verify", options, "7", &steps.to_string(), disk.name()]);
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
