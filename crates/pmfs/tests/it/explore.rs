//! Every state that a cut can leave of every operation, and of pairs of them: the volume mounts,
//! its structures agree, and it holds what it held before the call under way or after it. Every
//! recovery is cut in turn, twice.

use drive::pm::{Domain, PmFault, PmSim};
use pmfs::Format;
use vfs::kind::Format as _;
use vfs::ops::Op;
use vfs::record::{Record, Value};

use crate::harness::{self, DESIGNS, Explored, Faults, OPS, Start, explore};

fn ops(texts: &[&str]) -> Vec<Op> {
    texts.iter().map(|text| text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))).collect()
}

fn all_single(design: &str, domain: Domain) -> Explored {
    let start = Start::new(design);
    let mut explored = Explored::default();
    for text in OPS {
        match explore(&start, &ops(&[text]), domain, Faults::default()) {
            Ok(this) => explored += this,
            Err(why) => panic!("{design}, {domain:?}, {text}: {why}"),
        }
    }
    println!("{design}, {domain:?}: {explored:?}");
    explored
}

#[test]
fn single_operations_on_memory() {
    for design in DESIGNS {
        let explored = all_single(design, Domain::Memory);
        assert!(explored.states > 1000 && explored.recoveries_cut > 100, "{design}: {explored:?}");
    }
}

#[test]
fn single_operations_with_caches_that_survive() {
    for design in ["inplace", "nova"] {
        let explored = all_single(design, Domain::Caches);
        assert!(explored.states > 500, "{design}: {explored:?}");
    }
}

#[test]
fn single_operations_of_a_killed_process() {
    for design in ["inplace", "nova"] {
        let explored = all_single(design, Domain::Process);
        assert!(explored.states > 300, "{design}: {explored:?}");
    }
}

fn all_pairs(design: &str) {
    let start = Start::new(design);
    let mut explored = Explored::default();
    for first in OPS {
        for second in OPS {
            match explore(&start, &ops(&[first, second]), Domain::Memory, Faults::default()) {
                Ok(this) => explored += this,
                Err(why) => panic!("{design}, {first}; {second}: {why}"),
            }
        }
    }
    println!("{design}: {explored:?}");
    assert!(explored.states > 50_000, "{explored:?}");
}

#[test]
#[ignore = "a minute or more: all pairs of operations"]
fn pairs_of_operations_in_place() {
    all_pairs("inplace");
}

#[test]
#[ignore = "a minute or more: all pairs of operations"]
fn pairs_of_operations_with_logs() {
    all_pairs("nova");
}

/// An open file whose name goes, and what a cut makes of it.
#[test]
fn files_without_a_name() {
    for design in DESIGNS {
        let start = Start::new(design);
        let texts = ["open o h", "unlink o", "append a 300 seed=1", "close h", "create o 600"];
        let explored =
            explore(&start, &ops(&texts), Domain::Memory, Faults::default()).expect("sound");
        assert!(explored.states > 50, "{design}: {explored:?}");
    }
}

/// A program that forgets something is found out by one of a few operations.
#[test]
fn forgotten_fences_and_write_backs_are_noticed() {
    let mut faults = vec![PmFault::DropFence, PmFault::DropWriteBack, PmFault::DropStream];
    // Each of the four fences of a change, where every change is an operation.
    faults.extend((0..4).map(|first| PmFault::DropFences { first: first + 1, every: 4 }));
    for design in ["inplace", "nova"] {
        let start = Start::new(design);
        for &fault in &faults {
            let noticed = OPS.iter().any(|text| {
                let ops = ops(&[text, "create z 644", "append d/b 100 seed=9"]);
                let faults = Faults { running: Some(fault), ..Faults::default() };
                explore(&start, &ops, Domain::Memory, faults).is_err()
            });
            assert!(noticed, "{design}: {fault:?}");
        }
    }
}

/// A field of the superblock of a volume.
fn field(start: &Start, name: &str) -> u64 {
    let pm = PmSim::power_on(start.state.clone(), Domain::Process);
    let mut value = None;
    let mut see = |record: Record| {
        value = record.get(name).cloned();
        true
    };
    Format.dump(&harness::drive(pm), None, None, &mut see).expect("a volume");
    match value {
        Some(Value::Number(value)) => value,
        other => panic!("{name}: {other:?}"),
    }
}

/// The three holes in NOVA's journal of several inodes, made on purpose, and found.
#[test]
fn the_holes_that_nova_has_are_noticed() {
    let start = Start::new("nova");
    let only = |first| Some(PmFault::DropFences { first, every: u64::MAX });
    let explore = |running, recovering| {
        let ops = ops(&["create c 644", "rename a d/a none"]);
        explore(&start, &ops, Domain::Memory, Faults { running, recovering })
    };
    explore(None, None).expect("without a hole nothing is wrong");
    // The first two fences are the mount's. Old words that are not durable when the mark is.
    let why = explore(only(2), None).expect_err("the first hole");
    assert!(why.starts_with("create c 644"), "{why}");
    // Recovery clears the mark, and the words that it took back are not durable.
    let why = explore(None, only(0)).expect_err("the second hole");
    assert!(why.contains("recovery cut"), "{why}");
    // A new inode is in a directory, and its first word was never written back.
    let (start_at, end) = (field(&start, "table_at"), field(&start, "data_block") * 4096);
    let valid = PmFault::DropWriteBacks { start: start_at, end, longest: 8 };
    let why = explore(Some(valid), None).expect_err("the third hole");
    assert!(why.contains("create c 644"), "{why}");
}
