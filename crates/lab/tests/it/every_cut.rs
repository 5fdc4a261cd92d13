//! Every small workload, cut before every command and after every NAND program, in every mode: no
//! promise may be broken, and the next mount and the checker must find nothing.

use std::sync::Arc;

use f2fs::technique;
use lab::campaign::{CHECK_EVERY, Job, ModeResult};
use lab::workload::{Script, Workload, small};
use vfs::kind::Technique;

use crate::harness::{CONVENTIONAL_MODES, broken, every_cut, job, share};

fn explore(
    workload: impl Workload + 'static,
    seed: u64,
    mode: &'static Technique,
    drive: &str,
) -> ModeResult {
    let workload: Arc<dyn Workload> = Arc::new(workload);
    every_cut(job(workload, drive, mode, seed)).unwrap_or_else(|error| panic!("{error}"))
}

/// What is broken of a small workload's promises, as the line that replays it.
fn broken_by(run: Job) -> Option<String> {
    let (name, mode, drive) = (run.workload.name().to_owned(), run.technique, run.drive.clone());
    let result = every_cut(run).unwrap_or_else(|error| panic!("{error}"));
    assert!(result.cuts > 2, "{name} in {mode}: {} cuts", result.cuts);
    if name.starts_with("gc-") {
        assert!(result.cleanings > 1, "{mode} on {drive}: {} cleanings", result.cleanings);
    }
    broken(&result)
}

/// All workloads on `drive`, the `nth` of its kind, each in its share of `modes`.
fn a_share_holds(drive: &str, nth: usize, modes: &'static [&'static Technique]) {
    let all = small::ALL.iter().enumerate().flat_map(|(number, &workload)| {
        share(modes, number, nth).map(|mode| {
            let run = job(Arc::new(workload) as Arc<dyn Workload>, drive, mode, 1);
            broken_by(Job { check_every: CHECK_EVERY, ..run })
        })
    });
    let all: Vec<String> = all.flatten().collect();
    assert!(all.is_empty(), "promises broken:\n{}", all.join("\n"));
}

/// The oracle once held a file to the time that was set before its blocks were preallocated.
#[test]
fn a_preallocation_moves_the_time_of_a_file() {
    let text = "create a 644\nwrite a 0+8192 seed=1\nutimens a 1000.000000000 2000.000000000\n\
                fsync a\nfallocate a keep_size 0+65536\nfsync a\n";
    let script = Script::parse(text, "preallocation").expect("it is a workload");
    let result = explore(script, 1, technique::STRICT, "conventional-noplp");
    assert_eq!(broken(&result), None);
}

#[test]
fn zoned_without_plp() {
    a_share_holds("zn540-noplp", 0, &technique::ALL);
}

#[test]
fn zoned_with_plp() {
    a_share_holds("zn540", 1, &technique::ALL);
}

#[test]
fn zoned_that_tears_blocks() {
    a_share_holds("zn540-noplp:512", 2, &technique::ALL);
}

#[test]
fn conventional_without_plp() {
    a_share_holds("conventional-noplp", 0, &CONVENTIONAL_MODES);
}

#[test]
fn conventional_that_tears_blocks() {
    a_share_holds("conventional-noplp:512", 1, &CONVENTIONAL_MODES);
}

#[test]
#[ignore = "long: every mode on every drive, every cut checked structure by structure"]
fn in_every_mode_on_every_drive() {
    let zoned =
        ["zn540-noplp", "zn540", "zn540-noplp:512"].map(|drive| (drive, &technique::ALL[..]));
    let conventional = ["conventional-noplp", "conventional-noplp:512"];
    let conventional = conventional.map(|drive| (drive, &CONVENTIONAL_MODES[..]));
    let mut all = Vec::new();
    for (drive, modes) in zoned.into_iter().chain(conventional) {
        for workload in small::ALL {
            let workload: Arc<dyn Workload> = Arc::new(workload);
            let runs = modes.iter().map(|mode| job(workload.clone(), drive, mode, 1));
            all.extend(runs.filter_map(broken_by));
        }
    }
    assert!(all.is_empty(), "promises broken:\n{}", all.join("\n"));
}

/// Nearly all zones are reset by one checkpoint and written again before the next: whichever of
/// them a cut brings back with their old contents, there must be room for recovery's own
/// checkpoint.
#[test]
fn zones_that_a_cut_gives_back_leave_room() {
    const PIECE: u64 = 2 << 20;
    let mut text = String::from("footprint 0\ncreate a\n");
    for n in 0..19 {
        text += &format!("write a {}+{PIECE}\nfsync a\n", n * PIECE);
    }
    let again = 9 * PIECE + 5 * 4096;
    text += &format!("sync\nbegin\nunlink a\nsync\ncreate b\nwrite b 0+{again}\nfsync b\n");
    for seed in 1..=4 {
        let script = Script::parse(&text, "reset-and-written").expect("a workload");
        let result = explore(script, seed, technique::OPRW, "zn540-noplp");
        let told: Vec<_> = result.failures.iter().map(|f| &f.verdicts).collect();
        assert_eq!(result.broken, 0, "of {}, seed {seed}: {told:?}", result.cuts);
    }
}

/// What write-back wrote before another file's checkpoint is part of the state to which an fsync is
/// recovered. So half an update from before the checkpoint breaks no promise, but half of what came
/// after it does.
#[test]
fn all_or_nothing_is_said_of_what_came_after_the_last_checkpoint() {
    let text = "footprint 0\nmount cache=1m\ncreate a\nwrite a 0+1048576\nfsync a\nsync\nbegin\n\
                write a 0+614400\nwrite a 614400+204800\ncreate b\nfsync /\nfsync a\n\
                write a 0+40960\nfsync a\n";
    for (drive, mode) in [
        ("zn540-noplp", technique::STRICT),
        ("zn540-noplp", technique::OPRW_STRICT),
        ("conventional-noplp", technique::OPRW_STRICT),
    ] {
        let script = Script::parse(text, "half-written").expect("a workload");
        let result = explore(script, 1, mode, drive);
        let told: Vec<_> = result.failures.iter().map(|f| &f.verdicts).collect();
        assert_eq!(result.broken, 0, "of {} in {mode} on {drive}: {told:?}", result.cuts);
    }
}

/// A file stored in its inode grows so far that it needs another node. A cut may keep that node and
/// lose the inode from which the contents have moved.
#[test]
fn a_node_without_its_inode_leaves_a_small_file_as_it_was() {
    let text =
        "footprint 0\ncreate a\nwrite a 0+2522\nfsync a\nbegin\nwrite a 4509696+3000\nfsync a\n";
    for mode in [technique::POSIX, technique::NOBARRIER, technique::OPRW, technique::OPRW_NOBARRIER]
    {
        for drive in ["zn540", "zn540-noplp"] {
            let script = Script::parse(text, "grown").expect("a workload");
            let result = explore(script, 1, mode, drive);
            let told: Vec<_> = result.failures.iter().map(|f| &f.verdicts).collect();
            assert_eq!(result.broken, 0, "of {} in {mode} on {drive}: {told:?}", result.cuts);
        }
    }
}
