//! `strandline mount` against what the kernel's own file systems do: operations, two users,
//! access control lists, read-only, kill -9, SIGTERM, a power cut under the mount.
//!
//! Needs root, /dev/fuse, and the packages fuse3 and acl; says so if one is missing.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use rustix::fs::{CWD, FallocateFlags, Mode, RenameFlags, SeekFrom as At, XattrFlags};
use rustix::io::Errno;

use crate::mounting::{self, Rig, as_nobody, run, strandline};

#[test]
fn files_hold_what_is_written() {
    let rig = Rig::new(&[]);
    let path = rig.point().join("f");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    let text: Vec<u8> = (0..300_000_u32).map(|n| n.to_le_bytes()[n as usize % 3]).collect();
    file.write_all(&text).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(b"middle", 100_001).unwrap();
    file.sync_data().unwrap();
    let mut expected = text;
    expected[100_001..100_007].copy_from_slice(b"middle");
    drop(file);
    rig.remount(&[]);
    assert!(fs::read(&path).unwrap() == expected, "contents after a remount");
    let mut appended = OpenOptions::new().append(true).open(&path).unwrap();
    appended.write_all(b"end").unwrap();
    expected.extend_from_slice(b"end");
    assert_eq!(fs::metadata(&path).unwrap().len(), 300_003);
    OpenOptions::new().write(true).open(&path).unwrap().set_len(100_004).unwrap();
    expected.truncate(100_004);
    assert!(fs::read(&path).unwrap() == expected, "contents after truncating");
    drop(OpenOptions::new().write(true).truncate(true).open(&path).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
}

#[test]
fn holes_and_ranges() {
    let rig = Rig::new(&[]);
    let file = File::create_new(rig.point().join("f")).unwrap();
    file.write_all_at(&[7; 5 * 4096], 0).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 4096, 2 * 4096).unwrap();
    assert_eq!(rustix::fs::seek(&file, At::Hole(0)), Ok(4096));
    assert_eq!(rustix::fs::seek(&file, At::Data(4096)), Ok(3 * 4096));
    rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 3 * 4096 + 5, 10).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 10 * 4096).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 10 * 4096);
    let mut read = File::open(rig.point().join("f")).unwrap();
    read.seek(SeekFrom::Start(3 * 4096)).unwrap();
    let mut bytes = [1; 16];
    read.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, [7, 7, 7, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
    let copy = File::create_new(rig.point().join("copy")).unwrap();
    let (mut from, mut to) = (3 * 4096, 1);
    let read = File::open(rig.point().join("f")).unwrap();
    let copied =
        rustix::fs::copy_file_range(&read, Some(&mut from), &copy, Some(&mut to), 16).unwrap();
    assert_eq!(copied, 16);
    assert_eq!(fs::read(rig.point().join("copy")).unwrap()[1..], bytes);
}

