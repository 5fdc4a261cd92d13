//! The campaign, tried on a file system that is right and on one that is not.

use std::sync::Arc;

use super::snapshot::Snapshots;
use super::{CutPoints, Job, ModeResult, Progress, run, run_at, run_share};
use crate::campaign::shard::{Part, Pick, Share, merge};
use crate::workload::{Pattern, RandomOverwrite, Workload, small};
use f2fs::technique;

fn job(workload: Arc<dyn Workload>, inject: Option<&str>, threads: usize) -> Arc<Job> {
    let inject = inject.map(str::to_owned);
    let sound = Job::new(&Snapshots, "zn540-noplp", workload, technique::STRICT, 11);
    Arc::new(Job { inject, cuts: 40, check_every: 1, threads, ..sound })
}

fn quiet() -> Progress {
    Arc::new(|_| true)
}

fn overwrites() -> Arc<dyn Workload> {
    Arc::new(RandomOverwrite { size: 40_000, longest: 9_000, overwrites: 40 })
}

fn json(result: &ModeResult) -> String {
    serde_json::to_string(result).expect("results are plain data")
}

#[test]
fn a_file_system_that_flushes_keeps_its_promise() {
    let result = run(&job(overwrites(), None, 2), &quiet()).expect("the campaign runs");
    assert_eq!((result.cuts, result.failed, result.broken), (40, 0, 0), "{:?}", result.failures);
    assert_eq!(result.fsyncs, 40);
    assert!(result.fsyncs_per_s > 0.0);
}

#[test]
fn a_dropped_flush_is_found_and_its_cut_can_be_repeated() {
    let job = job(overwrites(), Some("drop-flush"), 2);
    let result = run(&job, &quiet()).expect("the campaign runs");
    assert!(result.broken > 0);
    let failure = &result.failures[0];
    let again = Arc::new(Job { pick: Pick::One(failure.cut), ..(*job).clone() });
    let alone = run(&again, &quiet()).expect("the campaign runs");
    assert_eq!((alone.cuts, alone.failed), (1, 1));
    assert_eq!(alone.failures[0].verdicts, failure.verdicts);
    assert!(failure.replay.ends_with(&format!("--modes strict --only {}", failure.cut)));
}

/// What was whole at the first mount and is gone at the second.
#[test]
fn what_an_unmount_loses_is_found() {
    let result = run(&job(overwrites(), Some("drop-names"), 2), &quiet()).expect("it runs");
    assert!((1..=40).contains(&result.broken), "{} of {}", result.broken, result.cuts);
    let told = result.failures.iter().flat_map(|failure| &failure.verdicts);
    assert!(told.clone().all(|verdict| verdict.found.ends_with("after a second mount")));
    assert!(told.count() > 0);
}

#[test]
fn the_result_does_not_depend_on_sharding() {
    let pattern = || Arc::new(Pattern::sized(16, 50)) as Arc<dyn Workload>;
    let results: Vec<String> = [1, 2, 3, 40]
        .into_iter()
        .map(|threads| run(&job(pattern(), Some("drop-flush"), threads), &quiet()))
        .map(|result| json(&result.expect("the campaign runs")))
        .collect();
    assert!(results.iter().all(|r| *r == results[0]));
}

#[test]
fn shares_add_up_to_the_whole_bit_for_bit() {
    let job = job(overwrites(), Some("drop-flush"), 2);
    let whole = run(&job, &quiet()).expect("the campaign runs");
    assert!(whole.broken > 0 && whole.failures.len() > 1);
    let share = |text: &str| {
        let shard = text.parse().expect("it is a shard");
        let job = Arc::new(Job { pick: Pick::Shard(shard), ..(*job).clone() });
        let tally = run_share(&job, CutPoints::Random(job.cuts), &quiet()).expect("it runs");
        let line = Share { shard, part: Part::Cuts(tally) };
        let line = serde_json::to_string(&line).expect("plain data");
        serde_json::from_str::<Share>(&line).expect("it is read back")
    };
    for order in [vec!["1/1"], vec!["2/3", "1/3", "3/3"]] {
        let merged = merge(order.into_iter().map(share).collect()).expect("all are there");
        let [Part::Cuts(tally)] = &merged[..] else { panic!("{} campaigns", merged.len()) };
        assert_eq!(json(&tally.result()), json(&whole));
    }
    let refused = |order: &[&str]| {
        let shares = order.iter().map(|text| share(text)).collect();
        merge(shares).expect_err("a share is wrong").to_string()
    };
    assert!(refused(&["1/3", "3/3"]).ends_with("shard 2/3 is missing"));
    assert!(refused(&["1/3", "2/3"]).ends_with("shard 3/3 is missing"));
    assert!(refused(&["1/2", "1/2", "2/2"]).ends_with("shard 1/2 is there twice"));
}

#[test]
fn progress_is_told_of_every_cut_and_how_many_there_are() {
    let told = Arc::new(cores::Mutex::new(Vec::new()));
    let log = told.clone();
    let progress: Progress = Arc::new(move |cuts| {
        log.lock().push(cuts);
        true
    });
    let small = Arc::new(small::named("link").expect("a known workload"));
    let (result, _) =
        run_at(&job(small, None, 2), CutPoints::Every, &progress).expect("the exploration runs");
    assert_eq!(*told.lock(), vec![result.cuts; result.cuts]);
}

#[test]
fn a_campaign_that_is_told_to_stop_is_about_the_cuts_judged_by_then() {
    let small = Arc::new(small::named("link").expect("a known workload"));
    let job = job(small, None, 1);
    let enough: Progress = Arc::new(|_| false);
    let some = run_share(&job, CutPoints::Every, &enough).expect("the exploration runs");
    let all = run_share(&job, CutPoints::Every, &quiet()).expect("the exploration runs");
    assert!(some.cuts > 0 && some.cuts < all.cuts, "{} of {}", some.cuts, all.cuts);
    assert_eq!((some.run, all.cuts), (all.run.clone(), all.run.cuts));
}

#[test]
fn every_cut_of_the_small_workloads_is_survived() {
    // A snapshot is the whole tree, so no workloads with large files. Files in memory have no
    // flags.
    let others = ["gc-between", "gc-adaptive", "multi-node", "truncate-and-grow", "flags"];
    for small in small::ALL.into_iter().filter(|s| !others.contains(&s.name())) {
        let job = job(Arc::new(small), None, 2);
        let every = CutPoints::Every;
        let (result, _) = run_at(&job, every, &quiet()).expect("the exploration runs");
        assert!(result.cuts > 5, "{}: {} cuts", small.name(), result.cuts);
        assert!(result.failures.is_empty(), "{}: {:?}", small.name(), result.failures[0]);
    }
}
