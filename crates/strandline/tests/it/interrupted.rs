//! Ctrl-C: what was done by then is told, and what is left is whole.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Scratch, ok, strandline, text};

/// Runs a command and sends it SIGINT as soon as it would notice.
fn interrupted(line: &str) -> Output {
    interrupted_when(line, || true)
}

/// Runs a command and sends it SIGINT as soon as it would notice and `ready` says so.
fn interrupted_when(line: &str, ready: impl Fn() -> bool) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strandline"));
    command.args(line.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    while !(watches(&child) && ready()) {
        assert!(child.try_wait().expect("a child").is_none(), "{line}: it ended by itself");
        cores::sleep(1_000_000);
    }
    kill_process(Pid::from_child(&child), Signal::INT).expect("a signal");
    let out = child.wait_with_output().expect("it ends");
    assert_eq!(out.status.signal(), None, "{line}: {}", text(&out.stderr));
    assert_eq!(out.status.code(), Some(130), "{line}: {}", text(&out.stderr));
    out
}

/// Whether it watches for signals. SIGTERM is the last of them.
fn watches(child: &Child) -> bool {
    catches(child, Signal::TERM)
}

/// proc(5): the mask of signals with handlers. `signal-hook` sets them one after the other, with a
/// single handler of the kernel's for all of ours.
fn catches(child: &Child, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
    let status = status.unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal.as_raw() - 1)) != 0
}

#[test]
fn nohup_is_respected() {
    for (runner, caught) in [("env --default-signal=HUP", true), ("nohup", false)] {
        let words = runner.split(' ').collect::<Vec<_>>();
        let mut command = Command::new(words[0]);
        let line = "crash --workload versions --cuts 30000";
        command.args(&words[1..]).arg(env!("CARGO_BIN_EXE_strandline")).args(line.split(' '));
        let silent = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = silent.spawn().expect("the command starts");
        while !watches(&child) {
            assert!(child.try_wait().expect("a child").is_none(), "{runner}: it ended by itself");
            cores::sleep(1_000_000);
        }
        let catches = catches(&child, Signal::HUP);
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        assert_eq!(catches, caught, "{runner}");
    }
}

#[test]
fn a_copy_says_how_far_it_came_and_leaves_no_half_file() {
    let scratch = Scratch::new("interrupted-cp");
    let (tree, image) = (scratch.0.join("tree"), scratch.path("disk.img"));
    let sized = |path: &Path, bytes| File::create(path).and_then(|file| file.set_len(bytes));
    sized(Path::new(&image), 16 << 30).expect("a sparse file");
    ok(&format!("mkfs -q {image}"));
    std::fs::create_dir(&tree).expect("a directory");
    std::fs::write(tree.join("a"), "whole\n").expect("a file");
    // Its zeroes are written, and long after the signal there would be more of them.
    sized(&tree.join("z"), 12 << 30).expect("a sparse file");
    let held = || std::fs::metadata(&image).expect("the image").blocks() * 512;
    let before = held();
    let line = format!("cp -r --sparse=never --json {} {image}:/", tree.display());
    let out = interrupted_when(&line, || held() > before + (32 << 20));
    let said: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!((&said["files"], &said["errors"]), (&1.into(), &0.into()), "{said}");
    assert_eq!(
        text(&out.stderr),
        "strandline: interrupted: 1 file copied completely, the others not at all\n"
    );
    assert_eq!(ok(&format!("cat {image}:/tree/a")), "whole\n");
    assert!(!strandline(&format!("stat {image}:/tree/z")).status.success(), "half a file");
    ok(&format!("fsck {image}"));
}

#[test]
fn a_volume_that_was_not_filled_is_said_to_be_incomplete() {
    let scratch = Scratch::new("interrupted-mkfs");
    let (tree, image) = (scratch.0.join("tree"), scratch.path("new.img"));
    std::fs::create_dir(&tree).expect("a directory");
    std::fs::write(tree.join("large"), vec![7; 300 << 20]).expect("a file");
    File::create(&image).and_then(|file| file.set_len(1 << 30)).expect("a sparse file");
    let out = interrupted(&format!("mkfs -q --from {} {image}", tree.display()));
    let told = text(&out.stderr);
    let files = ok(&format!("ls {image}:/"));
    assert!(told.contains("new.img holds 0 files from "), "{told}");
    assert!(told.contains("the others are missing") && files.is_empty(), "{told} {files}");
    ok(&format!("fsck {image}"));
}

#[test]
fn a_campaign_prints_the_table_of_what_it_has() {
    let out = interrupted("crash --workload versions --modes posix,strict --cuts 30000");
    let (table, told) = (text(&out.stdout), text(&out.stderr));
    assert!(table.contains("posix") && !table.contains("strict "), "{table}");
    assert!(told.contains("1 of 2 modes begun, the last one judged at "), "{told}");
    assert!(told.trim_end().ends_with(" of 30,000 cuts"), "{told}");
    let out = interrupted("crash --workload versions --modes posix --cuts 30000 --json");
    let found: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(found["complete"], false, "{found}");
    // A share is whole, or nothing.
    let out = interrupted("crash --workload versions --modes posix --cuts 30000 --shard 1/2");
    assert_eq!(text(&out.stdout), "");
}

#[test]
fn an_exploration_prints_what_it_has() {
    let out = interrupted("lab explore --length 3 --modes posix,strict");
    let (table, told) = (text(&out.stdout), text(&out.stderr));
    assert_eq!(table.lines().next().map(|line| line.starts_with("posix ")), Some(true), "{table}");
    assert!(told.contains("interrupted: 1 mode begun, the last one over "), "{told}");
    let out = interrupted("lab explore --length 2 --modes posix --states 100000000 --json");
    let found: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(found["batches"][0]["complete"], false);
}
