//! What a mount could not write: `fsync`, `status`, the log and `umount` say so, and why.
//!
//! Needs root, /dev/fuse and the package fuse3.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::fs::Advice;
use rustix::io::Errno;

use crate::mounting::{Disk, Rig, run, strandline};

/// Makes the volume.
const F2FS: [&str; 2] = ["mkfs", "-q"];

/// A tmpfs that is too small for what is written to the image in it.
struct SmallHost(PathBuf);

impl SmallHost {
    fn new(rig: &Rig, mkfs: &[&str]) -> Self {
        let dir = rig.point().with_file_name("host");
        fs::create_dir(&dir).unwrap();
        run("mount", &["-t", "tmpfs", "-o", "size=24m", "tmpfs"], &dir);
        let host = Self(dir);
        File::create(host.image()).unwrap().set_len(128 << 20).unwrap();
        let made = strandline(mkfs, &host.image());
        assert!(made.status.success(), "{made:?}");
        host
    }

    fn image(&self) -> PathBuf {
        self.0.join("image")
    }
}

impl Drop for SmallHost {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

fn mount(image: &Path, point: &Path, log: &Path) {
    let log = log.to_str().unwrap();
    let mounted = strandline(&["mount", "--log", log, image.to_str().unwrap()], point);
    assert!(mounted.status.success(), "{mounted:?}");
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// `umount` reports the loss, and the log has it.
fn assert_lost(point: &Path, log: &Path, why: &str) {
    let unmounted = strandline(&["umount"], point);
    let (code, told) = (unmounted.status.code(), said(&unmounted));
    assert_eq!((code, told.lines().count()), (Some(32), 1), "{told}");
    assert!(told.contains("unmounted, but not everything was written"), "{told}");
    assert!(told.contains(why), "{told}");
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains(why) && log.contains("not everything was written"), "{log}");
}

#[test]
fn a_full_host_is_reported() {
    assert_full_host_is_reported(&F2FS);
}

#[test]
fn a_full_host_is_reported_on_ext4() {
    let lazy = ["-E", "lazy_journal_init=1"];
    assert_full_host_is_reported(&["mkfs", "--fs", "ext4", "-q", lazy[0], lazy[1]]);
}

fn assert_full_host_is_reported(mkfs: &[&str]) {
    let rig = Rig::empty();
    let (host, log, point) = (SmallHost::new(&rig, mkfs), rig.image(), rig.point());
    mount(&host.image(), &point, &log);
    let clean = strandline(&["status"], &point);
    assert!(!said(&clean).contains("error "), "{clean:?}");
    let mut file = File::create(point.join("data")).unwrap();
    file.write_all(&vec![7; 40 << 20]).unwrap();
    let lost = file.sync_all().unwrap_err();
    assert_eq!(lost.raw_os_error(), Some(Errno::NOSPC.raw_os_error()), "{lost}");
    drop(file);
    let status = said(&strandline(&["status"], &point));
    let line = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name}: {status}")).trim().to_owned()
    };
    assert!(line("error").contains("out of space"), "{status}");
    assert_eq!(line("image"), host.image().to_str().unwrap());
    assert!(line("memory_kb").parse::<u64>().unwrap() > 40_000, "{status}");
    assert!(line("unwritten_kb").parse::<u64>().unwrap() > 1000, "{status}");
    assert_lost(&point, &log, "out of space");
}

/// No call reports it before `umount`.
#[test]
fn umount_reports_what_nobody_synced() {
    let rig = Rig::empty();
    let (host, log, point) = (SmallHost::new(&rig, &F2FS), rig.image(), rig.point());
    mount(&host.image(), &point, &log);
    fs::write(point.join("data"), vec![7; 40 << 20]).unwrap();
    assert_lost(&point, &log, "MiB not written");
}

/// The image has another name by then, so `umount` cannot wait for the lock on it.
#[test]
fn umount_reports_what_an_image_with_another_name_lost() {
    let rig = Rig::empty();
    let (host, log, point) = (SmallHost::new(&rig, &F2FS), rig.image(), rig.point());
    mount(&host.image(), &point, &log);
    fs::rename(host.image(), host.0.join("other")).unwrap();
    fs::write(point.join("data"), vec![7; 40 << 20]).unwrap();
    assert_lost(&point, &log, "MiB not written");
}

#[test]
fn lost_power_is_reported() {
    let rig = Rig::zoned(&[]);
    rig.unmount();
    let log = rig.image().with_file_name("log");
    mount(&rig.image(), &rig.point(), &log);
    fs::write(rig.point().join("data"), "lost").unwrap();
    let cut = strandline(&["drive", "cut"], &rig.point());
    assert!(cut.status.success(), "{cut:?}");
    let status = said(&strandline(&["status", "--json"], &rig.point()));
    assert!(status.contains(r#""power":"off""#), "{status}");
    assert_lost(&rig.point(), &log, "not ready");
}

#[test]
fn umount_says_nothing_if_nothing_is_lost() {
    let rig = Rig::new(&[]);
    rig.unmount();
    let log = rig.image().with_file_name("log");
    mount(&rig.image(), &rig.point(), &log);
    fs::write(rig.point().join("data"), vec![7; 1 << 20]).unwrap();
    let unmounted = strandline(&["umount"], &rig.point());
    assert!(unmounted.status.success() && said(&unmounted).is_empty(), "{unmounted:?}");
    assert_eq!(fs::read_to_string(log).unwrap(), "");
}

/// What the kernel writes back for which there is no room is not taken for written.
#[test]
fn an_fsync_on_a_full_volume_fails_or_has_written_all() {
    for fs in ["ext4", "f2fs"] {
        let rig = Rig::of(fs, Disk::Plain(64), &["-o", "writeback"]);
        let mut failed = 0;
        for n in 0..200_u8 {
            let (path, contents) = (rig.point().join(n.to_string()), vec![n; 1_000_000]);
            let file = File::create_new(&path);
            let written = file.and_then(|mut file| {
                file.write_all(&contents)?;
                file.sync_all()?;
                Ok(rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?)
            });
            match written {
                Ok(()) => assert!(fs::read(&path).unwrap() == contents, "{fs}: file {n}"),
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{fs}: {error}");
                    failed += 1;
                }
            }
            if failed > 3 {
                break;
            }
        }
        assert!(failed > 3, "{fs}: never full");
        rig.unmount();
        rig.check();
    }
}
