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

/// The kernel's F2FS keeps what it promises on a drive that does.
#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn the_kernels_f2fs_keeps_its_promise() {
    let (results, code) = campaigns("--modes posix,strict --workload versions --cuts 20 --seed 2");
    assert_eq!(results.len(), 2);
    for result in &results {
        println!("{result:#}");
        assert_eq!((&result["cuts"], &result["broken"]), (&20.into(), &0.into()), "{result:#}");
        assert_eq!(result["simulated"], false);
    }
    assert_eq!(code, Some(0));
}

/// And a drive that only says it flushed makes it break that.
#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn a_lying_drive_is_noticed() {
    let arguments = "--modes strict --workload versions --cuts 20 --seed 2 --inject drop-flush";
    let (results, code) = campaigns(arguments);
    println!("{:#}", results[0]);
    assert!(results[0]["broken"].as_u64() > Some(0), "{:#}", results[0]);
    assert_eq!(code, Some(1));
}
