//! A read that fails harms only the call that needed it: the call fails, can be made again, and the
//! volume goes on. Only a failed write or flush stops it.

use std::sync::Arc;

use drive::{Fault, FaultOn, Ssd, Status};
use f2fs::F2fs;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use vfs::{Creator, Errno, FileSystem, Ino};

use crate::harness::{Kind, findings, mount_on};

const PAGE: usize = 4096;
/// Small files, so that there are many nodes, and the pages of the large one.
const FILES: usize = 150;
const PAGES: u64 = 2500;
const STEPS: usize = 300;

/// Makes a call that may fail, and retries it if it did. A failure is reported once to the call
/// that met it, and once to the next fsync if no call waited for what failed.
fn insist<T>(setting: &str, failures: &mut u32, mut call: impl FnMut() -> vfs::Result<T>) -> T {
    for _ in 0..3 {
        match call() {
            Ok(done) => return done,
            Err(error) => {
                assert_eq!(error.errno(), Errno::IO, "{setting}: {error}");
                *failures += 1;
            }
        }
    }
    panic!("{setting}: one failed read, and it fails for good")
}

struct Run {
    drive: Arc<Fault<Arc<Ssd>>>,
    fs: F2fs,
    large: Ino,
    small: Vec<Ino>,
    /// What each page of the large file and each small file holds.
    expected: [Vec<u8>; 2],
}

fn prepare(kind: Kind, options: &str) -> Run {
    let drive = Arc::new(Fault::new(kind.formatted(1)));
    let fs = mount_on(drive.clone(), options);
    let create = |name: String| {
        fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default()).unwrap().ino
    };
    let large = create("large".into());
    let small: Vec<_> = (0..FILES).map(|n| create(format!("small {n}"))).collect();
    for index in 0..PAGES {
        fs.write(large, index * PAGE as u64, &[1; PAGE]).unwrap();
    }
    for &ino in &small {
        fs.write(ino, 0, &[1; PAGE]).unwrap();
    }
    fs.sync().unwrap();
    fs.unmount().unwrap();
    // Nothing is in memory.
    let fs = mount_on(drive.clone(), options);
    let expected = [vec![1; PAGES as usize], vec![1; FILES]];
    Run { drive, fs, large, small, expected }
}

impl Run {
    /// Overwrites, fsyncs, names, cleaning and checkpoints; returns how often a call failed.
    fn go(&mut self, setting: &str) -> u32 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let (fs, mut failures) = (&self.fs, 0);
        for step in 0..STEPS {
            let value = (step % 250) as u8 + 2;
            let page = rng.random_range(0..PAGES);
            let file = rng.random_range(0..FILES);
            // Part of a page: the rest has to be read.
            let bytes = [value; 100];
            match rng.random_range(0..10) {
                0..4 => {
                    insist(setting, &mut failures, || fs.write(self.large, page << 12, &bytes));
                    self.expected[0][page as usize] = value;
                }
                4..7 => {
                    insist(setting, &mut failures, || fs.write(self.small[file], 0, &bytes));
                    self.expected[1][file] = value;
                    insist(setting, &mut failures, || fs.fsync(self.small[file], false));
                }
                7 => insist(setting, &mut failures, || fs.fsync(self.large, false)),
                8 => {
                    insist(setting, &mut failures, || fs.background_gc().map_err(vfs::Error::from));
                }
                _ => insist(setting, &mut failures, || fs.sync()),
            }
        }
        insist(setting, &mut failures, || fs.sync());
        failures
    }

    fn check(&self, setting: &str) {
        let mut page = [0; PAGE];
        for (index, value) in (0..).zip(&self.expected[0]) {
            self.fs.read(self.large, index << 12, &mut page).unwrap();
            assert_eq!((page[99], page[100]), (*value, 1), "{setting}: page {index}");
        }
        for (&ino, value) in self.small.iter().zip(&self.expected[1]) {
            self.fs.read(ino, 0, &mut page).unwrap();
            assert_eq!((page[99], page[100]), (*value, 1), "{setting}: small file {ino}");
        }
        self.fs.unmount().unwrap_or_else(|error| panic!("{setting}: {error}"));
        assert_eq!(findings(&self.drive.below().power_off()), "", "{setting}");
    }
}

/// Fails each `step`th read of a run, one in each run of its own.
fn each_read_fails_once(kind: Kind, options: &str, step: u64) {
    for nth in 0.. {
        let n = nth * step;
        let setting = format!("{kind:?} {options}, read {n}");
        let mut run = prepare(kind, options);
        run.drive.fail_nth(FaultOn::Read, n, Status::UnrecoveredRead);
        let failures = run.go(&setting);
        if run.drive.is_armed() {
            assert!(nth > 5, "{setting}: hardly anything is read");
            return eprintln!("{setting}: no more are read");
        }
        // Cleaning in the foreground, and reading ahead, may make do without.
        assert!(failures <= 3, "{setting}: told {failures} times");
        run.check(&setting);
    }
}

const SETTINGS: [(Kind, &str); 4] = [
    (Kind::Conventional, "cache=1m"),
    (Kind::Conventional, "cache=1m,fsync_mode=strict,mode=lfs"),
    (Kind::Zoned, "cache=1m"),
    (Kind::Zoned, "cache=1m,fsync_mode=strict,oprw"),
];

#[test]
fn a_failed_read_harms_only_its_caller() {
    SETTINGS.into_iter().for_each(|(kind, options)| each_read_fails_once(kind, options, 29));
}

#[test]
#[ignore = "long: make test-all"]
fn every_failed_read_harms_only_its_caller() {
    SETTINGS.into_iter().for_each(|(kind, options)| each_read_fails_once(kind, options, 3));
}
