//! What file systems of Linux do and its VFS leaves to a FUSE server: set-id bits, append-only
//! files, times of change, limits, mount options, a remount for writing.
//!
//! Needs root, /dev/fuse, and the packages fuse3, acl and e2fsprogs; says so if one is missing.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use rustix::fs::{CWD, FallocateFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;

use crate::mounting::programs::shell;
use crate::mounting::{Disk, Rig, require, run, strandline};

/// Runs a shell script as a user without privileges, of these groups.
fn as_user(groups: &str, script: &str, dir: &Path) {
    require("setpriv", "util-linux");
    let mut user = Command::new("setpriv");
    user.args(["--reuid=1234", "--regid=1234"]);
    user.arg(if groups.is_empty() {
        "--clear-groups".into()
    } else {
        format!("--groups={groups}")
    });
    let done = user.args(["sh", "-euc", script]).current_dir(dir).output().expect("setpriv runs");
    assert!(done.status.success(), "{script}: {done:?}");
}

/// `setattr_should_drop_sgid`; xfstests generic/683 to 687.
#[test]
fn set_group_id_without_group_execution_stays_only_for_the_group() {
    for options in [&[][..], &["-o", "writeback"]] {
        let rig = Rig::new(options);
        let path = rig.point().join("f");
        let changes = ["echo more >>f", "fallocate -l 8192 f", "truncate -s 100 f"];
        for change in changes {
            for (perm, groups, left) in [
                (0o6666, "", 0o666),
                (0o6666, "777", 0o2666),
                (0o6676, "777", 0o676),
                (0o2666, "", 0o666),
                (0o6677, "", 0o677),
            ] {
                let _ = fs::remove_file(&path);
                fs::write(&path, "contents").unwrap();
                chown(&path, Some(0), Some(777)).unwrap();
                fs::set_permissions(&path, Permissions::from_mode(perm)).unwrap();
                as_user(groups, change, &rig.point());
                let now = fs::metadata(&path).unwrap().mode() & 0o7777;
                assert_eq!(now, left, "{perm:o} {groups} {change}: {now:o}");
            }
        }
    }
}

/// xfstests generic/193: `CAP_FSETID` keeps it, whatever group the file gets.
#[test]
fn set_group_id_without_group_execution_stays_when_root_changes_the_owner() {
    let rig = Rig::new(&[]);
    let path = rig.point().join("f");
    for (perm, left) in [(0o6644, 0o2644), (0o2664, 0o2664), (0o6775, 0o775)] {
        fs::write(&path, "contents").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(perm)).unwrap();
        chown(&path, Some(1000), Some(777)).unwrap();
        let now = fs::metadata(&path).unwrap().mode() & 0o7777;
        assert_eq!(now, left, "{perm:o}: {now:o}");
    }
}

#[test]
fn append_only_files_keep_times_that_nobody_gave_them() {
    let rig = Rig::new(&[]);
    let path = rig.point().join("log");
    fs::write(&path, "x").unwrap();
    run("chattr", &["+a"], &path);
    let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
    let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    let set = |time| {
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, &path, &times, rustix::fs::AtFlags::empty())
    };
    assert_eq!(set(time), Err(Errno::PERM));
    assert_eq!(set(now), Ok(()));
    shell("echo more >>log", &rig.point());
    run("chattr", &["-a"], &path);
    assert_eq!(set(time), Ok(()));
}

#[test]
fn an_access_control_list_that_changes_the_mode_changes_the_time_of_change() {
    let rig = Rig::new(&[]);
    let path = rig.point().join("f");
    fs::write(&path, "x").unwrap();
    for entry in ["u::rwx,g::r,o::-", "u:1234:rw", "u::r,g::r,o::r"] {
        let before = fs::metadata(&path).unwrap();
        cores::sleep(20_000_000);
        run("setfacl", &["-m", entry], &path);
        let after = fs::metadata(&path).unwrap();
        let time = |of: &fs::Metadata| (of.ctime(), of.ctime_nsec());
        assert!(time(&after) > time(&before), "{entry}");
    }
}

#[test]
fn flags_that_are_set_change_the_time_of_change() {
    for fs in ["ext4", "f2fs"] {
        let rig = Rig::of(fs, Disk::Plain(64), &[]);
        let path = rig.point().join("f");
        fs::write(&path, "x").unwrap();
        let before = fs::metadata(&path).unwrap();
        cores::sleep(20_000_000);
        run("chattr", &["+A"], &path);
        let after = fs::metadata(&path).unwrap();
        let time = |of: &fs::Metadata| (of.ctime(), of.ctime_nsec());
        assert!(time(&after) > time(&before), "{fs}");
    }
}

