//! What callers know of Linux's ext4: limits, clamped times, room kept for root, whiteouts, ioctls.

use std::os::unix::fs::FileExt;

use cores::{Caller, acting_for};
use ext4::{Ext4, MountOptions};
use vfs::kind::ioctl::{FITRIM, GETVERSION, Ioctl};
use vfs::kind::{Format as _, Volume};
use vfs::{Creator, Errno, FileKind, FileSystem, Ino, RenameFlags, SetAttr, Timespec};

use crate::harness::{Image, debugfs, tool};

fn create(fs: &dyn FileSystem, name: &[u8]) -> Ino {
    fs.create(fs.root(), name, 0o644, Creator::default()).unwrap().ino
}

fn errno<T>(done: vfs::Result<T>) -> Option<Errno> {
    done.err().map(|error| error.errno())
}

#[test]
fn without_dir_nlink_a_directory_has_65_000_links() {
    let image = Image::with_features(16, "^dir_nlink");
    let mkdir = |image: &Image, names: &[&[u8]]| {
        let fs = image.mount();
        let dir = match fs.lookup(fs.root(), b"dir") {
            Ok(dir) => dir.ino,
            Err(_) => fs.mkdir(fs.root(), b"dir", 0o755, Creator::default()).unwrap().ino,
        };
        let make = |name: &&[u8]| errno(fs.mkdir(dir, name, 0o755, Creator::default()));
        let made: Vec<_> = names.iter().map(make).collect();
        let links = fs.getattr(dir).unwrap().nlink;
        fs.unmount().unwrap();
        (made, links)
    };
    assert_eq!(mkdir(&image, &[b"a"]), (vec![None], 3));
    debugfs(&image, &["set_inode_field dir links_count 64999"]);
    assert_eq!(mkdir(&image, &[b"b", b"c"]), (vec![None, Some(Errno::MLINK)], 65_000));
    debugfs(&image, &["feature dir_nlink"]);
    assert_eq!(mkdir(&image, &[b"d", b"e"]), (vec![None, None], 1));
}

#[test]
fn without_huge_file_a_file_has_2_tib() {
    for (features, most) in [("^huge_file", (1_u64 << 41) - 4096), ("", (1 << 44) - 4096)] {
        let image = Image::with_features(16, features);
        let fs = image.mount();
        let ino = create(&fs, b"file");
        let size = |size| fs.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() });
        size(most).unwrap();
        assert_eq!(errno(size(most + 1)), Some(Errno::FBIG));
        assert_eq!(fs.write(ino, most - 1, b"xy").unwrap(), 1, "as far as a file can go");
        assert_eq!(errno(fs.write(ino, most, b"x")), Some(Errno::FBIG));
        fs.unmount().unwrap();
        drop(fs);
        image.assert_clean(features);
    }
}

#[test]
fn times_are_clamped_to_what_an_inode_holds() {
    let last = (3_i64 << 32) + i64::from(i32::MAX);
    let first = i64::from(i32::MIN);
    for (size, last) in [("256", last), ("128", i32::MAX.into())] {
        let image = Image::with_options(16, "^metadata_csum,^extra_isize", &["-I", size]);
        let fs = image.mount();
        let ino = create(&fs, b"file");
        let at = |secs| Timespec { secs, nanos: 7 };
        let mut given = Vec::new();
        for secs in [i64::MIN, first - 1, first, -5, 1 << 31, 1 << 33, last, last + 1, i64::MAX] {
            let set = SetAttr { mtime: Some(at(secs)), atime: Some(at(5)), ..SetAttr::default() };
            let attr = fs.setattr(ino, &set).unwrap();
            let clamped = secs.clamp(first, last);
            let is_end = clamped == first || clamped == last;
            let nanos = if is_end || size == "128" { 0 } else { 7 };
            assert_eq!(attr.mtime, Timespec { secs: clamped, nanos }, "{secs} in {size} bytes");
            given.push(attr);
        }
        fs.unmount().unwrap();
        drop(fs);
        let fs = image.mount();
        let stored = fs.getattr(ino).unwrap();
        let shown = given.last().unwrap();
        let times = |attr: &vfs::Attr| (attr.atime, attr.mtime, attr.ctime);
        assert_eq!(times(&stored), times(shown), "after a remount, {size} bytes");
        fs.unmount().unwrap();
        drop(fs);
        image.assert_clean(size);
    }
}

