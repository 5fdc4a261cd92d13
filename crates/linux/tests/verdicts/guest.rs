//! The guest itself: it runs scripts, gives back what they say, and stops when told to.

use std::fs::File;

use linux::Guest;

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn a_script_is_run_and_answers() {
    let out = Guest::new()
        .file("greeting", "hello")
        .run("cat /host/greeting; echo written >/host/back; grep -q f2fs /proc/filesystems");
    assert_eq!(out.text, "hello");
    assert_eq!(out.status, Some(1), "f2fs is there before it is asked for");
    assert_eq!(out.file("back"), b"written\n");
}

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn drives_keep_what_was_written_before_a_reset() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    File::create(&disk).unwrap().set_len(64 << 20).unwrap();
    let script = "mkfs.f2fs -q /dev/vda && mount -t f2fs /dev/vda /mnt && echo kept >/mnt/file &&
        f2fs_io fsync /mnt/file && echo so far
        reset
        echo never";
    let out = Guest::new().drive(&disk).run(script);
    assert_eq!((out.status, out.text.contains("so far")), (None, true), "{}", out.text);
    assert!(!out.text.contains("never"));
    let out = Guest::new().drive(&disk).run("mount -t f2fs /dev/vda /mnt && cat /mnt/file");
    assert_eq!(out.success(), "kept\n");
}

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn zoned_drives_have_their_zones() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    File::create(&disk).unwrap().set_len(64 << 20).unwrap();
    let script = "null_blk 0 64 4 3 && blkzone report /dev/nullb0 | grep -c CONVENTIONAL
        null_blk_remove 0 && null_blk 0 64 4 3 2 && blkzone report /dev/nullb0 | tail -n 1
        modprobe nvme; while [ ! -e /dev/nvme0n1 ]; do sleep 0.1; done
        blkzone report /dev/nvme0n1 | tail -n 1";
    let out = Guest::new().zns(&disk, 8 << 20, 6 << 20).run(script);
    let zones: Vec<_> = out.success().lines().map(|l| l.split(" reset").next().unwrap()).collect();
    assert_eq!(zones[0], "3");
    assert_eq!(zones[1], "  start: 0x00001e000, len 0x002000, cap 0x001000, wptr 0x000000");
    assert_eq!(zones[2], "  start: 0x00001c000, len 0x004000, cap 0x003000, wptr 0x000000");
}
