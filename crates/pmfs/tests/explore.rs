//! Every state that a cut can leave of every operation, and of pairs of them: the volume mounts,
//! its structures agree, and it holds what it held before the call under way or after it. Every
//! recovery is cut in turn, twice.

mod harness;

use drive::pm::{Domain, PmFault};
use harness::{Explored, OPS, Start, explore};
use vfs::ops::Op;

fn ops(texts: &[&str]) -> Vec<Op> {
    texts.iter().map(|text| text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))).collect()
}

fn all_single(domain: Domain) -> Explored {
    let start = Start::new();
    let mut explored = Explored::default();
    for text in OPS {
        match explore(&start, &ops(&[text]), domain, None) {
            Ok(this) => explored += this,
            Err(why) => panic!("{domain:?}, {text}: {why}"),
        }
    }
    explored
}

#[test]
fn single_operations_on_memory() {
    let explored = all_single(Domain::Memory);
    println!("{explored:?}");
    assert!(explored.states > 3000 && explored.recoveries_cut > 100, "{explored:?}");
}

#[test]
fn single_operations_with_caches_that_survive() {
    let explored = all_single(Domain::Caches);
    println!("{explored:?}");
    assert!(explored.states > 1000, "{explored:?}");
}

#[test]
fn single_operations_of_a_killed_process() {
    let explored = all_single(Domain::Process);
    println!("{explored:?}");
    assert!(explored.states > 300, "{explored:?}");
}

#[test]
#[ignore = "a minute or more: all pairs of operations"]
fn pairs_of_operations_on_memory() {
    let start = Start::new();
    let mut explored = Explored::default();
    for first in OPS {
        for second in OPS {
            match explore(&start, &ops(&[first, second]), Domain::Memory, None) {
                Ok(this) => explored += this,
                Err(why) => panic!("{first}; {second}: {why}"),
            }
        }
    }
    println!("{explored:?}");
    assert!(explored.states > 100_000, "{explored:?}");
}

/// An open file whose name goes, and what a cut makes of it.
#[test]
fn files_without_a_name() {
    let start = Start::new();
    let texts = ["open o h", "unlink o", "append a 300 seed=1", "close h", "create o 600"];
    let explored = explore(&start, &ops(&texts), Domain::Memory, None).expect("sound");
    assert!(explored.states > 50, "{explored:?}");
}

/// A program that forgets something is found out by one of a few operations.
#[test]
fn forgotten_fences_and_write_backs_are_noticed() {
    let start = Start::new();
    let mut faults = vec![PmFault::DropFence, PmFault::DropWriteBack, PmFault::DropStream];
    // Each of the four fences of a change, where every change is an operation.
    faults.extend((0..4).map(|first| PmFault::DropFences { first: first + 1, every: 4 }));
    for fault in faults {
        let noticed = OPS.iter().any(|text| {
            let ops = ops(&[text, "create z 644", "append d/b 100 seed=9"]);
            explore(&start, &ops, Domain::Memory, Some(fault)).is_err()
        });
        assert!(noticed, "{fault:?}");
    }
}
