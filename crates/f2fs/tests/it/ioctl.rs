//! What the kernel offers by ioctl, flags of open and sysfs: shutdown, flags, pinned files,
//! nameless files, whiteouts, defragmentation, access times, status.

use std::sync::Arc;

use drive::Ssd;
use f2fs::F2fs;
use vfs::kind::Shutdown;
use vfs::{
    Creator, Errno, FallocateMode, FileKind, FileSystem, Ino, RenameFlags, SetAttr, Timespec,
    XattrMode,
};

use crate::harness::{Kind, checkpoint_of, dump, findings, mount, power_on};
use crate::judge::{Scratch, assert_fsck_clean};

const PAGE: usize = 4096;
const SYNC: u32 = 0x8;
const IMMUTABLE: u32 = 0x10;
const APPEND: u32 = 0x20;
const NOATIME: u32 = 0x80;
const COMPR: u32 = 0x4;
const NOCOW: u32 = 0x80_0000;

fn create(fs: &F2fs, name: &str) -> Ino {
    fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default()).unwrap().ino
}

fn errno<T>(result: Result<T, impl Into<vfs::Error>>) -> Option<Errno> {
    result.err().map(|error| error.into().errno())
}

/// Unmounts and asks both judges.
fn finish(drive: &Ssd, fs: &F2fs) {
    fs.unmount().unwrap();
    let state = drive.power_off();
    assert_eq!(findings(&state), "");
    let scratch = Scratch::new();
    let image = scratch.dir().join("image");
    dump(&state, &image);
    assert_fsck_clean(&image);
}

fn at(secs: i64, nanos: u32) -> Timespec {
    Timespec { secs, nanos }
}

#[test]
fn a_shutdown_keeps_what_it_says_and_no_more() {
    for (how, file_stays, data_stays) in [
        (Shutdown::FullSync, true, true),
        (Shutdown::MetaSync, true, false),
        (Shutdown::NoSync, false, false),
        (Shutdown::MetaFlush, false, false),
    ] {
        let drive = Kind::Conventional.formatted(1);
        let fs = mount(&drive, "noinline_data");
        let ino = create(&fs, "file");
        fs.write(ino, 0, &[7; PAGE]).unwrap();
        fs.shutdown(how).unwrap();
        assert_eq!(errno(fs.write(ino, 0, b"x")), Some(Errno::IO), "{how:?}");
        assert_eq!(errno(fs.sync()), Some(Errno::IO), "{how:?}");
        assert_eq!(errno(fs.shutdown(how)), Some(Errno::IO), "{how:?}");
        assert_eq!(fs.status().sb_status & 0x40, 0x40);
        let before = drive.stats().writes;
        fs.unmount().unwrap();
        assert_eq!(drive.stats().writes, before, "{how:?}: unmounting wrote");
        let fs = mount(&drive, "");
        let found = fs.lookup(fs.root(), b"file");
        assert_eq!(found.is_ok(), file_stays, "{how:?}");
        if file_stays {
            let mut page = [0; PAGE];
            fs.read(ino, 0, &mut page).unwrap();
            assert_eq!(page == [7; PAGE], data_stays, "{how:?}");
        }
        finish(&drive, &fs);
    }
}

