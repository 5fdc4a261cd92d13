//! Volumes nothing is wrong with.

use f2fs::repair::RepairOptions;

use super::kit::{judge, repaired, tree_of};
use crate::fuzz_body::{Kind, bases};

#[test]
fn a_sound_volume_is_left_alone_and_a_crashed_one_recovered() {
    let scratch = tempfile::tempdir().unwrap();
    for base in bases() {
        let before = tree_of(&base.snapshot).unwrap();
        let after = repaired(base.snapshot.clone(), &RepairOptions::default())
            .unwrap_or_else(|e| panic!("{:?}: {e}", base.kind));
        assert_eq!(after.report.findings, [], "{:?}", base.kind);
        assert_eq!(after.report.passes, u32::from(base.kind != Kind::Clean), "{:?}", base.kind);
        assert_eq!(before.diff(&after.tree), Vec::<String>::new(), "{:?}", base.kind);
        if !base.kind.is_zoned() {
            judge(&after.held, scratch.path()).unwrap_or_else(|e| panic!("{:?}: {e}", base.kind));
        }
    }
}
