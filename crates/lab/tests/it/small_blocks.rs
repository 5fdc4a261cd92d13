//! ext4 with blocks of 1 and 2 KiB in each of its modes: cut at every point there is, and in every
//! state that a cut may leave.

use std::sync::Arc;

use lab::Extra;
use lab::campaign::Progress;
use lab::explore::batch::{self, Batch};

use crate::records::{MODES, ONE_FLUSH, SMALL, hold_on, technique};

const SIZES: [&str; 2] = ["block_size=1024", "block_size=2048"];
/// Modes with one log, or with logs of which each commits by itself.
const COMMITS: [&str; 4] = ["ordered", "data-journal", "fast", "zjournal"];

/// A share of what [`small_workloads_at_every_cut`] runs.
#[test]
fn a_share_of_the_small_workloads() {
    for modes in [&MODES[..], &ONE_FLUSH, &COMMITS] {
        hold_on(SIZES[0], &["append", "truncate-and-grow", "replace-by-rename"], modes, 1..2);
    }
}

#[test]
#[ignore = "long: make test-all"]
fn small_workloads_at_every_cut() {
    for size in SIZES {
        for modes in [&MODES[..], &ONE_FLUSH, &COMMITS] {
            hold_on(size, &SMALL, modes, 1..3);
        }
    }
}

#[test]
#[ignore = "long: make test-all"]
fn threads_at_every_cut() {
    for modes in [&MODES[..], &ONE_FLUSH, &COMMITS] {
        let cuts = hold_on(SIZES[0], &["threads:4:names", "threads:4:ranges"], modes, 1..2);
        assert!(cuts > 1000, "{cuts} cuts");
    }
}

/// Every state that a cut may leave, of all single operations.
#[test]
#[ignore = "long: make test-all"]
fn every_single_operation() {
    for features in SIZES {
        for mode in MODES.iter().chain(&ONE_FLUSH).chain(&COMMITS) {
            let (mode, mount_opts) = mode.split_once(',').unwrap_or((mode, ""));
            let batch = Batch {
                format: subjects::named("ext4").expect("it is known"),
                drive: "conventional-noplp".into(),
                technique: technique(mode),
                length: 1,
                sample: None,
                extra: Extra { mount_opts: mount_opts.into(), features: features.into() },
                inject: None,
                seed: 1,
                threads: 2,
            };
            let quiet: Progress = Arc::new(|_| true);
            let found = batch::run(&batch, None, &quiet).expect("the batch runs").result;
            let told: Vec<_> = found.failures.iter().map(|f| (&f.verdicts, &f.replay)).collect();
            let what = (found.sequences, found.counts.broken, found.complete);
            assert_eq!(what, (52, 0, true), "{mode} {mount_opts}, {features}: {told:#?}");
        }
    }
}
