//! Both checkpoints gone, and NAT, SIT and SSA with them: everything from the nodes.

use f2fs::repair::RepairOptions;
use rand::{RngCore, SeedableRng};
use rand_xoshiro::SplitMix64;

use super::kit::{judge, repaired, tree_of};
use crate::fuzz_body::{Base, Kind, Snapshot, bases};

/// The volume with every block of `range` zero, or full of noise.
fn wiped(base: &Base, range: std::ops::Range<u32>, noise: bool) -> Snapshot {
    let mut held = base.snapshot.clone();
    for addr in range {
        held.change(addr, |bytes| {
            bytes.fill(0);
            if noise {
                let mut rng = SplitMix64::seed_from_u64(addr.into());
                bytes.fill_with(|| rng.next_u64() as u8);
            }
        });
    }
    held
}

fn expect_tree(base: &Base, held: Snapshot, rescue: bool, what: &str) {
    let options = RepairOptions { rescue, ..RepairOptions::default() };
    let after = repaired(held, &options).unwrap_or_else(|e| panic!("{:?} {what}: {e}", base.kind));
    assert!(after.report.changes.rescued, "{:?} {what}", base.kind);
    let expected = tree_of(&base.snapshot).unwrap();
    let differences = expected.diff(&after.tree);
    assert_eq!(differences, Vec::<String>::new(), "{:?} {what}", base.kind);
    if !base.kind.is_zoned() {
        let scratch = tempfile::tempdir().unwrap();
        judge(&after.held, scratch.path())
            .unwrap_or_else(|e| panic!("{:?} {what}: {e}", base.kind));
    }
}

#[test]
fn without_checkpoints() {
    for base in bases() {
        let sb = &base.sb;
        expect_tree(base, wiped(base, sb.cp_blkaddr..sb.sit_blkaddr, false), false, "cp");
    }
}

#[test]
fn without_any_metadata() {
    for base in bases() {
        let all = base.sb.cp_blkaddr..base.sb.main_blkaddr;
        expect_tree(base, wiped(base, all, false), false, "all");
    }
    let clean = bases().iter().find(|base| base.kind == Kind::Clean).expect("it is there");
    let all = clean.sb.cp_blkaddr..clean.sb.main_blkaddr;
    expect_tree(clean, wiped(clean, all, true), false, "noise");
}

#[test]
fn on_request() {
    for base in bases() {
        expect_tree(base, base.snapshot.clone(), true, "on request");
    }
}

/// Tables lost, checkpoints whole: no rescue, but a NAT from footers and a SIT from the tree.
#[test]
fn without_one_table() {
    for base in bases() {
        let sb = &base.sb;
        for (what, range) in [
            ("SIT", sb.sit_blkaddr..sb.nat_blkaddr),
            ("NAT", sb.nat_blkaddr..sb.ssa_blkaddr),
            ("SSA", sb.ssa_blkaddr..sb.main_blkaddr),
        ] {
            for noise in [false, true] {
                let held = wiped(base, range.clone(), noise);
                let after = repaired(held, &RepairOptions::default())
                    .unwrap_or_else(|e| panic!("{:?} {what} {noise}: {e}", base.kind));
                let differences = tree_of(&base.snapshot).unwrap().diff(&after.tree);
                assert_eq!(differences, Vec::<String>::new(), "{:?} {what} {noise}", base.kind);
            }
        }
    }
}
