//! Cleaning of volumes that are 90% full, by the foreground cleaner and by SSR: everything stays
//! readable, and both judges find the volume clean afterwards.

use std::collections::BTreeMap;
use std::sync::Arc;

use drive::Ssd;
use f2fs::F2fs;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use vfs::ops::fill;
use vfs::{Creator, Errno, FileSystem, Ino, SetAttr};

use crate::harness::{self, Kind, checkpoint_of, dump, findings, mount};
use crate::judge::{Scratch, assert_fsck_clean};

const PAGE: u64 = 4096;
/// Blocks of a small file, and how many of them are made and removed between the overwrites.
const SMALL: u64 = 3;

/// Cleaned by age, however young.
const BY_AGE: &str = "atgc,atgc_age_threshold=0";

/// A volume being aged, and what each block of each of its files should hold.
struct Aged {
    fs: F2fs,
    drive: Arc<Ssd>,
    rng: Xoshiro256PlusPlus,
    files: BTreeMap<Ino, (String, Vec<u32>)>,
    made: u32,
    used_ssr: bool,
}

impl Aged {
    fn new(kind: Kind, options: &str, seed: u64) -> Self {
        let drive = kind.formatted(seed);
        let fs = mount(&drive, options);
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self { fs, drive, rng, files: BTreeMap::new(), made: 0, used_ssr: false }
    }

    /// Makes files of `pages` blocks until `percent` of what users may have is taken.
    fn fill_to(&mut self, percent: u64, pages: u64) {
        loop {
            let stat = self.fs.statfs().unwrap();
            let used = stat.blocks - stat.blocks_free;
            if used * 100 >= stat.blocks * percent {
                break;
            }
            self.make(pages);
        }
    }

    fn make(&mut self, pages: u64) {
        self.made += 1;
        let name = format!("f{}", self.made);
        let root = self.fs.root();
        let ino = self.fs.create(root, name.as_bytes(), 0o644, Creator::default()).unwrap().ino;
        self.files.insert(ino, (name, vec![0; pages as usize]));
        for page in 0..pages {
            self.write(ino, page);
        }
    }

    fn write(&mut self, ino: Ino, page: u64) {
        let seed = self.rng.random_range(1..u32::MAX);
        let mut data = vec![0; PAGE as usize];
        fill(seed, page * PAGE, &mut data);
        let wrote = self.fs.write(ino, page * PAGE, &data);
        wrote.unwrap_or_else(|e| panic!("write of {ino} page {page}: {e}"));
        self.files.get_mut(&ino).unwrap().1[page as usize] = seed;
    }

    fn any(&mut self) -> Ino {
        let n = self.rng.random_range(0..self.files.len());
        *self.files.keys().nth(n).unwrap()
    }

    fn remove(&mut self) {
        let ino = self.any();
        let (name, _) = self.files.remove(&ino).unwrap();
        self.fs.unlink(self.fs.root(), name.as_bytes()).unwrap();
    }

    /// Overwrites, removes and recreates, `rounds` times, at the same fullness.
    fn churn(&mut self, rounds: u32, percent: u64, pages: u64) {
        for round in 0..rounds {
            for _ in 0..100 {
                let ino = self.any();
                let pages = self.files[&ino].1.len() as u64;
                let page = self.rng.random_range(0..pages);
                self.write(ino, page);
            }
            for _ in 0..self.files.len() / 20 {
                self.remove();
            }
            self.fill_to(percent, pages);
            let ino = self.any();
            self.fs.fsync(ino, false).unwrap();
            if round % 3 == 0 {
                self.fs.sync().unwrap();
                let (_, checkpoint) = checkpoint_of(&self.drive.survivors(0));
                self.used_ssr |= checkpoint.cursegs.iter().any(|log| log.ssr);
            }
        }
    }

    fn assert_contents(&self, fs: &F2fs) {
        for (ino, (name, seeds)) in &self.files {
            let mut found = vec![0; seeds.len() * PAGE as usize];
            assert_eq!(fs.read(*ino, 0, &mut found).unwrap(), found.len(), "{name}");
            for ((page, found), seed) in found.chunks(PAGE as usize).enumerate().zip(seeds) {
                let mut expected = vec![0; PAGE as usize];
                fill(*seed, page as u64 * PAGE, &mut expected);
                assert!(found == expected, "{name} page {page}");
            }
        }
    }

