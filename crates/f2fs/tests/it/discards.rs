//! What the drive is told is free, when, and by whom: the attributes of discards, and `fstrim`.

use std::sync::Arc;

use cores::{Machine, Profile};
use drive::Ssd;
use f2fs::F2fs;
use vfs::{Creator, Errno, FileSystem, Ino};

use crate::harness::{Kind, findings, mount, power_on};

const SECOND: u64 = 1_000_000_000;
const PAGE: u64 = 4096;
const ALL: std::ops::Range<u64> = 0..u64::MAX;

fn on_virtual_cores<T>(f: impl FnOnce() -> T) -> T {
    Machine::simulated(&Profile::named("xeon-4116").unwrap(), 1).run(f).unwrap()
}

fn end(drive: &Ssd, fs: &F2fs) {
    fs.unmount().unwrap();
    assert_eq!(findings(&drive.power_off()), "");
}

fn create(fs: &F2fs, name: &str, pages: u64, byte: u8) -> Ino {
    let ino = fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default()).unwrap().ino;
    fs.write(ino, 0, &vec![byte; (pages * PAGE) as usize]).unwrap();
    fs.fsync(ino, false).unwrap();
    ino
}

/// Frees runs of `run` blocks in segments that stay in use: every other run of a file is
/// overwritten out of place.
fn free_runs(fs: &F2fs, run: u64) {
    let ino = create(fs, "holes", 2048, 1);
    fs.sync().unwrap();
    for first in (0..2048).step_by(2 * run as usize) {
        fs.write(ino, first * PAGE, &vec![2; (run * PAGE) as usize]).unwrap();
    }
    fs.fsync(ino, false).unwrap();
    // The logs leave the segments in which they are.
    create(fs, "more", 1024, 3);
    fs.sync().unwrap();
}

/// How many commands have discarded how many blocks after so many seconds, with a request every
/// `pause` seconds, of runs of `run` blocks.
fn told(settings: &str, run: u64, seconds: u64, pause: u64) -> (u64, u64) {
    on_virtual_cores(|| {
        let drive = Kind::Conventional.formatted(1);
        let fs = Arc::new(mount(&drive, &format!("ipu_policy=0,{settings}")));
        let upkeep = fs.maintain();
        free_runs(&fs, run);
        for _ in 0..seconds / pause {
            cores::sleep(pause * SECOND);
            fs.getattr(fs.root()).unwrap();
        }
        let status = fs.status();
        upkeep.stop();
        end(&drive, &fs);
        (status.discard_commands, status.discarded_blocks)
    })
}

fn max_small_discards() {
    assert!(told("", 8, 50, 50).0 >= 128);
    assert!(told("max_small_discards=0", 8, 50, 50).0 < 4, "whole segments");
    let (some, _) = told("max_small_discards=5", 8, 50, 50);
    assert!((4..20).contains(&some), "{some}");
}

fn discard_granularity() {
    assert!(told("discard_granularity=8", 8, 50, 50).0 >= 128);
    assert!(told("discard_granularity=9", 8, 50, 50).0 < 4, "whole segments");
}

fn discard_idle_interval() {
    assert_eq!(told("discard_idle_interval=1", 8, 60, 2), (128, 1024));
    assert_eq!(told("discard_idle_interval=5", 8, 60, 2), (0, 0));
}

fn max_discard_request() {
    let of = |most| told(&format!("max_discard_request={most},discard_idle_interval=0"), 8, 1, 1).0;
    assert!(of(1) < 25 && of(16) == 128, "{} {}", of(1), of(16));
}

fn min_discard_issue_time() {
    let of = |ms| told(&format!("min_discard_issue_time={ms},discard_idle_interval=0"), 8, 1, 1).0;
    assert!(of(1000) < 30 && of(10) == 128, "{} {}", of(1000), of(10));
}

/// The thread looks again whether the volume is idle.
fn mid_discard_issue_time() {
    let of = |ms| told(&format!("mid_discard_issue_time={ms},discard_idle_interval=1"), 8, 4, 4).0;
    assert!(of(10_000) == 0 && of(100) > 0, "{} {}", of(10_000), of(100));
}

