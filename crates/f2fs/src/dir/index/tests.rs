use std::sync::Arc;

use drive::{Drive, Spec, Ssd, Timing};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use vfs::{Creator, FileSystem, Ino, RenameFlags, file};

use super::*;
use crate::F2fs;
use crate::dir::entries::Names;
use crate::offline::mkfs::{MkfsOptions, format};
use crate::ondisk::BLOCK_SIZE;
use crate::ondisk::encoding::Casefold;
use crate::ondisk::inode::{FileFlags, Inline};
use crate::ondisk::superblock::Features;

type Random = Xoshiro256PlusPlus;

impl Inodes {
    /// Indexes take up to `bytes` from now on.
    fn limit_names(&mut self, bytes: u64) {
        let room = Arc::new(NameRoom::new(bytes));
        room.bytes.store(self.names.bytes.load());
        // A shard that was made later would have the old room.
        for nid in 0..1 << 16 {
            self.of(nid);
        }
        self.all().for_each(|shard| shard.names.room = room.clone());
        self.names = room;
    }
}

/// A volume with two directories, and room for indexes of `limit` bytes.
fn volume(limit: u64) -> (F2fs, [Ino; 2]) {
    let spec = Spec::named("ram").unwrap().blocks(64 << 10);
    let drive: Arc<dyn Drive> = Ssd::new(spec, Timing::Instant, 1).unwrap();
    let features = Features::EXTRA_ATTR | Features::CASEFOLD;
    format(&drive, &MkfsOptions { features, ..MkfsOptions::default() }).unwrap();
    let fs = F2fs::mount(drive, &"cache=1m".parse().unwrap()).unwrap();
    fs.lock().inodes.limit_names(limit);
    let dirs = ["one", "two"]
        .map(|name| fs.mkdir(fs.root(), name.as_bytes(), 0o755, Creator::default()).unwrap().ino);
    (fs, dirs)
}

/// A name of 1 to 255 bytes, most often of a few.
fn name(random: &mut Random, names: u32) -> Vec<u8> {
    let number = random.random_range(0..names);
    let len = if number % 50 == 0 { 255 } else { number as usize % 40 };
    format!("{number:x<len$}").into_bytes()
}

/// Fails unless index and walk say the same of `name`.
fn compare(engine: &mut Engine, dir: Ino, name: &[u8]) {
    let dir = dir as Nid;
    let Ok(Some(wanted)) = engine.naming(dir).unwrap().wanted(name) else { return };
    let (depth, dir_level) = {
        let inode = engine.raw_inode(dir).unwrap();
        (inode.current_depth.get(), inode.dir_level)
    };
    let found = format!("{:?}", engine.find_wanted(dir, &wanted));
    let is_inline = engine.raw_inode(dir).unwrap().inline().contains(Inline::DENTRY);
    if !is_inline {
        let walked = format!("{:?}", engine.walk(dir, &wanted, depth, dir_level));
        assert_eq!(found, walked, "{}", String::from_utf8_lossy(name));
    }
}

/// Random creations, removals and renames of `names` names. Returns the directories as they are
/// listed.
fn change(fs: &F2fs, dirs: [Ino; 2], seed: u64, names: u32) -> Vec<(Vec<u8>, u64)> {
    let mut random = Random::seed_from_u64(seed);
    for step in 0..6000 {
        let (dir, other) = (dirs[random.random_range(0..2)], dirs[random.random_range(0..2)]);
        let (name, new_name) = (name(&mut random, names), name(&mut random, names));
        // More creations at first, more removals in the end.
        match random.random_range(0..10_000 + step) {
            0..6000 => drop(fs.create(dir, &name, 0o644, Creator::default())),
            6000..8000 => drop(fs.rename(dir, &name, other, &new_name, RenameFlags::empty())),
            8000..8100 => drop(fs.rename(dir, &name, other, &new_name, RenameFlags::EXCHANGE)),
            _ => drop(fs.unlink(dir, &name)),
        }
        let engine = &mut *fs.lock();
        compare(engine, dir, &name);
        compare(engine, other, &new_name);
        engine.inodes.make_room();
        let room = &engine.inodes.names;
        assert!(room.bytes.load() as usize <= room.limit.max(3 * size_of::<NameIndex>()));
    }
    let mut all = Vec::new();
    for dir in dirs {
        fs.readdir(dir, 0, &mut |entry| {
            all.push((entry.name, entry.next));
            true
        })
        .unwrap();
    }
    all
}

fn answering(fs: &F2fs, dirs: [Ino; 2]) -> [Option<bool>; 2] {
    let mut engine = fs.lock();
    dirs.map(|dir| engine.inodes.of(dir as Nid).names.answers(dir as Nid))
}

