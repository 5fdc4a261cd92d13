//! Proof that the campaigns can fail: each deliberate fault breaks its promise, and without the
//! fault the same campaign is clean.

use std::sync::Arc;

use f2fs::technique;
use lab::campaign::{CutPoints, Job, ModeResult, Progress, run, run_at};
use lab::workload::{self, Pattern, Versions, Workload, small};
use vfs::kind::Technique;

fn job(
    workload: Arc<dyn Workload>,
    mode: &'static Technique,
    inject: Option<&str>,
    cuts: usize,
) -> Arc<Job> {
    let sound = Job::new(&f2fs::Format, "zn540-noplp", workload, mode, 3);
    Arc::new(Job { inject: inject.map(str::to_owned), cuts, threads: 2, ..sound })
}

fn quiet() -> Progress {
    Arc::new(|_| true)
}

fn random(workload: &str, mode: &'static Technique, inject: Option<&str>) -> ModeResult {
    let workload = workload::named(workload, 100).expect("a known workload").into();
    run(&job(workload, mode, inject, 100), &quiet()).expect("the campaign runs")
}

fn every(workload: &str, mode: &'static Technique, inject: Option<&str>) -> ModeResult {
    let workload = Arc::new(small::named(workload).expect("a known workload"));
    let points = CutPoints::Every;
    run_at(&job(workload, mode, inject, 0), points, &quiet()).expect("the campaign runs").0
}

#[test]
fn a_dropped_flush_is_noticed() {
    assert_eq!(random("random-overwrite", technique::POSIX, None).broken, 0);
    assert!(random("random-overwrite", technique::POSIX, Some("drop-flush")).broken > 0);
}

#[test]
fn strict_without_its_preflush_is_noticed() {
    let run = |inject| {
        let pattern = Arc::new(Pattern::sized(64, 60));
        let every = CutPoints::Every;
        run_at(&job(pattern, technique::STRICT, inject, 0), every, &quiet()).expect("it runs").0
    };
    assert_eq!(run(None).failed, 0);
    assert!(run(Some("drop-preflush")).broken > 0);
}

#[test]
fn oprw_that_skips_the_write_pointers_is_noticed() {
    for mode in [technique::OPRW, technique::OPRW_STRICT] {
        let run = |inject| {
            let pattern = Arc::new(Pattern::sized(64, 60));
            let every = CutPoints::Every;
            run_at(&job(pattern, mode, inject, 0), every, &quiet()).expect("it runs").0
        };
        assert_eq!(run(None).failed, 0, "{mode}");
        assert!(run(Some("skip-wp-check")).broken > 0, "{mode}");
    }
}

#[test]
fn oprw_that_skips_the_checksums_is_noticed() {
    let run = |inject| {
        let pattern = Arc::new(Pattern::sized(64, 60));
        let job = job(pattern, technique::OPRW_STRICT, inject, 0);
        let job = Arc::new(Job { drive: "conventional-noplp".into(), ..(*job).clone() });
        run_at(&job, CutPoints::Every, &quiet()).expect("it runs").0
    };
    assert_eq!(run(None).failed, 0);
    assert!(run(Some("skip-wp-check")).broken > 0);
}

#[test]
fn a_torn_node_that_is_believed_is_noticed() {
    for mode in [technique::POSIX, technique::STRICT, technique::NOBARRIER, technique::OPRW_STRICT]
    {
        let run = |inject| {
            let job = job(Arc::new(Pattern::sized(64, 60)), mode, inject, 0);
            let job = Arc::new(Job { drive: "conventional-noplp:512".into(), ..(*job).clone() });
            run_at(&job, CutPoints::Every, &quiet()).expect("it runs").0
        };
        let sound = run(None);
        assert_eq!((sound.broken, sound.corrupt), (0, 0), "{mode}");
        assert!(run(Some("believe-torn")).corrupt > 0, "{mode}");
    }
}

/// When the drive tears blocks, data written in place may be partly old and partly new: no mode
/// excludes that, and the campaign has to see it.
#[test]
fn a_torn_block_is_noticed() {
    for mode in [technique::POSIX, technique::STRICT] {
        let torn = |drive: &str| {
            let workload = Arc::new(small::named("overwrite-fsync").expect("a known workload"));
            let job = job(workload, mode, None, 0);
            let job = Arc::new(Job { drive: drive.into(), ..(*job).clone() });
            let ran = run_at(&job, CutPoints::Every, &quiet()).expect("it runs").0;
            assert_eq!((ran.broken, ran.files_garbage), (0, 0), "{mode} on {drive}");
            ran.files_torn
        };
        assert_eq!(torn("conventional-noplp"), 0);
        assert!(torn("conventional-noplp:512") > 0);
    }
}

#[test]
fn a_skipped_roll_forward_is_noticed() {
    assert!(every("overwrite-fsync", technique::STRICT, Some("skip-roll-forward")).broken > 0);
}

#[test]
fn a_missing_dentry_mark_is_noticed() {
    assert_eq!(every("create-fsync", technique::STRICT, None).broken, 0);
    assert!(every("create-fsync", technique::STRICT, Some("drop-dent-mark")).broken > 0);
}

#[test]
fn a_checkpoint_without_its_flush_is_noticed() {
    // The fsync of a directory is a checkpoint: its last block must not be believed before the
    // others are there, nor the fsync return before it is.
    assert_eq!(every("rename-fsync-dir", technique::POSIX, None).broken, 0);
    assert!(every("rename-fsync-dir", technique::POSIX, Some("plain-checkpoint")).broken > 0);
}

#[test]
fn the_same_seed_gives_the_same_json() {
    let json = || {
        let result = random("varmail", technique::OPRW, None);
        serde_json::to_string(&result).expect("results are plain data")
    };
    assert_eq!(json(), json());
}

#[test]
fn an_fsync_torn_over_its_nodes_is_noticed() {
    // 61 nodes are two NAND programs: between their ends one part is there and the other is not.
    let torn = |mode, inject| {
        let workload = Arc::new(Versions { nodes: 60, fsyncs: 8 });
        let every = CutPoints::Every;
        let ran = run_at(&job(workload, mode, inject, 0), every, &quiet()).expect("it runs").0;
        assert_eq!((ran.broken > 0, ran.corrupt), (inject.is_some(), 0), "{mode} {inject:?}");
        ran.files_torn
    };
    assert!(torn(technique::POSIX, None) > 0);
    assert!(torn(technique::OPRW, None) > 0);
    assert_eq!(torn(technique::STRICT, None), 0);
    assert_eq!(torn(technique::OPRW_STRICT, None), 0);
    assert!(torn(technique::OPRW_STRICT, Some("mark-every-node")) > 0);
    assert!(torn(technique::STRICT, Some("mark-every-node")) > 0);
}
