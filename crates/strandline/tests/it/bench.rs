//! `strandline bench`: what it prints, and that it spares files.

use std::path::Path;

use linux::Guest;

use crate::common::{Scratch, assert_fsck_clean, fails, ok, strandline, text};

const GUEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../guest/run");

#[test]
fn benchmarks_answer_in_json() {
    for bench in ["fsync", "create", "seqwrite", "seqread"] {
        for machine in ["real", "xeon-4116"] {
            let line = format!("bench {bench} --drive ram --machine {machine} --ops 20 --json");
            let object: serde_json::Value = serde_json::from_str(&ok(&line)).expect("JSON");
            for key in ["ops_per_s", "bytes_per_s", "latency_us_p50", "latency_us_p99"] {
                assert!(object[key].as_f64().is_some_and(|v| v >= 0.0), "{line}: {key}");
            }
        }
    }
}

#[test]
fn interfaces_are_compared_and_files_are_safe() {
    let file = Scratch::new("bench-io").path("file");
    let (code, said) = fails(&format!("bench io {file}"));
    assert_eq!((code, said.contains("--size")), (1, true), "{said}");
    let (code, said) = fails(&format!("bench io {file} --size 99999t"));
    assert!(code == 1 && !Path::new(&file).exists(), "it does not fit: {said}");
    let runs = "--number_ios 20 --rounds 2 --direct 0";
    let object = ok(&format!("bench io {file} --size 1m {runs} --json"));
    let object: serde_json::Value = serde_json::from_str(&object).expect("JSON");
    let rows = object["interfaces"].as_array().expect("an array");
    assert_eq!((rows.len(), &object["rw"]), (10, &"randread".into()), "{object}");
    for row in rows {
        let iops = row["measured"]["iops"]["median"].as_f64();
        assert!(iops.is_some_and(|iops| iops > 0.0) != row["refused"].is_string(), "{row}");
    }
    let before = std::fs::read(&file).expect("it stays");
    let write = format!("bench io {file} --rw write --ioengine psync {runs}");
    let (code, said) = fails(&write);
    assert_eq!((code, said.contains("--overwrite")), (2, true), "{said}");
    assert!(std::fs::read(&file).expect("it is there") == before);
    assert!(ok(&format!("{write} --overwrite")).contains("\npsync "));
    assert!(std::fs::read(&file).expect("it is there") != before);
    assert!(ok("bench io --drive ram --number_ios 20").contains("\ndrive "));
    let nothing = strandline("bench io --drive ram --bs 0");
    assert!(nothing.status.code() == Some(1) && text(&nothing.stdout).contains("0 bytes"));
}

#[test]
fn a_profile_that_could_not_be_kept_is_not_measured() {
    for out in ["profile", "/no/such/directory/profile.toml"] {
        assert_eq!(fails(&format!("bench calibrate --out {out}")).0, 2);
    }
}

#[test]
fn fxmark_prints_its_log_json_and_a_drawing() {
    let drawing = Scratch::new("fxmark").path("curve.svg");
    let line = "bench fxmark dwol --machine xeon-4116 --cores 1,4 --ops 20";
    let log = ok(&format!("{line} --svg {drawing}"));
    assert!(log.contains("\n## mem:f2fs:DWOL:4:bufferedio\n# ncpu secs works works/sec\n4 "));
    assert!(std::fs::read_to_string(drawing).is_ok_and(|svg| svg.starts_with("<svg xmlns=")));
    let [one, other] = [(); 2].map(|()| ok(&format!("{line} --json")));
    assert_eq!(one, other, "the same seed gives the same bytes");
    let object: serde_json::Value = serde_json::from_str(&one).expect("JSON");
    assert_eq!(object["points"][1]["works"], 80);
}

#[test]
fn fxmark_compares_threads_with_processes() {
    let object = ok("bench fxmark DWOL --cores 1,2 --ops 200 --pairs 3 --json");
    let object: serde_json::Value = serde_json::from_str(&object).expect("JSON");
    let point = &object["points"][1];
    assert_eq!((&point["works"], &point["beside"]["turns"]), (&400.into(), &3.into()));
    for ratio in ["over_processes", "over_one"] {
        let [least, median, most] = ["least", "median", "most"]
            .map(|key| point["beside"][ratio][key].as_f64().expect("a number"));
        assert!(0.0 < least && least <= median && median <= most, "{point}");
    }
    let (code, said) = fails("bench fxmark DWOL --machine xeon-4116 --pairs 1");
    assert_eq!(code, 2, "{said}");
    let (code, said) = fails("bench fxmark DWOL --drive floppy --pairs 1");
    assert!(code != 0 && said.contains("floppy"), "{said}");
}

