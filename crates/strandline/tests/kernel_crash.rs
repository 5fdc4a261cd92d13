//! `strandline crash --kernel`: the kernel's own file systems on a served drive, in QEMU.

mod common;

use common::{fails, strandline, text};

const GUEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../guest/run");

/// One result per line, and the exit status.
fn campaigns(arguments: &str) -> (Vec<serde_json::Value>, Option<i32>) {
    let out = strandline(&format!("crash --kernel --guest {GUEST} --json {arguments}"));
    let results: Vec<serde_json::Value> = text(&out.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect();
    assert!(!results.is_empty(), "{}", text(&out.stderr));
    (results, out.status.code())
}

#[test]
fn what_is_missing_is_told_in_a_line() {
    let (code, error) = fails("crash --kernel --guest /nowhere/guest/run");
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("no guest: /nowhere/guest/run is not there"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    let (code, error) = fails("crash --kernel --modes posix,oprw --guest /nowhere");
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("oprw: the kernel has posix, strict and nobarrier"), "{error}");
    for wrong in ["--fs zfs", "--fs ext4", "--inject skip-wp-check"] {
        assert_eq!(fails(&format!("crash --kernel --guest /nowhere {wrong}")).0, 2, "{wrong}");
    }
    for wrong in ["--shard 1/2", "--every-state", "--machine nowhere"] {
        assert_eq!(fails(&format!("crash --kernel {wrong}")).0, 2, "{wrong}");
    }
}

/// The kernel's F2FS keeps what posix promises on zones, and what it does not promise fails: of a
/// block whose fsync was under way when the power went the node was there and the data were not.
#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn the_hole_of_posix_shows_on_zones() {
    let (results, code) = campaigns("--modes posix --cuts 100 --seed 2");
    println!("{:#}", results[0]);
    let counts = ["cuts", "broken", "files_lost"].map(|of| results[0][of].as_u64());
    assert_eq!(counts, [Some(100), Some(0), Some(0)]);
    assert!(results[0]["files_garbage"].as_u64() > Some(0), "no hole in 100 cuts");
    assert_eq!((&results[0]["simulated"], code), (&false.into(), Some(0)));
}

/// Without zones strict sends a flush before the last node, and every block is old or new.
#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn strict_without_zones_keeps_its_promise() {
    let (results, code) = campaigns("--drive conventional-noplp --modes strict --cuts 30");
    println!("{:#}", results[0]);
    assert_eq!((&results[0]["cuts"], &results[0]["failed"]), (&30.into(), &0.into()));
    assert_eq!(code, Some(0));
}

/// What was acknowledged is lost by a drive that only says it flushed, and that is noticed.
#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn a_drive_that_lies_is_noticed() {
    let arguments = "--modes posix --workload random-overwrite --cuts 30 --inject drop-flush";
    let (results, code) = campaigns(arguments);
    println!("{:#}", results[0]);
    assert!(results[0]["broken"].as_u64() > Some(0), "a lying drive was not noticed");
    assert_eq!(code, Some(1));
}

/// Those that are used most, each through a run and its cuts.
#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn other_file_systems_keep_their_promise() {
    for fs in ["ext4", "xfs", "btrfs"] {
        let arguments = "--drive conventional-noplp --workload random-overwrite --cuts 10";
        let (results, code) = campaigns(&format!("--fs {fs} {arguments}"));
        let counts = ["cuts", "broken", "corrupt"].map(|of| results[0][of].as_u64());
        assert_eq!(counts, [Some(10), Some(0), Some(0)], "{:#}", results[0]);
        assert_eq!((&results[0]["mode"], code), (&fs.into(), Some(0)));
    }
}
