//! Each tunable that the engine reads changes what the volume does, not only the number.

use std::sync::Arc;

use cores::{Machine, Profile};
use drive::Ssd;
use f2fs::F2fs;
use vfs::kind::PageAt;
use vfs::{Creator, FileSystem, Ino};

use crate::harness::{Kind, findings, mount};

const PAGE: usize = 4096;

/// A volume without zones and with these settings.
fn volume(options: &str, settings: &[(&str, &str)]) -> (Arc<Ssd>, F2fs) {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, options);
    fs.set_tunables(settings).unwrap();
    (drive, fs)
}

/// A durable file of so many pages.
fn file(fs: &F2fs, name: &[u8], pages: usize) -> Ino {
    let ino = fs.create(fs.root(), name, 0o644, Creator::default()).unwrap().ino;
    fs.write(ino, 0, &vec![1; pages * PAGE]).unwrap();
    fs.fsync(ino, false).unwrap();
    ino
}

fn overwrite(fs: &F2fs, ino: Ino, pages: usize) {
    fs.write(ino, 0, &vec![2; pages * PAGE]).unwrap();
}

/// How many blocks `act` overwrites in place.
fn in_place(fs: &F2fs, act: impl FnOnce()) -> u64 {
    let before = fs.status().ipu_blocks;
    act();
    fs.status().ipu_blocks - before
}

fn end(drive: &Arc<Ssd>, fs: F2fs) {
    fs.unmount().unwrap();
    drop(fs);
    assert_eq!(findings(&drive.power_off()), "");
}

/// How many of 20 pages are overwritten in place by an fsync, an fdatasync, an fsync of 4 of them,
/// and write-back, with these settings.
fn overwrites(settings: &[(&str, &str)]) -> [u64; 4] {
    let (drive, fs) = volume("", settings);
    let ino = file(&fs, b"file", 20);
    let write = |pages, end: &dyn Fn()| {
        in_place(&fs, || {
            overwrite(&fs, ino, pages);
            end();
        })
    };
    let counts = [
        write(20, &|| fs.fsync(ino, false).unwrap()),
        write(20, &|| fs.fsync(ino, true).unwrap()),
        write(4, &|| fs.fsync(ino, false).unwrap()),
        write(20, &|| fs.sync().unwrap()),
    ];
    end(&drive, fs);
    counts
}

#[test]
fn ipu_policy_and_its_thresholds() {
    let of = |policy, more: &[(&'static str, &'static str)]| {
        overwrites(&[&[("ipu_policy", policy)], more].concat())
    };
    assert_eq!(overwrites(&[]), [20, 20, 4, 20], "a small volume: FORCE");
    assert_eq!(of("0", &[]), [0; 4]);
    // SSR: all sections free, then none counts as enough.
    assert_eq!(of("2", &[("min_ssr_sections", "0")]), [0; 4]);
    assert_eq!(of("2", &[("min_ssr_sections", "1000")]), [20, 20, 4, 20]);
    // UTIL: a nearly empty volume.
    assert_eq!(of("4", &[]), [0; 4]);
    assert_eq!(of("8", &[("min_ssr_sections", "1000")]), [0; 4]);
    // FSYNC.
    assert_eq!(of("16", &[]), [0, 20, 4, 0]);
    assert_eq!(of("16", &[("min_fsync_blocks", "3")]), [0, 20, 0, 0]);
    assert_eq!(of("16", &[("min_fsync_blocks", "20")]), [20, 20, 4, 0]);
    // ASYNC.
    assert_eq!(of("32", &[]), [0, 0, 0, 20]);
}

#[test]
fn min_ipu_util_counts_what_is_used() {
    for (least, expected) in [("40", 8), ("60", 0)] {
        let settings = [("ipu_policy", "4"), ("min_ipu_util", least)];
        let (drive, fs) = volume("", &settings);
        let half = fs.statfs().unwrap().blocks / 2;
        let ino = file(&fs, b"half", half as usize);
        let count = in_place(&fs, || {
            overwrite(&fs, ino, 8);
            fs.fsync(ino, false).unwrap();
        });
        assert_eq!(count, expected, "min_ipu_util={least}");
        end(&drive, fs);
    }
}