#[test]
fn names() {
    let rig = Rig::new(&[]);
    let at = |name: &str| rig.point().join(name);
    fs::create_dir(at("d")).unwrap();
    fs::write(at("d/f"), "x").unwrap();
    fs::hard_link(at("d/f"), at("g")).unwrap();
    assert_eq!(fs::metadata(at("g")).unwrap().nlink(), 2);
    symlink("d/f", at("s")).unwrap();
    assert_eq!(fs::read_link(at("s")).unwrap(), Path::new("d/f"));
    assert_eq!(fs::read(at("s")).unwrap(), b"x");
    rustix::fs::mknodat(CWD, at("p"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert_eq!(fs::remove_dir(at("d")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    let rename = |from, to, flags| rustix::fs::renameat_with(CWD, at(from), CWD, at(to), flags);
    assert_eq!(rename("g", "s", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename("d", "s", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(at("s/f")).unwrap(), b"x");
    rename("g", "p", RenameFlags::empty()).unwrap();
    let mut listed: Vec<_> =
        fs::read_dir(rig.point()).unwrap().map(|e| e.unwrap().file_name()).collect();
    listed.sort();
    assert_eq!(listed, ["d", "p", "s"]);
    fs::remove_file(at("p")).unwrap();
    assert_eq!(fs::metadata(at("s/f")).unwrap().nlink(), 1);
    assert_eq!(fs::metadata(at("p")).unwrap_err().kind(), ErrorKind::NotFound);
    File::open(at("s")).unwrap().sync_all().unwrap();
}

#[test]
fn what_has_no_name_lives_while_it_is_used() {
    let rig = Rig::new(&[]);
    let path = rig.point().join("f");
    let mut file = File::create_new(&path).unwrap();
    file.write_all(b"still here").unwrap();
    let blocks = rustix::fs::statvfs(rig.point()).unwrap().f_bfree;
    fs::remove_file(&path).unwrap();
    fs::write(&path, "another").unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    let mut bytes = [0; 10];
    let read = OpenOptions::new().read(true).open(format!("/proc/self/fd/{}", {
        use std::os::fd::AsRawFd;
        file.as_raw_fd()
    }));
    read.unwrap().read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"still here");
    drop(file);
    fs::remove_file(&path).unwrap();
    rig.eventually("its space comes back", || {
        rustix::fs::statvfs(rig.point()).unwrap().f_bfree >= blocks
    });
}

fn nameless(dir: &Path, mode: u32) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(rustix::fs::OFlags::TMPFILE.bits() as i32);
    options.mode(mode).open(dir)
}

#[test]
fn files_can_begin_without_a_name() {
    let rig = Rig::new(&[]);
    let file = nameless(&rig.point(), 0o600).unwrap();
    file.write_all_at(b"named later", 0).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::read_dir(rig.point()).unwrap().count(), 0);
    let flags = rustix::fs::AtFlags::EMPTY_PATH;
    rustix::fs::linkat(&file, "", CWD, rig.point().join("f"), flags).unwrap();
    drop(file);
    rig.remount(&[]);
    assert_eq!(fs::read(rig.point().join("f")).unwrap(), b"named later");
    run("lsattr", &["-d"], &rig.point());
}

/// Flags are enforced, for root too, and from the moment a file is opened (xfstests generic/545,
/// 553).
#[test]
fn flags_forbid_what_they_say() {
    mounting::require("chattr", "e2fsprogs");
    let rig = Rig::new(&[]);
    let at = |name: &str| rig.point().join(name);
    let forbidden = |result: std::io::Result<()>| {
        assert_eq!(result.map_err(|error| error.kind()), Err(ErrorKind::PermissionDenied));
    };
    let all_forbidden = |name: &str| {
        forbidden(OpenOptions::new().write(true).open(at(name)).map(drop));
        forbidden(File::create(at(name)).map(drop));
        forbidden(fs::remove_file(at(name)));
        forbidden(fs::rename(at(name), at("moved")));
        forbidden(fs::hard_link(at(name), at("link")));
        forbidden(fs::set_permissions(at(name), Permissions::from_mode(0o600)));
        assert!(fs::read(at(name)).unwrap().starts_with(b"one"));
    };
    for name in ["fixed", "log"] {
        fs::write(at(name), "one").unwrap();
    }
    fs::create_dir(at("closed")).unwrap();
    for (name, flag) in [("fixed", "+i"), ("log", "+a"), ("closed", "+i")] {
        run("chattr", &[flag], &at(name));
    }
    rig.remount(&[]);
    all_forbidden("fixed");
    all_forbidden("log");
    forbidden(OpenOptions::new().append(true).open(at("fixed")).map(drop));
    OpenOptions::new().append(true).open(at("log")).unwrap().write_all(b", two").unwrap();
    run("touch", &[], &at("log"));
    forbidden(File::create(at("closed/new")).map(drop));
    forbidden(nameless(&at("closed"), 0o600).map(drop));
    assert!(run("lsattr", &["-p"], &at("fixed")).starts_with("    0 ----i"));
    assert!(run("lsattr", &["-d"], &at("closed")).starts_with("----i"));
    assert!(!Command::new("chattr").args(["-p", "7"]).arg(at("log")).status().unwrap().success());
    run("chattr", &["-ia", "-R"], &rig.point());
    fs::remove_file(at("fixed")).unwrap();
    assert_eq!(fs::read(at("log")).unwrap(), b"one, two");
    rig.unmount();
    rig.check();
}

/// The kernel's cache writes whole pages, even of a file that is only appended to.
#[test]
fn what_is_appended_to_may_be_cached() {
    mounting::require("chattr", "e2fsprogs");
    let rig = Rig::new(&["-o", "writeback"]);
    let log = rig.point().join("log");
    fs::write(&log, "one").unwrap();
    run("chattr", &["+a"], &log);
    for text in [", two", ", three"] {
        let mut file = OpenOptions::new().append(true).open(&log).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.sync_all().unwrap();
    }
    rig.remount(&[]);
    assert_eq!(fs::read(&log).unwrap(), b"one, two, three");
}

/// A volume keeps creation times if it was made that way (`-O extra_attr,inode_crtime`), and does
/// not invent them otherwise.
#[test]
fn what_is_not_kept_is_not_told() {
    let rig = Rig::new(&[]);
    fs::write(rig.point().join("f"), "x").unwrap();
    let made = fs::metadata(rig.point().join("f")).unwrap().created();
    assert_eq!(made.map_err(|error| error.kind()), Err(ErrorKind::Unsupported));
}

#[test]
fn attributes_and_times() {
    let rig = Rig::new(&[]);
    let path = rig.point().join("f");
    let file = OpenOptions::new().write(true).create_new(true).mode(0o640).open(&path).unwrap();
    assert_eq!(file.metadata().unwrap().mode(), 0o100_640);
    std::os::unix::fs::chown(&path, Some(7), Some(8)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o4711)).unwrap();
    for (secs, nanos) in [(-5, 500_000_000), (i64::from(u32::MAX) + 9, 7), (i64::MIN, 0)] {
        let time = rustix::fs::Timespec { tv_sec: secs, tv_nsec: nanos };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::futimens(&file, &times).unwrap();
        let found = file.metadata().unwrap();
        assert_eq!((found.mtime(), found.mtime_nsec()), (secs, nanos));
    }
    drop(file);
    rig.remount(&[]);
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.uid(), found.gid(), found.mode()), (7, 8, 0o104_711));
    let set = |name, flags| rustix::fs::setxattr(&path, name, b"value", flags);
    set("user.a", XattrFlags::CREATE).unwrap();
    assert_eq!(set("user.a", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(set("user.b", XattrFlags::REPLACE), Err(Errno::NODATA));
    let mut value = [0; 9];
    assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut value[..]), Ok(5));
    assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut value[..3]), Err(Errno::RANGE));
    let mut names = [0; 64];
    let len = rustix::fs::listxattr(&path, &mut names[..]).unwrap();
    assert_eq!(&names[..len], b"user.a\0");
    rustix::fs::removexattr(&path, "user.a").unwrap();
    assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut value[..]), Err(Errno::NODATA));
}

