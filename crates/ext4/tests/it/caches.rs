//! Small caches: inodes leave memory when there are many, and pages when one is needed.

use ext4::Ext4;
use vfs::kind::Volume;
use vfs::{Creator, FileSystem, SetAttr};

use crate::harness::Image;

const DIRS: u64 = 20;
const FILES: u64 = 2_000;
/// What the smallest cache has room for: 16 for each of 1,024 locks.
const MOST: u64 = 16 << 10;

fn in_memory(fs: &Ext4) -> u64 {
    fs.status()["cache/inodes"].as_u64().unwrap()
}

fn name(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

#[test]
fn more_files_than_memory_has_room_for() {
    let image = Image::with_options(256, "", &["-N", "50000"]);
    let fs = image.mount_with("cache=1m");
    let sizes = |dir| (0..FILES).map(move |n| (name(n), dir * FILES + n));
    for dir in 0..DIRS {
        let parent = fs.mkdir(fs.root(), &name(dir), 0o755, Creator::default()).unwrap().ino;
        for (name, size) in sizes(dir) {
            let file = fs.create(parent, &name, 0o644, Creator::default()).unwrap().ino;
            fs.setattr(file, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
        }
        fs.sync().unwrap();
    }
    // What is made is known, until so much else is that it has to go.
    let made = in_memory(&fs);
    assert!(made <= 2 * MOST, "{made} of {} files in memory", DIRS * FILES);
    for dir in 0..DIRS {
        let parent = fs.lookup(fs.root(), &name(dir)).unwrap().ino;
        for (name, size) in sizes(dir) {
            assert_eq!(fs.lookup(parent, &name).unwrap().size, size);
        }
        assert!(in_memory(&fs) <= made.max(MOST));
    }
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("filled");
}

/// A write that needs a page evicts another one, never that which it has just read: it would read
/// both in turn for ever.
#[test]
fn small_overwrites_of_a_file_larger_than_the_cache_end() {
    const SIZE: u64 = 16 << 20;
    for block_size in ["4096", "1024"] {
        let image = Image::with_options(64, "", &["-b", block_size]);
        let fs = image.mount_with("cache=1m");
        let ino = fs.create(fs.root(), b"file", 0o644, Creator::default()).unwrap().ino;
        fs.write(ino, 0, &vec![1; SIZE as usize]).unwrap();
        fs.sync().unwrap();
        let mut at = 1_u64;
        for _ in 0..20_000 {
            // Two pages of which a part is written, or one.
            at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let len = if at.is_multiple_of(2) { 100 } else { 5000 };
            fs.write(ino, (at >> 20) % (SIZE - 5000), &[2; 5000][..len]).unwrap();
        }
        fs.unmount().unwrap();
        drop(fs);
        image.assert_clean("overwritten");
    }
}
