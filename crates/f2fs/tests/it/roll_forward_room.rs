//! What recovery takes must fit, although it finds in use what was freed since the checkpoint.

use std::sync::Arc;

use cores::{Machine, Profile};
use drive::{Drive, Ssd, Timing};
use f2fs::F2fs;
use f2fs::mkfs::{MkfsOptions, format};
use vfs::{Creator, FallocateMode, FileSystem, Ino, SetAttr};

use crate::harness;

const PAGE: u64 = 4096;

fn formatted(drive: Arc<dyn Drive>) -> F2fs {
    format(&drive, &MkfsOptions::default()).unwrap();
    F2fs::mount(drive, &"".parse().unwrap()).unwrap()
}

fn small_drive() -> Arc<dyn Drive> {
    drive::ram(1 << 15)
}

fn create(fs: &F2fs, name: &str) -> Ino {
    fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default()).unwrap().ino
}

fn free(fs: &F2fs) -> u64 {
    fs.statfs().unwrap().blocks_free
}

/// At the checkpoint few blocks are free; then those of a large file are given back, which no fsync
/// makes durable. Returns another file, of one block.
fn free_since_the_checkpoint(fs: &F2fs, left: u64) -> Ino {
    let (large, other) = (create(fs, "large"), create(fs, "other"));
    fs.write(other, 0, &[1; PAGE as usize]).unwrap();
    fs.fallocate(large, FallocateMode::empty(), 0, (free(fs) - left) * PAGE).unwrap();
    fs.sync().unwrap();
    fs.setattr(large, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
    other
}

#[test]
fn blocks_that_were_only_promised_count() {
    let drive = small_drive();
    let fs = formatted(drive.clone());
    let other = free_since_the_checkpoint(&fs, 200);
    fs.fallocate(other, FallocateMode::empty(), 0, 900 * PAGE).unwrap();
    fs.fsync(other, false).unwrap();
    drop(fs);
    let fs = F2fs::mount(drive, &"".parse().unwrap()).unwrap();
    assert_eq!(fs.getattr(other).unwrap().size, 900 * PAGE);
}

#[test]
fn so_do_those_of_a_file_that_grows_during_its_fsync() {
    let profile = Profile::named("xeon-4116").unwrap();
    for seed in 0..40 {
        let run = move || {
            let spec = harness::Kind::Conventional.spec();
            let drive = Ssd::new(spec, Timing::Virtual, seed).unwrap();
            let fs = Arc::new(formatted(drive.clone()));
            let other = free_since_the_checkpoint(&fs, 60);
            let growing = fs.clone();
            let grows = cores::spawn("append", Some(1), move || {
                cores::sleep(seed * 2_000);
                growing.write(other, PAGE, &[3; 64 * PAGE as usize]).unwrap();
            });
            fs.write(other, 0, &[2; PAGE as usize]).unwrap();
            fs.fsync(other, false).unwrap();
            let state = drive.cut(seed);
            grows.join();
            state
        };
        let state = Machine::simulated(&profile, seed).run(run).unwrap();
        let fs = F2fs::mount(harness::power_on(&state), &"".parse().unwrap());
        let fs = fs.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let other = fs.lookup(fs.root(), b"other").unwrap();
        let mut page = [0];
        fs.read(other.ino, 0, &mut page).unwrap();
        assert_eq!(page, [2], "seed {seed}");
    }
}

/// How many names fit into the inode of the root.
fn inline_names() -> usize {
    let fs = formatted(small_drive());
    let is_inline = |n: &usize| {
        let before = free(&fs);
        create(&fs, &format!("f{n:04}"));
        before - free(&fs) == 1
    };
    (0..).take_while(is_inline).count()
}

/// Leaves `left` blocks free.
fn fill(fs: &F2fs, file: Ino, left: u64) {
    fs.write(file, 0, &[1; PAGE as usize]).unwrap();
    let mut page = 1;
    while free(fs) > left {
        let most = (free(fs) - left).min(500);
        // Nodes take some of it, too.
        let fits = |count: &u64| {
            fs.fallocate(file, FallocateMode::empty(), page * PAGE, *count * PAGE).is_ok()
        };
        page += [most, 1].into_iter().find(fits).unwrap_or_default();
    }
}

#[test]
fn a_name_counts_that_took_the_place_of_one_that_recovery_finds() {
    let names = inline_names();
    for left in 0..4 {
        let drive = small_drive();
        let fs = formatted(drive.clone());
        let files: Vec<Ino> = (0..names).map(|n| create(&fs, &format!("f{n:04}"))).collect();
        fill(&fs, files[0], left);
        fs.sync().unwrap();
        fs.unlink(fs.root(), b"f0001").unwrap();
        let new = create(&fs, "g0001");
        fs.fsync(new, false).unwrap();
        drop(fs);
        let fs = F2fs::mount(drive, &"".parse().unwrap());
        let fs = fs.unwrap_or_else(|error| panic!("{left} blocks left: {error}"));
        assert!(fs.lookup(fs.root(), b"g0001").is_ok(), "{left} blocks left");
    }
}