#[test]
fn room_is_kept_for_root_and_for_whom_the_volume_names() {
    let fill = |fs: &Ext4, name: &[u8], who: Caller| {
        acting_for(Some(who), || {
            let ino = create(fs, name);
            let block = [7; 4096];
            (0..).take_while(|n| fs.write(ino, n * 4096, &block).is_ok()).count() as u64
        })
    };
    let ann = Caller { uid: 1000, gid: 100 };
    for (options, heir) in [("", Caller::ROOT), ("resuid=1001", Caller { uid: 1001, gid: 100 })] {
        let image = Image::with_options(16, "", &["-m", "10"]);
        let fs = image.mount_with(options);
        let free = fs.statfs().unwrap();
        let kept = free.blocks_free - free.blocks_available;
        assert!(kept > 300, "{kept} blocks are kept");
        let got = fill(&fs, b"ann", ann);
        assert!(got <= free.blocks_available && got + 100 > free.blocks_available, "{got}");
        assert_eq!(fs.statfs().unwrap().blocks_available, 0);
        assert_eq!(fill(&fs, b"again", ann), 0);
        assert!(fill(&fs, b"heir", heir) + 100 > kept, "{heir:?} gets what is kept");
        fs.unmount().unwrap();
        drop(fs);
        image.assert_clean(options);
    }
}

#[test]
fn with_grpid_a_file_has_its_directorys_group() {
    let gid_of = |fs: &Ext4| {
        let creator = Creator { uid: 1, gid: 1 };
        let root = fs.root();
        let set = SetAttr { gid: Some(77), ..SetAttr::default() };
        fs.setattr(root, &set).unwrap();
        let attr = fs.create(root, b"file", 0o644, creator).unwrap();
        fs.unmount().unwrap();
        attr.gid
    };
    assert_eq!(gid_of(&Image::new(16).mount()), 1);
    assert_eq!(gid_of(&Image::new(16).mount_with("bsdgroups")), 77);
    let image = Image::new(16);
    debugfs(&image, &["set_super_value default_mount_opts 0x000e"]);
    assert_eq!(gid_of(&image.mount()), 77);
    assert_eq!(gid_of(&Image::new(16).mount_with("grpid,sysvgroups")), 1);
}

#[test]
fn a_rename_can_leave_a_whiteout() {
    for options in ["", "journal=grouped", "journal=zjournal,areas=2", "journal=fast"] {
        let image = Image::with_features(64, "fast_commit");
        let fs = image.mount_with(options);
        let root = fs.root();
        let (old, other) = (create(&fs, b"old"), create(&fs, b"other"));
        fs.fsync(other, false).unwrap();
        fs.rename(root, b"old", root, b"new", RenameFlags::WHITEOUT).unwrap();
        fs.rename(root, b"new", root, b"other", RenameFlags::WHITEOUT).unwrap();
        let exchange = RenameFlags::WHITEOUT | RenameFlags::EXCHANGE;
        assert_eq!(errno(fs.rename(root, b"other", root, b"old", exchange)), Some(Errno::INVAL));
        assert_eq!(fs.lookup(root, b"other").unwrap().ino, old);
        fs.fsync(old, false).unwrap();
        // A crash, and what is there after it.
        drop(fs);
        let fs = image.mount_with(options);
        for name in [b"old", b"new"] {
            let white = fs.lookup(root, name).unwrap();
            assert_eq!((white.kind, white.rdev, white.perm), (FileKind::CharDevice, 0, 0));
        }
        assert_eq!(fs.lookup(root, b"other").unwrap().ino, old, "{options}");
        fs.unmount().unwrap();
        drop(fs);
        image.assert_clean(options);
    }
}

#[test]
fn corruption_that_a_reader_meets_is_noticed() {
    let image = Image::new(16);
    let fs = image.mount();
    let dir = fs.mkdir(fs.root(), b"dir", 0o755, Creator::default()).unwrap().ino;
    fs.unmount().unwrap();
    drop(fs);
    let at: u64 = debugfs(&image, &["blocks dir"]).trim().parse().unwrap();
    let file = std::fs::File::options().write(true).open(image.name()).unwrap();
    file.write_all_at(b"rot", at * 4096 + 100).unwrap();
    for (options, made) in [("", None), ("errors=remount-ro", Some(Errno::ROFS))] {
        let fs = image.mount_with(options);
        assert_eq!(errno(fs.lookup(dir, b"name")), Some(Errno::BADMSG));
        assert_eq!(fs.status()["corruptions"], 1);
        let make = fs.create(fs.root(), b"file", 0o644, Creator::default());
        assert_eq!(errno(make), made, "{options}");
        let _ = fs.unmount();
    }
    let checked = ext4::Format.check(&image.drive()).unwrap();
    assert!(!checked.findings.is_empty());
}

