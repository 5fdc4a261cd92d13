//! Volumes with quota files: a repair makes the files say what the volume has, and keeps limits.

use std::sync::Arc;

use drive::{Block, Drive, DriveState, Ssd, Timing};
use f2fs::F2fs;
use f2fs::mkfs::{MkfsOptions, format};
use f2fs::repair::{RepairOptions, RepairReport, repair};
use queue::BlockQueue;
use serde_json::Value;
use vfs::kind::Volume as _;
use vfs::{Creator, FileSystem, SetAttr};

use super::kit::lines;
use crate::harness::{Kind, dump, findings, mount, power_on};
use crate::judge::{Scratch, assert_fsck_clean};

const PAGE: usize = 4096;
const ANN: Creator = Creator { uid: 1000, gid: 100 };
const USER_MAGIC: [u8; 4] = 0xd9c0_1f11_u32.to_le_bytes();

/// A volume with files of several users, some of them fsynced only, and a limit.
fn volume() -> (Arc<Ssd>, F2fs) {
    let drive = Ssd::new(Kind::Conventional.spec(), Timing::Instant, 1).unwrap();
    let mut options = MkfsOptions::default();
    options.add_features("extra_attr,quota,project_quota").unwrap();
    let dynamic: Arc<dyn Drive> = drive.clone();
    format(&dynamic, &options).unwrap();
    let fs = mount(&drive, "");
    let dir = fs.mkdir(fs.root(), b"dir", 0o755, ANN).unwrap().ino;
    for n in 0..300_u32 {
        let creator = Creator { uid: 1000 + n % 4, gid: n % 3 };
        let ino = fs.create(dir, format!("a file {n}").as_bytes(), 0o644, creator).unwrap().ino;
        fs.write(ino, 0, &vec![1; PAGE * (n as usize % 5)]).unwrap();
    }
    fs.set_project(dir, 7).unwrap();
    fs.set_tunable("quota_limits", "user:1001:0:9999:0:77").unwrap();
    fs.sync().unwrap();
    (drive, fs)
}

fn left_by(drive: &Ssd, fs: F2fs) -> DriveState {
    fs.unmount().unwrap();
    drop(fs);
    drive.power_off()
}

/// The blocks of which `is_one` says so.
fn blocks(left: &DriveState, is_one: impl Fn(&Block) -> bool) -> Vec<u64> {
    let all = 0..left.identify().blocks;
    all.filter(|lba| is_one(&left.media().read(*lba).unwrap())).collect()
}

/// The last block of which `is_one` says so becomes another.
fn damage(
    left: &DriveState,
    is_one: impl Fn(&Block) -> bool,
    how: impl Fn(&mut Block),
) -> Arc<Ssd> {
    let lba = *blocks(left, is_one).last().expect("such a block");
    let drive = power_on(left);
    let queue = BlockQueue::new(drive.clone());
    let mut block = queue.read_block(lba).unwrap();
    how(&mut block);
    queue.write_blocks(lba, [block].into_iter().collect::<Vec<_>>(), true).unwrap();
    drive
}

fn is_user_file(block: &Block) -> bool {
    block[..4] == USER_MAGIC
}

/// Repairs; then neither we nor `fsck.f2fs` find anything. What quota files then say.
fn repaired(drive: &Arc<Ssd>) -> (RepairReport, Value) {
    let dynamic: Arc<dyn Drive> = drive.clone();
    let report = repair(&dynamic, &RepairOptions::default()).unwrap();
    assert_eq!(lines(&report.left), "", "of\n{}", lines(&report.findings));
    let left = drive.power_off();
    assert_eq!(findings(&left), "");
    let scratch = Scratch::new();
    let image = scratch.dir().join("repaired");
    dump(&left, &image);
    assert_fsck_clean(&image);
    let fs = mount(&power_on(&left), "");
    (report, fs.status().quota_limits)
}

#[test]
fn a_sound_volume_is_left_alone() {
    let (drive, fs) = volume();
    let before = fs.status().quota_limits;
    let drive = power_on(&left_by(&drive, fs));
    let (report, after) = repaired(&drive);
    assert_eq!((report.passes, after), (0, before));
}

/// The entries lie in the second block of the file or behind it: those of 1001 has its limit.
#[test]
fn wrong_usage_is_counted_anew() {
    let (drive, fs) = volume();
    let before = fs.status().quota_limits;
    let left = left_by(&drive, fs);
    let limit = 9999_u64.to_le_bytes();
    let at = |block: &Block| block.windows(8).position(|bytes| bytes == limit);
    // The limit is the fifth number of an entry, and how many inodes there are the fourth.
    let drive = damage(
        &left,
        |block| at(block).is_some(),
        |block| {
            let inodes = at(block).unwrap() - 8;
            block.make_mut()[inodes] ^= 5;
        },
    );
    let found = findings(&drive.survivors(0));
    assert!(found.contains("user 1001: "), "{found}");
    let (report, after) = repaired(&drive);
    assert_eq!((report.passes, after), (1, before));
}

