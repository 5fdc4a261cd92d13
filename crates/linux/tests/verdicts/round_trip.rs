//! What we wrote the kernel reads, to the last nanosecond; what it then writes we read, and
//! `fsck.f2fs` finds nothing wrong.

use std::path::Path;

use crate::AGENT;
use crate::verdict::read_manifest;
use crate::volumes::{
    CONVENTIONAL_ZONES, Kind, MIB, ZONE_MIB, assert_clean, create, manifest, mount, open, populate,
    report, sparse, wrong_with,
};
use linux::{Guest, Manifest};
use vfs::FileSystem;
use vfs::kind::Format as _;
use vfs::ops::{Generator, Mix, Op, Session, print};

const SIZE_MIB: u64 = 320;
const ALL_FEATURES: &str = "extra_attr,inode_checksum,inode_crtime,lost_found,sb_checksum";

/// Reads the volume of kind $2 on $1, writes what /host/ops says, reads again.
const READ_AND_WRITE: &str = "
    set -e
    mount -t $2 -o noatime $1 /mnt
    strandline-agent manifest /mnt >/host/before
    strandline-agent apply /mnt /host/ops
    sync
    umount /mnt
    mount -t $2 -o noatime $1 /mnt
    strandline-agent manifest /mnt >/host/after
    umount /mnt
";

fn operations(seed: u64) -> Vec<Op> {
    let mix = Mix { file_bytes: 2 * MIB, ..Mix::default() };
    Generator::with_mix(seed, mix).take_ops(600)
}

#[track_caller]
fn assert_same(expected: &Manifest, found: &Manifest, what: &str) {
    let differences = expected.diff(found);
    let shown = &differences[..differences.len().min(40)];
    assert!(shown.is_empty(), "{what}: {} differences:\n{}", differences.len(), shown.join("\n"));
}

fn written_by_us(path: &Path, kind: Kind, features: &str, seed: u64) -> Manifest {
    create(path, kind, SIZE_MIB, features);
    let fs = mount(path, "");
    populate(&fs, seed).expect("a tree");
    fs.unmount().expect("an unmount");
    drop(fs);
    assert_clean(path);
    manifest(path)
}

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn a_conventional_volume_goes_to_the_kernel_and_back() {
    for (seed, features) in [(1, ""), (2, ALL_FEATURES)] {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("volume");
        let ours = written_by_us(&image, Kind::Conventional, features, seed);
        let guest = Guest::new().drive(&image).program(Path::new(AGENT));
        let script = format!("set -- /dev/vda f2fs\n{READ_AND_WRITE}");
        let out = guest.file("ops", print(&operations(seed + 100))).run(&script);
        out.success();
        assert_same(&ours, &read_manifest(&out.file("before")), "the kernel reads what we wrote");
        assert_clean(&image);
        assert_same(&read_manifest(&out.file("after")), &manifest(&image), "we read what it wrote");
    }
}

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn a_zoned_volume_goes_to_the_kernel_and_back() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("volume");
    let ours = written_by_us(&image, Kind::Zoned, "", 3);
    let back = sparse(dir.path().join("back"), SIZE_MIB * MIB);
    let script = format!(
        "set -e
        null_blk 0 {SIZE_MIB} {ZONE_MIB} {CONVENTIONAL_ZONES}
        strandline-agent put /dev/vda 0 /host/zones /dev/nullb0
        blkzone report /dev/nullb0 >/host/zones.put
        set -- /dev/nullb0 f2fs
        {READ_AND_WRITE}
        fsck.f2fs --dry-run /dev/nullb0 >/host/fsck && ! grep -F '[Fail]' /host/fsck
        blkzone report /dev/nullb0 >/host/zones.back
        strandline-agent take /dev/nullb0 /host/zones.back /dev/vdb 0"
    );
    let guest = Guest::new().drive(&image).drive(&back).memory(1536).program(Path::new(AGENT));
    let out = guest.file("zones", report(&image)).file("ops", print(&operations(103))).run(&script);
    out.success();
    assert_same(&ours, &read_manifest(&out.file("before")), "the kernel reads what we wrote");
    let text = |name| String::from_utf8(out.file(name)).expect("a zone report");
    let pointers = |text: &str| -> Vec<u64> {
        drive::blkzone::parse(text).expect("a zone report").iter().map(|zone| zone.wp).collect()
    };
    assert_eq!(pointers(&text("zones.put")), pointers(&report(&image)), "zones as they were");
    let copy = dir.path().join("copy");
    drive::image::import(&back, &text("zones.back"), &copy).expect("a drive in a file");
    assert_clean(&copy);
    assert_same(&read_manifest(&out.file("after")), &manifest(&copy), "we read what it wrote");
}

/// One ext4 image, to which we and the kernel write in turns.
#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn we_and_the_kernel_alternate_on_ext4() {
    const ROUNDS: u64 = 20;
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("volume");
    drive::image::create(&image, &Kind::Conventional.spec(SIZE_MIB)).expect("a drive in a file");
    ext4::Format.make(&open(&image)).expect("a volume");
    let read_only = || {
        let fs = ext4::Format.mount(open(&image), "ro").expect("a mount");
        Manifest::of_volume(&*fs).expect("a tree")
    };
    for round in 0..ROUNDS {
        let fs = ext4::Format.mount(open(&image), "").expect("a mount");
        let mut session = Session::new(&*fs);
        for op in operations(round) {
            let _errors_are_part_of_it = session.apply(&op);
        }
        drop(session);
        fs.unmount().expect("an unmount");
        drop(fs);
        assert_eq!(wrong_with(&ext4::Format, &image), None, "round {round}: ours");
        let ours = read_only();
        let guest = Guest::new().drive(&image).program(Path::new(AGENT));
        let script = format!("set -- /dev/vda ext4\n{READ_AND_WRITE}");
        let out = guest.file("ops", print(&operations(100 + round))).run(&script);
        out.success();
        let what = format!("round {round}");
        assert_same(
            &ours,
            &read_manifest(&out.file("before")),
            &format!("{what}: the kernel reads ours"),
        );
        assert_eq!(wrong_with(&ext4::Format, &image), None, "{what}: the kernel's");
        assert_same(
            &read_manifest(&out.file("after")),
            &read_only(),
            &format!("{what}: we read its"),
        );
    }
}
