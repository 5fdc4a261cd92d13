//! What a mounted volume does by itself, over hours of virtual time.

use std::sync::Arc;

use cores::{Machine, Profile};
use drive::{Fault, FaultOn, Ssd, Status, Timing};
use f2fs::F2fs;
use vfs::{Creator, Errno, FileSystem, Ino, SetAttr};

use crate::harness::{Kind, findings, mount, mount_on, power_on};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const MINUTE: u64 = 60 * SECOND;
const PAGE: usize = 4096;

fn on_virtual_cores<T>(f: impl FnOnce() -> T) -> T {
    Machine::simulated(&Profile::named("xeon-4116").unwrap(), 1).run(f).unwrap()
}

fn create(fs: &F2fs, name: &str) -> Ino {
    fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default()).unwrap().ino
}

/// A volume with many files of which half has been cut off: all sections are half empty.
fn fragmented(kind: Kind, options: &str) -> (Arc<Ssd>, Arc<F2fs>) {
    let drive = kind.formatted(1);
    let fs = Arc::new(mount(&drive, options));
    let stat = fs.statfs().unwrap();
    for n in 0..stat.blocks * 6 / 10 / 64 {
        let ino = create(&fs, &format!("f{n}"));
        fs.write(ino, 0, &vec![n as u8; 64 * PAGE]).unwrap();
    }
    fs.sync().unwrap();
    for n in 0..stat.blocks * 6 / 10 / 64 {
        let ino = fs.lookup(fs.root(), format!("f{n}").as_bytes()).unwrap().ino;
        let half = SetAttr { size: Some((32 * PAGE) as u64), ..SetAttr::default() };
        fs.setattr(ino, &half).unwrap();
    }
    fs.sync().unwrap();
    (drive, fs)
}

fn assert_sound(drive: &Ssd, fs: &F2fs) {
    fs.unmount().unwrap();
    assert_eq!(findings(&drive.power_off()), "");
}

#[test]
fn what_is_dirty_is_written_in_time_and_a_checkpoint_follows() {
    on_virtual_cores(|| {
        for kind in Kind::ALL {
            let drive = kind.formatted(1);
            let fs = Arc::new(mount(&drive, "checkpoint_interval=90"));
            let maintenance = fs.maintain();
            let ino = create(&fs, "file");
            fs.write(ino, 0, &[5; PAGE]).unwrap();
            let before = drive.stats().writes;
            cores::sleep(29 * SECOND);
            assert_eq!(drive.stats().writes, before, "{kind:?}: younger than dirty_expire");
            cores::sleep(11 * SECOND);
            assert!(drive.stats().writes > before, "{kind:?}: older");
            let cut = power_on(&drive.survivors(1));
            assert!(mount(&cut, "").lookup(3, b"file").is_err(), "{kind:?}: no checkpoint yet");
            cores::sleep(60 * SECOND);
            let cut = power_on(&drive.survivors(1));
            let after = mount(&cut, "");
            let mut page = [0; PAGE];
            after.read(after.lookup(3, b"file").unwrap().ino, 0, &mut page).unwrap();
            assert_eq!(page, [5; PAGE], "{kind:?}");
            let quiet = drive.stats().writes;
            cores::sleep(60 * MINUTE);
            assert_eq!(drive.stats().writes, quiet, "{kind:?}: nothing changed, nothing written");
            maintenance.stop();
            assert_sound(&drive, &fs);
        }
    });
}

#[test]
fn an_idle_volume_is_cleaned_and_a_busy_one_left_alone() {
    on_virtual_cores(|| {
        for kind in Kind::ALL {
            let (drive, fs) = fragmented(kind, "mode=lfs");
            let maintenance = fs.maintain();
            for _ in 0..600 {
                cores::sleep(SECOND);
                fs.getattr(fs.root()).unwrap();
            }
            assert_eq!(fs.cleaned_sections(), 0, "{kind:?}: somebody waits for answers");
            cores::sleep(60 * MINUTE);
            let cleaned = fs.cleaned_sections();
            assert!(cleaned > 3, "{kind:?}: {cleaned}");
            cores::sleep(24 * 60 * MINUTE);
            let end = fs.cleaned_sections();
            cores::sleep(60 * MINUTE);
            assert!(fs.cleaned_sections() - end <= 60, "{kind:?}: it goes on and on");
            maintenance.stop();
            assert_sound(&drive, &fs);
        }
    });
}

