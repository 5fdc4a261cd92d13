//! The check finds nothing where Debian's `fsck.f2fs` finds nothing, and finds every single field
//! that is set wrong, without a panic.

use std::fs;
use std::path::Path;

use f2fs::check::{CheckOptions, CheckReport, check};
use f2fs::mkfs::{MkfsOptions, format};

use crate::judge::{
    Scratch, assert_fsck_clean, assert_stock_mkfs, create_zoned_image, open_image, tool,
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn run(image: &Path) -> CheckReport {
    check(&open_image(image), &CheckOptions::default()).expect("a volume")
}

fn assert_clean(image: &Path) -> CheckReport {
    let report = run(image);
    let lines: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
    assert!(report.is_clean(), "{}:\n{}", image.display(), lines.join("\n"));
    report
}

/// A tree with every shape of node tree and directory that `sload.f2fs` makes.
fn make_tree(root: &Path) {
    let write = |name: &str, len: usize| {
        let data: Vec<u8> = (0..len).map(|i| (i / 4096 * 7 + i) as u8 | 1).collect();
        fs::write(root.join(name), data).expect("a file");
    };
    fs::create_dir_all(root.join("many")).expect("a directory");
    fs::create_dir_all(root.join("a/b/c/d")).expect("directories");
    for i in 0..700 {
        let name = format!("many/{}-{i}", "n".repeat(i % 120 + 1));
        write(&name, i % 3 * 5000);
    }
    write("empty", 0);
    write("small", 100);
    write("direct", 5 << 20);
    write("a/b/indirect", 14 << 20);
    std::os::unix::fs::symlink("a/b/c", root.join("link")).expect("a link");
    std::os::unix::fs::symlink("x".repeat(300), root.join("a/long")).expect("a link");
}

/// A volume of `mkfs.f2fs` filled by `sload.f2fs`.
fn stock_volume(scratch: &Scratch, name: &str, arguments: &[&str]) -> std::path::PathBuf {
    let tree = scratch.dir().join("tree");
    if !tree.exists() {
        make_tree(&tree);
    }
    let image = scratch.image(name, 256 * MIB);
    assert_stock_mkfs(&image, arguments);
    let path = |p: &Path| p.to_str().expect("a plain path").to_owned();
    let out = tool("sload.f2fs", &["-f", &path(&tree), &path(&image)]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    image
}

#[test]
fn volumes_made_here_are_clean() {
    let scratch = Scratch::new();
    for features in ["", "extra_attr,inode_checksum,inode_crtime,lost_found,sb_checksum"] {
        for (bytes, large) in [(64 * MIB, false), (4 * GIB, true), (64 * GIB, false)] {
            let image = scratch.image("own", bytes);
            let mut options = MkfsOptions { large_nat_bitmap: large, ..MkfsOptions::default() };
            options.add_features(features).unwrap();
            let made = format(&open_image(&image), &options).unwrap();
            let report = assert_clean(&image);
            assert!(report.clean_unmount);
            assert_eq!(report.free_segments, made.geometry.free);
            assert_eq!(report.dirs, if features.is_empty() { 1 } else { 2 });
        }
    }
}

#[test]
fn a_zoned_volume_made_here_is_clean_and_its_write_pointers_are_checked() {
    let scratch = Scratch::new();
    let [image, forgetful] = ["zoned", "forgetful"].map(|name| scratch.dir().join(name));
    for path in [&image, &forgetful] {
        create_zoned_image(path, (16384, 12000), (64, 2));
    }
    let drive = open_image(&image);
    let made = format(&drive, &MkfsOptions::default()).unwrap();
    let report = check(&drive, &CheckOptions::default()).unwrap();
    assert_eq!(report.findings, []);
    assert_eq!(report.free_segments, made.geometry.free);
    // The same image in a drive that has forgotten its write pointers.
    drop(drive);
    std::fs::rename(&image, &forgetful).unwrap();
    let report = check(&open_image(&forgetful), &CheckOptions::default()).unwrap();
    let zones = report.findings.iter().filter(|f| f.what == "write pointer").count();
    assert_eq!(zones, 2, "{:?}", report.findings);
}

#[test]
fn volumes_of_f2fs_tools_are_clean() {
    let scratch = Scratch::new();
    for arguments in [
        &[][..],
        &["-i"],
        &["-s", "4"],
        &["-O", "extra_attr,inode_checksum,inode_crtime"],
        &["-O", "extra_attr,inode_checksum,lost_found,sb_checksum"],
        &["-O", "encrypt,verity"],
        &["-O", "extra_attr,quota,project_quota"],
    ] {
        let image = stock_volume(&scratch, "stock", arguments);
        assert_fsck_clean(&image);
        let report = assert_clean(&image);
        assert_eq!(report.files, 706, "{arguments:?}");
    }
}

/// `sload.f2fs` 1.15 makes inodes its own fsck rejects on these, so they stay empty.
#[test]
fn empty_volumes_of_mkfs_f2fs_are_clean() {
    let scratch = Scratch::new();
    for arguments in [
        &["-O", "extra_attr,flexible_inline_xattr"][..],
        &["-O", "casefold", "-C", "utf8"],
        &["-z", "2", "-s", "2"],
        &["-o", "20", "-l", "label"],
    ] {
        let image = scratch.image("empty", GIB);
        assert_stock_mkfs(&image, arguments);
        assert_fsck_clean(&image);
        assert_clean(&image);
    }
}
