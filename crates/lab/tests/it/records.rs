//! Records of files on ext4, one for each fsync or for those that meet, on one log or on one per
//! core: cut at every point there is; and proof that each fault of theirs is found.

use std::sync::Arc;

use lab::Extra;
use lab::campaign::{CHECK_EVERY, Job, ModeResult};
use lab::workload::{self, Workload, small};
use vfs::kind::Technique;

use crate::harness::{self, broken, every_cut};

const DRIVE: &str = "conventional-noplp";
pub(crate) const MODES: [&str; 3] = ["ijournal", "grouped", "zgrouped"];
/// The same with mount options: records with the checksums of their data.
pub(crate) const ONE_FLUSH: [&str; 3] =
    ["ijournal,record_csum", "grouped,record_csum", "zgrouped,record_csum"];
/// Workloads whose fsyncs write a record or a fast commit.
pub(crate) const SMALL: [&str; 11] = [
    "create-fsync",
    "overwrite-fsync",
    "append",
    "rename-fsync-dir",
    "replace-by-rename",
    "link",
    "truncate-down",
    "truncate-and-grow",
    "unlink-open",
    "two-files-one-dir",
    "symlink-dir",
];

pub(crate) fn technique(name: &str) -> &'static Technique {
    let format = subjects::named("ext4").expect("it is known");
    subjects::technique(format, name).expect("it is known")
}

/// A `mode` is a technique, and mount options behind a comma.
pub(crate) fn job(
    features: &str,
    workload: &str,
    mode: &str,
    seed: u64,
    inject: Option<&str>,
) -> Job {
    let (mode, mount_opts) = mode.split_once(',').unwrap_or((mode, ""));
    let mode = technique(mode);
    let job = match small::named(workload) {
        Some(small) => harness::job(Arc::new(small) as Arc<dyn Workload>, DRIVE, mode, seed),
        None => harness::job(workload::named(workload, 0).expect("it is known"), DRIVE, mode, seed),
    };
    let mut command = job.command.replace("--drive", "--fs ext4 --drive");
    let extra = Extra { mount_opts: mount_opts.into(), features: features.into() };
    command += &extra.arguments();
    Job {
        format: subjects::named("ext4").expect("it is known"),
        inject: inject.map(str::to_owned),
        mount_opts: extra.mount_opts,
        features: extra.features,
        command,
        check_every: CHECK_EVERY,
        ..job
    }
}

pub(crate) fn cut(workload: &str, mode: &str, seed: u64, inject: Option<&str>) -> ModeResult {
    every_cut(job("", workload, mode, seed, inject)).unwrap_or_else(|error| panic!("{error}"))
}

/// How many cuts there were, none of which broke a promise.
pub(crate) fn hold(workloads: &[&str], modes: &[&str], seeds: std::ops::Range<u64>) -> usize {
    hold_on("", workloads, modes, seeds)
}

/// As [`hold`], on volumes with these features.
pub(crate) fn hold_on(
    features: &str,
    workloads: &[&str],
    modes: &[&str],
    seeds: std::ops::Range<u64>,
) -> usize {
    let mut cuts = 0;
    for workload in workloads {
        for mode in modes {
            for seed in seeds.clone() {
                let result = every_cut(job(features, workload, mode, seed, None));
                let result = result.unwrap_or_else(|error| panic!("{error}"));
                assert_eq!(broken(&result), None, "{workload}, {mode}, {features}, seed {seed}");
                cuts += result.cuts;
            }
        }
    }
    cuts
}

#[test]
fn small_workloads_at_every_cut() {
    hold(&SMALL, &MODES, 1..3);
}

/// What a sync writes is durable, also if others have committed all that has changed.
#[test]
fn a_sync_at_every_cut() {
    let commits = ["ordered", "writeback", "data-journal", "fast", "zjournal"];
    hold(&["overwrite-sync"], &commits, 1..2);
    hold(&["overwrite-sync"], &MODES, 1..2);
}

#[test]
fn small_workloads_with_one_flush_at_every_cut() {
    hold(&SMALL, &ONE_FLUSH, 1..2);
}

#[test]
#[ignore = "long: make test-all"]
fn threads_with_one_flush_at_every_cut() {
    let cuts = hold(&["threads:4:names", "threads:4:ranges"], &ONE_FLUSH, 1..2);
    assert!(cuts > 1000, "{cuts} cuts");
}

#[test]
#[ignore = "long: make test-all"]
fn threads_at_every_cut() {
    let cuts = hold(&["threads:4:names", "threads:4:ranges"], &MODES, 1..2);
    assert!(cuts > 1000, "{cuts} cuts");
}

/// As above, many times.
#[test]
#[ignore = "long: make test-all"]
fn threads_at_many_cuts() {
    hold(&["threads:4:names", "threads:12:names"], &MODES, 1..8);
}

/// Each fault breaks a promise, and without it the same runs are clean (above).
#[test]
#[ignore = "long: make test-all"]
fn faults_are_found() {
    for (inject, mode, workload) in [
        ("record-late", "ijournal", "threads:4:names"),
        ("record-shared", "ijournal", "threads:4:names"),
        ("split-group", "grouped", "threads:4:names"),
        ("record-late", "zgrouped", "threads:4:names"),
        ("record-shared", "zgrouped", "threads:4:names"),
        ("split-group", "zgrouped", "threads:12:names"),
        ("drop-chain", "zgrouped", "threads:4:names"),
    ] {
        let found = (1..4).any(|seed| cut(workload, mode, seed, Some(inject)).broken > 0);
        assert!(found, "{inject} breaks nothing");
    }
}
