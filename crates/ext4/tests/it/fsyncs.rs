//! What an fsync, an fdatasync and a file system that cannot be written wait for.

use std::sync::Arc;

use crate::harness::Image;
use drive::{Drive, Ssd};
use ext4::{Ext4, Format, MountOptions};
use vfs::kind::Format as _;
use vfs::path::read_to_vec;
use vfs::{Creator, Errno, FallocateMode, FileSystem, Ino, SetAttr};

const PAGE: usize = 4096;

fn volume(options: &str) -> (Arc<Ssd>, Ext4) {
    let ram = drive::ram(8 << 10);
    let dynamic: Arc<dyn Drive> = ram.clone();
    Format.make(&dynamic).unwrap();
    let fs = Ext4::mount(dynamic, &options.parse().unwrap()).unwrap();
    (ram, fs)
}

fn create(fs: &dyn FileSystem, name: &[u8]) -> Ino {
    fs.create(fs.root(), name, 0o644, Creator::default()).unwrap().ino
}

/// Blocks that `work` writes.
fn written(ram: &Ssd, work: impl FnOnce()) -> u64 {
    let before = ram.stats().blocks_written;
    work();
    ram.stats().blocks_written - before
}

/// `ext4_sync_file` commits `i_datasync_tid`, in which the times of an overwrite are not.
#[test]
fn an_fdatasync_of_an_overwrite_commits_nothing() {
    for options in
        ["", "data=writeback", "journal=ijournal", "journal=zjournal", "journal=zgrouped"]
    {
        let (ram, fs) = volume(options);
        let ino = create(&fs, b"file");
        fs.write(ino, 0, &[1; 4 * PAGE]).unwrap();
        fs.fsync(ino, false).unwrap();
        for round in 0..3 {
            fs.write(ino, PAGE as u64, &[2 + round; PAGE]).unwrap();
            let blocks = written(&ram, || fs.fsync(ino, true).unwrap());
            assert_eq!(blocks, 1, "{options}: the page alone");
        }
        fs.write(ino, PAGE as u64, &[9; PAGE]).unwrap();
        let blocks = written(&ram, || fs.fsync(ino, false).unwrap());
        assert!(blocks > 1, "{options}: fsync makes times durable");
        fs.unmount().unwrap();
    }
}

