//! Posix's known hole, and a deliberate fault, are reduced to a handful of operations.

use super::*;
use crate::campaign::run_at;
use crate::workload::{Pattern, Workload, named};
use f2fs::technique;
use vfs::kind::Technique;

fn job(workload: Arc<dyn Workload>, mode: &'static Technique, inject: Option<&str>) -> Job {
    let sound = Job::new(&f2fs::Format, "zn540-noplp", workload, mode, 1);
    Job { inject: inject.map(str::to_owned), check_every: 1, threads: 2, ..sound }
}

fn minimal(job: &Job, cuts: Cuts) -> Option<Minimal> {
    let quiet: Progress = Arc::new(|_| true);
    minimise(job, cuts, &quiet).expect("it runs")
}

/// The script, read from a file, gives the same result at the same cut.
fn replays(job: &Job, minimal: &Minimal) {
    let script = Script::parse(&minimal.script.text(), "min").expect("its text is right");
    let pick = Pick::One(minimal.failure.cut);
    let again = Job { workload: Arc::new(script), pick, ..job.clone() };
    let quiet: Progress = Arc::new(|_| true);
    let failures = match minimal.cuts {
        Cuts::States => {
            explore::explore(&again, Bound::default(), false).expect("it runs").failures
        }
        Cuts::Every => {
            run_at(&Arc::new(again), CutPoints::Every, &quiet).expect("it runs").0.failures
        }
    };
    // The checker looks at every single state that is asked for, and may find more.
    let found = |verdict| failures.iter().any(|failure| failure.verdicts.contains(verdict));
    assert!(minimal.failure.verdicts.iter().all(found), "{failures:?}");
}

#[test]
fn the_hole_of_posix_is_a_write_and_an_fsync() {
    let pattern = Arc::new(Pattern::sized(30, 40));
    let job = job(pattern, technique::POSIX, None);
    let minimal = minimal(&job, Cuts::Every).expect("posix has a hole");
    let text = minimal.script.text();
    assert!(minimal.before > 100, "{}", minimal.before);
    assert!(minimal.operations <= 4, "{text}");
    assert!(!minimal.failure.broken);
    assert_eq!(minimal.failure.verdicts[0].damage, Damage::Garbage);
    replays(&job, &minimal);
    let short = Job { workload: Arc::new(minimal.script.clone()), ..job };
    let said = words(&short, &minimal.recording, &minimal.failure.verdicts);
    let said = said.expect("it runs").join("\n");
    for part in ["in the fsync of /pattern", "not there", "it never was on NAND", "is on NAND"] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn a_fault_keeps_its_kind() {
    let workload: Arc<dyn Workload> = named("varmail", 40).expect("it is known").into();
    let job = job(workload, technique::STRICT, Some("drop-flush"));
    let minimal = minimal(&job, Cuts::Every).expect("a dropped flush shows");
    assert!(minimal.failure.broken && minimal.operations < 5, "{}", minimal.script.text());
    replays(&job, &minimal);
}

#[test]
fn of_states_too_and_of_nothing_nothing() {
    let workload: Arc<dyn Workload> = named("overwrite-fsync", 0).expect("it is known").into();
    let faulty = job(workload.clone(), technique::POSIX, Some("drop-flush"));
    let short = minimal(&faulty, Cuts::States).expect("a dropped flush shows");
    assert!(short.operations < 5, "{}", short.script.text());
    assert!(minimal(&job(workload, technique::OPRW, None), Cuts::Every).is_none());
}
