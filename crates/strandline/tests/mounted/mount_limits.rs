//! Names, sizes, times and volumes at their limits, through a mount: the right errno, and nothing
//! lost; two users; a server that died; a remount. The engine's own `limits` tests the first
//! without a mount.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{CWD, FallocateFlags, Mode, OFlags, SeekFrom, Timespec, Timestamps};
use rustix::io::Errno;

use crate::mounting::programs::shell;
use crate::mounting::{Disk, Rig, as_nobody, number, run, strandline};

#[test]
fn names_are_bytes() {
    let rig = Rig::new(&[]);
    let every: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
    let mut names: BTreeSet<Vec<u8>> = [&b"\n"[..], b" ", b"-rf", b"\xff\xfe", b"a\r\nb", b"..."]
        .into_iter()
        .map(<[u8]>::to_vec)
        .collect();
    names.extend((0..50).map(|n| every.iter().cycle().skip(n).take(255).copied().collect()));
    for name in &names {
        let file = File::create_new(rig.point().join(OsStr::from_bytes(name))).unwrap();
        file.write_all_at(name, 0).unwrap();
        file.sync_all().unwrap();
    }
    let long = "x".repeat(256);
    let refused = File::create_new(rig.point().join(&long)).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::NAMETOOLONG.raw_os_error()));
    rig.kill();
    rig.mount(&[]);
    let listed = fs::read_dir(rig.point()).unwrap().map(|entry| entry.unwrap().file_name());
    let listed: BTreeSet<OsString> = listed.collect();
    assert_eq!(listed.len(), names.len());
    for name in &names {
        let name = OsStr::from_bytes(name);
        assert!(listed.contains(name));
        assert_eq!(fs::read(rig.point().join(name)).unwrap(), name.as_bytes());
    }
    rig.unmount();
    rig.check();
}

/// Deeper than any path can be.
#[test]
fn a_tree_deeper_than_a_path() {
    let rig = Rig::new(&[]);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let name = "d".repeat(200);
    let open = |dir: &OwnedFd, name: &str| rustix::fs::openat(dir, name, flags, Mode::empty());
    let top = || rustix::fs::open(rig.point(), flags, Mode::empty()).unwrap();
    let mut dir = top();
    for _ in 0..1000 {
        rustix::fs::mkdirat(&dir, &name, Mode::RWXU).unwrap();
        dir = open(&dir, &name).unwrap();
    }
    rustix::fs::mkdirat(&dir, "bottom", Mode::RWXU).unwrap();
    drop(dir);
    rig.remount(&[]);
    let mut dir = top();
    for _ in 0..1000 {
        dir = open(&dir, &name).unwrap();
    }
    open(&dir, "bottom").unwrap();
    drop(dir);
    shell("rm -rf ./*", &rig.point());
    assert_eq!(fs::read_dir(rig.point()).unwrap().count(), 0);
    rig.unmount();
    rig.check();
}

/// F2FS maps blocks through 1018^3 pointers and a few, 3.94 TiB; the 16 TiB
/// of other file systems are refused.
#[test]
fn the_largest_file() {
    let rig = Rig::new(&[]);
    let path = rig.point().join("f");
    let file = File::create_new(&path).unwrap();
    let tib = 1_u64 << 40;
    let large = |result: std::io::Result<()>| result.unwrap_err().raw_os_error();
    assert_eq!(large(file.set_len(16 * tib)), Some(Errno::FBIG.raw_os_error()));
    assert_eq!(large(file.write_all_at(b"x", 16 * tib)), Some(Errno::FBIG.raw_os_error()));
    let allocate = rustix::fs::fallocate(&file, FallocateFlags::empty(), 16 * tib, 4096);
    assert_eq!(allocate, Err(Errno::FBIG));
    let blocks = 2 * 1018 + 2 * 1018_u64.pow(2) + 1018_u64.pow(3);
    let far = (blocks - 1) * 4096;
    file.set_len(far).unwrap();
    file.write_all_at(b"the end", far).unwrap();
    file.write_all_at(b"2 TiB", 2 * tib).unwrap();
    file.sync_all().unwrap();
    drop(file);
    rig.kill();
    rig.mount(&[]);
    let file = File::open(&path).unwrap();
    assert_eq!(file.metadata().unwrap().len(), far + 7);
    assert!(file.metadata().unwrap().blocks() < 100);
    let mut bytes = [0; 7];
    file.read_exact_at(&mut bytes, far).unwrap();
    assert_eq!(&bytes, b"the end");
    let data = rustix::fs::seek(&file, SeekFrom::Data(2 * tib + 4096)).unwrap();
    assert_eq!(data, far);
    drop(file);
    rig.unmount();
    rig.check();
}