/// A change of a file, and what it is called.
type Change = (&'static str, fn(&Ext4, Ino));

/// What it takes to find the contents is durable after an fdatasync.
#[test]
fn an_fdatasync_commits_sizes_and_maps() {
    let changes: [Change; 4] = [
        ("append", |fs, ino| {
            assert_eq!(fs.write(ino, 4 * PAGE as u64, &[3; 100]).unwrap(), 100);
        }),
        ("grow", |fs, ino| {
            let size = Some(10 * PAGE as u64);
            fs.setattr(ino, &SetAttr { size, ..SetAttr::default() }).unwrap();
        }),
        ("shrink", |fs, ino| {
            let size = Some(PAGE as u64);
            fs.setattr(ino, &SetAttr { size, ..SetAttr::default() }).unwrap();
        }),
        ("punch", |fs, ino| {
            let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
            fs.fallocate(ino, mode, 0, 2 * PAGE as u64).unwrap();
        }),
    ];
    for (what, change) in changes {
        let (ram, fs) = volume("");
        let ino = create(&fs, b"file");
        fs.write(ino, 0, &[1; 4 * PAGE]).unwrap();
        fs.fsync(ino, false).unwrap();
        change(&fs, ino);
        let blocks = written(&ram, || fs.fsync(ino, true).unwrap());
        assert!(blocks > 1, "{what}: {blocks} blocks");
        let right = vfs::path::read_to_vec(&fs, ino).unwrap();
        let left = Ssd::power_on(ram.survivors(1), drive::Timing::Instant, 1);
        let after = Ext4::mount(left, &MountOptions::default()).unwrap();
        let ino = after.lookup(after.root(), b"file").unwrap().ino;
        assert!(vfs::path::read_to_vec(&after, ino).unwrap() == right, "{what}");
    }
}

/// As Linux answers: nothing is dirty on a read-only mount; one that an error has stopped says so.
#[test]
fn an_fsync_of_a_read_only_volume_has_nothing_to_do() {
    let image = Image::new(16);
    {
        let fs = image.mount();
        let ino = create(&fs, b"file");
        fs.write(ino, 0, b"x").unwrap();
        fs.unmount().unwrap();
    }
    let fs = Format.mount(image.drive(), "ro").unwrap();
    let ino = fs.lookup(fs.root(), b"file").unwrap().ino;
    for ino in [ino, fs.root()] {
        fs.fsync(ino, false).unwrap();
        fs.fsync(ino, true).unwrap();
    }
    fs.sync().unwrap();
    let write = fs.write(ino, 0, b"y").map_err(|error| error.errno());
    assert_eq!(write, Err(Errno::ROFS));
}

/// A program that writes without pause does not keep a range from being moved.
#[test]
fn a_range_is_collapsed_while_the_file_is_written() {
    let image = Image::new(64);
    let fs = Arc::new(image.mount());
    let ino = create(&*fs, b"file");
    fs.write(ino, 0, &[1; 64 * PAGE]).unwrap();
    let is_done = Arc::new(cores::Line::new(0));
    let writers: Vec<_> = (0..3_u64)
        .map(|me| {
            let (fs, is_done) = (fs.clone(), is_done.clone());
            cores::spawn("writer", None, move || {
                let mut writes = 0;
                while is_done.load() == 0 && writes < 200_000 {
                    fs.write(ino, (32 + me) * PAGE as u64, &[2; PAGE]).unwrap();
                    writes += 1;
                }
                is_done.load() == 1
            })
        })
        .collect();
    for _ in 0..8 {
        fs.fallocate(ino, FallocateMode::COLLAPSE_RANGE, 0, PAGE as u64).unwrap();
    }
    is_done.store(1);
    for writer in writers {
        assert!(writer.join(), "it was done only when nobody wrote any more");
    }
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("collapsed");
}

/// A list of orphans is read in time that grows with its length, not with its square.
#[test]
fn many_orphans_are_freed_at_the_next_mount() {
    const COUNT: usize = 3_000;
    let image = Image::with_inodes(64, COUNT as u32 + 100);
    {
        let fs = image.mount();
        for n in 0..COUNT {
            let name = format!("{n}");
            let ino = create(&fs, name.as_bytes());
            fs.open(ino).unwrap();
            fs.unlink(fs.root(), name.as_bytes()).unwrap();
        }
        fs.sync().unwrap();
        // The power fails while all are open.
    }
    let fs = image.mount();
    assert_eq!(fs.orphans(), COUNT);
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("freed");
}

/// Without a log a new file's fdatasync still writes the inode, map and name that lead to its
/// contents (`ext4_fsync_nojournal`), and the blocks of an unlinked file are not used again before:
/// also on a volume whose log has been used, where numbers of transactions go on.
#[test]
fn without_a_log_an_fdatasync_writes_what_leads_to_the_contents() {
    for uses_log in [false, true] {
        let ram = drive::ram(8 << 10);
        let drive: Arc<dyn Drive> = ram.clone();
        Format.make(&drive).unwrap();
        if uses_log {
            let fs = Ext4::mount(drive.clone(), &MountOptions::default()).unwrap();
            for n in 0..50_u8 {
                fs.fsync(create(&fs, &[b'a' + n]), false).unwrap();
            }
            fs.unmount().unwrap();
        }
        let fs = Ext4::mount(drive.clone(), &"journal=none".parse().unwrap()).unwrap();
        let ino = create(&fs, b"new");
        fs.write(ino, 0, &[1; 5000]).unwrap();
        fs.fsync(ino, true).unwrap();
        drop(fs);
        // The power fails.
        let fs = Ext4::mount(drive, &MountOptions::default()).unwrap();
        let ino = fs.lookup(fs.root(), b"new").unwrap().ino;
        assert_eq!(read_to_vec(&fs, ino).unwrap(), [1; 5000], "{uses_log}");
    }
}
