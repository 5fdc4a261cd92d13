//! ext4: the kernel mounts the volumes that we make, fills them and unmounts them. Then `e2fsck`
//! finds nothing wrong.

use std::path::Path;
use std::process::Command;

use ::ext4::mkfs::{Features, MkfsOptions, format};
use linux::Guest;

use crate::volumes::{MIB, open, sparse};

const SIZE_MIB: u64 = 256;
/// The drives as the guest names them, and what is on each.
const VOLUMES: [(&str, u32, Features); 4] = [
    ("vda", 4096, Features::DEBIAN),
    ("vdb", 4096, Features::UPSTREAM),
    ("vdc", 2048, Features::DEBIAN),
    ("vdd", 1024, Features::UPSTREAM),
];

/// Copies a tree and makes and removes files on each volume.
const FILL: &str = "
    set -e
    for drive in vda vdb vdc vdd; do
        mount -t ext4 /dev/$drive /mnt
        cp -r /bin /mnt/tree
        for n in $(seq 300); do echo $n >/mnt/file-$n; done
        rm /mnt/file-1*
        sync
        umount /mnt
        mount -t ext4 /dev/$drive /mnt
        [ $(cat /mnt/file-* | wc -l) = 189 ]
        diff -r /bin /mnt/tree
        umount /mnt
    done
";

fn make(path: &Path, block_size: u32, features: Features) {
    let options = MkfsOptions { block_size: Some(block_size), features, ..MkfsOptions::default() };
    let drive = open(path);
    format(&drive, &options).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn assert_clean(path: &Path) {
    let out = Command::new("/usr/sbin/e2fsck").arg("-fn").arg(path).output();
    let out = out.expect("e2fsck: apt-get install e2fsprogs");
    let said = String::from_utf8_lossy(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{}: {said}", path.display());
}

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn the_kernel_fills_volumes_that_we_made() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut guest = Guest::new().timeout(900);
    for (name, block_size, features) in VOLUMES {
        let path = sparse(dir.path().join(name), SIZE_MIB * MIB);
        make(&path, block_size, features);
        assert_clean(&path);
        guest = guest.drive(&path);
    }
    guest.run(FILL).success();
    for (name, _, _) in VOLUMES {
        assert_clean(&dir.path().join(name));
    }
}
