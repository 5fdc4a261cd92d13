//! `strandline crash --kernel`: the kernel's own file systems on a served drive, in QEMU.

use std::net::TcpListener;

use linux::Guest;

use crate::common::{Scratch, fails, strandline, text};

const GUEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../guest/run");

/// One result per line, and the exit status.
fn campaigns(arguments: &str) -> (Vec<serde_json::Value>, Option<i32>) {
    let (results, _, code) = machine_campaigns(&format!("--guest {GUEST} {arguments}"));
    (results, code)
}

/// The same, and what it complained of.
fn machine_campaigns(arguments: &str) -> (Vec<serde_json::Value>, String, Option<i32>) {
    let out = strandline(&format!("crash --kernel --json {arguments}"));
    let results: Vec<serde_json::Value> = text(&out.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect();
    assert!(!results.is_empty(), "{}", text(&out.stderr));
    (results, text(&out.stderr), out.status.code())
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
    let (code, error) = fails("crash --fs nosuch");
    let kernels = "; with --kernel f2fs, ext4, xfs, btrfs";
    assert!(code == 2 && error.contains("expected f2fs") && error.contains(kernels), "{error}");
    let (code, error) = fails("crash --fs xfs --cuts 1");
    assert_eq!((code, error.contains("add --kernel")), (2, true), "{error}");
    for wrong in ["--fs zfs", "--fs ext4", "--inject skip-wp-check"] {
        assert_eq!(fails(&format!("crash --kernel --guest /nowhere {wrong}")).0, 2, "{wrong}");
    }
    for wrong in ["--only 3", "--image disk.img", "--events 3"] {
        assert_eq!(fails(&format!("crash --kernel {wrong}")).0, 2, "{wrong}");
    }
    for wrong in ["--shard 1/2", "--every-state", "--machine /dev/ttyS1", "--listen ::1"] {
        assert_eq!(fails(&format!("crash --kernel {wrong}")).0, 2, "{wrong}");
    }
}

/// The kernel's F2FS keeps what posix promises on zones, and what it does not promise fails: of a
/// block whose fsync was under way when the power failed, the node was there and the data were not.
/// The drive is kept, and the printed command judges it again.
#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn the_hole_of_posix_shows_on_zones() {
    let scratch = Scratch::new("kept-drives");
    let keep = scratch.path("kept");
    let (results, code) = campaigns(&format!("--modes posix --cuts 100 --seed 2 --keep {keep}"));
    println!("{:#}", results[0]);
    let counts = ["cuts", "broken", "files_lost"].map(|of| results[0][of].as_u64());
    assert_eq!(counts, [Some(100), Some(0), Some(0)]);
    assert!(results[0]["files_garbage"].as_u64() > Some(0), "no hole in 100 cuts");
    assert_eq!((&results[0]["simulated"], code), (&false.into(), Some(0)));
    let failure = &results[0]["failures"][0];
    let again = failure["replay"].as_str().and_then(|line| line.strip_prefix("strandline "));
    let again = strandline(&format!("{} --json", again.expect("a kept drive")));
    let again: serde_json::Value = serde_json::from_slice(&again.stdout).expect("an object");
    let counts = ["cuts", "failed"].map(|of| again[of].as_u64());
    assert_eq!(counts, [Some(1), Some(1)], "{again:#}");
    assert_eq!(again["failures"][0]["verdicts"], failure["verdicts"]);
}

/// Without zones a page is overwritten where it is, and every block is old or new.
#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn overwriting_in_place_keeps_the_promise_of_strict() {
    let (results, code) = campaigns("--drive conventional-noplp --modes strict --cuts 30");
    println!("{:#}", results[0]);
    assert_eq!((&results[0]["cuts"], &results[0]["failed"]), (&30.into(), &0.into()));
    assert_eq!(code, Some(0));
}

/// Otherwise it is as on zones: strict sends what posix sends (`kernel_fsync.rs`), and the same
/// hole shows.
#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn the_hole_of_strict_shows_without_zones() {
    let arguments = "--drive conventional-noplp --mount-options mode=lfs --modes strict --cuts 150";
    let (results, code) = campaigns(arguments);
    println!("{:#}", results[0]);
    let counts = ["cuts", "files_lost", "corrupt"].map(|of| results[0][of].as_u64());
    assert_eq!(counts, [Some(150), Some(0), Some(0)]);
    assert!(results[0]["files_garbage"].as_u64() > Some(0), "no hole in 150 cuts");
    assert_eq!((&results[0]["broken"], code), (&results[0]["failed"], Some(1)));
}

