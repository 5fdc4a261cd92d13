//! Campaigns on drives that fail one write or flush: somebody is told, and what was durable stays.

use f2fs::technique;
use lab::campaign::{CHECK_EVERY, Job};
use lab::workload;
use vfs::kind::Technique;

use crate::harness::{self, CONVENTIONAL_MODES, broken, every_cut};

/// Cuts runs whose write or flush of each of these numbers fails.
fn holds(workload: &str, drive: &str, modes: &[&'static Technique], fails: &[u64], seed: u64) {
    let (mut all, mut cuts) = (Vec::new(), 0);
    for &mode in modes {
        for fail in fails {
            let drive = format!("{drive}:fail={fail}");
            let workload = workload::named(workload, 60).expect("a known workload");
            let job = harness::job(workload, &drive, mode, seed + fail);
            match every_cut(Job { check_every: CHECK_EVERY, ..job }) {
                Ok(result) => {
                    cuts += result.cuts;
                    all.extend(broken(&result));
                }
                Err(error) => all.push(error),
            }
        }
    }
    eprintln!("{workload} on {drive}: {cuts} cuts");
    assert!(all.is_empty(), "promises broken on {drive}:\n{}", all.join("\n"));
}

#[test]
fn a_failed_write_is_told_and_costs_nothing_durable() {
    let modes = [technique::POSIX, technique::OPRW_STRICT];
    holds("threads:4:shared", "zn540-noplp", &modes, &[3, 40], 1);
    holds("threads:4:shared", "conventional-noplp", &modes, &[5, 60], 1);
    holds("threads:8:all", "conventional-noplp", &[technique::STRICT], &[20, 90, 150], 1);
    holds("varmail", "zn540-noplp", &[technique::OPRW], &[7], 1);
}

#[test]
#[ignore = "long: make test-all"]
fn failed_writes_everywhere() {
    let fails: Vec<u64> = (0..400).step_by(23).collect();
    for mix in ["threads:12:private", "threads:4:shared", "threads:4:names", "threads:8:all"] {
        holds(mix, "zn540-noplp", &technique::ALL, &fails, 100);
        holds(mix, "zn540", &technique::ALL, &fails[..6], 200);
        // Without a flush an fsync promises nothing here, and what a cut leaves of names that were
        // made again is not judged rightly, with a failed write or without one.
        let flushes = CONVENTIONAL_MODES.into_iter().filter(|mode| *mode != technique::NOBARRIER);
        holds(mix, "conventional-noplp", &flushes.collect::<Vec<_>>(), &fails, 300);
    }
}
