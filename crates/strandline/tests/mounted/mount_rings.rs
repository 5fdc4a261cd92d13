//! A mount whose requests come over `io_uring`.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use crate::mounting::{Rig, run};

/// Where the kernel, from 6.14 on, is told to offer rings.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Sets the switch, and restores it in the end.
struct Offered(String);

impl Offered {
    /// `None` on a kernel that has no rings.
    fn by_the_kernel() -> Option<Self> {
        let before = fs::read_to_string(SWITCH).ok()?;
        fs::write(SWITCH, "1").expect("this test needs root");
        Some(Self(before))
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        let _ = fs::write(SWITCH, self.0.trim());
    }
}

/// Threads of the server that serve a ring.
fn rings(rig: &Rig) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", rig.server_id())).unwrap();
    let names = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("comm")).unwrap());
    names.filter(|name| name.starts_with("fuse ring")).count()
}

/// Names, attributes, long and short contents, replies with and without a payload.
fn exercise(root: &Path) {
    let dir = root.join("dir");
    fs::create_dir(&dir).unwrap();
    let long: Vec<u8> = (0..3_000_001_u32).map(|i| (i / 7) as u8).collect();
    fs::write(dir.join("long"), &long).unwrap();
    for n in 0..500 {
        let mut file = File::create(dir.join(format!("{n}-{}", "x".repeat(200)))).unwrap();
        file.write_all(format!("contents of {n}").as_bytes()).unwrap();
        file.sync_all().unwrap();
    }
    fs::rename(dir.join("long"), root.join("moved")).unwrap();
    std::os::unix::fs::symlink("moved", root.join("link")).unwrap();
    let value = "v".repeat(3000);
    run("setfattr", &["-n", "user.name", "-v", &value], &root.join("moved"));
    assert_eq!(fs::read(root.join("link")).unwrap(), long);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 500);
    let file = File::options().write(true).open(root.join("moved")).unwrap();
    file.write_all_at(b"changed", 1 << 20).unwrap();
    file.sync_data().unwrap();
}

fn check(root: &Path) {
    let moved = fs::read(root.join("moved")).unwrap();
    assert_eq!((moved.len(), &moved[1 << 20..][..7]), (3_000_001, &b"changed"[..]));
    let read = run("getfattr", &["--only-values", "-n", "user.name"], &root.join("moved"));
    assert_eq!(read.trim_end(), "v".repeat(3000));
    for entry in fs::read_dir(root.join("dir")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let text = fs::read_to_string(entry.path()).unwrap();
        assert_eq!(text, format!("contents of {}", name.split('-').next().unwrap()));
        assert_eq!(entry.metadata().unwrap().size(), text.len() as u64);
    }
}

#[test]
fn requests_come_over_rings_where_the_kernel_offers_them() {
    let offered = Offered::by_the_kernel();
    let rig = Rig::new(&["-o", "io_uring"]);
    assert_eq!(rings(&rig) > 0, offered.is_some());
    exercise(&rig.point());
    check(&rig.point());
    rig.remount(&["-o", "io_uring"]);
    check(&rig.point());
    // Many at a time, on all CPUs.
    let writers: Vec<_> = (0..8)
        .map(|n| {
            let path = rig.point().join(format!("writer {n}"));
            cores::spawn("writer", None, move || {
                let file = File::create(path).unwrap();
                for i in 0..200_u64 {
                    file.write_all_at(&[n; 4096], i * 4096).unwrap();
                    file.sync_data().unwrap();
                }
            })
        })
        .collect();
    writers.into_iter().for_each(cores::JoinHandle::join);
    for n in 0..8 {
        let written = fs::read(rig.point().join(format!("writer {n}"))).unwrap();
        assert!(written.len() == 200 * 4096 && written.iter().all(|byte| *byte == n));
    }
    rig.unmount();
    rig.check();
}
