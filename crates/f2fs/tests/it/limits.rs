//! The ends of the format: the largest file, many files, long names, deep trees, a full volume.

use std::collections::BTreeSet;
use std::sync::Arc;

use drive::{Drive, Spec, Ssd, Timing};
use f2fs::F2fs;
use vfs::{Creator, Errno, FileSystem, Ino, RenameFlags, Seek, SetAttr};

use crate::harness::{Kind, findings, mkfs_options, mount, power_on};

const PAGE: u64 = 4096;

fn create_in(fs: &F2fs, dir: Ino, name: &[u8]) -> vfs::Result<Ino> {
    Ok(fs.create(dir, name, 0o644, Creator::default())?.ino)
}

fn finish(drive: &Ssd, fs: &F2fs) {
    fs.unmount().unwrap();
    assert_eq!(findings(&drive.power_off()), "");
}

/// A new volume of `mib` MiB without zones.
fn volume(mib: u64) -> Arc<Ssd> {
    let spec = Spec::named("ram").unwrap().blocks(mib * 256);
    let drive = Ssd::new(spec, Timing::Instant, 1).unwrap();
    let dynamic: Arc<dyn Drive> = drive.clone();
    f2fs::mkfs::format(&dynamic, &mkfs_options()).unwrap();
    drive
}

/// Blocks a file can have: 914 in an inode with extra attributes and room for inline ones, then
/// two direct, two indirect and one double-indirect node.
#[test]
fn the_largest_file_ends_where_it_must() {
    for kind in Kind::ALL {
        let drive = kind.formatted(1);
        let fs = mount(&drive, "");
        let ino = create_in(&fs, fs.root(), b"large").unwrap();
        let below = 2 * 1018 + 2 * 1018_u64.pow(2) + 1018_u64.pow(3);
        let size = |blocks: u64| SetAttr { size: Some(blocks * PAGE), ..SetAttr::default() };
        let blocks = (below..below + 924).rev().find(|n| fs.setattr(ino, &size(*n)).is_ok());
        let end = blocks.expect("some size is allowed") * PAGE;
        assert!(end > below * PAGE);
        fs.setattr(ino, &size(0)).unwrap();
        assert_eq!(fs.write(ino, end - 100, &[7; 300]).unwrap(), 100, "as far as it goes");
        assert_eq!(fs.getattr(ino).unwrap().size, end);
        for offset in [end, end + 1, u64::MAX - 5] {
            assert_eq!(fs.write(ino, offset, b"x").unwrap_err().errno(), Errno::FBIG);
        }
        // A sparse page at the end of what each kind of node covers.
        for at in [914, 914 + 2 * 1018, 914 + 2 * 1018 + 2 * 1018 * 1018, below - 1] {
            fs.write(ino, at * PAGE, &[9; 4096]).unwrap();
        }
        fs.fsync(ino, false).unwrap();
        let cut = power_on(&drive.survivors(1));
        let fs = mount(&cut, "");
        let mut tail = [0; 200];
        assert_eq!(fs.read(ino, end - 100, &mut tail).unwrap(), 100);
        assert_eq!(tail[..100], [7; 100]);
        assert_eq!(fs.lseek(ino, below * PAGE, Seek::Data).unwrap(), end - PAGE);
        assert_eq!(fs.lseek(ino, 0, Seek::Data).unwrap(), 914 * PAGE);
        fs.setattr(ino, &size(1)).unwrap();
        assert!(fs.getattr(ino).unwrap().blocks <= 8);
        finish(&cut, &fs);
    }
}

/// Makes `count` files in one directory, finds them, and removes them while reading on from
/// cookies: each is seen exactly once.
fn one_directory(drive: &Arc<Ssd>, count: u32) {
    let fs = mount(drive, "");
    let dir = fs.mkdir(fs.root(), b"dir", 0o755, Creator::default()).unwrap().ino;
    let name = |n: u32| format!("a file among many, number {n}").into_bytes();
    for n in 0..count {
        create_in(&fs, dir, &name(n)).unwrap();
    }
    let fs = {
        fs.unmount().unwrap();
        mount(drive, "")
    };
    for n in (0..count).step_by(7) {
        fs.lookup(dir, &name(n)).unwrap();
        assert_eq!(fs.lookup(dir, &name(count + n)).unwrap_err().errno(), Errno::NOENT);
    }
    let (mut seen, mut from) = (0, 0);
    loop {
        let mut batch = Vec::new();
        fs.readdir(dir, from, &mut |entry| {
            batch.push((entry.name, entry.next));
            batch.len() < 100
        })
        .unwrap();
        let Some((_, next)) = batch.last() else { break };
        from = *next;
        for (name, _) in &batch {
            if name != b"." && name != b".." {
                // Seen twice, it would be gone by now.
                fs.unlink(dir, name).unwrap();
                seen += 1;
            }
        }
    }
    assert_eq!(seen, count);
    fs.rmdir(fs.root(), b"dir").unwrap();
    finish(drive, &fs);
}