#[test]
fn flags_forbid_what_they_say() {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, "");
    let (root, nobody) = (fs.root(), Creator::default());
    let ino = create(&fs, "file");
    fs.write(ino, 0, b"abc").unwrap();
    fs.set_inode_flags(ino, IMMUTABLE).unwrap();
    let chmod = SetAttr { perm: Some(0o600), ..SetAttr::default() };
    for (what, got) in [
        ("write", errno(fs.write(ino, 3, b"d"))),
        ("chmod", errno(fs.setattr(ino, &chmod))),
        ("link", errno(fs.link(ino, root, b"other"))),
        ("unlink", errno(fs.unlink(root, b"file"))),
        ("rename", errno(fs.rename(root, b"file", root, b"x", RenameFlags::empty()))),
        ("fallocate", errno(fs.fallocate(ino, FallocateMode::empty(), 0, 9000))),
        ("setxattr", errno(fs.setxattr(ino, b"user.a", b"b", XattrMode::Set))),
    ] {
        assert_eq!(got, Some(Errno::PERM), "{what} of an immutable file");
    }
    fs.set_inode_flags(ino, APPEND).unwrap();
    fs.write(ino, 3, b"d").unwrap();
    // As the kernel's page cache does.
    fs.write(ino, 0, b"abcde").unwrap();
    fs.setattr(ino, &SetAttr { mtime: Some(at(5, 0)), ..SetAttr::default() }).unwrap();
    let cut = SetAttr { size: Some(1), ..SetAttr::default() };
    assert_eq!(errno(fs.setattr(ino, &cut)), Some(Errno::PERM));
    assert_eq!(errno(fs.unlink(root, b"file")), Some(Errno::PERM));
    fs.set_inode_flags(ino, 0).unwrap();
    let dir = fs.mkdir(root, b"dir", 0o755, nobody).unwrap().ino;
    fs.create(dir, b"old", 0o644, nobody).unwrap();
    fs.set_inode_flags(dir, IMMUTABLE).unwrap();
    assert_eq!(errno(fs.create(dir, b"new", 0o644, nobody)), Some(Errno::PERM));
    assert_eq!(errno(fs.unlink(dir, b"old")), Some(Errno::PERM));
    fs.set_inode_flags(dir, APPEND | NOATIME).unwrap();
    let new = fs.create(dir, b"new", 0o644, nobody).unwrap().ino;
    assert_eq!(fs.inode_flags(new).unwrap() & NOATIME, NOATIME, "inherited");
    assert_eq!(fs.inode_flags(new).unwrap() & APPEND, 0, "not inherited");
    assert_eq!(errno(fs.unlink(dir, b"new")), Some(Errno::PERM));
    fs.set_inode_flags(dir, 0).unwrap();
    assert_eq!(errno(fs.set_inode_flags(ino, COMPR)), Some(Errno::OPNOTSUPP));
    assert_eq!(errno(fs.set_inode_flags(ino, 0x1)), Some(Errno::OPNOTSUPP));
    assert_eq!(fs.project_id(ino).unwrap(), 0);
    assert_eq!(errno(fs.set_project_id(ino, 5)), Some(Errno::OPNOTSUPP));
    finish(&drive, &fs);
}

#[test]
fn a_file_with_the_sync_flag_needs_no_fsync() {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, "");
    let ino = create(&fs, "file");
    fs.set_inode_flags(ino, SYNC).unwrap();
    fs.write(ino, 0, &[3; PAGE]).unwrap();
    let cut = power_on(&drive.survivors(1));
    let after = mount(&cut, "");
    assert_eq!(after.lookup(3, b"file").unwrap().size, PAGE as u64);
}

/// A pinned file that was in the cleaner's way too often is no longer pinned, and cannot be pinned
/// again before its user has unpinned it (`gc_pin_file_thresh`).
#[test]
fn a_file_is_pinned_until_too_many_moves_have_failed() {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, "");
    fs.set_tunable("gc_pin_file_thresh", "12").unwrap();
    assert!(fs.set_tunable("gc_pin_file_thresh", "65536").is_err());
    let ino = create(&fs, "pinned");
    fs.set_pin_file(ino, true).unwrap();
    fs.write(ino, 0, &vec![1; 8 * PAGE]).unwrap();
    fs.fsync(ino, false).unwrap();
    let other = create(&fs, "other");
    fs.write(other, 0, &vec![2; 1500 * PAGE]).unwrap();
    for n in 0..300 {
        let small = create(&fs, &format!("{n}"));
        fs.write(small, 0, &[3; 3 * PAGE]).unwrap();
        fs.fsync(small, false).unwrap();
    }
    fs.sync().unwrap();
    let (sb, _) = checkpoint_of(&drive.survivors(1));
    let clean = |sync| {
        fs.garbage_collect_range(sync, sb.main_blkaddr.into()..sb.main_end().into()).unwrap();
    };
    clean(false);
    assert_eq!(fs.pin_file(ino).unwrap(), 0, "nobody waited for it");
    clean(true);
    assert_eq!(fs.pin_file(ino).unwrap(), 8);
    assert_eq!(fs.inode_flags(ino).unwrap() & NOCOW, NOCOW);
    clean(true);
    assert_eq!(fs.inode_flags(ino).unwrap() & NOCOW, 0, "still pinned");
    assert_eq!(errno(fs.set_pin_file(ino, true)), Some(Errno::AGAIN));
    fs.set_pin_file(ino, false).unwrap();
    fs.set_pin_file(ino, true).unwrap();
    assert_eq!(fs.pin_file(ino).unwrap(), 0);
    finish(&drive, &fs);
}

