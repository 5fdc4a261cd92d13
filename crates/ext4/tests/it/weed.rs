//! Inodes leave memory when there are many.

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