/// Only a list for access takes the group's bit of a caller that is not in the group.
#[test]
fn a_default_access_control_list_keeps_set_group_id() {
    for (list, left) in [("-m", 0o775), ("-dm", 0o2775)] {
        let rig = Rig::new(&[]);
        let dir = rig.point().join("d");
        fs::create_dir(&dir).unwrap();
        chown(&dir, Some(1234), Some(777)).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o2775)).unwrap();
        as_user("", &format!("setfacl {list} u:0:rwx d"), &rig.point());
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o7777, left, "{list}");
    }
}

#[test]
fn an_attribute_that_cannot_fit_is_too_big() {
    let rig = Rig::new(&[]);
    let path = rig.point().join("f");
    fs::write(&path, "x").unwrap();
    let set = |name: &str, len: usize| {
        rustix::fs::setxattr(&path, name, &vec![b'v'; len], XattrFlags::empty())
    };
    assert_eq!(set("user.large", 30_000), Err(Errno::TOOBIG));
    assert_eq!(set("user.a", 3000), Ok(()));
    assert_eq!(set("user.b", 3000), Err(Errno::TOOBIG));
    assert_eq!(set("user.b", 100), Ok(()));
}

#[test]
fn an_attribute_cannot_be_both_new_and_replaced() {
    let rig = Rig::new(&[]);
    let path = rig.point().join("f");
    fs::write(&path, "x").unwrap();
    let both = |name: &str| {
        rustix::fs::setxattr(&path, name, b"v", XattrFlags::CREATE | XattrFlags::REPLACE)
    };
    rustix::fs::setxattr(&path, "user.there", b"v", XattrFlags::empty()).unwrap();
    assert_eq!(both("user.there"), Err(Errno::EXIST));
    assert_eq!(both("user.other"), Err(Errno::NODATA));
}

/// `ext4_fileattr_set`.
#[test]
fn only_root_has_contents_journalled() {
    let rig = Rig::of("ext4", Disk::Plain(64), &[]);
    let path = rig.point().join("f");
    fs::write(&path, "x").unwrap();
    chown(&path, Some(1234), Some(1234)).unwrap();
    as_user("", "! chattr +j f && chattr +d f", &rig.point());
    run("chattr", &["+j"], &path);
    as_user("", "! chattr -j f && chattr -d f", &rig.point());
}

#[test]
fn what_is_allocated_needs_no_room() {
    let rig = Rig::on(Disk::Plain(256), &[]);
    let path = rig.point().join("f");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    let free = rustix::fs::statvfs(rig.point()).unwrap();
    let len = free.f_bavail * free.f_bsize / 4 * 3 / 4096 * 4096;
    for flags in [FallocateFlags::empty(), FallocateFlags::empty(), FallocateFlags::KEEP_SIZE] {
        rustix::fs::fallocate(&file, flags, 0, len).unwrap();
    }
    file.write_all_at(&[7; 8192], 0).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 1000, len - 2000).unwrap();
    let mut bytes = [1; 2000];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes[..1000] == [7; 1000] && bytes[1000..] == [0; 1000]);
    // What is not allocated does.
    let beyond = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 2 * len);
    assert_eq!(beyond, Err(Errno::NOSPC));
    // On a volume without any room, too.
    let other = File::create_new(rig.point().join("other")).unwrap();
    let rest = rustix::fs::statvfs(rig.point()).unwrap().f_bavail * 4096;
    rustix::fs::fallocate(&other, FallocateFlags::empty(), 0, rest * 9 / 10).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, len).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 4097, len - 8192).unwrap();
    drop((file, other));
    rig.unmount();
    rig.check();
}

#[test]
fn options_of_linux_are_taken() {
    let shown = "rw,lazytime,relatime,background_gc=on,nogc_merge,discard,discard_unit=block,\
                 user_xattr,inline_xattr,acl,inline_data,inline_dentry,flush_merge,barrier,\
                 extent_cache,mode=adaptive,active_logs=6,alloc_mode=reuse,checkpoint_merge,\
                 fsync_mode=posix,memory=normal,errors=continue";
    let rig = Rig::new(&["-o", shown]);
    fs::write(rig.point().join("f"), "x").unwrap();
    rig.unmount();
    rig.helper("noquota,extent_cache,fsync_mode=strict").unwrap();
    run("umount", &[], &rig.point());
}