#[test]
fn index_and_walk_agree_and_put_names_in_the_same_places() {
    for seed in 0..6 {
        let mut listed = Vec::new();
        // Without indexes; with room for one of two now and then; for both.
        for limit in [0, 40_000, 1 << 20] {
            let (fs, dirs) = volume(limit);
            listed.push(change(&fs, dirs, seed, 4000));
            if limit == 1 << 20 {
                assert_eq!(answering(&fs, dirs), [Some(true); 2], "seed {seed}");
            }
        }
        assert!(listed[0].len() > 1500, "{} names", listed[0].len());
        assert_eq!(listed[0], listed[1], "seed {seed}");
        assert_eq!(listed[0], listed[2], "seed {seed}");
    }
}

#[test]
fn folded_names_are_found_by_their_index() {
    let (fs, dirs) = volume(1 << 20);
    for dir in dirs {
        let dir = dir as Nid;
        let engine = &mut *fs.lock();
        Arc::make_mut(&mut engine.sb).casefold = Some(Casefold { strict: false, linear: true });
        let raw = engine.inode_mut(dir).unwrap();
        raw.flags.set((raw.file_flags() | FileFlags::CASEFOLD).bits());
    }
    change(&fs, dirs, 1, 4000);
    for number in 0..3000 {
        let _ = fs.create(dirs[0], format!("Name {number}").as_bytes(), 0o644, Creator::default());
        let folded = format!("nAmE {number}");
        fs.lookup(dirs[0], folded.as_bytes()).unwrap();
        compare(&mut fs.lock(), dirs[0], folded.as_bytes());
    }
    assert_eq!(answering(&fs, dirs)[0], Some(true));
}

/// Any bytes in the blocks of a directory: the index sees what the walk sees, errors too.
#[test]
fn damaged_blocks_read_the_same_with_an_index() {
    for seed in 0..40 {
        let mut random = Random::seed_from_u64(seed);
        let (fs, dirs) = volume(1 << 20);
        for number in 0..3000 {
            let name = format!("name {number}");
            fs.create(dirs[0], name.as_bytes(), 0o644, Creator::default()).unwrap();
        }
        let engine = &mut *fs.lock();
        let dir = dirs[0] as Nid;
        engine.inodes.of(dir).names.forget(dir);
        for _ in 0..random.random_range(1..2000) {
            let index = random.random_range(0..30);
            let page = file::page_to_change(engine, dir, index).unwrap();
            // Most often among the bitmap and the entries.
            let end = if random.random_bool(0.9) { 2400 } else { BLOCK_SIZE };
            page[random.random_range(0..end)] = random.random();
        }
        for number in 0..3000 {
            compare(engine, dirs[0], format!("name {number}").as_bytes());
        }
        assert_eq!(engine.inodes.of(dir).names.answers(dir), Some(true), "seed {seed}");
    }
}

#[test]
fn an_index_that_nobody_uses_makes_room() {
    let (fs, dirs) = volume(60_000);
    for (dir, expected) in [(dirs[0], [Some(true), None]), (dirs[1], [None, Some(true)])] {
        for number in 0..3000 {
            let name = format!("{number}");
            fs.create(dir, name.as_bytes(), 0o644, Creator::default()).unwrap();
        }
        assert_eq!(answering(&fs, dirs), expected);
    }
}

#[test]
fn a_directory_without_room_is_left_out_and_tried_again() {
    let (fs, dirs) = volume(20_000);
    let mut made = 0;
    while answering(&fs, dirs)[0] != Some(false) {
        made += 1;
        fs.create(dirs[0], format!("{made}").as_bytes(), 0o644, Creator::default()).unwrap();
    }
    fs.lock().inodes.limit_names(1 << 20);
    // Who only looks walks, and does not wait for it.
    fs.lookup(dirs[0], b"1").unwrap();
    let mut walks = 0;
    while answering(&fs, dirs)[0] != Some(true) {
        walks += 1;
        assert!(walks < 2 * WALKS, "it never was");
        assert!(fs.unlink(dirs[0], b"none").is_err());
    }
    assert!(walks > WALKS / 2, "after {walks} walks");
    (1..=made).for_each(|n| compare(&mut fs.lock(), dirs[0], format!("{n}").as_bytes()));
}

/// Figures of the module's header, and of the mount option `cache`.
#[test]
fn a_name_takes_less_than_24_bytes() {
    for names in [50_000, 100_000, 183_000] {
        let mut index = NameIndex::new(0);
        let mut random = Random::seed_from_u64(1);
        for n in 0..names {
            let hash = random.random();
            let bucket = bucket_of(9, 0, hash);
            index.insert(hash, bucket.start + n % 2, n as usize % 214);
        }
        let each = index.bytes / names as usize;
        assert!((10..24).contains(&each), "{each} bytes with {names} names");
    }
}
