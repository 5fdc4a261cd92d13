//! Zones over many cuts: their resources do not run out.

use cores::{Machine, Profile};
use std::sync::Arc;

use drive::{Block, Drive, Spec, Ssd, Timing, Zone, ZoneKind};
use f2fs::mkfs::format;
use queue::BlockQueue;
use vfs::{Creator, FileSystem};

use crate::harness::{Kind, findings, mkfs_options, mount, power_on};

/// A cut leaves the zones of up to six logs active. A drive has fourteen such resources (ZN540), so
/// mounts that did not finish zones would fail after two or three cuts.
#[test]
fn forty_cuts_leave_the_drive_writable() {
    let mut drive = Kind::Zoned.formatted(1);
    assert!(drive.identify().zones.unwrap().max_active.is_some());
    for round in 0..40_u64 {
        let fs = mount(&drive, "oprw");
        let name = format!("file {round}");
        let file = fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default()).unwrap();
        for block in 0..30 {
            fs.write(file.ino, block * 4096, &[round as u8; 4096]).unwrap();
            fs.fsync(file.ino, false).unwrap();
        }
        drop(fs);
        let state = drive.cut(round);
        drive = Ssd::power_on(state, Timing::Instant, round);
    }
    let fs = mount(&drive, "oprw");
    for round in 0..40_u64 {
        let file = fs.lookup(fs.root(), format!("file {round}").as_bytes()).unwrap();
        let mut contents = vec![0; 30 * 4096];
        assert_eq!(fs.read(file.ino, 0, &mut contents).unwrap(), contents.len());
        assert!(contents.iter().all(|byte| *byte == round as u8), "file {round}");
    }
    let dynamic: Arc<dyn Drive> = drive.clone();
    fs.unmount().unwrap();
    let report = f2fs::check::check(&dynamic, &f2fs::check::CheckOptions::default()).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

/// A drive lets 14 zones be active, and here the file's dirty pages take more.
#[test]
fn an_fsync_of_much_leaves_zones_to_others() {
    for options in ["cache=256m", "cache=256m,fsync_mode=strict,oprw"] {
        let test = move || {
            let drive = Kind::Zoned.formatted_at(1, Timing::Virtual);
            let fs = mount(&drive, options);
            let file = fs.create(fs.root(), b"file", 0o644, Creator::default()).unwrap().ino;
            fs.write(file, 0, &vec![7; 60 << 20]).unwrap();
            fs.fsync(file, false).unwrap();
            fs.write(file, 0, &vec![8; 60 << 20]).unwrap();
            fs.unmount().unwrap();
        };
        let profile = Profile::named("xeon-4116").unwrap();
        Machine::simulated(&profile, 1).run(test).unwrap();
    }
}

/// A log in a conventional zone leaves the chain for the first free section. If recovery has just
/// reset that section's zone, the log begins where the zone does.
#[test]
fn a_log_may_move_to_a_zone_that_recovery_has_reset() {
    let spec = Spec::named("zn540-noplp").unwrap().zone_size(1024, 1024).zones(64, 8);
    let drive = Ssd::new(spec, Timing::Instant, 1).unwrap();
    format(&(drive.clone() as Arc<dyn Drive>), &mkfs_options()).unwrap();
    let fs = mount(&drive, "");
    let file = fs.create(fs.root(), b"file", 0o644, Creator::default()).unwrap().ino;
    fs.write(file, 0, b"fsynced").unwrap();
    fs.fsync(file, false).unwrap();
    drop(fs);
    let drive = power_on(&drive.survivors(1));
    let queue = BlockQueue::new(drive.clone());
    let is_empty =
        |zone: &Zone| zone.kind == ZoneKind::SequentialWriteRequired && zone.wp == zone.start;
    let zones = queue.report_zones().unwrap();
    for zone in zones.iter().filter(|zone| is_empty(zone)).take(8) {
        // Nothing leads to these.
        queue.write_blocks(zone.start, vec![Block::zeroed(); 6], true).unwrap();
    }
    let fs = mount(&drive, "");
    let recovery = fs.recovery();
    assert!(recovery.reset_zones > 0 && recovery.replayed_nodes > 0, "{recovery:?}");
    let mut read = [0; 7];
    fs.read(file, 0, &mut read).unwrap();
    assert_eq!(&read, b"fsynced");
    fs.unmount().unwrap();
    assert_eq!(findings(&drive.power_off()), "");
}
