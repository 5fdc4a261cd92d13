//! Growing and shrinking: the tree stays, `fsck.f2fs` finds nothing, and a cut at any command
//! leaves a volume with the whole tree.

use std::sync::Arc;

use drive::{CutPoint, Drive, Ssd, Timing};
use f2fs::mkfs::{MkfsOptions, format};
use f2fs::resize::{ResizeOptions, resize};
use vfs::ops::{Tree, snapshot};
use vfs::{Creator, FileSystem};

use crate::harness::{Kind, dump, findings, mkfs_options, mount, power_on};
use crate::judge::{Scratch, assert_fsck_clean, open_image, tool};

const MIB: u64 = 1 << 20;

/// Files of all sizes, some of them gone again, so that segments have holes.
fn fill(fs: &dyn FileSystem, megabytes: u64) -> Tree {
    let who = Creator::default();
    let dir = fs.mkdir(fs.root(), b"dir", 0o755, who).unwrap();
    let piece = vec![0x5a; 300_000];
    for i in 0..megabytes * 3 {
        let name = format!("file-{i}");
        let file = fs.create(dir.ino, name.as_bytes(), 0o644, who).unwrap();
        fs.write(file.ino, i * 5000 % 100_000, &piece[..1 + (i as usize * 7919) % 300_000])
            .unwrap();
        fs.setxattr(file.ino, b"user.n", name.as_bytes(), vfs::XattrMode::Set).unwrap();
        if i % 5 == 0 {
            fs.unlink(dir.ino, name.as_bytes()).unwrap();
        }
        if i % 17 == 0 {
            fs.fsync(file.ino, false).ok();
        }
    }
    fs.sync().unwrap();
    snapshot(fs).unwrap()
}

fn blocks(bytes: u64) -> ResizeOptions {
    ResizeOptions { blocks: Some(bytes / 4096), ..ResizeOptions::default() }
}

fn mounted(drive: &Arc<dyn Drive>) -> f2fs::F2fs {
    f2fs::F2fs::mount(drive.clone(), &"".parse().unwrap()).unwrap()
}

#[test]
fn volumes_grow_and_shrink_with_all_that_is_in_them() {
    let scratch = Scratch::new();
    for (from, to, segs_per_sec, megabytes) in [
        (128, 512, 1, 40),
        (128, 4096, 1, 60),
        (512, 128, 1, 40),
        (2048, 256, 4, 60),
        (256, 2048, 2, 60),
    ] {
        let image = scratch.image("volume", from.max(to) * MIB);
        let drive = open_image(&image);
        let sectors = Some(from * MIB / 512);
        let options = MkfsOptions { sectors, segs_per_sec, ..mkfs_options() };
        format(&drive, &options).unwrap();
        let fs = mounted(&drive);
        let was = fill(&fs, megabytes);
        fs.unmount().unwrap();
        drop(fs);
        let report = resize(&drive, &blocks(to * MIB)).unwrap();
        assert_eq!(report.after.block_count, to * MIB / 4096);
        assert_fsck_clean(&image);
        let fs = mounted(&drive);
        assert!(was.diff(&snapshot(&fs).unwrap()).is_empty(), "{from} to {to} MiB");
        // And it goes on being a volume.
        let more = fs.create(fs.root(), b"more", 0o644, Creator::default()).unwrap();
        vfs::path::write_all(&fs, more.ino, 0, &vec![1; 5 << 20]).unwrap();
        fs.unmount().unwrap();
        drop(fs);
        assert_fsck_clean(&image);
        // Back again.
        resize(&drive, &blocks(from.max(to) * MIB)).unwrap();
        assert_fsck_clean(&image);
    }
}

#[test]
fn the_same_size_changes_nothing_and_the_tools_volumes_grow_too() {
    let scratch = Scratch::new();
    let image = scratch.image("stock", 256 * MIB);
    let path = image.to_str().unwrap();
    assert!(tool("mkfs.f2fs", &["-q", "-f", path, "131072"]).status.success());
    let drive = open_image(&image);
    let report = resize(&drive, &ResizeOptions::default()).unwrap();
    assert_eq!(report.after.block_count, 256 * MIB / 4096);
    assert_fsck_clean(&image);
    let again = resize(&drive, &ResizeOptions::default()).unwrap();
    assert_eq!((again.evacuated, again.after.clone()), (0, again.before));
    let large = ResizeOptions { large_nat_bitmap: true, ..ResizeOptions::default() };
    resize(&drive, &large).unwrap();
    assert_fsck_clean(&image);
}

#[test]
fn what_does_not_fit_is_refused_and_the_volume_stays() {
    let scratch = Scratch::new();
    let image = scratch.image("volume", 256 * MIB);
    let drive = open_image(&image);
    format(&drive, &mkfs_options()).unwrap();
    let fs = mounted(&drive);
    let was = fill(&fs, 330);
    fs.unmount().unwrap();
    drop(fs);
    let written = std::fs::metadata(&image).unwrap().modified().unwrap();
    for (bytes, said) in
        [(128 * MIB, "in use"), (16 * MIB, "too small"), (512 * MIB, "more than the device's")]
    {
        let refused = resize(&drive, &blocks(bytes)).unwrap_err().to_string();
        assert!(refused.contains(said), "{refused}");
    }
    let now = std::fs::metadata(&image).unwrap().modified().unwrap();
    assert_eq!(now, written, "refused before anything is written");
    assert_fsck_clean(&image);
    assert!(was.diff(&snapshot(&mounted(&drive)).unwrap()).is_empty());
    let zoned: Arc<dyn Drive> = Kind::Zoned.formatted(1);
    let refused = resize(&zoned, &ResizeOptions::default()).unwrap_err().to_string();
    assert!(refused.contains("zoned"), "{refused}");
}