/// The kernel returns from strict's fdatasync before the node is sent (`kernel_fsync.rs`), and so
/// loses what it acknowledged. Posix waits.
#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn an_acknowledged_fdatasync_of_strict_is_lost() {
    let arguments = "--drive conventional-noplp --mount-options mode=lfs --fdatasync \
                     --workload random-overwrite --modes posix,strict --cuts 100";
    let (results, code) = campaigns(arguments);
    println!("{:#}\n{:#}", results[0], results[1]);
    let lost = |of: usize| results[of]["files_lost"].as_u64();
    assert_eq!((lost(0), &results[0]["broken"]), (Some(0), &0.into()));
    assert!(lost(1) > Some(0), "nothing lost in 100 cuts");
    assert_eq!(code, Some(1));
}

/// A drive that only claims to flush loses acknowledged writes, and that is noticed.
#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn a_drive_that_lies_is_noticed() {
    let arguments = "--modes posix --workload random-overwrite --cuts 30 --inject drop-flush";
    let (results, code) = campaigns(arguments);
    println!("{:#}", results[0]);
    assert!(results[0]["broken"].as_u64() > Some(0), "a lying drive was not noticed");
    assert_eq!(code, Some(1));
}

/// The most used ones, each through a run and its cuts.
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

/// A machine of the user's own, which connects to `--machine`. It runs `besides` first.
fn own_machine(besides: &str, arguments: &str) -> (Vec<serde_json::Value>, String, Option<i32>) {
    let free = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = free.local_addr().expect("bound").port();
    drop(free);
    let guest = Guest::new().network().timeout(1800);
    let guest = guest.program(env!("CARGO_BIN_EXE_strandline").as_ref());
    let script = format!(
        "modprobe -a nvme_tcp f2fs && network || exit 9\n{besides}\n\
         strandline crash agent 10.0.2.2:{port}\n"
    );
    let guest = cores::spawn("guest", None, move || guest.run(&script));
    let found = machine_campaigns(&format!("--machine 127.0.0.1:{port} {arguments}"));
    let output = guest.join();
    println!("{}\n{}\n{}", output.text, output.console, found.1);
    found
}

/// As with a guest of ours: the agent ends with the campaign, and the table is the same.
#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn a_machine_of_ones_own_will_do() {
    let (results, said, code) =
        own_machine("", "--workload replace-by-rename --modes strict,posix --cuts 10");
    let counts = ["cuts", "broken", "corrupt", "files_lost"];
    let counts = |of: &serde_json::Value| counts.map(|name| of[name].as_u64());
    assert_eq!(counts(&results[1]), [Some(10), Some(0), Some(0), Some(0)], "{:#}", results[1]);
    assert_eq!(counts(&results[0])[0], Some(10), "{:#}", results[0]);
    assert!(said.contains("minutes for a machine: run 'strandline crash agent 127.0"), "{said}");
    assert_eq!(code, Some(i32::from(counts(&results[0])[1] > Some(0))));
}

/// A kernel panic is reported in one line, and earlier findings are kept.
#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn what_was_found_before_the_machine_died_is_kept() {
    let die = "(while [ $(dmesg | grep -c 'Mounted with checkpoint') -lt 6 ]; do sleep 0.2; done
        echo c >/proc/sysrq-trigger) &";
    let (results, said, code) =
        own_machine(die, "--workload replace-by-rename --modes posix --cuts 60");
    let cuts = results[0]["cuts"].as_u64().expect("a number");
    assert!(cuts > 0, "{:#}", results[0]);
    assert_eq!(code, Some(1), "{said}");
    let last = said.lines().last().expect("a line");
    assert!(last.contains("the machine answers no more: it hung up; no agent came; "), "{said}");
    let all = last.strip_suffix(" cuts").and_then(|last| last.rsplit_once(" of "));
    let all: u64 = all.expect("a number of cuts").1.parse().expect("a number");
    assert!(last.contains(&format!("that is after {cuts} of {all} cuts")) && cuts < all, "{said}");
}