#[test]
fn a_file_that_cannot_be_read_is_made_anew() {
    let (drive, fs) = volume();
    let mut before = fs.status().quota_limits;
    let left = left_by(&drive, fs);
    let drive = damage(&left, is_user_file, |block| block.make_mut()[0] ^= 1);
    let (report, after) = repaired(&drive);
    assert!(lines(&report.findings).contains("user quota file"));
    for what in ["kib_hard_limit", "inode_hard_limit"] {
        assert_ne!(before["user"]["1001"][what].take(), Value::Null);
        before["user"]["1001"][what] = 0.into();
    }
    assert_eq!(after, before, "all but the limits");
}

/// `mkfs` gives the file of users this number.
const USER_FILE: u32 = 4;

/// Its blocks are freed and others take their place; the limits are lost with it.
#[test]
fn a_file_without_an_inode_is_made_anew() {
    let (drive, fs) = volume();
    let mut before = fs.status().quota_limits;
    let left = left_by(&drive, fs);
    let footer = [USER_FILE.to_le_bytes(), USER_FILE.to_le_bytes()].concat();
    let copies = blocks(&left, |block| block[4072..4080] == footer);
    let drive = power_on(&left);
    let queue = BlockQueue::new(drive.clone());
    for lba in copies {
        queue.write_blocks(lba, vec![Block::zeroed()], true).unwrap();
    }
    let (report, after) = repaired(&drive);
    assert!(lines(&report.findings).contains("quota inode"), "{}", lines(&report.findings));
    for what in ["kib_hard_limit", "inode_hard_limit"] {
        assert_ne!(before["user"]["1001"][what].take(), Value::Null);
        before["user"]["1001"][what] = 0.into();
    }
    assert_eq!(after, before, "all but the limits");
}

/// A mount that could not read a file has said so, and changed the volume.
#[test]
fn the_mark_is_taken_away() {
    let (drive, fs) = volume();
    let left = left_by(&drive, fs);
    let drive = damage(&left, is_user_file, |block| block.make_mut()[0] ^= 1);
    let fs = mount(&drive, "");
    let ino = fs.create(fs.root(), b"new", 0o644, ANN).unwrap().ino;
    fs.write(ino, 0, &[1; 9 * PAGE]).unwrap();
    let drive = power_on(&left_by(&drive, fs));
    assert!(findings(&drive.survivors(0)).contains("not to be relied on"));
    let (_, after) = repaired(&drive);
    assert_eq!(after["user"]["1000"]["inodes"], 77);
}

/// Roll-forward counts on from what the checkpoint had.
#[test]
fn a_crashed_volume_is_counted_with_what_fsyncs_left() {
    for seed in 0..5 {
        let (drive, fs) = volume();
        let dir = fs.lookup(fs.root(), b"dir").unwrap().ino;
        for n in 0..20 {
            let ino = fs.create(dir, format!("late {n}").as_bytes(), 0o644, ANN).unwrap().ino;
            fs.write(ino, 0, &vec![2; PAGE * n]).unwrap();
            fs.fsync(ino, false).unwrap();
        }
        let old = fs.lookup(dir, b"a file 4").unwrap().ino;
        fs.setattr(old, &SetAttr { uid: Some(1003), ..SetAttr::default() }).unwrap();
        fs.fsync(old, false).unwrap();
        let expected = fs.status().quota_limits;
        drop(fs);
        let (report, after) = repaired(&power_on(&drive.survivors(seed)));
        assert!(report.recovery.replayed_nodes >= 20, "{seed}: {report:?}");
        assert_eq!(after, expected, "{seed}");
    }
}

/// Inodes that get a name in `lost+found` are counted as before, and the new directory too.
#[test]
fn inodes_without_a_name_still_count() {
    let (drive, fs) = volume();
    let inodes = |limits: &Value, id: &str| limits["user"][id]["inodes"].as_u64().unwrap();
    let before = fs.status().quota_limits;
    let left = left_by(&drive, fs);
    // A block of names has several of them; an inode has one.
    let names = |block: &Block| block.windows(7).filter(|bytes| bytes == b"a file ").count();
    let drive = damage(&left, |block| names(block) > 5, |block| *block = Block::zeroed());
    let (report, after) = repaired(&drive);
    let lost = report.changes.reconnected.len();
    assert!(lost > 5, "{:?}", report.changes);
    for id in ["1001", "1002", "1003"] {
        assert_eq!(inodes(&after, id), inodes(&before, id), "{id}");
    }
    assert_eq!(inodes(&after, "0"), inodes(&before, "0") + 1, "lost+found");
}
