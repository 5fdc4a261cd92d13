//! Every small workload, cut before every command and after every NAND program, in every mode: no
//! promise may be broken, and the next mount and the checker must find nothing.

use std::sync::Arc;

use lab::campaign::{CutPoints, Job, ModeResult, run_at};
use lab::workload::{Workload, small};
use lab::{Mode, subject};

/// Survivors drawn per point on a drive that leaves some to chance.
const CONVENTIONAL_SEEDS: u64 = 3;

/// Cuts of the cleaning workload: it fills a volume, and every cut reads all of it.
const CLEANING_CUTS: usize = 60;

fn explore(workload: small::Small, mode: Mode, drive: &str) -> ModeResult {
    let conventional = drive.starts_with("conventional");
    let cleaning = workload.name() == "gc-between";
    let job = Arc::new(Job {
        subject: subject::named("f2fs").expect("f2fs is known"),
        drive: drive.into(),
        workload: Arc::new(workload),
        mode,
        inject: None,
        cuts: CLEANING_CUTS,
        seed: 1,
        only: None,
        threads: 2,
        command: format!(
            "strandline crash {} --drive {drive} --workload {} --seed 1",
            if cleaning { format!("--cuts {CLEANING_CUTS}") } else { "--every-cut".into() },
            workload.name()
        ),
    });
    let seeds = if conventional { CONVENTIONAL_SEEDS } else { 1 };
    let quiet: lab::campaign::Progress = Arc::new(|_| ());
    let every = CutPoints::Every { seeds };
    let points = if cleaning { CutPoints::Random(CLEANING_CUTS) } else { every };
    match run_at(&job, points, &quiet) {
        Ok((result, _)) => result,
        Err(error) => panic!("{} in {mode} on {drive}: {error}", workload.name()),
    }
}

/// All workloads of `drive` in `modes`; fails with one replay line per broken promise.
fn promises_hold(drive: &str, modes: &[Mode], pick: impl Fn(&str) -> bool) {
    let mut broken = Vec::new();
    for workload in small::ALL.into_iter().filter(|s| pick(s.name())) {
        for &mode in modes {
            let result = explore(workload, mode, drive);
            assert!(result.cuts > 2, "{} in {mode}: {} cuts", workload.name(), result.cuts);
            let told = result.failures.iter().filter(|f| f.broken);
            broken.extend(told.take(1).map(|f| {
                let n = result.broken;
                format!("{n} of {} cuts; {}\n  {}", result.cuts, f.verdicts[0], f.replay)
            }));
        }
    }
    assert!(broken.is_empty(), "promises broken:\n{}", broken.join("\n"));
}

#[test]
fn zoned_without_plp() {
    promises_hold("zn540-noplp", &Mode::ALL, |name| name != "gc-between");
}

#[test]
fn zoned_with_plp() {
    promises_hold("zn540", &Mode::ALL, |name| name != "gc-between");
}

#[test]
fn conventional_without_plp() {
    let modes = [Mode::Posix, Mode::Strict, Mode::Nobarrier];
    promises_hold("conventional-noplp", &modes, |name| name != "gc-between");
}

#[test]
fn cleaning_in_between() {
    promises_hold("zn540-noplp", &[Mode::Posix, Mode::Strict, Mode::Oprw], |n| n == "gc-between");
}