#[test]
fn access_times_as_mounted() {
    let rig = Rig::new(&["-o", "relatime"]);
    let path = rig.point().join("f");
    fs::write(&path, "x").unwrap();
    let atime = || {
        let found = fs::metadata(&path).unwrap();
        (found.atime(), found.atime_nsec())
    };
    let written = atime();
    fs::read(&path).unwrap();
    let read = atime();
    assert!(read > written, "the first read after a change counts");
    fs::read(&path).unwrap();
    assert_eq!(atime(), read, "the second does not");
    rig.remount(&["-o", "strictatime"]);
    fs::read(&path).unwrap();
    assert!(atime() > read, "every one does");
    rig.remount(&["-o", "noatime"]);
    let before = atime();
    fs::read(&path).unwrap();
    assert_eq!(atime(), before, "none does");
}

#[test]
fn permissions_hold_for_other_users() {
    let rig = Rig::new(&[]);
    let at = |name: &str| rig.point().join(name);
    let mode = |path: &str, mode| fs::set_permissions(at(path), Permissions::from_mode(mode));
    mode("", 0o755).unwrap();
    fs::write(at("secret"), "x").unwrap();
    mode("secret", 0o600).unwrap();
    fs::create_dir(at("tmp")).unwrap();
    mode("tmp", 0o1777).unwrap();
    fs::write(at("tmp/roots"), "x").unwrap();
    mode("tmp/roots", 0o666).unwrap();
    fs::write(at("tmp/suid"), "x").unwrap();
    mode("tmp/suid", 0o6777).unwrap();
    let shell = |script: &str| as_nobody(script, &rig.point());
    assert!(!shell("cat secret"));
    assert!(!shell("echo x > new"));
    assert!(!shell("chmod 777 tmp/roots"));
    assert!(!shell("rm -f tmp/roots"), "sticky");
    assert!(!shell("mv tmp/roots tmp/mine"), "sticky");
    assert!(shell("echo y >> tmp/roots && echo z > tmp/own && chmod 600 tmp/own && rm tmp/own"));
    assert!(!shell("getfattr -n user.strandline.status . 2>/dev/null"));
    assert!(!shell("getfattr -n user.strandline.cut=1 . 2>/dev/null"));
    assert!(shell("echo y >> tmp/suid"));
    assert_eq!(fs::metadata(at("tmp/suid")).unwrap().mode() & 0o7777, 0o777, "set-id bits go");
    assert_eq!(fs::read(at("tmp/roots")).unwrap(), b"xy\n");
}

