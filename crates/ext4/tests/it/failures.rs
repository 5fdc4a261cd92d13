//! Drives that fail to write, and what is corrupt: neither keeps anything else from the drive.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use drive::{Fault, FaultOn, Status};
use ext4::{Ext4, Format, MountOptions};
use vfs::kind::Format as _;
use vfs::path::read_to_vec;
use vfs::{Creator, Errno, FallocateMode, FileSystem, Ino, SetAttr};

use crate::harness::{Image, debugfs, tool};

const FILES: usize = 40;

fn name(n: usize) -> Vec<u8> {
    format!("f{n}").into_bytes()
}

fn create(fs: &dyn FileSystem, name: &[u8], byte: u8) -> Ino {
    let ino = fs.create(fs.root(), name, 0o644, Creator::default()).unwrap().ino;
    fs.write(ino, 0, &[byte; 4096]).unwrap();
    ino
}

/// An image with files of ones.
fn image_of_files() -> Image {
    let image = Image::new(64);
    let fs = image.mount();
    for n in 0..FILES {
        create(&fs, &name(n), 1);
    }
    fs.unmount().unwrap();
    image
}

#[test]
fn a_file_that_cannot_be_written_keeps_no_other_from_the_drive() {
    let image = image_of_files();
    let bad: u64 = debugfs(&image, &["blocks /f0"]).trim().parse().unwrap();
    let fault = Arc::new(Fault::new(image.drive()));
    let fs = Ext4::mount(fault.clone(), &MountOptions::default()).unwrap();
    fault.fail_range(FaultOn::Write, bad..bad + 1, Status::WriteFault);
    for n in 0..FILES {
        let ino = fs.lookup(fs.root(), &name(n)).unwrap().ino;
        fs.write(ino, 0, &[2; 4096]).unwrap();
    }
    create(&fs, b"new", 3);
    assert_eq!(fs.sync().unwrap_err().errno(), Errno::IO);
    assert_eq!(fs.unmount().unwrap_err().errno(), Errno::IO);
    drop((fs, fault));
    let fs = image.mount();
    let first = |name: &[u8]| {
        let ino = fs.lookup(fs.root(), name).unwrap().ino;
        read_to_vec(&fs, ino).unwrap()[0]
    };
    let found: Vec<u8> = (0..FILES).map(|n| first(&name(n))).collect();
    assert_eq!(found, [&[1][..], &[2; FILES - 1]].concat());
    assert_eq!(first(b"new"), 3);
}

/// What is corrupt is found again by `e2fsck -p`, which skips volumes without errors, whatever
/// happens after it was met.
#[test]
fn the_superblock_says_that_something_is_corrupt() {
    for (errors, is_cut) in
        [("continue", true), ("continue", false), ("remount-ro", true), ("remount-ro", false)]
    {
        let image = image_of_files();
        debugfs(&image, &["sif /f7 checksum 0x1234"]);
        let fs = image.mount_with(&format!("errors={errors}"));
        create(&fs, b"other", 1);
        assert_eq!(fs.lookup(fs.root(), &name(7)).unwrap_err().errno(), Errno::BADMSG);
        if !is_cut {
            let left = fs.unmount();
            assert_eq!(left.is_ok(), errors == "continue", "{left:?}");
        }
        drop(fs);
        assert_is_checked(&image, &format!("{errors}, {is_cut}"));
    }
}

/// What a commit meets is noted by that commit's own thread.
#[test]
fn corruption_met_by_an_fsync_ends_it() {
    for policy in ["jbd2", "ijournal", "grouped", "zjournal", "zgrouped", "none"] {
        let image = image_of_files();
        spoil_bitmap(&image);
        let fs = image.mount_with(&format!("journal={policy}"));
        let ino = fs.lookup(fs.root(), &name(1)).unwrap().ino;
        fs.write(ino, 1 << 20, &[2; 4096]).unwrap();
        assert_eq!(fs.fsync(ino, false).unwrap_err().errno(), Errno::BADMSG, "{policy}");
        assert_eq!(fs.sync().unwrap_err().errno(), Errno::BADMSG, "{policy}");
        drop(fs);
        assert_says_errors(&image, policy);
        // Nor does it take an fsync.
        let image = image_of_files();
        spoil_bitmap(&image);
        let fs = image.mount_with(&format!("journal={policy},errors=remount-ro"));
        fs.write(ino, 1 << 20, &[2; 4096]).unwrap();
        assert_eq!(fs.unmount().unwrap_err().errno(), Errno::BADMSG, "{policy}");
        drop(fs);
        assert_says_errors(&image, policy);
    }
}