#[test]
fn a_full_volume_keeps_what_it_has() {
    let rig = Rig::on(Disk::Plain(64), &[]);
    let path = rig.point().join("fill");
    let file = File::create_new(&path).unwrap();
    let chunk = |n: u64| vec![n as u8; 65_536];
    let mut chunks = 0;
    let full = loop {
        match file.write_all_at(&chunk(chunks), chunks * 65_536) {
            Ok(()) => chunks += 1,
            Err(error) => break error.raw_os_error(),
        }
    };
    assert_eq!(full, Some(Errno::NOSPC.raw_os_error()));
    assert!(chunks > 200, "{chunks}");
    file.sync_all().unwrap();
    rig.kill();
    rig.mount(&[]);
    let kept = fs::read(&path).unwrap();
    assert!((0..chunks).all(|n| kept[n as usize * 65_536..][..65_536] == chunk(n)));
    fs::remove_file(&path).unwrap();
    fs::write(rig.point().join("new"), vec![1; 10 << 20]).unwrap();
    rig.unmount();
    rig.check();
}

#[test]
fn no_inode_left() {
    let rig = Rig::on(Disk::Plain(64), &[]);
    let at = |n: u32| rig.point().join(n.to_string());
    let mut made = 0;
    let full = loop {
        match File::create_new(at(made)) {
            Ok(_) => made += 1,
            Err(error) => break error.raw_os_error(),
        }
    };
    assert_eq!(full, Some(Errno::NOSPC.raw_os_error()));
    assert!(made > 1000, "{made}");
    (0..100).for_each(|n| fs::remove_file(at(n)).unwrap());
    (0..100).for_each(|n| drop(File::create_new(at(n)).unwrap()));
    rig.remount(&[]);
    assert_eq!(fs::read_dir(rig.point()).unwrap().count(), made as usize);
    rig.unmount();
    rig.check();
}