/// Where the blocks of a file are: cleaning must move none of a pinned file.
#[test]
fn a_pinned_file_stays_where_it_is() {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, "");
    let ino = create(&fs, "pinned");
    fs.set_pin_file(ino, true).unwrap();
    fs.write(ino, 0, &vec![1; 8 * PAGE]).unwrap();
    let other = create(&fs, "other");
    fs.write(other, 0, &vec![2; 300 * PAGE]).unwrap();
    fs.sync().unwrap();
    assert_eq!(fs.inode_flags(ino).unwrap() & NOCOW, NOCOW);
    let place = |drive: &Arc<Ssd>| {
        let state = drive.survivors(1);
        let (sb, _) = checkpoint_of(&state);
        (sb.main_blkaddr.into()..u64::from(sb.main_end()))
            .find(|lba| state.media().read(*lba).unwrap()[..] == [1; PAGE])
    };
    let before = place(&drive).unwrap();
    // Every section except the logs' own is cleaned, so the log must move on first.
    let (sb, _) = checkpoint_of(&drive.survivors(1));
    for n in 0..300 {
        let small = create(&fs, &format!("{n}"));
        fs.write(small, 0, &[3; 3 * PAGE]).unwrap();
        fs.fsync(small, false).unwrap();
    }
    fs.sync().unwrap();
    fs.garbage_collect_range(true, sb.main_blkaddr.into()..sb.main_end().into()).unwrap();
    assert_eq!(place(&drive), Some(before));
    assert!(fs.pin_file(ino).unwrap() > 0, "nobody tried to move it");
    fs.write(ino, 0, &vec![1; 8 * PAGE]).unwrap();
    fs.fsync(ino, false).unwrap();
    assert_eq!(place(&drive), Some(before), "written in place");
    assert_eq!(errno(fs.defragment(ino, 0, 8 * PAGE as u64)), Some(Errno::INVAL));
    fs.set_pin_file(ino, false).unwrap();
    assert_eq!(fs.pin_file(ino).unwrap(), 0);
    assert_eq!(errno(fs.set_pin_file(fs.root(), true)), Some(Errno::INVAL));
    finish(&drive, &fs);
    let zoned = mount(&Kind::Zoned.formatted(1), "");
    let ino = create(&zoned, "file");
    assert_eq!(errno(zoned.set_pin_file(ino, true)), Some(Errno::INVAL), "all is a log");
}

#[test]
fn a_nameless_file_is_gone_unless_it_is_linked() {
    for kind in Kind::ALL {
        let drive = kind.formatted(1);
        let fs = mount(&drive, "");
        let root = fs.root();
        let free = fs.statfs().unwrap().blocks_free;
        let lost = fs.tmpfile(root, 0o600, Creator::default()).unwrap();
        assert_eq!((lost.nlink, lost.kind), (0, FileKind::Regular));
        fs.write(lost.ino, 0, &[1; 3 * PAGE]).unwrap();
        fs.fsync(lost.ino, false).unwrap();
        fs.release(lost.ino);
        assert_eq!(errno(fs.getattr(lost.ino)), Some(Errno::NOENT));
        assert_eq!(fs.statfs().unwrap().blocks_free, free);
        let kept = fs.tmpfile(root, 0o600, Creator::default()).unwrap().ino;
        fs.write(kept, 0, &[2; PAGE]).unwrap();
        assert_eq!(fs.link(kept, root, b"kept").unwrap().nlink, 1);
        fs.release(kept);
        fs.fsync(kept, false).unwrap();
        // Removed while open, a file cannot come back by a link.
        let gone = create(&fs, "gone");
        fs.open(gone).unwrap();
        fs.unlink(root, b"gone").unwrap();
        assert_eq!(errno(fs.link(gone, root, b"back")), Some(Errno::NOENT));
        fs.release(gone);
        // Open at the cut: an orphan, which the next mount frees.
        let open = fs.tmpfile(root, 0o600, Creator::default()).unwrap().ino;
        fs.write(open, 0, &[3; PAGE]).unwrap();
        fs.sync().unwrap();
        let cut = power_on(&drive.survivors(1));
        let fs = mount(&cut, "");
        assert_eq!(fs.recovery().orphans, 1, "{kind:?}");
        assert_eq!(fs.lookup(root, b"kept").unwrap().size, PAGE as u64);
        finish(&cut, &fs);
    }
}

