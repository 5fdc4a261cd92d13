//! A second file system, which keeps its promises only while the power is on: the lab must say so,
//! of it and not of F2FS, in the same runs.

use std::sync::Arc;

use lab::Extra;
use lab::campaign::{Job, ModeResult, Progress, run};
use lab::explore::batch::{self, Batch, Explorations};
use lab::workload;

const DRIVE: &str = "conventional-noplp";

fn quiet() -> Progress {
    Arc::new(|_| true)
}

fn campaign(fs: &str, technique: &str, workload: &str) -> ModeResult {
    let format = subjects::named(fs).expect("it is known");
    let technique = subjects::technique(format, technique).expect("a known technique");
    let command = format!("strandline crash --fs {fs} --drive {DRIVE} --workload {workload}");
    let workload = workload::named(workload, 200).expect("a known workload").into();
    let job = Job::new(format, DRIVE, workload, technique, 3);
    let job = Job { cuts: 200, threads: 2, command, ..job };
    run(&Arc::new(job), &quiet()).expect("the campaign runs")
}

fn exploration(fs: &str, technique: &str) -> Explorations {
    let format = subjects::named(fs).expect("it is known");
    let batch = Batch {
        format,
        drive: DRIVE.into(),
        technique: subjects::technique(format, technique).expect("a known technique"),
        length: 1,
        sample: None,
        extra: Extra::default(),
        inject: None,
        seed: 1,
        threads: 2,
    };
    batch::run(&batch, None, &quiet()).expect("the batch runs")
}

#[test]
fn a_campaign_breaks_it_and_not_f2fs() {
    for workload in ["varmail", "create-fsync"] {
        let (plain, strict) =
            (campaign("plainfs", "plain", workload), campaign("f2fs", "strict", workload));
        let first = strict.failures.iter().find(|failure| failure.broken);
        assert_eq!(strict.broken, 0, "{workload}: {first:?}");
        assert!(plain.broken > 0, "{workload}: {plain:?}");
    }
}

/// Where no name and no size changes and blocks keep their places, plain is good enough.
#[test]
fn overwriting_in_place_is_safe_even_there() {
    let plain = campaign("plainfs", "plain", "random-overwrite");
    assert_eq!((plain.broken, plain.corrupt), (0, 0), "{:?}", plain.failures);
}

#[test]
fn the_same_seed_gives_the_same_json() {
    let json = || {
        let result = campaign("plainfs", "plain", "varmail");
        serde_json::to_string(&result).expect("results are plain data")
    };
    assert_eq!(json(), json());
}

#[test]
fn the_explorer_finds_it_broken_and_not_f2fs() {
    let (plain, strict) = (exploration("plainfs", "plain"), exploration("f2fs", "strict"));
    assert_eq!((plain.result.sequences, strict.result.sequences), (52, 52));
    let told: Vec<_> = strict.result.failures.iter().map(|f| &f.replay).collect();
    assert_eq!(strict.result.counts.broken, 0, "{told:?}");
    assert!(plain.result.counts.broken > 0);
    let replay = &plain.result.failures[0].replay;
    assert!(replay.contains("--fs plainfs"), "{replay}");
}