#[test]
fn an_atomic_fsync_is_not_a_small_one() {
    let (drive, fs) = volume("fsync_mode=strict", &[("ipu_policy", "16")]);
    let ino = file(&fs, b"file", 4);
    let count = in_place(&fs, || {
        overwrite(&fs, ino, 4);
        fs.fsync(ino, true).unwrap();
    });
    assert_eq!(count, 0);
    end(&drive, fs);
}

/// The segment of the first page of a file, which is not in memory.
fn segment_of(fs: &F2fs, name: &[u8]) -> u64 {
    let ino = fs.lookup(fs.root(), name).unwrap().ino;
    let mut lba = None;
    let mut see = |_, page: PageAt<'_>| match page {
        PageAt::Drive(at) => lba = Some(at),
        PageAt::Memory(_) => panic!("it is in memory"),
    };
    fs.pages(ino, 0..1, &mut see).unwrap();
    (lba.unwrap() - u64::from(fs.status().main_blkaddr)) / 512
}

#[test]
fn min_hot_blocks_chooses_the_log() {
    for (most, together) in [("16", false), ("3", true)] {
        let (drive, fs) = volume("", &[("min_hot_blocks", most)]);
        file(&fs, b"large", 64);
        file(&fs, b"small", 4);
        fs.unmount().unwrap();
        drop(fs);
        let fs = mount(&drive, "");
        let same = segment_of(&fs, b"large") == segment_of(&fs, b"small");
        assert_eq!(same, together, "min_hot_blocks={most}");
        end(&drive, fs);
    }
}

#[test]
fn min_ssr_sections_lets_logs_fill_holes() {
    for (least, expected) in [("0", false), ("1000", true)] {
        let settings = [("ipu_policy", "0"), ("min_ssr_sections", least)];
        let (drive, fs) = volume("", &settings);
        let ino = file(&fs, b"file", 4096);
        for index in (0..4096).step_by(2) {
            fs.write(ino, (index * PAGE) as u64, &[3; PAGE]).unwrap();
        }
        fs.sync().unwrap();
        for index in (1..4096).step_by(2) {
            fs.write(ino, (index * PAGE) as u64, &[4; PAGE]).unwrap();
        }
        fs.sync().unwrap();
        assert_eq!(fs.status().ssr_blocks > 0, expected, "min_ssr_sections={least}");
        end(&drive, fs);
    }
}

#[test]
fn max_victim_search_bounds_the_choice() {
    // Three segments, of which the last has the fewest valid blocks, and all are old.
    let moved = |most: &'static str| {
        let machine = Machine::simulated(&Profile::named("uniform-1").unwrap(), 1);
        machine.run(move || moved_by_a_cleaning(most)).unwrap()
    };
    assert!(moved("1") > moved("4096"), "{} {}", moved("1"), moved("4096"));
}

fn moved_by_a_cleaning(most: &str) -> u64 {
    let (drive, fs) = volume("", &[("ipu_policy", "0"), ("max_victim_search", most)]);
    let ino = file(&fs, b"file", 2048);
    for index in 0..2048 {
        let (segment, within) = (index / 512, index % 512);
        if segment < 3 && within < 200 + 130 * segment {
            fs.write(ino, (index * PAGE) as u64, &[3; PAGE]).unwrap();
        }
    }
    fs.sync().unwrap();
    cores::sleep(100_000_000_000_000);
    file(&fs, b"young", 600);
    fs.garbage_collect(false).unwrap();
    let moved = fs.status().moved_blocks_background;
    end(&drive, fs);
    moved
}

#[test]
fn reclaim_segments_makes_a_checkpoint_due() {
    let checkpoints = |most: &str| {
        let (drive, fs) = volume("", &[("reclaim_segments", most)]);
        for round in 0..4 {
            file(&fs, b"file", 2048);
            fs.unlink(fs.root(), b"file").unwrap();
            file(&fs, format!("other{round}").as_bytes(), 1);
        }
        let status = fs.status();
        end(&drive, fs);
        status.cp_foreground_calls + status.cp_background_calls
    };
    assert!(checkpoints("0") > checkpoints("1000"));
}
