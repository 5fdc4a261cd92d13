//! Small, nearly full volumes: whatever their geometry, mode and fill, they mount after every cut,
//! and what statfs calls free can be written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cores::Mutex;
use drive::{Command, Completion, Drive, DriveState, Identify, Spec, Ssd, Timing};
use f2fs::F2fs;
use f2fs::mkfs::{MkfsOptions, format};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use vfs::{Creator, FileSystem, Ino};

use crate::harness::{findings, mount_on, power_on};

const PAGE: u64 = 4096;
const PAGES: u64 = 64;
/// Where the checkpoints' packs end on these volumes.
const PACKS: u64 = 3 * 512;
const OVERWRITES: u64 = 2000;
/// Directories in which names come and go.
const DIRS: u64 = 5;

/// Keeps what a cut would leave in front of one command in so many, and more often in front
/// of a checkpoint's blocks.
struct Cuts {
    below: Arc<Ssd>,
    /// 0 for none.
    every: AtomicU64,
    seen: AtomicU64,
    kept: Mutex<Vec<(u64, DriveState)>>,
}

impl Drive for Cuts {
    fn identify(&self) -> &Identify {
        self.below.identify()
    }

    fn submit(&self, queue: u16, cid: u16, command: Command) {
        let every = self.every.load(Ordering::Relaxed);
        if every > 0 && !matches!(command, Command::Read { .. } | Command::ReportZones { .. }) {
            let seen = self.seen.fetch_add(1, Ordering::Relaxed);
            // Most of what can go wrong does while a checkpoint is written.
            let pack = matches!(command, Command::Write { lba, .. } if lba < PACKS);
            if seen.is_multiple_of(if pack { 5 } else { every }) {
                self.kept.lock().push((seen, self.below.survivors(seen)));
            }
        }
        self.below.submit(queue, cid, command);
    }

    fn poll(&self, queue: u16) -> Option<Completion> {
        self.below.poll(queue)
    }

    fn wait(&self, queue: u16) -> Option<Completion> {
        self.below.wait(queue)
    }

    fn wait_for(&self, queue: u16, cid: u16) -> Option<Completion> {
        self.below.wait_for(queue, cid)
    }
}

fn create(fs: &F2fs, name: &str) -> Ino {
    fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default()).unwrap().ino
}

fn free(fs: &F2fs) -> u64 {
    fs.statfs().unwrap().blocks_free
}

/// Fills the volume to `percent` of its room with files of [`PAGES`] pages.
fn fill(fs: &F2fs, percent: u64) -> Vec<(Ino, u64)> {
    let room = fs.statfs().unwrap().blocks;
    let left = |fs: &F2fs| free(fs).saturating_sub(room * (100 - percent) / 100);
    for n in 0..DIRS {
        let name = format!("dir {n}");
        fs.mkdir(fs.root(), name.as_bytes(), 0o755, Creator::default()).unwrap();
    }
    let mut files = Vec::new();
    // A file, its node and some of its directory.
    while left(fs) > 8 + 4 * DIRS {
        let pages = PAGES.min(left(fs) - 4 - 4 * DIRS);
        let ino = create(fs, &format!("file {}", files.len()));
        for page in 0..pages {
            fs.write(ino, page * PAGE, &[1; PAGE as usize]).unwrap();
        }
        fs.fsync(ino, false).unwrap();
        files.push((ino, pages));
    }
    fs.sync().unwrap();
    files
}

/// Overwrites at random, a little or much at once, and replaces names in a few directories, so that
/// all logs move. What users see needs no more room than it had.
fn overwrite(fs: &F2fs, files: &[(Ino, u64)], seed: u64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let names = |n| (format!("dir {}", n % DIRS), format!("name {n}"));
    let lookup = |name: &str| fs.lookup(fs.root(), name.as_bytes()).unwrap().ino;
    for n in 0..OVERWRITES {
        let (ino, pages) = files[rng.random_range(0..files.len())];
        let most = if rng.random_range(0..8) == 0 { 40 } else { 4 };
        let from = rng.random_range(0..pages);
        for page in from..pages.min(from + rng.random_range(1..most)) {
            fs.write(ino, page * PAGE, &[2; PAGE as usize]).unwrap();
        }
        if n % 3 > 0 {
            fs.fsync(ino, false).unwrap();
        }
        if n % 4 == 0 {
            let (dir, name) = names(n / 4 + DIRS);
            let new = fs.create(lookup(&dir), name.as_bytes(), 0o644, Creator::default()).unwrap();
            fs.fsync(new.ino, false).unwrap();
            let (dir, name) = names(n / 4);
            fs.unlink(lookup(&dir), name.as_bytes()).ok();
        }
        if n % 200 == 0 {
            fs.sync().unwrap();
        }
    }
}

