//! Attributes of a mounted volume, as `tune` and `status` show and set them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;

use crate::mounting::{Disk, Rig, strandline};

#[test]
fn settings_reach_a_mount() {
    let rig = Rig::new(&[]);
    let status = || -> serde_json::Value {
        let status = strandline(&["status", "--json"], &rig.point());
        serde_json::from_slice(&status.stdout).unwrap()
    };
    let tune = |settings: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strandline"));
        let done = command.arg("tune").arg(rig.point()).args(settings).output().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    assert_eq!(status()["cp_interval"], 60);
    let settings = ["cp_interval=7", "gc_urgent=1", "max_roll_forward_node_blocks=9"];
    assert_eq!(tune(&settings), (Some(0), String::new()));
    assert_eq!(status()["cp_interval"], 7);
    assert_eq!(status()["gc_urgent"], "GC_URGENT_HIGH");
    assert_eq!(status()["gc_idle"], 4, "the mode's number");
    assert_eq!(tune(&["gc_urgent", "cp_interval=8"]).0, Some(2));
    let shown = |settings: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strandline"));
        let done = command.arg("tune").arg(rig.point()).args(settings).output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    };
    assert_eq!(shown(&["cp_interval"]), "7\n");
    assert_eq!(shown(&["cp_interval", "free_segments"]).lines().count(), 2);
    let all = shown(&[]);
    assert!(all.lines().any(|line| line.split_whitespace().eq([
        "cp_interval",
        "7",
        "(was",
        "60)"
    ])));
    let json: serde_json::Value = serde_json::from_str(&shown(&["cp_interval", "--json"])).unwrap();
    assert_eq!(
        (&json["value"], &json["default"], &json["since"]),
        (&7.into(), &60.into(), &"4.4".into())
    );
    let checkpoints = || status()["cp_foreground_calls"].as_u64().unwrap();
    let before = checkpoints();
    for n in 0..40 {
        let file = File::create(rig.point().join("f")).unwrap();
        file.write_all_at(b"x", n).unwrap();
        file.sync_all().unwrap();
    }
    assert!(checkpoints() >= before + 3, "the chain of fsyncs is as long as it likes");
    for (setting, said) in [
        ("cp_interval=soon", "cp_interval: \"soon\" is not a value for it"),
        ("gc_pin_file_thresh=70000", "gc_pin_file_thresh: \"70000\" is not a value for it"),
        ("gc_speed=9", "gc_speed: no such attribute, or not writable; there are gc_min_sleep_time"),
        ("gc_urgently", "gc_urgently: no such attribute; did you mean gc_urgent?"),
    ] {
        let (code, error) = tune(&[setting]);
        assert_eq!((code, error.lines().count()), (Some(2), 1), "{setting}: {error}");
        assert!(error.contains(said), "{setting}: {error}");
    }
}

#[test]
fn ext4_shows_attributes_and_takes_one() {
    let rig = Rig::of("ext4", Disk::Plain(64), &["-o", "commit=9"]);
    let status = || -> serde_json::Value {
        let status = strandline(&["status", "--json"], &rig.point());
        serde_json::from_slice(&status.stdout).unwrap()
    };
    let tune = |setting: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strandline"));
        let done = command.arg("tune").arg(rig.point()).arg(setting).output().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    assert_eq!(status()["commit"], 9);
    assert_eq!(tune("commit=1"), (Some(0), String::new()));
    assert_eq!(status()["commit"], 1);
    let (code, said) = tune("commit=0");
    assert!(code == Some(2) && said.contains("1 or more"), "{said}");
    let free = status()["free_blocks"].as_u64().unwrap();
    let file = File::create(rig.point().join("f")).unwrap();
    file.write_all_at(&vec![7; 1 << 20], 0).unwrap();
    file.sync_all().unwrap();
    assert!(status()["free_blocks"].as_u64().unwrap() + 256 <= free);
    assert!(status()["session_write_kbytes"].as_u64().unwrap() >= 1024);
    drop(file);
    rig.unmount();
    rig.check();
}