#[test]
fn fifty_thousand_files_in_one_directory() {
    one_directory(&volume(512), 50_000);
}

#[test]
#[ignore = "long: a million files, minutes"]
fn a_million_files_in_one_directory() {
    one_directory(&volume(8 * 1024), 1_000_000);
}

/// Every inode takes a block, so a volume runs out of these first; nothing is lost by it.
#[test]
fn a_volume_full_of_inodes_takes_new_ones_after_some_are_gone() {
    let drive = volume(64);
    let fs = mount(&drive, "");
    let mut made = 0_u32;
    let full = loop {
        match create_in(&fs, fs.root(), format!("{made}").as_bytes()) {
            Ok(_) => made += 1,
            Err(error) => break error.errno(),
        }
    };
    assert_eq!(full, Errno::NOSPC);
    assert!(made > 4000, "{made}");
    assert!(fs.statfs().unwrap().files_free < 10);
    fs.sync().unwrap();
    for n in 0..made {
        fs.lookup(fs.root(), format!("{n}").as_bytes()).unwrap();
    }
    for n in 0..100 {
        fs.unlink(fs.root(), format!("{n}").as_bytes()).unwrap();
    }
    for n in 0..100 {
        create_in(&fs, fs.root(), format!("{n}").as_bytes()).unwrap();
    }
    finish(&drive, &fs);
}

#[test]
fn names_of_any_bytes_and_full_length() {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, "");
    let bytes: Vec<u8> = (1..=255).filter(|b| *b != b'/').collect();
    let mut names: Vec<Vec<u8>> =
        (0..200_usize).map(|n| bytes.iter().cycle().skip(n).take(255).copied().collect()).collect();
    names.push(vec![0xff; 255]);
    for name in &names {
        let ino = create_in(&fs, fs.root(), name).unwrap();
        fs.fsync(ino, false).unwrap();
    }
    let long = [b'x'; 256];
    assert_eq!(create_in(&fs, fs.root(), &long).unwrap_err().errno(), Errno::NAMETOOLONG);
    let cut = power_on(&drive.survivors(1));
    let fs = mount(&cut, "");
    let mut found = BTreeSet::new();
    fs.readdir(fs.root(), 0, &mut |entry| found.insert(entry.name)).unwrap();
    for name in &names {
        fs.lookup(fs.root(), name).unwrap();
        assert!(found.contains(name));
    }
    finish(&cut, &fs);
}

#[test]
fn a_tree_a_thousand_deep() {
    let drive = Kind::Zoned.formatted(1);
    let fs = mount(&drive, "");
    let mut dirs = vec![fs.root()];
    for _ in 0..1000 {
        let dir = fs.mkdir(*dirs.last().unwrap(), b"d", 0o755, Creator::default()).unwrap().ino;
        dirs.push(dir);
    }
    let below = fs.rename(fs.root(), b"d", dirs[1000], b"d", RenameFlags::empty());
    assert_eq!(below.unwrap_err().errno(), Errno::INVAL, "into itself");
    fs.rename(dirs[500], b"d", fs.root(), b"half", RenameFlags::empty()).unwrap();
    fs.unmount().unwrap();
    let fs = mount(&drive, "");
    for depth in (501..=1000).rev() {
        let (parent, name): (Ino, &[u8]) =
            if depth == 501 { (fs.root(), b"half") } else { (dirs[depth - 1], b"d") };
        fs.rmdir(parent, name).unwrap();
    }
    finish(&drive, &fs);
}

#[test]
fn a_full_volume_keeps_what_it_has() {
    for kind in Kind::ALL {
        let drive = kind.formatted(1);
        let fs = mount(&drive, "cache=4m");
        let ino = create_in(&fs, fs.root(), b"fill").unwrap();
        let mut pages = 0_u64;
        let full = loop {
            match fs.write(ino, pages * PAGE, &[pages as u8; 4096]) {
                Ok(_) => pages += 1,
                Err(error) => break error.errno(),
            }
        };
        assert_eq!(full, Errno::NOSPC, "{kind:?}");
        fs.fsync(ino, false).unwrap();
        // What is there can still be overwritten, and removed.
        for page in (0..pages).step_by(50) {
            fs.write(ino, page * PAGE, &[page as u8; 4096]).unwrap();
        }
        fs.fsync(ino, false).unwrap();
        let cut = power_on(&drive.survivors(1));
        let fs = mount(&cut, "cache=4m");
        let mut page = [0; 4096];
        for n in 0..pages {
            fs.read(ino, n * PAGE, &mut page).unwrap();
            assert_eq!(page, [n as u8; 4096], "{kind:?}: page {n}");
        }
        fs.unlink(fs.root(), b"fill").unwrap();
        let again = create_in(&fs, fs.root(), b"again").unwrap();
        for n in 0..pages / 2 {
            fs.write(again, n * PAGE, &page).unwrap();
        }
        fs.fsync(again, false).unwrap();
        finish(&cut, &fs);
    }
}