#[test]
fn a_rename_can_leave_a_whiteout() {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, "");
    let root = fs.root();
    for n in 0..400 {
        create(&fs, &format!("file {n}"));
    }
    let dir = fs.mkdir(root, b"dir", 0o755, Creator::default()).unwrap().ino;
    for n in 0..400 {
        let name = format!("file {n}");
        let to = if n % 2 == 0 { dir } else { root };
        let new = format!("moved {n}");
        fs.rename(root, name.as_bytes(), to, new.as_bytes(), RenameFlags::WHITEOUT).unwrap();
        let white = fs.lookup(root, name.as_bytes()).unwrap();
        assert_eq!((white.kind, white.rdev, white.perm), (FileKind::CharDevice, 0, 0));
        assert_eq!(fs.lookup(to, new.as_bytes()).unwrap().kind, FileKind::Regular);
    }
    let both = RenameFlags::WHITEOUT | RenameFlags::EXCHANGE;
    assert_eq!(errno(fs.rename(root, b"file 0", dir, b"moved 0", both)), Some(Errno::INVAL));
    finish(&drive, &fs);
}

#[test]
fn defragmented_pages_lie_side_by_side() {
    for kind in Kind::ALL {
        let drive = kind.formatted(1);
        let fs = mount(&drive, "mode=lfs");
        let (a, b) = (create(&fs, "a"), create(&fs, "b"));
        for n in 0..40_u64 {
            for (ino, byte) in [(a, 1), (b, 2)] {
                fs.write(ino, n * PAGE as u64, &[byte + n as u8; PAGE]).unwrap();
                fs.fsync(ino, false).unwrap();
            }
        }
        let len = 40 * PAGE as u64;
        assert_eq!(fs.defragment(a, 0, len).unwrap(), len, "{kind:?}");
        assert_eq!(fs.defragment(a, 0, len).unwrap(), 0, "{kind:?}: again");
        assert_eq!(errno(fs.defragment(a, 1, len)), Some(Errno::INVAL));
        let mut page = [0; PAGE];
        for n in 0..40_u64 {
            fs.read(a, n * PAGE as u64, &mut page).unwrap();
            assert_eq!(page, [1 + n as u8; PAGE]);
        }
        assert!(fs.garbage_collect_range(true, 0..1).is_err());
        finish(&drive, &fs);
    }
}

#[test]
fn an_access_time_waits_for_the_inode() {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, "");
    let (ino, quiet) = (create(&fs, "file"), create(&fs, "quiet"));
    fs.set_inode_flags(quiet, NOATIME).unwrap();
    fs.sync().unwrap();
    let (writes, time) = (drive.stats().writes, at(-5, 999_999_999));
    fs.touch_atime(ino, time).unwrap();
    fs.touch_atime(quiet, time).unwrap();
    assert_eq!(fs.getattr(ino).unwrap().atime, time);
    assert_ne!(fs.getattr(quiet).unwrap().atime, time);
    fs.fsync(ino, false).unwrap();
    assert_eq!(drive.stats().writes, writes, "nothing is written for it alone");
    fs.sync().unwrap();
    let cut = power_on(&drive.survivors(1));
    let after = mount(&cut, "");
    assert_eq!(after.getattr(ino).unwrap().atime, time, "a checkpoint took it along");
    finish(&drive, &fs);
}

