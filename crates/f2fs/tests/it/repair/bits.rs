//! Single bits of metadata, flipped by the thousand.

use std::collections::{BTreeMap, BTreeSet};

use drive::BLOCK_SIZE;
use f2fs::repair::RepairOptions;
use rand::{RngCore, SeedableRng};
use rand_xoshiro::SplitMix64;
use vfs::ops::Tree;

use super::kit::{judge, repaired, tree_of};
use crate::fuzz_body::{Area, Base, Snapshot, bases};

const AREAS: [Area; 7] =
    [Area::Super, Area::Checkpoint, Area::Sit, Area::Nat, Area::Ssa, Area::Node, Area::Data];

/// The volume with one bit of one block of `area` flipped, and where.
fn flip(base: &Base, area: Area, rng: &mut SplitMix64) -> (Snapshot, String) {
    let mut held = base.snapshot.clone();
    let blocks = &base.part(area).blocks;
    let addr = blocks[(rng.next_u64() % blocks.len() as u64) as usize];
    let choice = rng.next_u64();
    // Half of the flips go where a block has its fields.
    let byte = match choice % 4 {
        0 => (choice >> 8) as usize % 0x180,
        1 => BLOCK_SIZE - 1 - (choice >> 8) as usize % 32,
        _ => (choice >> 8) as usize % BLOCK_SIZE,
    };
    let bit = (choice >> 40) % 8;
    held.change(addr, |bytes| bytes[byte] ^= 1 << bit);
    (held, format!("{:?} {area:?} block {addr:#x} byte {byte:#x} bit {bit}", base.kind))
}

/// Files of `expected` that are not in `found` as they were; names of one inode count once.
fn different_inodes(expected: &Tree, found: &Tree) -> usize {
    let differs = |path: &Vec<u8>| {
        let (a, b) = (&expected.0[path], found.0.get(path));
        b.is_none_or(|b| {
            (a.kind, a.size, &a.pages, &a.xattrs) != (b.kind, b.size, &b.pages, &b.xattrs)
        })
    };
    let first = |path: &Vec<u8>| expected.0[path].same_as.clone().unwrap_or_else(|| path.clone());
    let all: BTreeSet<Vec<u8>> = expected.0.keys().filter(|p| differs(p)).map(first).collect();
    all.len()
}

fn run(seeds: std::ops::Range<u64>, judged_every: u64) {
    let scratch = tempfile::tempdir().unwrap();
    let (mut failed, mut touched) = (Vec::new(), BTreeMap::<String, u64>::new());
    for seed in seeds.clone() {
        let mut rng = SplitMix64::seed_from_u64(seed.wrapping_mul(0xd134_2543_de82_ef95));
        let base = &bases()[(rng.next_u64() % 4) as usize];
        let area = AREAS[(rng.next_u64() % 7) as usize];
        let (held, place) = flip(base, area, &mut rng);
        let result = repaired(held, &RepairOptions::default()).and_then(|after| {
            let expected = tree_of(&base.snapshot)?;
            let differences = expected.diff(&after.tree);
            if !differences.is_empty() {
                *touched.entry(format!("{area:?}")).or_default() += 1;
                if std::env::var_os("REPAIR_SHOW").is_some() {
                    println!("seed {seed} {place}: {differences:?}");
                    println!("{}", super::kit::lines(&after.report.findings));
                }
            }
            if different_inodes(&expected, &after.tree) > 4 {
                return Err(format!("one bit changed {differences:?}"));
            }
            if seed % judged_every == 0 && !base.kind.is_zoned() {
                judge(&after.held, scratch.path())?;
            }
            Ok(())
        });
        if let Err(why) = result {
            failed.push(format!("seed {seed}: {place}: {why}"));
        }
    }
    println!("{seeds:?}: {} failed, trees that changed: {touched:?}", failed.len());
    let shown = failed.iter().take(10).cloned().collect::<Vec<_>>().join("\n\n");
    assert!(failed.is_empty(), "{} of {seeds:?}:\n{shown}", failed.len());
}

#[test]
fn a_few() {
    run(0..300, 10);
}

/// `REPAIR_SEED=17 cargo test -p strandline-f2fs --test it one_seed` replays one case of the
/// others.
#[test]
fn one_seed() {
    if let Some(seed) = std::env::var("REPAIR_SEED").ok().and_then(|s| s.parse().ok()) {
        run(seed..seed + 1, 1);
    }
}

#[test]
#[ignore = "long: thousands of repairs"]
fn thousands() {
    run(1000..11_000, 10);
}