/// Writes until there is no room.
fn fill_up(fs: &dyn FileSystem) {
    let piece = vec![0xa5; 1 << 20];
    for i in 0.. {
        let name = format!("big-{i}");
        let file = fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default()).unwrap();
        if vfs::path::write_all(fs, file.ino, 0, &piece).is_err() {
            break;
        }
    }
    fs.sync().unwrap();
}

/// The new tables of a large volume take more than the small one had. Linux's `resize.f2fs` does
/// each of these.
#[test]
fn small_and_full_volumes_grow_a_lot() {
    let scratch = Scratch::new();
    for (from, to, full) in [(101, 4096, false), (101, 15 << 10, true), (1024, 15 << 10, false)] {
        let image = scratch.image("volume", to * MIB);
        let drive = open_image(&image);
        let sectors = Some(from * MIB / 512);
        format(&drive, &MkfsOptions { sectors, ..mkfs_options() }).unwrap();
        let fs = mounted(&drive);
        fill(&fs, 10);
        if full {
            fill_up(&fs);
        }
        let was = snapshot(&fs).unwrap();
        fs.unmount().unwrap();
        drop(fs);
        let report = resize(&drive, &blocks(to * MIB)).unwrap_or_else(|e| panic!("{from}: {e}"));
        assert_eq!(report.after.block_count, to * MIB / 4096);
        assert_fsck_clean(&image);
        let fs = mounted(&drive);
        assert!(was.diff(&snapshot(&fs).unwrap()).is_empty(), "{from} to {to} MiB");
        assert!(fs.statfs().unwrap().blocks_free > to * 200, "the room is there");
        fs.unmount().unwrap();
        std::fs::remove_file(&image).unwrap();
    }
}

/// How many of a resize's commands a test cuts at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cuts {
    /// Some, and the last ones, which write superblocks.
    Some,
    Every,
}

fn survives_cuts(from: u64, to: u64, cuts: Cuts) {
    let prepared = {
        let ssd = Ssd::new(Kind::Conventional.spec(), Timing::Instant, 1).unwrap();
        let drive: Arc<dyn Drive> = ssd.clone();
        let sectors = Some(from * MIB / 512);
        format(&drive, &MkfsOptions { sectors, ..mkfs_options() }).unwrap();
        let fs = mount(&ssd, "");
        let was = fill(&fs, 10);
        fs.unmount().unwrap();
        ssd.power_off();
        (ssd.survivors(0), was)
    };
    let (state, was) = prepared;
    let whole = power_on(&state);
    let drive: Arc<dyn Drive> = whole.clone();
    resize(&drive, &blocks(to * MIB)).unwrap();
    let commands = whole.stats().commands;
    let scratch = Scratch::new();
    let mut finished = 0;
    let step = if cuts == Cuts::Every { 1 } else { commands as usize / 12 };
    for cut in (0..=commands).step_by(step).chain(commands.saturating_sub(8)..=commands) {
        let ssd = power_on(&state);
        ssd.cut_at(CutPoint::Command(cut), cut);
        let drive: Arc<dyn Drive> = ssd.clone();
        let done = resize(&drive, &blocks(to * MIB)).is_ok();
        let left = ssd.survivors(cut);
        let after = power_on(&left);
        let fs = mount(&after, "");
        let is = snapshot(&fs).unwrap();
        assert!(was.diff(&is).is_empty(), "{from} to {to} MiB, cut {cut} of {commands}");
        fs.unmount().unwrap();
        drop(fs);
        // Once more, and this time to the end.
        let drive: Arc<dyn Drive> = after.clone();
        resize(&drive, &blocks(to * MIB)).unwrap_or_else(|e| panic!("cut {cut}: {e}"));
        let fs = mount(&after, "");
        assert!(was.diff(&snapshot(&fs).unwrap()).is_empty(), "again after cut {cut}");
        fs.unmount().unwrap();
        drop(fs);
        after.power_off();
        let state = after.survivors(0);
        assert_eq!(findings(&state), "", "cut {cut} of {commands}");
        if cut % 16 == 0 {
            let image = scratch.dir().join("cut");
            dump(&state, &image);
            assert_fsck_clean(&image);
        }
        finished += u64::from(done);
    }
    assert!(finished < commands, "no cut came in time");
}

#[test]
fn growing_survives_a_cut_anywhere() {
    survives_cuts(64, 128, Cuts::Some);
}

#[test]
fn shrinking_survives_a_cut_anywhere() {
    survives_cuts(128, 80, Cuts::Some);
}

#[test]
#[ignore = "long: every cut of growing and of shrinking"]
fn resizing_survives_every_cut() {
    survives_cuts(64, 128, Cuts::Every);
    survives_cuts(128, 80, Cuts::Every);
}
