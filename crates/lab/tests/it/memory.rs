//! File systems on persistent memory, seen by the lab as those on drives are: every state of short
//! sequences, cuts under threads, schedules; and deliberate faults, each of which is found.

use std::sync::Arc;

use lab::Extra;
use lab::campaign::minimise::{Cuts, minimise};
use lab::campaign::{self, Job, Progress};
use lab::explore::ace::{Change, Sequence};
use lab::explore::batch::{self, Batch, BatchResult};
use lab::explore::schedules;
use lab::explore::{Bound, explore};
use vfs::kind::{Format, Technique};

const DRIVE: &str = "pm";
/// Each way of committing; the others differ from these in one option.
const DESIGNS: [&str; 3] = ["inplace", "nova", "pnova"];

fn format() -> &'static dyn Format {
    subjects::named("pmfs").expect("it is there")
}

fn technique(name: &str) -> &'static Technique {
    subjects::technique(format(), name).expect("it is there")
}

fn silent() -> Progress {
    Arc::new(|_| true)
}

fn batch(mode: &str, drive: &str, length: u32, sample: Option<usize>) -> BatchResult {
    let (technique, inject, extra) = (technique(mode), None, Extra::default());
    let (format, drive) = (format(), drive.to_owned());
    let batch =
        Batch { format, drive, technique, length, sample, extra, inject, seed: 1, threads: 2 };
    assert!(batch.applies().expect("a drive"));
    let result = batch::run(&batch, None, &silent()).expect("it runs").result;
    println!("{mode} {}: {} sequences, {:?}", batch.drive, result.sequences, result.counts);
    result
}

fn assert_unbroken(result: &BatchResult) {
    assert_eq!(result.counts.broken, 0, "{:?}", result.failures.first());
}

/// A run of these changes, with or without a fault.
fn job(mode: &str, drive: &str, changes: &[Change], inject: Option<&str>) -> Job {
    let sequence = Sequence::at_return(changes).expect("possible");
    let sound = Job::new(format(), drive, Arc::new(sequence), technique(mode), 1);
    Job { inject: inject.map(str::to_owned), ..sound }
}

/// The changes of the tests that every run has.
const FEW: [&[Change]; 4] = [
    &[Change::Create, Change::Append],
    &[Change::Rename, Change::Create],
    &[Change::Overwrite, Change::Unlink],
    &[Change::Append, Change::Replace, Change::Mkdir],
];

fn broken(mode: &str, changes: &[Change], fault: Option<&str>) -> usize {
    let job = job(mode, DRIVE, changes, fault);
    let found = explore(&job, Bound::default(), false).expect("it runs");
    assert!(fault.is_some() || found.counts.broken == 0, "{mode}: {:?}", found.failures.first());
    found.counts.broken
}

#[test]
fn states_of_a_few_operations_are_as_before_or_after_them() {
    for mode in DESIGNS {
        broken(mode, FEW[3], None);
        broken(mode, &[Change::Exchange, Change::Punch], None);
    }
}

#[test]
#[ignore = "minutes: all operations in three designs"]
fn every_state_of_an_operation_is_as_before_or_after_it() {
    for mode in DESIGNS {
        let result = batch(mode, DRIVE, 1, None);
        assert_unbroken(&result);
        assert!(result.complete && result.counts.states > 500, "{mode}: {:?}", result.counts);
        assert_eq!(result.counts.sampled, 0, "{mode}");
    }
}

#[test]
#[ignore = "half a minute: all operations in three designs"]
fn a_killed_process_and_caches_that_survive_leave_no_less() {
    for (mode, drive) in [("inplace", "pm:process"), ("pnova", "pm:process"), ("nova", "pm:caches")]
    {
        assert_unbroken(&batch(mode, drive, 1, None));
    }
}

#[test]
#[ignore = "long: all pairs of operations in every mode"]
fn every_state_of_two_operations() {
    for technique in format().techniques() {
        let result = batch(technique.name, DRIVE, 2, None);
        assert_unbroken(&result);
        // In place, one instant of writing the same holes twice can be told apart in too many ways.
        let drawn_from = usize::from(technique.name == "inplace");
        assert!(result.complete && result.counts.sampled == drawn_from, "{technique}");
    }
}

