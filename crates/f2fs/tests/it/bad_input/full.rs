//! Volumes filled in every way.

use std::path::Path;

use f2fs::F2fs;
use vfs::{Creator, Errno, FileSystem, XattrMode};

use super::{small_drive, try_mount};
use crate::harness::{Kind, dump};
use crate::judge::{Scratch, assert_fsck_clean};

/// A way to fill a volume, and to undo some of it.
struct Filling {
    name: &'static str,
    fill: fn(&F2fs, u32) -> vfs::Result<()>,
    free: fn(&F2fs, u32) -> vfs::Result<()>,
}

fn numbered(i: u32, len: usize) -> Vec<u8> {
    format!("{i:0len$}").into_bytes()
}

fn write_file(fs: &F2fs, i: u32) -> vfs::Result<()> {
    let ino = fs.create(fs.root(), &numbered(i, 8), 0o644, Creator::default())?.ino;
    let data = vec![i as u8; 512 * 1024];
    let written = fs.write(ino, 0, &data)?;
    if written < data.len() { Err(Errno::NOSPC.into()) } else { Ok(()) }
}

fn write_node(fs: &F2fs, i: u32) -> vfs::Result<()> {
    let ino = fs.create(fs.root(), &numbered(i, 8), 0o644, Creator::default())?.ino;
    fs.setxattr(ino, b"user.large", &[7; 3800], XattrMode::Set)
}

fn write_entry(fs: &F2fs, i: u32) -> vfs::Result<()> {
    let target = match fs.lookup(fs.root(), b"target") {
        Ok(attr) => attr.ino,
        Err(_) => fs.create(fs.root(), b"target", 0o644, Creator::default())?.ino,
    };
    fs.link(target, fs.root(), &numbered(i, 255)).map(drop)
}

fn unlink<const LEN: usize>(fs: &F2fs, i: u32) -> vfs::Result<()> {
    fs.unlink(fs.root(), &numbered(i, LEN))
}

const FILLINGS: [Filling; 3] = [
    Filling { name: "data", fill: write_file, free: unlink::<8> },
    Filling { name: "nodes", fill: write_node, free: unlink::<8> },
    Filling { name: "entries", fill: write_entry, free: unlink::<255> },
];

/// `ENOSPC` and nothing else; existing data can be fsynced, freed and reused.
fn fill_and_go_on(kind: Kind, filling: &Filling, image: &Path) {
    let what = format!("{kind:?} {}", filling.name);
    let drive = small_drive(kind);
    let fs = try_mount(drive.clone(), "").unwrap();
    let filled = (0..).find_map(|i| (filling.fill)(&fs, i).err().map(|error| (i, error)));
    let (count, error) = filled.expect("it ends");
    assert_eq!(error.errno(), Errno::NOSPC, "{what} {count}: {error}");
    assert!(count > 10, "{what}: only {count}");
    fs.fsync(fs.root(), false).unwrap_or_else(|e| panic!("{what}: fsync when full: {e}"));
    fs.sync().unwrap_or_else(|e| panic!("{what}: sync when full: {e}"));
    for i in (0..count).step_by(2) {
        (filling.free)(&fs, i).unwrap_or_else(|e| panic!("{what}: free {i}: {e}"));
    }
    fs.sync().unwrap_or_else(|e| panic!("{what}: sync after freeing: {e}"));
    for i in (0..count / 2).step_by(2) {
        (filling.fill)(&fs, i).unwrap_or_else(|e| panic!("{what}: again {i}: {e}"));
    }
    fs.unmount().unwrap();
    dump(&drive.power_off(), image);
    assert_fsck_clean(image);
}

#[test]
fn a_full_volume_goes_on() {
    let scratch = Scratch::new();
    for kind in Kind::ALL {
        for filling in &FILLINGS {
            fill_and_go_on(kind, filling, &scratch.dir().join("image"));
        }
    }
}

#[test]
fn too_many_attributes_for_one_inode() {
    let fs = try_mount(small_drive(Kind::Conventional), "").unwrap();
    let ino = fs.create(fs.root(), b"f", 0o644, Creator::default()).unwrap().ino;
    let set = |i: u32| fs.setxattr(ino, format!("user.{i}").as_bytes(), &[1; 500], XattrMode::Set);
    let (count, error) = (0..100).find_map(|i| set(i).err().map(|e| (i, e))).expect("a limit");
    // As `__f2fs_setxattr`.
    assert_eq!(error.errno(), Errno::TOOBIG);
    assert_eq!(fs.listxattr(ino).unwrap().len() as u32, count, "the others are still there");
}
