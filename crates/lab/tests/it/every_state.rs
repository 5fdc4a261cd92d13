//! Every state a cut may leave, whatever the drive's timing: all single operations, every mode,
//! both kinds of drive. And proof that the explorer would notice.

use std::sync::Arc;

use f2fs::technique;
use lab::Extra;
use lab::campaign::shard::{Part, Share, merge};
use lab::campaign::{Job, Progress};
use lab::explore::batch::{self, Batch};
use lab::explore::{Bound, Explored, explore};
use lab::workload;
use vfs::kind::Technique;

const ZONED: &str = "zn540-noplp";
const PROTECTED: &str = "zn540";
const CONVENTIONAL: &str = "conventional-noplp";

fn run(workload: &str, drive: &str, mode: &'static Technique, inject: Option<&str>) -> Explored {
    let command = format!("strandline crash --every-state --drive {drive} --workload {workload}");
    let workload = workload::named(workload, 0).expect("a known workload").into();
    let sound = Job::new(&f2fs::Format, drive, workload, mode, 1);
    let job = Job { inject: inject.map(str::to_owned), command, ..sound };
    explore(&job, Bound::default(), false).expect("the exploration runs")
}

#[test]
fn every_single_operation() {
    let tearing = [CONVENTIONAL, ZONED].map(|drive| format!("{drive}:512"));
    for drive in [ZONED, PROTECTED, CONVENTIONAL].into_iter().chain(tearing.iter().map(|d| &**d)) {
        for mode in technique::ALL {
            let batch = Batch {
                format: subjects::named("f2fs").expect("f2fs is known"),
                drive: drive.into(),
                technique: mode,
                length: 1,
                sample: None,
                extra: Extra::default(),
                inject: None,
                seed: 1,
                threads: 2,
            };
            if !batch.applies().expect("a known drive") {
                continue;
            }
            let quiet: Progress = Arc::new(|_| true);
            let all = batch::run(&batch, None, &quiet).expect("the batch runs");
            let (found, rows) = (all.result, all.outcomes);
            assert_eq!((found.sequences, rows.len()), (52, 52));
            let told: Vec<_> = found.failures.iter().map(|f| (&f.verdicts, &f.replay)).collect();
            assert_eq!(found.counts.broken, 0, "{mode} on {drive}: {told:#?}");
        }
    }
}

#[test]
fn the_small_workloads_of_many_nodes() {
    // The last four: an attribute that goes on in a node of its own came back half old, half new;
    // a checkpoint that took a hole along was taken for a torn fsync, and, under a later fsync that
    // promises nothing, for garbage; and an old version of a replaced file for its successor.
    let workloads = [
        "multi-node",
        "overwrite-fsync",
        "two-files-one-dir",
        "truncate-and-grow",
        "ace:xattr+fsync,xattr+fsync",
        "ace:shrink+nothing,beyond+fsync-dir,overwrite+sync",
        "ace:append+fsync-dir,overwrite+fsync",
        "ace:beyond+fdatasync,shrink+fsync,replace+sync",
    ];
    for workload in workloads {
        for mode in technique::ALL {
            let found = run(workload, ZONED, mode, None);
            assert_eq!(found.counts.broken, 0, "{workload} in {mode}: {:#?}", found.failures[0]);
        }
    }
}

/// posix may keep part of an fsync of several nodes; strict never does, with two flushes or one.
#[test]
fn whole_or_not_at_all() {
    let torn = |mode, inject| run("multi-node", ZONED, mode, inject).counts.torn;
    assert!(torn(technique::POSIX, None) > 0);
    assert!(torn(technique::OPRW, None) > 0);
    assert_eq!((torn(technique::STRICT, None), torn(technique::OPRW_STRICT, None)), (0, 0));
    assert!(torn(technique::OPRW_STRICT, Some("mark-every-node")) > 0);
    assert!(torn(technique::STRICT, Some("mark-every-node")) > 0);
}

#[test]
fn what_is_broken_is_noticed() {
    let broken = |workload, mode, fault| run(workload, ZONED, mode, Some(fault)).counts.broken;
    assert!(broken("overwrite-fsync", technique::POSIX, "drop-flush") > 0);
    assert!(broken("overwrite-fsync", technique::STRICT, "drop-preflush") > 0);
    assert!(broken("overwrite-fsync", technique::OPRW_STRICT, "skip-wp-check") > 0);
    assert!(broken("ace:rename+sync", technique::POSIX, "plain-checkpoint") > 0);
    assert!(broken("ace:create+fsync", technique::POSIX, "drop-dent-mark") > 0);
}

#[test]
fn the_same_seed_gives_the_same_json() {
    let json = || {
        let found = run("ace:append+nothing,replace+fsync", CONVENTIONAL, technique::POSIX, None);
        serde_json::to_string(&found).expect("results are plain data")
    };
    assert_eq!(json(), json());
}

/// Shares put together are what one run finds, bit for bit, in whatever order they come.
#[test]
fn shares_of_an_exploration_add_up() {
    let batch = |sample| Batch {
        format: subjects::named("f2fs").expect("f2fs is known"),
        drive: ZONED.into(),
        technique: technique::POSIX,
        length: if sample { 2 } else { 1 },
        sample: sample.then_some(150),
        extra: Extra::default(),
        inject: Some("drop-flush".into()),
        seed: 5,
        threads: 2,
    };
    let json = |part: &Part| serde_json::to_string(part).expect("results are plain data");
    for sample in [false, true] {
        let quiet: Progress = Arc::new(|_| true);
        let run = |shard| batch::run(&batch(sample), shard, &quiet).expect("the batch runs");
        let whole = run(None);
        assert!(whole.result.counts.broken > 0);
        let shares = ["3/3", "1/3", "2/3"].map(|text| {
            let shard = text.parse().expect("it is a shard");
            let share = Share { shard, part: Part::Sequences(run(Some(shard))) };
            let line = serde_json::to_string(&share).expect("plain data");
            serde_json::from_str(&line).expect("it is read back")
        });
        let merged = merge(shares.to_vec()).expect("they are all there");
        assert_eq!(merged.iter().map(json).collect::<Vec<_>>(), [json(&Part::Sequences(whole))]);
    }
}
