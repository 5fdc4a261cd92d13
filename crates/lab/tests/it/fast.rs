//! Fast commits on ext4, cut at every point there is; and proof that each fault of theirs is found.

use std::sync::Arc;

use lab::Extra;
use lab::campaign::{CutPoints, Progress, run_at};
use lab::explore::batch::{self, Batch};
use lab::explore::schedules::{ALL, explore};

use crate::harness::broken;
use crate::records::{SMALL, cut, hold, job, technique};

#[test]
fn small_workloads_at_every_cut() {
    hold(&SMALL, &["fast"], 1..3);
}

/// The logs of several areas lie in front of an unused area for fast commits, and wrap.
#[test]
fn several_logs_beside_an_area_for_fast_commits() {
    let quiet: Progress = Arc::new(|_| true);
    let job = job("fast_commit", "threads:4:all", "zjournal", 1, None);
    let (found, _) = run_at(&Arc::new(job), CutPoints::Random(20), &quiet).expect("it runs");
    assert_eq!(broken(&found), None);
}

#[test]
#[ignore = "long: make test-all"]
fn threads_at_every_cut() {
    // With other seeds the oracle may take a new file for the one that had its name before.
    let cuts =
        hold(&["threads:4:all"], &["fast"], 1..4) + hold(&["threads:4:names"], &["fast"], 1..2);
    assert!(cuts > 1000, "{cuts} cuts");
}

/// Each fault breaks a promise, and without it the same runs are clean (above).
#[test]
#[ignore = "long: make test-all"]
fn faults_are_found() {
    for (inject, workload) in [("fc-miss", "append"), ("fc-late", "threads:4:all")] {
        let found = (1..4).any(|seed| cut(workload, "fast", seed, Some(inject)).broken > 0);
        assert!(found, "{inject} breaks nothing");
    }
}

/// Every state that a cut may leave, of all single operations.
#[test]
#[ignore = "long: make test-all"]
fn every_single_operation() {
    let batch = Batch {
        format: subjects::named("ext4").expect("it is known"),
        drive: "conventional-noplp".into(),
        technique: technique("fast"),
        length: 1,
        sample: None,
        extra: Extra::default(),
        inject: None,
        seed: 1,
        threads: 2,
    };
    let quiet: Progress = Arc::new(|_| true);
    let found = batch::run(&batch, None, &quiet).expect("the batch runs").result;
    let told: Vec<_> = found.failures.iter().map(|f| (&f.verdicts, &f.replay)).collect();
    assert_eq!((found.sequences, found.counts.broken), (52, 0), "{told:#?}");
}

fn schedules(count: u64) {
    let format = subjects::named("ext4").expect("it is known");
    for structure in ALL.iter().filter(|structure| !structure.injected) {
        if structure.suits(format).expect("a built-in drive") {
            let way = (format, Some(technique("fast")));
            let found = explore(structure, way, &Extra::default(), 0, count, &mut || ());
            let found = found.expect("the machine runs");
            let failed: Vec<_> = found.failed.iter().map(|f| (&f.what, &f.replay)).collect();
            assert!(failed.is_empty(), "{}: {failed:?}", structure.name);
        }
    }
}

#[test]
fn a_share_of_the_schedules() {
    schedules(25);
}

#[test]
#[ignore = "long: make test-all"]
fn many_schedules() {
    schedules(10_000);
}
