//! Writes and flushes that fail while other threads wait for them too: the error is reported, and
//! what was durable stays.

use std::sync::Arc;

use cores::{Machine, Profile};
use drive::{Fault, FaultOn, Ssd, Status};
use f2fs::F2fs;
use vfs::{Creator, FileSystem, Ino};

use crate::harness::{self, Kind, findings, mount, mount_on};

const PAGE: usize = 4096;
const MS: u64 = 1_000_000;

/// On a file of so many pages, whose nodes are more than the inode.
const PAGES: usize = 1200;

type Faulty = Arc<Fault<Arc<Ssd>>>;

/// A volume on a drive that can fail, and a durable file on it.
fn volume(kind: Kind, options: &str) -> (Faulty, Arc<F2fs>, Ino) {
    let drive = Arc::new(Fault::new(kind.formatted(1)));
    let fs = Arc::new(mount_on(drive.clone(), options));
    let file = fs.create(fs.root(), b"file", 0o644, Creator::default()).unwrap().ino;
    fs.write(file, 0, &[1; PAGES * PAGE]).unwrap();
    fs.sync().unwrap();
    (drive, fs, file)
}

/// The file, after a cut: every page is the old one or the new one, and all of it is there.
fn assert_kept(drive: &Faulty, fs: Arc<F2fs>, options: &str, setting: &str) {
    drop(fs);
    drive.clear();
    let below = harness::power_on(&drive.below().survivors(1));
    let fs = mount(&below, options);
    let file = fs.lookup(fs.root(), b"file").unwrap_or_else(|error| panic!("{setting}: {error}"));
    assert_eq!(file.size, (PAGES * PAGE) as u64, "{setting}");
    let mut page = [0; PAGE];
    for index in 0..PAGES {
        fs.read(file.ino, (index * PAGE) as u64, &mut page).unwrap();
        assert!(page == [1; PAGE] || page == [2; PAGE], "{setting}: page {index}");
    }
    fs.unmount().unwrap();
    assert_eq!(findings(&below.power_off()), "", "{setting}");
}

/// The `nth` command of kind `on` of an fsync fails after a while. Meanwhile another thread syncs:
/// its checkpoint refers to what the fsync has submitted.
fn sync_meets_a_failure(kind: Kind, options: &str, on: FaultOn, nth: u64) {
    let setting = format!("{kind:?} {options} {on:?} {nth}");
    let options = options.to_owned();
    let test = move || {
        let (drive, fs, file) = volume(kind, &options);
        for index in (0..PAGES).step_by(100) {
            fs.write(file, (index * PAGE) as u64, &[2; PAGE]).unwrap();
        }
        drive.fail_nth_after(on, nth, Status::WriteFault, 20 * MS);
        let other = fs.clone();
        let fsync = cores::spawn("fsync", Some(1), move || other.fsync(file, false));
        cores::sleep(MS);
        let synced = fs.sync();
        let fsynced = fsync.join();
        if !drive.is_armed() {
            assert!(fsynced.is_err() || synced.is_err(), "{setting}: nobody was told");
            assert!(synced.is_err(), "{setting}: a checkpoint without all it refers to");
            assert!(fs.sync().is_err() && fs.write(file, 0, &[3; PAGE]).is_err(), "{setting}");
        }
        assert_kept(&drive, fs, &options, &setting);
    };
    Machine::simulated(&Profile::named("xeon-4116").unwrap(), 1).run(test).unwrap();
}

#[test]
fn a_checkpoint_fails_with_the_writes_it_refers_to() {
    for kind in Kind::ALL {
        for mode in ["fsync_mode=posix", "fsync_mode=strict", "fsync_mode=strict,oprw"] {
            for nth in [0, 1, 2, 8, 12, 13] {
                sync_meets_a_failure(kind, mode, FaultOn::Write, nth);
            }
            for nth in [0, 1] {
                sync_meets_a_failure(kind, mode, FaultOn::Flush, nth);
            }
        }
    }
}
