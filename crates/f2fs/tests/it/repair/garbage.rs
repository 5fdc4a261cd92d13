//! Damage of any kind and amount, checksums made right again: a repair ends without a panic, and
//! what it calls repaired is sound.

use std::collections::BTreeMap;

use f2fs::repair::RepairOptions;

use super::kit::{judge, repaired, tape};
use crate::fuzz_body::{bases, damaged};

/// What a repair may answer instead of repairing: there is nothing it could start from.
const REFUSALS: [&str; 4] = ["superblock", "not supported", "no space left", "undo"];

fn run(seeds: std::ops::Range<u64>, judged_every: u64) {
    let scratch = tempfile::tempdir().unwrap();
    let (mut failed, mut refused, mut done) = (Vec::new(), BTreeMap::<String, u64>::new(), 0);
    for seed in seeds.clone() {
        let (base, held) = damaged(&tape(seed.wrapping_mul(0xa076_1d64_78bd_642f)));
        let zoned = bases()[base].kind.is_zoned();
        match repaired(held, &RepairOptions::default()) {
            Ok(after) => {
                done += 1;
                if seed % judged_every == 0 && !zoned {
                    let verdict = judge(&after.held, scratch.path());
                    failed.extend(verdict.err().map(|why| format!("seed {seed}: {why}")));
                }
            }
            Err(why) if REFUSALS.iter().any(|refusal| why.contains(refusal)) => {
                let short = why.lines().next().unwrap_or_default();
                *refused.entry(short.chars().take(60).collect()).or_default() += 1;
            }
            Err(why) => failed.push(format!("seed {seed}: {why}")),
        }
    }
    println!("{seeds:?}: {done} repaired, refused: {refused:#?}");
    let shown = failed.iter().take(10).cloned().collect::<Vec<_>>().join("\n\n");
    assert!(failed.is_empty(), "{} of {seeds:?}:\n{shown}", failed.len());
    assert!(done * 10 > seeds.end - seeds.start, "the damage is not where it should be");
}

#[test]
fn a_few() {
    run(0..150, 10);
}

/// `REPAIR_GARBAGE=17 cargo test -p strandline-f2fs --test it one_garbage` replays one case.
#[test]
fn one_garbage() {
    if let Some(seed) = std::env::var("REPAIR_GARBAGE").ok().and_then(|s| s.parse().ok()) {
        run(seed..seed + 1, 1);
    }
}

#[test]
#[ignore = "long: thousands of repairs"]
fn thousands() {
    run(1000..6_000, 10);
}