#[test]
fn the_block_layer_is_as_asked() {
    let line = "bench fsync --drive conventional-noplp --machine xeon-4116 --threads 8 --ops 400";
    let rate = |options: &str| {
        let object = ok(&format!("{line} --json {options}"));
        let object: serde_json::Value = serde_json::from_str(&object).expect("JSON");
        object["ops_per_s"].as_f64().expect("a rate")
    };
    let usual = rate("");
    assert_eq!(rate("--sched none --nr-requests 65535 --nr-hw-queues 65535"), usual, "no change");
    assert!(rate("--nr-hw-queues 1 --nr-requests 1") < usual, "eight threads and one tag");
    assert!(rate("--poll") > usual, "nobody is woken");
    assert_ne!(rate("--sched mq-deadline"), usual);
    let line = "bench fxmark DWSL --machine xeon-4116 --cores 2 --ops 20 --drive zn540 --json";
    let object = ok(&format!("{line} -o cache=8m --sched mq-deadline"));
    let object: serde_json::Value = serde_json::from_str(&object).expect("JSON");
    assert_eq!(object["mount_opts"], "cache=8m,sched=mq-deadline");
    let aged = "bench age --fill 50 --overwrite 1x --size 64m --json --nr-requests 1";
    let object: serde_json::Value = serde_json::from_str(&ok(aged)).expect("JSON");
    assert_eq!(object["mount_opts"], "nr_requests=1");
}

#[test]
fn a_block_layer_that_cannot_be_is_refused_in_one_line() {
    for (line, told) in [
        ("fsync --sched bfq", "none, mq-deadline"),
        ("fsync --nr-requests 0", "1..=65535"),
        ("fsync --nr-requests 65536", "1..=65535"),
        ("fsync --nr-hw-queues 0", "1..=65535"),
        ("fsync -o nr_hw_queues=many", "a number from 1 to 65535"),
        ("fsync -o zone_order=free", "lock or plug"),
        ("fxmark DWOL --mount /tmp --poll", "--poll"),
        ("fxmark DWOL --mount /tmp --sched none", "--sched"),
    ] {
        let (code, said) = fails(&format!("bench {line}"));
        let told = said.contains(told);
        assert_eq!((code, said.trim_end().lines().count(), told), (2, 1, true), "{line}: {said}");
    }
}

/// Where the kernel can poll, it does: every interface works, and the polled one makes no call.
#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn every_interface_works_on_a_device_with_queues_for_polling() {
    let script = "modprobe null_blk queue_mode=2 submit_queues=2 poll_queues=2 gb=1
        strandline bench io /dev/nullb0 --number_ios 300 --rounds 1 --json";
    let program = Path::new(env!("CARGO_BIN_EXE_strandline"));
    let guest = Guest::booted_by(Path::new(GUEST)).expect("a temporary directory");
    let out = guest.cpus(2).program(program).run(script);
    let object = out.success().lines().find(|line| line.starts_with('{')).expect("JSON");
    let object: serde_json::Value = serde_json::from_str(object).expect("JSON");
    for row in object["interfaces"].as_array().expect("an array") {
        let measured = &row["measured"];
        assert!(measured["iops"]["median"].as_f64().is_some_and(|iops| iops > 0.0), "{row}");
        if row["ioengine"] == "polled" {
            assert_eq!(measured["calls_per_io"]["median"], 0.0, "{row}");
        }
    }
}

/// A figure measured on a file: what is known there is not overwritten without a word, and what is
/// left is a sound volume to fsck.f2fs.
#[test]
fn a_figure_is_measured_on_a_file() {
    let scratch = Scratch::new("device");
    let file = scratch.path("device.img");
    std::fs::File::create(&file).unwrap().set_len(128 << 20).unwrap();
    let measured = ok(&format!("lab run inline-data --device {file}"));
    assert!(measured.contains("(measured)") && !measured.contains("simulated"), "{measured}");
    assert_fsck_clean(&file);
    let (code, said) = fails(&format!("lab run inline-data --device {file}"));
    assert_eq!((code, said.lines().count()), (2, 1), "{said}");
    assert!(said.contains("holds F2FS; -f"), "{said}");
    let again = format!("lab run inline-data --device {file} -f --seed 1");
    assert!(measured.contains(&format!("repeat: strandline {again}")), "{measured}");
    let (code, said) = fails(&format!("lab run f2fs-changes --device {file} -f"));
    assert!(code == 2 && said.contains("these can: inline-data"), "{said}");
}