/// Of the only group.
fn spoil_bitmap(image: &Image) {
    let said = debugfs(image, &["show_super_stats"]);
    let bitmap = said.split("block bitmap at ").nth(1).and_then(|rest| rest.split(',').next());
    let bitmap: u64 = bitmap.and_then(|block| block.parse().ok()).expect("a block bitmap");
    let file = File::options().write(true).open(image.name()).unwrap();
    file.write_all_at(&[0x5a], bitmap * 4096 + 2000).unwrap();
}

/// `e2fsck -p` does not skip it.
fn assert_is_checked(image: &Image, when: &str) {
    let out = tool("e2fsck", &["-p", image.name()]);
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(said.contains("contains a file system with errors"), "{when}: {said}");
}

/// Once its journal has been replayed.
fn assert_says_errors(image: &Image, when: &str) {
    image.mount().unmount().unwrap();
    let out = tool("dumpe2fs", &["-h", image.name()]);
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(said.contains("with errors"), "{when}: {said}");
}

/// Every call heeds what it meets.
#[test]
fn any_call_that_meets_corruption_ends_writing() {
    type Call = fn(&Ext4, Ino) -> vfs::Result<()>;
    let calls: [(&str, Call); 6] = [
        ("read", |fs, ino| fs.read(ino, 0, &mut [0; 100]).map(drop)),
        ("write", |fs, ino| fs.write(ino, 5000, &[2; 100]).map(drop)),
        ("direct read", |fs, ino| fs.read_direct(ino, 0, &mut [0; 4096]).map(drop)),
        ("direct read of a sector", |fs, ino| fs.read_direct(ino, 0, &mut [0; 512]).map(drop)),
        ("fallocate", |fs, ino| fs.fallocate(ino, FallocateMode::empty(), 0, 1 << 20)),
        ("truncate", |fs, ino| {
            fs.setattr(ino, &SetAttr { size: Some(1 << 20), ..SetAttr::default() })?;
            fs.fsync(ino, false)
        }),
    ];
    let image = image_of_files();
    let fs = image.mount();
    let ino = fs.lookup(fs.root(), &name(1)).unwrap().ino;
    // Of so many extents that they have a block of their own.
    (0..20).for_each(|n| _ = fs.write(ino, n << 13, &[1; 4000]).unwrap());
    fs.unmount().unwrap();
    drop(fs);
    let tree = debugfs(&image, &["dump_extents -n f1"]);
    let leaf: u64 =
        tree.lines().nth(1).unwrap().split_whitespace().nth(7).unwrap().parse().unwrap();
    let file = File::options().write(true).open(image.name()).unwrap();
    file.write_all_at(&[0xee], leaf * 4096 + 20).unwrap();
    for (what, call) in calls {
        let image = image.copy();
        let fs = image.mount_with("errors=remount-ro");
        assert_eq!(call(&fs, ino).unwrap_err().errno(), Errno::BADMSG, "{what}");
        let made = fs.create(fs.root(), b"new", 0o644, Creator::default());
        assert_eq!(made.unwrap_err().errno(), Errno::ROFS, "{what}");
        drop(fs);
        assert_is_checked(&image, what);
    }
}

/// Nothing below it could be used, and a mount that succeeds says that it can.
#[test]
fn a_volume_whose_root_is_corrupt_is_not_mounted() {
    for broken in ["sif / checksum 0x1234", "sif / mode 0100644", "clri /"] {
        let image = image_of_files();
        debugfs(&image, &[broken]);
        for options in ["", "journal=zjournal", "ro"] {
            let mounted = Format.mount(image.drive(), options).map(drop);
            assert!(mounted.is_err(), "{broken}, {options}");
        }
        let out = tool("e2fsck", &["-fy", image.name()]);
        assert!(out.status.code() <= Some(1), "{}", String::from_utf8_lossy(&out.stdout));
    }
}
