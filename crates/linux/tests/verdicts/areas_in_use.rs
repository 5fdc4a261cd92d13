//! While the journal has areas of ours in use, the kernel and e2fsck refuse the volume and change
//! nothing. Recovered or unmounted by us it is an ext4 like any other.

use std::path::Path;
use std::process::Command;

use drive::{Spec, Ssd, Timing};
use ext4::{Ext4, Format};
use linux::{Guest, Manifest};
use vfs::FileSystem;
use vfs::kind::Format as _;
use vfs::ops::{Generator, Mix, Session};

use crate::AGENT;
use crate::verdict::read_manifest;
use crate::volumes::{dump, open, wrong_with};

const SIZE_MIB: u64 = 64;
const MODES: [&str; 4] = ["ijournal", "grouped", "zjournal", "zgrouped"];

/// A cut of a volume on which files were written, fsynced and committed.
fn crash(mode: &str, path: &Path) {
    let spec = Spec::named("conventional-noplp").unwrap().blocks(SIZE_MIB * 256);
    let drive = Ssd::new(spec, Timing::Instant, 1).unwrap();
    Format.make_with(&(drive.clone() as _), "").expect("a volume");
    let options = format!("journal={mode}").parse().unwrap();
    let fs = Ext4::mount(drive.clone(), &options).unwrap();
    let mut session = Session::new(&fs);
    for op in Generator::with_mix(7, Mix { syncs: 40, ..Mix::default() }).take_ops(300) {
        let _errors_are_part_of_it = session.apply(&op);
    }
    fs.sync().unwrap();
    dump(&drive.survivors(1), path);
}

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn others_refuse_the_volume() {
    for mode in MODES {
        let dir = tempfile::tempdir().unwrap();
        let [used, ours] = ["used", "ours"].map(|name| dir.path().join(name));
        crash(mode, &used);
        std::fs::copy(&used, &ours).unwrap();
        let fs = Format.mount(open(&ours), "").expect("a recovery");
        let tree = Manifest::of_volume(&*fs).expect("a tree");
        fs.unmount().expect("an unmount");
        drop(fs);
        assert_eq!(wrong_with(&Format, &ours), None, "{mode}");

        let before = std::fs::read(&used).unwrap();
        let e2fsck = Command::new("/usr/sbin/e2fsck").arg("-fn").arg(&used).output().unwrap();
        let said = String::from_utf8_lossy(&e2fsck.stderr);
        assert!(said.contains("while checking journal"), "{mode}: {said}");
        assert!(matches!(e2fsck.status.code(), Some(8 | 12)), "{mode}: {}", e2fsck.status);

        let script = "
            if mount -t ext4 /dev/vda /mnt; then exit 1; fi
            dmesg >/host/log
            set -e
            mount -t ext4 -o noatime /dev/vdb /mnt
            strandline-agent manifest /mnt >/host/tree
            umount /mnt
        ";
        let guest = Guest::new().drive(&used).drive(&ours).program(Path::new(AGENT));
        let out = guest.run(script);
        out.success();
        let log = String::from_utf8_lossy(&out.file("log")).into_owned();
        let said: Vec<&str> = log.lines().filter(|line| line.contains("JBD2")).collect();
        println!("{mode}: {said:?}");
        assert!(said.iter().any(|line| line.contains("Unrecognised features")), "{mode}: {log}");
        assert!(std::fs::read(&used).unwrap() == before, "{mode}: it was changed");
        let differences = read_manifest(&out.file("tree")).diff(&tree);
        assert!(differences.is_empty(), "{mode}: {}", differences.join("\n"));
    }
}
