//! The kernel trusts the quota files that we write, Debian's `repquota` reads from it what our
//! `status` says, and what the kernel then counts we read, and `fsck.f2fs` accepts.

use vfs::{Creator, FileSystem};

use crate::volumes::{Kind, assert_clean, create, mount};
use linux::Guest;

/// Reports quotas of $1, changes owners, and leaves.
const REPORT: &str = "
    set -e
    modprobe -a f2fs quota_v2
    mount -t f2fs -o usrquota,grpquota /dev/vda /mnt
    repquota -nu /mnt >/host/users
    repquota -ng /mnt >/host/groups
    dd if=/dev/zero of=/mnt/kernels bs=4096 count=20
    chown 1234:77 /mnt/kernels
    rm /mnt/3
    umount /mnt
    dmesg | grep -i 'f2fs.*quota' >/host/said || true
";

/// Inodes and KiB of an id in what `repquota -n` printed.
fn of(report: &str, id: u32) -> (u64, u64) {
    let name = format!("#{id}");
    let line = report.lines().find(|line| line.split_whitespace().next() == Some(&name));
    let fields: Vec<&str> = line.map(|line| line.split_whitespace().collect()).unwrap_or_default();
    // The id, marks, KiB with soft and hard limit, inodes with theirs.
    let number = |at: usize| fields.get(at).and_then(|field| field.parse().ok()).unwrap_or(0);
    (number(5), number(2))
}

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn the_kernel_and_repquota_agree_about_quota() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("volume");
    create(&image, Kind::Conventional, 320, "extra_attr,quota,project_quota,lost_found");
    let fs = mount(&image, "usrquota");
    fs.set_tunable("quota_limits", "user:1001:0:8192:0:100").unwrap();
    for n in 0..40_u32 {
        let creator = Creator { uid: 1000 + n % 4, gid: n % 3 };
        let ino = fs.create(fs.root(), format!("{n}").as_bytes(), 0o644, creator).unwrap().ino;
        fs.write(ino, 0, &vec![1; 4096 * n as usize * 3]).unwrap();
    }
    fs.sync().unwrap();
    fs.unlink(fs.root(), b"7").unwrap();
    let ours = fs.status().quota_limits;
    fs.unmount().unwrap();
    drop(fs);
    assert_clean(&image);
    let out = Guest::new().drive(&image).run(REPORT);
    out.success();
    let text = |name: &str| String::from_utf8(out.file(name)).unwrap();
    assert_eq!(text("said"), "", "the kernel finds nothing wrong");
    let usage = |all: &serde_json::Value, kind: &str, id: u32| {
        let of = |what: &str| all[kind][id.to_string()][what].as_u64().unwrap_or(0);
        (of("inodes"), of("kib"))
    };
    for (report, kind, ids) in [("users", "user", 1000..1004), ("groups", "group", 0..3)] {
        let report = text(report);
        for id in ids {
            assert!(usage(&ours, kind, id).0 > 0);
            assert_eq!(of(&report, id), usage(&ours, kind, id), "{kind} {id}: {report}");
        }
    }
    assert_clean(&image);
    let fs = mount(&image, "");
    let theirs = fs.status().quota_limits;
    assert_eq!(usage(&theirs, "user", 1234), (1, 80));
    assert_eq!(usage(&theirs, "user", 1003).0, usage(&ours, "user", 1003).0 - 1);
    assert_eq!(theirs["user"]["1001"]["kib_hard_limit"], 8192);
    fs.unmount().unwrap();
    drop(fs);
    assert_clean(&image);
}