#[test]
fn access_control_lists() {
    mounting::require("setfacl", "acl");
    let rig = Rig::new(&[]);
    let at = |name: &str| rig.point().join(name);
    fs::set_permissions(rig.point(), Permissions::from_mode(0o755)).unwrap();
    fs::write(at("f"), "x").unwrap();
    fs::set_permissions(at("f"), Permissions::from_mode(0o600)).unwrap();
    assert!(!as_nobody("cat f", &rig.point()));
    run("setfacl", &["-m", "u:nobody:r"], &at("f"));
    assert!(as_nobody("cat f", &rig.point()));
    assert_eq!(fs::metadata(at("f")).unwrap().mode() & 0o777, 0o640, "the mask");
    fs::set_permissions(at("f"), Permissions::from_mode(0o600)).unwrap();
    assert!(!as_nobody("cat f", &rig.point()), "the mask is the group's bits");
    fs::set_permissions(at("f"), Permissions::from_mode(0o640)).unwrap();
    fs::create_dir(at("d")).unwrap();
    run("setfacl", &["-d", "-m", "u:nobody:rwx,m::rwx,g::rx,o::-"], &at("d"));
    fs::write(at("d/new"), "x").unwrap();
    fs::create_dir(at("d/sub")).unwrap();
    let flags = rustix::fs::AtFlags::EMPTY_PATH;
    rustix::fs::linkat(nameless(&at("d"), 0o666).unwrap(), "", CWD, at("d/linked"), flags).unwrap();
    rig.remount(&[]);
    assert!(as_nobody("cat f", &rig.point()));
    let list = |name: &str| run("getfacl", &["-cpE"], &at(name));
    let new = "user::rw-\nuser:nobody:rwx\ngroup::r-x\nmask::rw-\nother::---\n\n";
    assert_eq!(list("d/new"), new, "the umask does not count, the mode asked for does");
    assert_eq!(list("d/linked"), new, "so does what began without a name");
    let sub = list("d/sub");
    assert!(sub.contains("default:user:nobody:rwx"), "directories hand it on: {sub}");
    run("setfacl", &["-b"], &at("f"));
    assert!(!as_nobody("cat f", &rig.point()));
}

#[test]
fn read_only_changes_nothing() {
    let rig = Rig::new(&[]);
    fs::write(rig.point().join("f"), "x").unwrap();
    rig.remount(&["-r"]);
    let before = fs::read(rig.image()).unwrap();
    let refused = fs::write(rig.point().join("f"), "y").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    assert_eq!(fs::read(rig.point().join("f")).unwrap(), b"x");
    rig.unmount();
    assert!(fs::read(rig.image()).unwrap() == before, "the image is as it was");
}

#[test]
fn remounting_as_mount_8_does_it() {
    let rig = Rig::new(&[]);
    let path = rig.point().join("f");
    fs::write(&path, "x").unwrap();
    rig.helper("remount,ro").unwrap();
    let status = String::from_utf8(strandline(&["status"], &rig.point()).stdout).unwrap();
    let options = status.lines().find(|line| line.starts_with("mount_options "));
    assert!(options.unwrap().contains(" ro,"), "{status}");
    let refused = fs::write(&path, "y").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    rig.helper("remount,rw,noexec").unwrap();
    fs::write(&path, "y").unwrap();
}

#[test]
fn what_was_fsynced_survives_kill_9() {
    let rig = Rig::new(&["-o", "fsync_mode=strict"]);
    for n in 0..20 {
        let mut file = File::create_new(rig.point().join(format!("f{n}"))).unwrap();
        file.write_all(&[n; 5000]).unwrap();
        file.sync_all().unwrap();
    }
    fs::write(rig.point().join("not synced"), "x").unwrap();
    rig.kill();
    rig.mount(&[]);
    for n in 0..20 {
        assert_eq!(fs::read(rig.point().join(format!("f{n}"))).unwrap(), [n; 5000]);
    }
    rig.unmount();
    rig.check();
}