#[test]
#[ignore = "long: a million files in one directory"]
fn a_million_files_in_one_directory() {
    let count = number("FILES", 1_000_000);
    // A block for each inode.
    let rig = Rig::on(Disk::Plain(count.div_ceil(256) + count.div_ceil(1000) + 512), &[]);
    let name = |n: u64| rig.point().join(format!("file {n}"));
    (0..count).for_each(|n| drop(File::create_new(name(n)).unwrap()));
    rig.remount(&[]);
    let listed = fs::read_dir(rig.point()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(listed.collect::<BTreeSet<_>>().len() as u64, count);
    for n in (0..count).step_by(997) {
        assert_eq!(fs::metadata(name(n)).unwrap().len(), 0);
    }
    (0..count).for_each(|n| fs::remove_file(name(n)).unwrap());
    assert_eq!(fs::read_dir(rig.point()).unwrap().count(), 0);
    rig.unmount();
    rig.check();
}

/// Times of before 1970 and after 2038 and 2106, after an fsync and a cut.
#[test]
fn times_of_any_clock() {
    let rig = Rig::new(&[]);
    let times = [-1, -2_208_988_800, (1 << 31) - 1, 1 << 31, 1 << 32, 253_402_300_799];
    let path = |n: usize| rig.point().join(n.to_string());
    for (n, &tv_sec) in times.iter().enumerate() {
        let file = File::create_new(path(n)).unwrap();
        let time = Timespec { tv_sec, tv_nsec: 999_999_999 };
        let both = Timestamps { last_access: time, last_modification: time };
        rustix::fs::futimens(&file, &both).unwrap();
        file.sync_all().unwrap();
    }
    rig.kill();
    rig.mount(&["-o", "noatime"]);
    for (n, &time) in times.iter().enumerate() {
        let found = fs::metadata(path(n)).unwrap();
        assert_eq!((found.mtime(), found.mtime_nsec()), (time, 999_999_999));
        assert_eq!((found.atime(), found.atime_nsec()), (time, 999_999_999));
    }
    rig.unmount();
    rig.check();
}

/// `mount` has the basics; this is what is easily forgotten.
#[test]
fn what_another_user_may_not() {
    let rig = Rig::new(&[]);
    let at = |name: &str| rig.point().join(name);
    let mode = |name: &str, mode| fs::set_permissions(at(name), PermissionsExt::from_mode(mode));
    mode("", 0o755).unwrap();
    fs::write(at("f"), "roots").unwrap();
    fs::create_dir(at("closed")).unwrap();
    fs::write(at("closed/open"), "x").unwrap();
    mode("closed/open", 0o666).unwrap();
    mode("closed", 0o700).unwrap();
    let xattr = |name, value: &str| {
        rustix::fs::setxattr(at("f"), name, value.as_bytes(), rustix::fs::XattrFlags::empty())
    };
    xattr("user.kept", "1").unwrap();
    xattr("trusted.kept", "1").unwrap();
    for script in [
        "echo x >> f",
        "truncate -s 0 f",
        "touch -d 2001-01-01 f",
        "chown nobody f",
        "ln f g",
        "ln -s x new",
        "mkdir new",
        "mv f g",
        "setfattr -n user.mine -v 1 f",
        "setfattr -x user.kept f",
        "getfattr -n trusted.kept f 2>/dev/null | grep -q kept",
        "cat closed/open",
        "ls closed",
        "fallocate -p -o 0 -l 4096 f",
    ] {
        assert!(!as_nobody(script, &rig.point()), "{script}");
    }
    assert_eq!(fs::read(at("f")).unwrap(), b"roots");
    assert!(as_nobody("cat f && getfattr -n user.kept f && stat f", &rig.point()));
    let root = rustix::fs::statat(CWD, at("f"), rustix::fs::AtFlags::empty()).unwrap();
    assert_eq!((root.st_uid, root.st_mode & 0o777), (0, 0o644));
}

#[test]
fn a_mount_whose_server_died_says_so_and_can_be_removed() {
    let rig = Rig::new(&[]);
    fs::write(rig.point().join("f"), b"bytes").unwrap();
    // With this the kernel has the directory's attributes, and need not ask for them again.
    fs::read_dir(rig.point()).unwrap().for_each(drop);
    rig.die();
    let status = strandline(&["status"], &rig.point());
    let said = String::from_utf8_lossy(&status.stderr).into_owned();
    assert!(status.status.code() == Some(1) && said.contains("has died"), "{said}");
    let image = rig.image();
    let again = strandline(&["mount", image.to_str().unwrap()], &rig.point());
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(again.status.code() == Some(32) && said.contains("has died"), "{said}");
    let removed = strandline(&["umount"], &rig.point());
    let said = String::from_utf8_lossy(&removed.stderr).into_owned();
    assert!(removed.status.code() == Some(32) && said.contains("had died"), "{said}");
    rig.mount(&[]);
    rig.unmount();
    rig.check();
}

#[test]
fn a_remount_changes_no_promise() {
    let rig = Rig::new(&["-o", "fsync_mode=nobarrier"]);
    let remount = |options: &str| {
        let options = format!("remount,{options}");
        let output = strandline(&["mount", "-o", &options], &rig.point());
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = remount("fsync_mode=strict");
    assert!(code == Some(32) && said.contains("unmount first"), "{said}");
    assert_eq!(remount("noatime,fsync_mode=nobarrier").0, Some(0));
    assert_eq!(remount("ro").0, Some(0));
    assert!(fs::write(rig.point().join("f"), b"bytes").is_err());
    assert_eq!(remount("rw").0, Some(0));
    let status = String::from_utf8(strandline(&["status"], &rig.point()).stdout).unwrap();
    assert!(status.contains("fsync_mode=nobarrier"), "{status}");
    rig.unmount();
    rig.check();
}

/// What files leave in memory is bounded by `cache=`, not by how many were made.
#[test]
#[ignore = "long: 30,000 files"]
fn memory_does_not_grow_with_the_files_that_are_made() {
    let rig = Rig::on(Disk::Plain(1024), &["-o", "cache=16m"]);
    let make = |files: std::ops::Range<u32>| {
        files.for_each(|n| fs::write(rig.point().join(n.to_string()), [7; 1000]).unwrap());
        rig.memory()
    };
    let (first, last) = (make(0..10_000), make(10_000..30_000));
    assert!(last < first + (40 << 10), "{first} KiB, then {last}");
    rig.unmount();
}

/// As umount(8) calls it; fails if it takes long.
fn umount_helper(rig: &Rig, flags: &[&str], dir: &Path) {
    let helper = rig.image().with_file_name("umount.strandline");
    if !helper.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_strandline"), &helper).unwrap();
    }
    let mut command = Command::new("timeout");
    let done = command.arg("60").arg(&helper).args(flags).arg(dir).output().expect("timeout runs");
    assert!(done.status.success(), "{flags:?} {}: {done:?}", dir.display());
}

#[test]
fn what_is_mounted_elsewhere_too_is_not_waited_for() {
    let rig = Rig::new(&[]);
    let (dir, bind) = (rig.point().join("dir"), rig.point().with_file_name("bind"));
    fs::create_dir(&dir).unwrap();
    fs::create_dir(&bind).unwrap();
    for flags in [&[][..], &["-l"]] {
        run("mount", &["--bind", dir.to_str().unwrap()], &bind);
        umount_helper(&rig, flags, &bind);
    }
    fs::write(dir.join("f"), "still mounted").unwrap();
    // Another namespace keeps it.
    let mut other = Command::new("unshare");
    let keep = "echo ready; exec sleep 600";
    other.args(["--mount", "sh", "-c", keep]).stdout(Stdio::piped());
    let mut other = other.spawn().expect("unshare runs");
    let mut said = [0; 5];
    other.stdout.take().unwrap().read_exact(&mut said).unwrap();
    umount_helper(&rig, &[], &rig.point());
    assert!(!rig.is_mounted());
    other.kill().unwrap();
    other.wait().unwrap();
    rig.await_end();
    // Alone it is waited for: the image is complete.
    rig.mount(&[]);
    assert_eq!(fs::read(dir.join("f")).unwrap(), b"still mounted");
    umount_helper(&rig, &[], &rig.point());
    rig.check();
    rig.await_end();
    rig.mount(&[]);
    umount_helper(&rig, &["-f"], &rig.point());
    rig.await_end();
}
