//! What a cut leaves, and what recovery makes of it, with every way to do an fsync.

use std::fs;
use std::os::unix::fs::FileExt;

use vfs::kind::Format as _;
use vfs::{Creator, FileSystem};

use crate::harness::{Image, debugfs, tool};

/// The superblock's totals are stale while a volume is mounted: that is no error, before recovery
/// or behind it.
#[test]
fn a_cut_volume_is_sound_and_its_totals_are_right_after_recovery() {
    for technique in ext4::Format.techniques() {
        let name = technique.name;
        let image = Image::with_features(64, technique.make);
        let fs = image.mount_with(technique.options);
        for nr in 0..20_u8 {
            let new = fs.create(fs.root(), &[b'a' + nr], 0o644, Creator::default()).unwrap();
            fs.write(new.ino, 0, &[nr; 9000]).unwrap();
            if nr % 10 == 0 {
                fs.fsync(new.ino, false).unwrap();
            } else if nr == 15 {
                fs.sync().unwrap();
            }
        }
        // No unmount: the power fails.
        drop(fs);
        let drive = image.drive();
        let checked = ext4::Format.check(&drive).unwrap();
        assert!(checked.findings.is_empty() && !checked.clean_unmount, "{name}: {checked:?}");
        assert!(!ext4::Format.recover(&drive).unwrap().clean, "{name}");
        drop(drive);
        image.assert_clean(name);
    }
}

/// Spoils an image of a block in the log, which is inode 8.
fn spoil_log(image: &Image) {
    let log = debugfs(image, &["blocks <8>"]);
    let log: Vec<usize> = log.split_whitespace().filter_map(|block| block.parse().ok()).collect();
    let mut bytes = fs::read(image.name()).unwrap();
    let is_descriptor = |at: &&usize| {
        let start = **at * 4096;
        bytes[start..start + 8] == [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 1]
    };
    let at = *log.iter().find(is_descriptor).expect("a descriptor");
    bytes[(at + 1) * 4096 + 100] ^= 1;
    fs::write(image.name(), bytes).unwrap();
}

/// e2fsck refuses a log with areas or records, so what it would do about a spoilt one is ours.
#[test]
fn a_spoilt_log_that_e2fsck_refuses_is_left_to_it_afterwards() {
    for policy in ["jbd2", "zjournal", "ijournal", "zgrouped"] {
        let image = Image::new(64);
        let mounted = image.mount_with(&format!("journal={policy}"));
        let new = |name| mounted.create(mounted.root(), name, 0o644, Creator::default()).unwrap();
        new(b"old");
        mounted.sync().unwrap();
        new(b"new");
        mounted.sync().unwrap();
        drop(mounted);
        spoil_log(&image);
        let drive = image.drive();
        assert!(ext4::Format.recover(&drive).unwrap_err().is_corruption(), "{policy}");
        match (policy, ext4::Format.repair(&drive, false)) {
            // As it was, for e2fsck.
            ("jbd2", Err(_)) => {}
            (_, Ok(repaired)) => assert!(repaired.changed && policy != "jbd2"),
            (_, Err(error)) => panic!("{policy}: {error}"),
        }
        drop(drive);
        let out = tool("e2fsck", &["-fy", image.name()]);
        assert!(out.status.code() <= Some(1), "{policy}: {}", String::from_utf8_lossy(&out.stdout));
        image.assert_clean(policy);
        image.mount().unmount().unwrap();
    }
}

/// What is corrupt elsewhere costs no record.
#[test]
fn a_log_that_e2fsck_refuses_is_replayed_before_it_is_left_to_it() {
    for policy in ["zjournal", "ijournal", "grouped"] {
        let image = Image::new(64);
        let fs = image.mount();
        fs.create(fs.root(), b"bad", 0o644, Creator::default()).unwrap();
        fs.unmount().unwrap();
        drop(fs);
        debugfs(&image, &["sif /bad checksum 0x1234"]);
        let fs = image.mount_with(&format!("journal={policy}"));
        let new = fs.create(fs.root(), b"new", 0o644, Creator::default()).unwrap().ino;
        fs.fsync(new, false).unwrap();
        drop(fs);
        let drive = image.drive();
        assert!(ext4::Format.repair(&drive, false).unwrap().changed, "{policy}");
        drop(drive);
        let out = tool("e2fsck", &["-fy", image.name()]);
        assert!(out.status.code() <= Some(1), "{policy}: {}", String::from_utf8_lossy(&out.stdout));
        image.assert_clean(policy);
        let fs = image.mount();
        fs.lookup(fs.root(), b"new").unwrap();
    }
}

/// A write of the superblock that a cut tears leaves one of its sectors old: what changes, or the
/// checksum.
#[test]
fn a_torn_superblock_is_taken() {
    for (policy, mib, options) in [
        ("jbd2", 300, [["-b", "4096"]]),
        ("zjournal", 300, [["-b", "4096"]]),
        ("ijournal", 300, [["-b", "4096"]]),
        ("zgrouped", 64, [["-b", "1024"]]),
    ] {
        let image = Image::with_options(mib, "", options.as_flattened());
        let fs = image.mount_with(&format!("journal={policy}"));
        let new = fs.create(fs.root(), b"new", 0o644, Creator::default()).unwrap().ino;
        fs.fsync(new, false).unwrap();
        drop(fs);
        let mut after = vec![0; 1024];
        {
            let whole = image.copy();
            ext4::Format.recover(&whole.drive()).unwrap();
            let file = fs::File::open(whole.name()).unwrap();
            file.read_exact_at(&mut after, 1024).unwrap();
        }
        for sector in [0, 512] {
            let torn = image.copy();
            let file = fs::File::options().write(true).open(torn.name()).unwrap();
            file.write_all_at(&after[sector..sector + 512], 1024 + sector as u64).unwrap();
            drop(file);
            let fs = torn.mount();
            fs.lookup(fs.root(), b"new").unwrap();
            fs.unmount().unwrap();
            drop(fs);
            torn.assert_clean(policy);
        }
    }
}

/// What no write of a mounted volume changes is not taken from a superblock whose checksum is
/// wrong: nothing at all where no backup says what is right.
#[test]
fn a_superblock_that_is_not_torn_but_spoilt_is_refused() {
    // The number of blocks, features, the hash of names.
    for (mib, at) in [(300, 0x5), (300, 0x5c), (300, 0x64), (300, 0x160), (64, 0x5), (64, 0x2c)] {
        let image = Image::new(mib);
        let file = fs::File::options().read(true).write(true).open(image.name()).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, 1024 + at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], 1024 + at).unwrap();
        for options in ["", "ro"] {
            assert!(ext4::Format.mount(image.drive(), options).is_err(), "{mib} MiB, {at:#x}");
        }
        let out = tool("e2fsck", &["-fy", image.name()]);
        assert!(mib == 64 || out.status.code() <= Some(1), "{at:#x}: {out:?}");
    }
}

/// A checker says so, whatever a mount would make of it.
#[test]
fn a_wrong_checksum_of_the_superblock_is_found() {
    let image = Image::new(300);
    let file = fs::File::options().write(true).open(image.name()).unwrap();
    file.write_all_at(&[1, 2, 3, 4], 2044).unwrap();
    let checked = ext4::Format.check(&image.drive()).unwrap();
    let words = format!("{:?}", checked.findings);
    assert!(words.contains("s_checksum"), "{words}");
}