#[test]
fn an_urgent_volume_is_cleaned_at_once_unless_cleaning_is_off() {
    on_virtual_cores(|| {
        for (options, cleans) in [("mode=lfs", true), ("mode=lfs,background_gc=off", false)] {
            let (drive, fs) = fragmented(Kind::Conventional, options);
            let maintenance = fs.maintain();
            fs.set_tunable("gc_urgent", "1").unwrap();
            cores::sleep(10 * SECOND);
            assert_eq!(fs.cleaned_sections() > 5, cleans, "{options}");
            fs.set_tunable("gc_urgent", "0").unwrap();
            assert!(fs.set_tunable("gc_urgent", "9").is_err());
            assert!(fs.set_tunable("gc_urgently", "1").is_err());
            maintenance.stop();
            assert_sound(&drive, &fs);
        }
    });
}

/// Zoned volumes are left alone while more than `gc_no_zoned_gc_percent` of the sections is free.
#[test]
fn a_zoned_volume_with_much_free_is_not_cleaned() {
    on_virtual_cores(|| {
        let (drive, fs) = fragmented(Kind::Zoned, "");
        fs.set_tunable("gc_no_zoned_gc_percent", "0").unwrap();
        let maintenance = fs.maintain();
        cores::sleep(10 * MINUTE);
        assert_eq!(fs.cleaned_sections(), 0);
        fs.set_tunable("gc_no_zoned_gc_percent", "100").unwrap();
        cores::sleep(10 * MINUTE);
        assert!(fs.cleaned_sections() > 0);
        maintenance.stop();
        assert_sound(&drive, &fs);
    });
}

/// A zoned volume that runs short of sections is cleaned in the background while it is busy,
/// because otherwise its operations would have to do that work.
#[test]
fn a_busy_zoned_volume_is_cleaned_when_it_runs_short() {
    on_virtual_cores(|| {
        let drive = Kind::Zoned.formatted_at(1, Timing::Virtual);
        let fs = Arc::new(mount(&drive, ""));
        let maintenance = fs.maintain();
        let ino = create(&fs, "file");
        let pages = fs.statfs().unwrap().blocks * 9 / 10;
        for page in 0..pages {
            fs.write(ino, page * PAGE as u64, &[1; PAGE]).unwrap();
        }
        for n in 0..40_000 {
            fs.write(ino, n * 7919 % pages * PAGE as u64, &[2; PAGE]).unwrap();
            if n % 16 == 0 {
                fs.fsync(ino, false).unwrap();
                cores::sleep(5 * MS);
            }
        }
        let status = fs.status();
        let (waited, not) = (status.gc_foreground_calls, status.gc_background_calls);
        assert!(not > 3 * waited, "{waited} sections cleaned in the foreground, {not} behind it");
        maintenance.stop();
        assert_sound(&drive, &fs);
    });
}

#[test]
fn much_that_is_dirty_does_not_wait_for_its_age() {
    on_virtual_cores(|| {
        let drive = Kind::Conventional.formatted(1);
        let fs = Arc::new(mount(&drive, "cache=4m"));
        let maintenance = fs.maintain();
        let ino = create(&fs, "file");
        let before = drive.stats().writes;
        fs.write(ino, 0, &vec![1; 300 * PAGE]).unwrap();
        cores::sleep(SECOND);
        assert!(drive.stats().writes > before);
        maintenance.stop();
        assert_sound(&drive, &fs);
    });
}

#[test]
fn a_write_back_that_fails_ends_the_threads_and_is_told() {
    on_virtual_cores(|| {
        let drive = Arc::new(Fault::new(Kind::Conventional.formatted(1)));
        let fs = Arc::new(mount_on(drive.clone(), ""));
        let maintenance = fs.maintain();
        let ino = create(&fs, "file");
        fs.write(ino, 0, &[5; PAGE]).unwrap();
        drive.fail_nth(FaultOn::Write, 0, Status::WriteFault);
        cores::sleep(MINUTE);
        assert_eq!(fs.fsync(ino, false).unwrap_err().errno(), Errno::IO);
        maintenance.stop();
        assert!(fs.unmount().is_err());
    });
}

/// The same on the real machine, as far as one can wait for it.
#[test]
fn threads_end_when_they_are_told_to() {
    let drive = Kind::Conventional.formatted(1);
    let fs = Arc::new(mount(&drive, ""));
    let maintenance = fs.maintain();
    create(&fs, "file");
    fs.set_tunable("gc_urgent", "1").unwrap();
    maintenance.stop();
    assert_sound(&drive, &fs);
}

#[test]
fn hours_of_maintenance_are_the_same_every_time() {
    let run = || {
        on_virtual_cores(|| {
            let (drive, fs) = fragmented(Kind::Zoned, "");
            fs.set_tunable("gc_no_zoned_gc_percent", "100").unwrap();
            let maintenance = fs.maintain();
            cores::sleep(120 * MINUTE);
            maintenance.stop();
            (format!("{:?}", drive.stats()), fs.cleaned_sections(), cores::now())
        })
    };
    assert_eq!(run(), run());
}