    /// Reads everything, remounts, reads everything again, and asks the judges.
    fn finish(self) {
        self.assert_contents(&self.fs);
        self.fs.unmount().unwrap();
        let fs = mount(&self.drive, "cache=4m");
        self.assert_contents(&fs);
        fs.unmount().unwrap();
        let state = self.drive.power_off();
        assert_eq!(findings(&state), "");
        let scratch = Scratch::new();
        let image = scratch.dir().join("image");
        dump(&state, &image);
        assert_fsck_clean(&image);
    }
}

/// Overwrites in place would leave nothing to clean, so this volume is a log throughout.
#[test]
fn a_full_log_on_a_conventional_drive_is_cleaned() {
    let mut aged = Aged::new(Kind::Conventional, "mode=lfs,cache=4m", 1);
    aged.fill_to(90, 64);
    aged.churn(30, 90, 64);
    assert!(aged.fs.cleaned_sections() > 0);
    assert!(!aged.used_ssr);
    aged.finish();
}

/// Small files come and go, so that every segment is left with holes, and SSR fills them.
#[test]
fn a_full_conventional_drive_reuses_slots() {
    let mut aged = Aged::new(Kind::Conventional, "cache=4m", 2);
    aged.fill_to(90, SMALL);
    aged.churn(20, 90, SMALL);
    assert!(aged.used_ssr);
    aged.finish();
}

/// What the cleaner moves does not fill the slots it has just emptied: it would meet blocks there
/// that the summary on the drive does not know yet.
#[test]
fn moved_blocks_do_not_go_back_to_where_they_came_from() {
    let mut aged = Aged::new(Kind::Conventional, "cache=4m", 6);
    aged.fill_to(90, SMALL);
    for _ in 0..10 {
        aged.churn(2, 90, SMALL);
        for _ in 0..20 {
            match aged.fs.garbage_collect(true) {
                Err(error) if error.errno() == Errno::NODATA => break,
                cleaned => cleaned.unwrap(),
            }
        }
    }
    assert!(aged.fs.cleaned_sections() > 0);
    aged.finish();
}

#[test]
fn a_full_zoned_drive_is_cleaned() {
    for (seed, options) in ["cache=4m", "oprw,cache=4m"].into_iter().enumerate() {
        let mut aged = Aged::new(Kind::Zoned, options, seed as u64);
        aged.fill_to(90, 64);
        aged.churn(30, 90, 64);
        assert!(aged.fs.cleaned_sections() > 0);
        aged.finish();
    }
}

/// The background cleaner gives back what truncation left in pieces.
#[test]
fn cleaning_in_the_background_frees_sections() {
    let lfs = Kind::ALL.map(|kind| (kind, "mode=lfs"));
    for (kind, options) in lfs.into_iter().chain([(Kind::Conventional, BY_AGE)]) {
        let mut aged = Aged::new(kind, options, 4);
        aged.fill_to(60, 64);
        aged.fs.sync().unwrap();
        let inos: Vec<_> = aged.files.keys().copied().collect();
        for ino in inos {
            let half = SetAttr { size: Some(32 * PAGE), ..SetAttr::default() };
            aged.fs.setattr(ino, &half).unwrap();
            aged.files.get_mut(&ino).unwrap().1.truncate(32);
        }
        aged.fs.sync().unwrap();
        let free = |aged: &Aged| checkpoint_of(&aged.drive.survivors(0)).1.free_segment_count;
        let before = free(&aged);
        for _ in 0..12 {
            assert!(aged.fs.background_gc().unwrap(), "{kind:?}: nothing to clean");
        }
        assert!(free(&aged) > before, "{kind:?}: {before} segments free before and after");
        aged.finish();
    }
}

/// Cleaning between a write and its fsync must not make half of it durable if the fsync is all or
/// nothing.
#[test]
fn strict_moves_what_is_durable() {
    let mut aged = Aged::new(Kind::Zoned, "fsync_mode=strict,oprw", 5);
    aged.fill_to(40, 64);
    aged.fs.sync().unwrap();
    // Something to clean.
    let inos: Vec<_> = aged.files.keys().copied().collect();
    for &ino in &inos {
        (0..32).for_each(|page| aged.write(ino, page));
    }
    aged.fs.sync().unwrap();
    let durable = aged.files.clone();
    for ino in inos {
        (0..64).for_each(|page| aged.write(ino, page));
    }
    for _ in 0..4 {
        assert!(aged.fs.background_gc().unwrap(), "nothing to clean");
    }
    aged.fs.write_checkpoint().unwrap();
    let cut = aged.drive.cut(5);
    aged.files = durable;
    aged.assert_contents(&mount(&harness::power_on(&cut), "fsync_mode=strict,oprw"));
}