/// The image is opened again, below files and directories that stay open.
#[test]
fn what_was_mounted_read_only_can_be_remounted_for_writing() {
    let rig = Rig::new(&[]);
    let path = rig.point().join("f");
    fs::write(&path, "x").unwrap();
    rig.remount(&["-o", "ro"]);
    let mut open = File::open(&path).unwrap();
    let before = fs::read(rig.image()).unwrap();
    rig.helper("remount,ro").unwrap();
    assert!(fs::write(&path, "y").is_err());
    assert!(fs::read(rig.image()).unwrap() == before, "still read-only");

    rig.helper("remount,rw").unwrap();
    let status = String::from_utf8(strandline(&["status"], &rig.point()).stdout).unwrap();
    let options = status.lines().find(|line| line.starts_with("mount_options "));
    assert!(options.unwrap().contains(" rw,"), "{status}");
    let mut now = File::options().append(true).open(&path).unwrap();
    now.write_all(b"y").unwrap();
    now.sync_all().unwrap();
    let mut read = String::new();
    open.read_to_string(&mut read).unwrap();
    assert_eq!(read, "xy", "through what was open before");
    fs::create_dir(rig.point().join("d")).unwrap();
    rig.helper("remount,rw").unwrap();
    drop((open, now));
    rig.remount(&[]);
    assert_eq!(fs::read(&path).unwrap(), b"xy");
    assert!(rig.point().join("d").is_dir());
}

/// mount(8) repeats the options that fstab has.
#[test]
fn a_remount_for_writing_takes_the_options_of_the_mount() {
    let rig = Rig::of("ext4", Disk::Plain(64), &[]);
    rig.remount(&["-o", "ro,cache=32m,data=journal"]);
    rig.helper("remount,rw,cache=32m,data=journal").unwrap();
    fs::write(rig.point().join("f"), "x").unwrap();
    rig.helper("remount,rw,cache=16m").unwrap_err();
}

/// It is an error like any other of the host.
#[test]
fn a_limit_of_file_sizes_ends_no_mount() {
    let rig = Rig::of("ext4", Disk::Plain(128), &[]);
    rig.unmount();
    let said = tempfile::tempfile().unwrap();
    rig.attempt("-f 200000", &[], said).unwrap();
    let path = rig.point().join("f");
    let written = File::create(&path).and_then(|mut file| {
        file.write_all(&vec![7; 110 << 20])?;
        file.sync_all()
    });
    assert!(written.is_err());
    assert!(rig.is_mounted() && fs::metadata(&path).is_ok());
    rig.give_up();
}

/// Also after a crash: what was recovered in memory is then recovered on the drive.
#[test]
fn a_volume_to_recover_can_be_remounted_for_writing() {
    let rig = Rig::new(&["-o", "fsync_mode=strict"]);
    let path = rig.point().join("f");
    let mut file = File::create_new(&path).unwrap();
    file.write_all(b"fsynced").unwrap();
    file.sync_all().unwrap();
    rig.kill();
    rig.mount(&["-o", "ro"]);
    assert_eq!(fs::read(&path).unwrap(), b"fsynced");
    rig.helper("remount,rw").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"fsynced");
    fs::write(rig.point().join("g"), "more").unwrap();
    rig.remount(&[]);
    assert_eq!(fs::read(&path).unwrap(), b"fsynced");
    assert_eq!(fs::read(rig.point().join("g")).unwrap(), b"more");
}

/// Another process reads the image: it stays mounted, and read-only.
#[test]
fn a_remount_that_is_refused_changes_nothing() {
    let rig = Rig::new(&[]);
    let path = rig.point().join("f");
    fs::write(&path, "x").unwrap();
    rig.remount(&["-o", "ro"]);
    let reader = File::open(rig.image()).unwrap();
    rustix::fs::flock(&reader, rustix::fs::FlockOperation::LockShared).unwrap();
    let said = rig.helper("remount,rw").unwrap_err();
    assert!(said.contains("in use"), "{said}");
    assert_eq!(fs::read(&path).unwrap(), b"x");
    assert_eq!(fs::write(&path, "y").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    drop(reader);
    rig.helper("remount,rw").unwrap();
    fs::write(&path, "y").unwrap();
}