/// What is wrong with a volume of this geometry after one of some cuts.
fn broken(spec: &Spec, options: &str, percent: u64, seed: u64, every: u64) -> Vec<String> {
    let setting = format!("{options}, {percent}%, seed {seed}");
    let ssd = Ssd::new(spec.clone().unkind(), Timing::Instant, seed).unwrap();
    let (every_of, kept) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let drive = Arc::new(Cuts { below: ssd, every: every_of, seen: AtomicU64::new(0), kept });
    let dynamic: Arc<dyn Drive> = drive.clone();
    format(&dynamic, &MkfsOptions::default()).unwrap();
    let fs = mount_on(drive.clone(), options);
    let files = fill(&fs, percent);
    drive.every.store(every, Ordering::Relaxed);
    overwrite(&fs, &files, seed);
    drive.every.store(0, Ordering::Relaxed);
    fs.unmount().unwrap();
    assert_eq!(findings(&drive.below.power_off()), "", "{setting}");
    let mut wrong = Vec::new();
    for (at, state) in std::mem::take(&mut *drive.kept.lock()) {
        let below = power_on(&state);
        match F2fs::mount(below.clone(), &options.parse().unwrap()) {
            Ok(fs) => {
                for (ino, _) in &files {
                    fs.getattr(*ino).unwrap();
                }
                fs.unmount().unwrap();
                if at.is_multiple_of(10 * every) {
                    let found = findings(&below.power_off());
                    assert_eq!(found, "", "{setting}, cut {at}");
                }
            }
            Err(error) => wrong.push(format!("{setting}, cut {at}: {error}")),
        }
    }
    wrong
}

fn zoned(zones: u32) -> Spec {
    Spec::named("zn540-noplp").unwrap().zone_size(512, 512).zones(zones, 8)
}

fn plain(mib: u64) -> Spec {
    Spec::named("conventional-noplp").unwrap().blocks(mib << 8)
}

const MODES: [&str; 3] = ["", "fsync_mode=strict", "fsync_mode=strict,oprw"];

/// Geometries by name, with a mount option for all modes.
type Geometry = (String, Spec, &'static str);

fn with_zones(zones: impl IntoIterator<Item = u32>) -> Vec<Geometry> {
    zones.into_iter().map(|n| (format!("{n} zones"), zoned(n), "")).collect()
}

fn without_zones(mib: impl IntoIterator<Item = u64>) -> Vec<Geometry> {
    mib.into_iter().map(|mib| (format!("{mib} MiB"), plain(mib), "mode=lfs")).collect()
}

fn sweep(geometries: &[Geometry], percents: &[u64], every: u64) {
    let (mut wrong, mut runs) = (Vec::new(), 0);
    for (name, spec, more) in geometries {
        for mode in MODES {
            let options = [*more, mode].into_iter().filter(|o| !o.is_empty());
            let options = options.collect::<Vec<_>>().join(",");
            for &percent in percents {
                runs += 1;
                let found = broken(spec, &options, percent, runs, every);
                wrong.extend(found.into_iter().map(|found| format!("{name}, {found}")));
            }
        }
    }
    eprintln!("{runs} runs");
    assert!(wrong.is_empty(), "{} cuts:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_smallest_mount_after_every_cut() {
    sweep(&with_zones([26, 33]), &[95], 401);
    sweep(&without_zones([48, 64]), &[80], 401);
}

#[test]
#[ignore = "long: make test-all"]
fn every_small_one_with_zones_mounts_after_every_cut() {
    sweep(&with_zones(24..=80), &[90, 95, 97, 98, 99, 100], 301);
}

#[test]
#[ignore = "long: make test-all"]
fn every_small_one_without_zones_mounts_after_every_cut() {
    sweep(&without_zones((44..=256).step_by(12)), &[50, 80, 90, 95, 98, 100], 301);
}
