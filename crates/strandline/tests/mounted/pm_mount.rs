//! A pmfs volume in a file in memory, of each design, mounted: what programs see, and what a killed
//! server leaves.
//!
//! Needs root, /dev/fuse and the package fuse3.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, XattrFlags};

use crate::mounting::{self, DESIGNS, Disk, Rig, strandline};

fn said(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A volume of each design, how it is mounted, and the design's name.
fn each(mib: u64) -> impl Iterator<Item = (Rig, [&'static str; 2], &'static str)> {
    DESIGNS.into_iter().map(move |(make, options)| {
        let args = ["-o", options];
        let name = make.strip_prefix("design=").unwrap();
        (Rig::of("pmfs", Disk::Memory(make, mib), &args), args, name)
    })
}

/// Nothing is wrong, and nothing is to be recovered.
fn check(rig: &Rig) {
    let checked = strandline(&["fsck", "-n"], &rig.image());
    assert!(checked.status.success() && checked.stdout.is_empty(), "{checked:?}");
}

#[test]
fn a_volume_in_memory_is_mounted_and_survives_its_server() {
    for (rig, args, design) in each(64) {
        let point = rig.point();
        fs::create_dir(point.join("d")).unwrap();
        fs::write(point.join("d/a"), vec![b'a'; 100_000]).unwrap();
        fs::hard_link(point.join("d/a"), point.join("b")).unwrap();
        fs::rename(point.join("b"), point.join("d/c")).unwrap();
        std::os::unix::fs::symlink("d/c", point.join("s")).unwrap();
        assert_eq!(fs::read(point.join("s")).unwrap(), vec![b'a'; 100_000]);
        let status = said(&strandline(&["status"], &point));
        assert!(status.contains(design) && status.contains(args[1]), "{status}");
        // Nothing was synced, and nothing is lost. A check recovers a copy of it.
        rig.kill();
        let checked = strandline(&["fsck", "-n"], &rig.image());
        assert!(checked.status.success() && said(&checked).contains("recovery is due"));
        rig.mount(&args);
        assert_eq!(fs::read(point.join("d/c")).unwrap(), vec![b'a'; 100_000]);
        assert_eq!(fs::metadata(point.join("d/a")).unwrap().nlink(), 2);
        rig.unmount();
        check(&rig);
        for (view, expected) in [("superblock", "strandPM"), ("inode", "links"), ("dir", "name:d")]
        {
            let image = rig.image();
            let shown = strandline(&["dump", image.to_str().unwrap()], view.as_ref());
            assert!(shown.status.success() && said(&shown).contains(expected), "{shown:?}");
        }
    }
}

#[test]
fn a_server_says_that_its_memory_was_truncated() {
    let (rig, args, _) = each(32).next().unwrap();
    fs::write(rig.point().join("a"), "a").unwrap();
    rig.unmount();
    let said = tempfile::NamedTempFile::new().unwrap();
    rig.attempt("-c 0", &args, said.reopen().unwrap()).expect("it mounts");
    File::options().write(true).open(rig.image()).unwrap().set_len(4096).unwrap();
    fs::read(rig.point().join("a")).unwrap_err();
    rig.await_death();
    let said = fs::read_to_string(&said).unwrap();
    assert!(said.starts_with("error: memory was lost") && said.lines().count() == 1, "{said}");
    rig.clear();
}

#[test]
fn a_file_without_a_name_can_be_given_one() {
    for (rig, args, _) in each(32) {
        let point = rig.point();
        let open = || {
            let flags = OFlags::RDWR | OFlags::TMPFILE;
            File::from(rustix::fs::open(&point, flags, Mode::from_raw_mode(0o600)).unwrap())
        };
        let (mut kept, mut lost) = (open(), open());
        kept.write_all(b"kept").unwrap();
        lost.write_all(b"lost").unwrap();
        let link = |file: &File, name: &str| {
            rustix::fs::linkat(file.as_fd(), "", CWD, point.join(name), AtFlags::EMPTY_PATH)
        };
        link(&kept, "kept").unwrap();
        drop((kept, lost));
        rig.remount(&args);
        let mut text = String::new();
        File::open(point.join("kept")).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "kept");
        assert_eq!(fs::read_dir(&point).unwrap().count(), 1);
        rig.unmount();
        check(&rig);
    }
}

/// An access list in the form of the extended attribute: owner, a user, group, mask, other.
fn list(mask: u16) -> Vec<u8> {
    let none = u32::MAX;
    let entries = [(1u16, 7u16, none), (2, 7, 7), (4, 5, none), (16, mask, none), (32, 0, none)];
    let bytes = entries.iter().flat_map(|(tag, perm, id)| {
        [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
    });
    2u32.to_le_bytes().into_iter().chain(bytes).collect()
}

#[test]
fn access_lists_and_permission_bits_follow_each_other() {
    for (rig, args, _) in each(32) {
        let (dir, file) = (rig.point().join("d"), rig.point().join("d/f"));
        fs::create_dir(&dir).unwrap();
        let set = |name: &str, value: &[u8]| {
            rustix::fs::setxattr(&dir, name, value, XattrFlags::empty()).unwrap();
        };
        set("system.posix_acl_default", &list(6));
        fs::write(&file, "x").unwrap();
        // The mask limits the group's bits; others get nothing.
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o660);
        let mut value = [0; 64];
        let read = |value: &mut [u8; 64]| {
            rustix::fs::getxattr(&file, "system.posix_acl_access", value.as_mut_slice()).unwrap()
        };
        assert_eq!(read(&mut value), list(6).len());
        fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
        let len = read(&mut value);
        assert_eq!(value[4 + 3 * 8 + 2], 4, "the mask follows chmod: {:?}", &value[..len]);
        rig.remount(&args);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        rig.unmount();
        check(&rig);
    }
}

/// Three places of our own and one of somebody else's, 11 cells, two tests.
#[test]
fn iozone_measures_each_place_in_each_cell() {
    let alone = mounting::alone();
    let other = tempfile::tempdir().unwrap();
    let args = ["bench", "iozone", "-O", "design=nova", "--max-file", "128k", "--durable"];
    let args = [&args[..], &["buffered,osync", "--json", "--against"]].concat();
    let measured = strandline(&args, other.path());
    assert!(measured.status.success(), "{measured:?}");
    let json: serde_json::Value = serde_json::from_slice(&measured.stdout).unwrap();
    assert_eq!(json["places"].as_array().unwrap().len(), 5, "{json}");
    assert_eq!((&json["ours"], &json["refused"]), (&4.into(), &serde_json::json!([])));
    let cells = json["cells"].as_array().unwrap();
    assert_eq!(cells.len(), (5 + 6) * 2 * 2);
    let rates = cells.iter().flat_map(|cell| cell["bytes_per_s"].as_array().unwrap());
    assert!(
        rates.clone().count() == 5 * cells.len() && rates.clone().all(|r| r.as_f64() > Some(0.0))
    );
    assert!(fs::read_dir(other.path()).unwrap().next().is_none(), "nothing stays");
    drop(alone);
}