#[test]
fn sigterm_unmounts_in_good_order() {
    let rig = Rig::new(&[]);
    fs::write(rig.point().join("f"), "not synced").unwrap();
    assert!(rig.terminate().success());
    assert!(!rig.is_mounted());
    rig.check();
    rig.mount(&[]);
    assert_eq!(fs::read(rig.point().join("f")).unwrap(), b"not synced");
    let _busy = File::open(rig.point().join("f")).unwrap();
    assert!(rig.terminate().success(), "although somebody uses it");
    assert!(!rig.is_mounted());
}

#[test]
fn a_power_cut_leaves_a_dead_drive_and_then_what_was_fsynced() {
    let rig = Rig::zoned(&["-o", "oprw"]);
    let mut file = File::create_new(rig.point().join("f")).unwrap();
    file.write_all(b"kept").unwrap();
    file.sync_all().unwrap();
    fs::write(rig.point().join("lost"), "x").unwrap();
    let cut = strandline(&["drive", "cut", "--seed", "3"], &rig.point());
    assert!(cut.status.success(), "{cut:?}");
    file.write_all(b"never").unwrap_or_default();
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(Errno::IO.raw_os_error()));
    drop(file);
    rig.give_up();
    rig.mount(&["-o", "oprw"]);
    assert_eq!(fs::read(rig.point().join("f")).unwrap(), b"kept");
    rig.unmount();
    rig.check();
}

#[test]
fn status_and_refusals() {
    let layer =
        ["--sched", "mq-deadline", "--nr-hw-queues", "1", "-o", "nr_requests=2,poll,busy_poll=100"];
    let rig = Rig::zoned(&layer);
    let status = strandline(&["status", "--json"], &rig.point());
    let text = String::from_utf8(status.stdout).unwrap();
    let status: serde_json::Value = serde_json::from_str(&text).expect("one JSON object");
    let shown = String::from_utf8(strandline(&["status"], &rig.point()).stdout).unwrap();
    let options = shown.lines().find(|line| line.starts_with("mount_options "));
    let options = options.expect("the options are shown");
    assert!(options.contains(",fsync_mode=posix"), "{shown}");
    assert!(status["free_segments"].is_u64() && status["drive/writes"].is_u64(), "{text}");
    assert!(options.ends_with(",sched=mq-deadline,nr_requests=2,nr_hw_queues=1,poll"), "{shown}");
    assert_eq!(status["queue/nr_hw_queues"], 1, "{text}");
    assert!(status["queue/sent"].as_u64() > Some(0), "{text}");
    let other = tempfile::tempdir().unwrap();
    let image = rig.image();
    let image = image.to_str().unwrap();
    let busy = strandline(&["mount", image], other.path());
    assert_eq!(busy.status.code(), Some(32), "{busy:?}");
    assert!(String::from_utf8_lossy(&busy.stderr).contains("in use"), "{busy:?}");
    let unknown = strandline(&["mount", "-o", "noatime,nonsense", image], other.path());
    assert_eq!(unknown.status.code(), Some(1), "{unknown:?}");
    let said = String::from_utf8(unknown.stderr).unwrap();
    assert!(said.lines().count() == 1 && said.contains("nonsense"), "{said}");
    let slow = strandline(&["mount", "-o", "timing=slow", image], other.path());
    let said = String::from_utf8(slow.stderr).unwrap();
    let told = said.contains("timing=slow: expected timing=instant or timing=paced");
    assert_eq!((slow.status.code(), told), (Some(1), true), "{said}");
    assert_eq!(strandline(&["status"], other.path()).status.code(), Some(1));
    rig.unmount();
    rig.check();
}

#[test]
fn what_is_not_emulated_cannot_be_cut() {
    let rig = Rig::new(&[]);
    let cut = strandline(&["drive", "cut"], &rig.point());
    let said = String::from_utf8_lossy(&cut.stderr).into_owned();
    assert_eq!((cut.status.code(), said.contains("only an emulated drive")), (Some(1), true));
    rig.unmount();
    rig.check();
}