fn ioctl(fs: &Ext4, number: u32, input: &[u8], privileged: bool) -> Result<Vec<u8>, Errno> {
    let call = Ioctl { number, input, privileged, atomic_writes: false };
    fs.ioctl(fs.root(), call).map_err(|error| error.errno())
}

#[test]
fn free_blocks_are_trimmed_while_the_volume_is_used() {
    let image = Image::new(64);
    let fs = image.mount();
    let ino = create(&fs, b"file");
    fs.write(ino, 0, &[7; 1 << 20]).unwrap();
    fs.fsync(ino, false).unwrap();
    let free = fs.statfs().unwrap().blocks_free * 4096;
    let range =
        |start: u64, len: u64, least: u64| [start, len, least].map(u64::to_le_bytes).concat();
    let all = range(0, u64::MAX, 0);
    assert_eq!(ioctl(&fs, FITRIM, &all, false), Err(Errno::PERM));
    let trimmed = |done: Vec<u8>| u64::from_le_bytes(done[8..16].try_into().unwrap());
    let done = trimmed(ioctl(&fs, FITRIM, &all, true).unwrap());
    assert!(done <= free + (1 << 20) && done > free / 2, "{done} of {free} bytes");
    assert_eq!(trimmed(ioctl(&fs, FITRIM, &range(0, u64::MAX, 60 << 20), true).unwrap()), 0);
    for bad in [range(1 << 40, 4096, 0), range(0, 100, 0), range(0, 1 << 30, 1 << 40)] {
        assert_eq!(ioctl(&fs, FITRIM, &bad, true), Err(Errno::INVAL));
    }
    assert_eq!(ioctl(&fs, FITRIM, b"short", true), Err(Errno::INVAL));
    assert_eq!(ioctl(&fs, GETVERSION, b"", false).map(|bytes| bytes.len()), Ok(4));
    let mut read = vec![0; 1 << 20];
    drop(fs);
    let fs = Ext4::mount(image.drive(), &MountOptions::default()).unwrap();
    assert_eq!(fs.read(ino, 0, &mut read).unwrap(), 1 << 20);
    assert!(read.iter().all(|byte| *byte == 7));
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("trimmed");
}

/// A symbolic link whose target is said to be the bitmap of its group, or the block of descriptors.
#[test]
fn blocks_of_the_volume_itself_are_not_freed_with_a_file() {
    for which in ["Block bitmap at", "Inode bitmap at", "Group descriptors at", "Inode table at"] {
        let image = Image::new(16);
        let fs = image.mount();
        let target = vec![b'x'; 100];
        fs.symlink(fs.root(), b"link", &target, Creator::default()).unwrap();
        create(&fs, b"kept");
        fs.unmount().unwrap();
        drop(fs);
        let said = tool("dumpe2fs", &[image.name()]);
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let at = said.split(which).nth(1).unwrap().trim_start();
        let at: String = at.chars().take_while(char::is_ascii_digit).collect();
        debugfs(&image, &[&format!("set_inode_field link block[5] {at}")]);
        let fs = image.mount();
        // The name goes, and the inode stays an orphan, as in Linux.
        assert_eq!(errno(fs.unlink(fs.root(), b"link")), None, "{which} {at}");
        assert_eq!(fs.status()["corruptions"], 1, "{which} {at}");
        create(&fs, b"new");
        fs.unmount().unwrap();
        drop(fs);
        let found = debugfs(&image, &["stat kept", "stat new", "testb 1 3", "testi <11>"]);
        assert_eq!(found.matches("Inode:").count(), 2, "{which}: {found}");
        assert_eq!(found.matches("marked in use").count(), 4, "{which}: {found}");
        let out = tool("e2fsck", &["-fn", image.name()]);
        let said = String::from_utf8_lossy(&out.stdout);
        assert!(!said.contains("checksum does not match"), "{which}: {said}");
    }
}
