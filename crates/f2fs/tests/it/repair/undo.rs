//! The undo log restores every bit, whatever was repaired, and files that are not undo logs are
//! refused.

use std::fs::File;
use std::sync::Arc;

use drive::Drive;
use f2fs::repair::{RepairOptions, Undo, repair, undo};

use super::kit::tape;
use crate::fuzz_body::{Area, MemoryDrive, Snapshot, bases, damaged};

fn assert_same(before: &Snapshot, after: &Snapshot, what: &str) {
    for lba in 0..before.blocks {
        assert!(before.media.read(lba) == after.media.read(lba), "{what}: block {lba:#x}");
    }
    let pointers = |held: &Snapshot| held.zones.iter().map(|zone| zone.wp).collect::<Vec<_>>();
    assert_eq!(pointers(before), pointers(after), "{what}");
}

/// Repairs with a log and undoes it; returns whether the repair changed anything.
fn there_and_back(held: &Snapshot, options: &RepairOptions, what: &str) -> bool {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("undo");
    let memory = MemoryDrive::on(held.clone());
    let drive: Arc<dyn Drive> = memory.clone();
    let log = File::create_new(&path).unwrap();
    let logged: Arc<dyn Drive> = Arc::new(Undo::new(Arc::clone(&drive), log).unwrap());
    // The repair's result does not matter: the log of half a repair is a log, too.
    let _ = repair(&logged, options);
    let changed = memory.changes() > 0;
    undo(&drive, File::open(&path).unwrap()).unwrap();
    assert_same(held, &memory.snapshot(), what);
    changed
}

#[test]
fn every_bit_comes_back() {
    let mut changed = 0;
    for base in bases() {
        let what = format!("{:?}", base.kind);
        let mut held = base.snapshot.clone();
        held.change(1, |bytes| bytes[1100] ^= 1);
        for &sit in &base.part(Area::Sit).blocks {
            held.change(sit, |bytes| bytes[3] ^= 8);
        }
        changed += u32::from(there_and_back(&held, &RepairOptions::default(), &what));
        let options = RepairOptions { rescue: true, ..RepairOptions::default() };
        changed += u32::from(there_and_back(&base.snapshot, &options, &what));
    }
    assert_eq!(changed, 8);
    for seed in 0..20 {
        let (_, held) = damaged(&tape(seed));
        there_and_back(&held, &RepairOptions::default(), &format!("seed {seed}"));
    }
}

#[test]
fn what_is_no_log_changes_nothing() {
    let base = &bases()[0];
    let scratch = tempfile::tempdir().unwrap();
    let memory = MemoryDrive::on(base.snapshot.clone());
    let drive: Arc<dyn Drive> = memory.clone();
    let path = scratch.path().join("undo");
    for bytes in [&b""[..], b"short", &[7; 5000]] {
        std::fs::write(&path, bytes).unwrap();
        assert!(undo(&drive, File::open(&path).unwrap()).is_err());
    }
    // A log of a larger drive.
    drop(std::fs::remove_file(&path));
    let other: Arc<dyn Drive> = MemoryDrive::on(Snapshot::new(4096, None));
    drop(Undo::new(other, File::create_new(&path).unwrap()).unwrap());
    assert!(undo(&drive, File::open(&path).unwrap()).is_err());
    assert_eq!(memory.changes(), 0);
}