/// Each changes a node at the next checkpoint, and `cache=` bounds how many may change until then.
#[test]
fn access_times_of_many_files_do_not_wait_together() {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, "cache=1m");
    let files: Vec<Ino> = (0..1200).map(|n| create(&fs, &n.to_string())).collect();
    fs.sync().unwrap();
    let version = || checkpoint_of(&drive.survivors(1)).1.version;
    let before = version();
    files.iter().for_each(|&ino| fs.touch_atime(ino, at(7, 0)).unwrap());
    assert_eq!(version(), before + 1);
    for ino in files {
        assert_eq!(fs.getattr(ino).unwrap().atime, at(7, 0));
    }
    finish(&drive, &fs);
}

#[test]
fn times_of_any_age_come_back() {
    for kind in Kind::ALL {
        let drive = kind.formatted(1);
        let fs = mount(&drive, "");
        let ino = create(&fs, "file");
        for time in [at(-1, 1), at(i64::from(i32::MIN) - 1, 0), at(1 << 33, 999_999_999)] {
            let set = SetAttr { atime: Some(time), mtime: Some(time), ..SetAttr::default() };
            let attr = fs.setattr(ino, &set).unwrap();
            assert_eq!((attr.atime, attr.mtime), (time, time));
            fs.fsync(ino, false).unwrap();
            let cut = power_on(&drive.survivors(1));
            let attr = mount(&cut, "").getattr(ino).unwrap();
            assert_eq!((attr.atime, attr.mtime), (time, time), "recovered");
        }
        finish(&drive, &fs);
    }
}

#[test]
fn the_status_counts_what_happened() {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, "mode=lfs");
    let before = fs.status();
    let ino = create(&fs, "file");
    for n in 0..1200 {
        fs.write(ino, n * PAGE as u64, &[1; PAGE]).unwrap();
    }
    fs.sync().unwrap();
    for n in 0..600 {
        fs.write(ino, 2 * n * PAGE as u64, &[2; PAGE]).unwrap();
    }
    assert_eq!(fs.status().sb_status & 1, 1, "dirty");
    fs.sync().unwrap();
    assert_eq!(fs.status().sb_status & 1, 0);
    fs.garbage_collect(true).unwrap();
    let after = fs.status();
    assert!(after.lifetime_write_kbytes >= before.lifetime_write_kbytes + 1800 * 4);
    assert_eq!(after.cp_foreground_calls - before.cp_foreground_calls, 3);
    assert_eq!(after.gc_foreground_calls, 1);
    assert!(after.moved_blocks_foreground > 0 && after.moved_blocks_background == 0);
    assert!(after.free_segments < before.free_segments && after.dirty_segments > 0);
    assert!(after.features.contains(&"sb_checksum"));
    let written = after.lifetime_write_kbytes;
    fs.unmount().unwrap();
    let fs = mount(&drive, "");
    assert!(fs.status().lifetime_write_kbytes >= written, "kept over mounts");
    finish(&drive, &fs);
}

/// The unmount after a cut finds out again which NAT blocks are full and which are empty.
#[test]
fn nat_bits_come_back_after_a_cut() {
    use f2fs::ondisk::checkpoint::CpFlags;
    for kind in Kind::ALL {
        let drive = kind.formatted(1);
        let fs = mount(&drive, "");
        for n in 0..1000 {
            create(&fs, &format!("{n}"));
        }
        fs.sync().unwrap();
        let cut = power_on(&drive.survivors(1));
        let fs = mount(&cut, "");
        finish(&cut, &fs);
        let state = cut.survivors(1);
        let (_, checkpoint) = checkpoint_of(&state);
        assert!(checkpoint.flags.contains(CpFlags::NAT_BITS), "{kind:?}");
        let again = power_on(&state);
        let fs = mount(&again, "");
        for n in 1000..2000 {
            create(&fs, &format!("{n}"));
        }
        finish(&again, &fs);
    }
}