#[test]
#[ignore = "minutes: 100,000 states of three operations in every mode"]
fn states_of_three_operations() {
    for technique in format().techniques() {
        assert_unbroken(&batch(technique.name, DRIVE, 3, Some(100_000)));
    }
}

fn finds(mode: &str, fault: &str) {
    let found = FEW.iter().any(|changes| broken(mode, changes, Some(fault)) > 0);
    assert!(found, "{mode}: {fault}");
}

/// The three holes that NOVA's journal of several inodes has: old words that are not durable when
/// their mark is; a recovery that clears the mark before what it took back is durable; `valid` of a
/// new inode, which is never written back.
#[test]
fn the_holes_that_nova_has_are_found() {
    let holes = ["drop-record-fence", "drop-recovery-fence", "drop-table-words"];
    holes.into_iter().for_each(|hole| finds("nova", hole));
}

#[test]
#[ignore = "minutes: eleven faults in three designs"]
fn every_fault_is_found() {
    for mode in DESIGNS {
        format().faults().into_iter().for_each(|fault| finds(mode, &fault));
    }
}

#[test]
fn a_failure_is_made_short() {
    let changes = [Change::Mkdir, Change::Chmod, Change::Create, Change::Append];
    let job = job("nova", DRIVE, &changes, Some("drop-record-fence"));
    let minimal = minimise(&job, Cuts::States, &silent()).expect("it runs").expect("it fails");
    assert!(minimal.operations < minimal.before && minimal.failure.broken);
    let said = lab::campaign::minimise::words(&job, &minimal.recording, &minimal.failure.verdicts);
    assert!(!said.expect("words").is_empty());
}

fn campaign(mode: &str, drive: &str, workload: &str, cuts: usize, seed: u64) {
    let workload = lab::workload::named(workload, cuts).expect("known").into();
    let sound = Job::new(format(), drive, workload, technique(mode), seed);
    let job = Arc::new(Job { cuts, threads: 2, ..sound });
    let result = campaign::run(&job, &silent()).expect("it runs");
    assert_eq!(result.broken, 0, "{mode} {drive}: {:?}", result.failures.first());
    assert_eq!(result.cuts, cuts);
}

#[test]
fn cuts_under_four_threads_break_nothing() {
    for mode in DESIGNS {
        campaign(mode, DRIVE, "threads:4:all", 12, 1);
    }
    campaign("inplace", "pm:process", "threads:4:names", 10, 2);
}

#[test]
#[ignore = "minutes: 2,000 cuts of 40 runs in every mode"]
fn many_cuts_under_four_threads_break_nothing() {
    for technique in format().techniques() {
        for seed in 0..40 {
            let mix = ["all", "names", "shared", "private"][seed as usize % 4];
            campaign(technique.name, DRIVE, &format!("threads:4:{mix}"), 2_000, seed);
        }
    }
}

fn schedules_keep_what_returned(structures: &[&str], count: u64) {
    for &structure in structures {
        let structure = schedules::named(structure).expect("known");
        for mode in DESIGNS {
            let on = (format(), Some(technique(mode)));
            let found = schedules::explore(structure, on, &Extra::default(), 0, count, &mut || ())
                .expect("it runs");
            assert_eq!(found.failed, [], "{mode} {}", structure.name);
        }
    }
}

#[test]
fn schedules_of_volumes_on_memory_keep_what_returned() {
    schedules_keep_what_returned(&["inode", "names", "rename"], 4);
}

#[test]
#[ignore = "long: 10,000 schedules of each structure in three designs"]
fn many_schedules_of_volumes_on_memory_keep_what_returned() {
    let all: Vec<_> = schedules::ALL.iter().filter(|it| !it.injected).map(|it| it.name).collect();
    schedules_keep_what_returned(&all, 10_000);
}