/// What was too short becomes long enough; nothing else wakes the thread.
fn max_discard_issue_time() {
    let of = |ms| {
        on_virtual_cores(|| {
            let drive = Kind::Conventional.formatted(1);
            let options = format!("ipu_policy=0,discard_granularity=9,max_discard_issue_time={ms}");
            let fs = Arc::new(mount(&drive, &options));
            let upkeep = fs.maintain();
            free_runs(&fs, 8);
            cores::sleep(8 * SECOND);
            fs.set_tunable("discard_granularity", "1").unwrap();
            cores::sleep(6 * SECOND);
            let told = fs.status().discard_commands;
            upkeep.stop();
            end(&drive, &fs);
            told
        })
    };
    assert_eq!(of(600_000), 0);
    assert!(of(1000) > 0);
}

fn umount_discard_timeout() {
    let of = |seconds| {
        let drive = Kind::Conventional.formatted(1);
        let fs = mount(&drive, &format!("ipu_policy=0,umount_discard_timeout={seconds}"));
        free_runs(&fs, 8);
        let before = drive.stats().discards;
        end(&drive, &fs);
        drive.stats().discards - before
    };
    assert!(of(0) < 20 && of(5) >= 128, "{} {}", of(0), of(5));
}

fn batched_trim_sections() {
    let checkpoints = |sections| {
        let drive = Kind::Conventional.formatted(1);
        let fs = mount(&drive, &format!("batched_trim_sections={sections}"));
        let before = fs.status().cp_foreground_calls;
        assert!(fs.trim(ALL, 0).unwrap() > 0);
        let after = fs.status().cp_foreground_calls;
        end(&drive, &fs);
        after - before
    };
    assert_eq!(checkpoints(0), 1);
    assert!(checkpoints(10) > 3);
}

macro_rules! behaviours {
    ($($name:ident)+) => {
        mod changes_with {
            $(#[test] fn $name() { super::$name() })+
        }
    };
}

behaviours! {
    max_small_discards discard_granularity discard_idle_interval max_discard_request
    min_discard_issue_time mid_discard_issue_time max_discard_issue_time umount_discard_timeout
    batched_trim_sections
}

/// What `fstrim` says is what is free; what it has trimmed it does not trim again.
#[test]
fn a_trim_tells_of_everything_free_once() {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, "ipu_policy=0");
    let kept = create(&fs, "kept", 700, 7);
    let gone = create(&fs, "gone", 3000, 8);
    fs.sync().unwrap();
    let blocks = 32 * 1024;
    let first = fs.trim(ALL, 0).unwrap() / PAGE;
    let main = blocks - u64::from(fs.status().main_blkaddr);
    assert!(first > main - 3700 - 8 * 512 && first < main - 3700, "{first}");
    assert_eq!(fs.trim(ALL, 0).unwrap(), 0, "nothing has changed");
    fs.unlink(fs.root(), b"gone").unwrap();
    assert_ne!(kept, gone);
    let second = fs.trim(ALL, 0).unwrap() / PAGE;
    assert!((2400..=3100).contains(&second), "{second}");
    assert_eq!(fs.trim(0..8 * PAGE, 0).unwrap(), 0, "no block of a file is there");
    for (range, least) in [(u64::MAX - 1..u64::MAX, 0), (0..PAGE - 1, 0), (ALL, 1 << 60)] {
        let refused = vfs::Error::from(fs.trim(range, least).unwrap_err()).errno();
        assert_eq!(refused, Errno::INVAL);
    }
    fs.unmount().unwrap();
    let fs = mount(&power_on(&drive.power_off()), "");
    let mut page = [0; PAGE as usize];
    for index in 0..700 {
        fs.read(kept, index * PAGE, &mut page).unwrap();
        assert_eq!(page, [7; PAGE as usize]);
    }
}

#[test]
fn a_trim_leaves_out_what_is_too_short() {
    let trimmed = |least| {
        let drive = Kind::Conventional.formatted(1);
        let fs = mount(&drive, "ipu_policy=0,max_small_discards=0");
        fs.trim(ALL, 0).unwrap();
        free_runs(&fs, 8);
        let trimmed = fs.trim(ALL, least * PAGE).unwrap() / PAGE;
        end(&drive, &fs);
        trimmed
    };
    assert!(trimmed(8) >= 1024 && trimmed(9) < 1024, "{} {}", trimmed(8), trimmed(9));
}

#[test]
fn a_volume_with_zones_is_not_trimmed() {
    let drive = Kind::Zoned.formatted(1);
    let fs = mount(&drive, "");
    let refused = vfs::Error::from(fs.trim(ALL, 0).unwrap_err()).errno();
    assert_eq!(refused, Errno::OPNOTSUPP);
    end(&drive, &fs);
}
