//! The command over a file system that is not F2FS: everything that is said of volumes holds for
//! any of them.
//!
//! The mount needs root, /dev/fuse and the package fuse3; says so if one is missing.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use drive::{Drive, Spec, Timing, image};

use crate::common::{Scratch, fails, ok, strandline, text};
use crate::mounting::{Rig, alone};

/// An empty volume of 128 MiB. There is no mkfs for it: it is not for real files.
pub(crate) fn make(path: &Path) {
    let spec = Spec::named("ram").expect("a known profile").blocks(1 << 15);
    image::create(path, &spec).expect("it is created");
    let ssd = image::open(path, false, Timing::Instant).expect("it opens");
    let drive: Arc<dyn Drive> = ssd.clone();
    subjects::named("plainfs").expect("it is known").make(&drive).expect("it is made");
    drop(drive);
    ssd.power_off();
}

fn volume(scratch: &Scratch) -> String {
    let image = scratch.path("plain.img");
    make(Path::new(&image));
    image
}

#[test]
fn files_go_in_and_come_out() {
    let _alone = alone();
    let scratch = Scratch::new("plainfs-files");
    let image = volume(&scratch);
    let tree = scratch.0.join("tree");
    fs::create_dir(&tree).unwrap();
    let bytes: Vec<u8> = (0..100_000_u32).map(|n| (n * 7 % 251) as u8).collect();
    fs::write(tree.join("large"), &bytes).unwrap();
    fs::write(tree.join("small"), b"a few words\n").unwrap();
    std::os::unix::fs::symlink("small", tree.join("link")).unwrap();
    ok(&format!("cp -r {} {image}:/", tree.display()));
    assert_eq!(ok(&format!("ls {image}:/tree")), "large\nlink\nsmall\n");
    assert_eq!(ok(&format!("cat {image}:/tree/small")), "a few words\n");
    assert!(ok(&format!("stat {image}:/tree/large")).contains("100000"));
    assert!(ok(&format!("tree {image}:/")).contains("link -> small"));
    ok(&format!("cp -r {image}:/tree {}", scratch.path("back")));
    assert_eq!(fs::read(scratch.0.join("back/large")).unwrap(), bytes);
    assert_eq!(fs::read_link(scratch.0.join("back/link")).unwrap(), Path::new("small"));
    ok(&format!("fsck -n {image}"));
}

#[test]
fn what_is_said_of_a_volume() {
    let _alone = alone();
    let scratch = Scratch::new("plainfs-words");
    let image = volume(&scratch);
    assert_eq!(ok(&format!("label {image}")), "Info: volume label = \n");
    assert!(fails(&format!("label {image} canary")).1.contains("no label"));
    ok(&format!("fsck -n {image}"));
    assert!(fails(&format!("dump {image}")).1.contains("plainfs"));
    let dir = scratch.0.display();
    let (status, said) = fails(&format!("mount -o fsync_mode=strict {image} {dir}"));
    assert!(status != 0 && said.contains("fsync_mode"), "{said}");
    // The map, which begins in the second block, gives block 200 to inode 1.
    let mut bytes = fs::read(&image).unwrap();
    bytes[4096 + 200 * 16] = 1;
    fs::write(&image, &bytes).unwrap();
    let found = strandline(&format!("fsck -n {image}"));
    assert_eq!(found.status.code(), Some(4), "{found:?}");
    let owner = "block 0xc8: owner: found inode 0x1, should be none";
    assert!(text(&found.stdout).contains(owner), "{found:?}");
    // The root, behind the map, is no directory any more.
    bytes[4096 * 129..][..4].fill(0xff);
    fs::write(&image, &bytes).unwrap();
    assert!(fails(&format!("ls {image}:/")).1.contains("inode 0x81"));
}

#[test]
fn cuts_break_it() {
    let _alone = alone();
    let crash = strandline("crash --fs plainfs --workload varmail --cuts 100 --seed 3");
    assert_eq!(crash.status.code(), Some(1), "{crash:?}");
    let said = text(&crash.stdout);
    assert!(said.contains("plainfs") && said.contains("BROKEN"), "{said}");
    assert!(said.contains("conventional-noplp"), "a drive on which it runs: {said}");
    // A workload's options are for file systems that have them.
    let gc = strandline("crash --fs plainfs --workload gc-between --cuts 10");
    assert!(matches!(gc.status.code(), Some(0 | 1)), "{gc:?}");
    let found = strandline("lab explore --fs plainfs --length 1 --drives conventional-noplp");
    assert_eq!(found.status.code(), Some(1), "{found:?}");
    assert!(text(&found.stdout).contains("plain"), "{found:?}");
}

#[test]
fn a_mount_keeps_what_is_written() {
    let rig = Rig::empty();
    make(&rig.image());
    rig.mount(&[]);
    let mut file = File::create(rig.point().join("f")).unwrap();
    let bytes = vec![7; 300_000];
    file.write_all(&bytes).unwrap();
    file.sync_all().unwrap();
    drop(file);
    fs::create_dir(rig.point().join("d")).unwrap();
    fs::rename(rig.point().join("f"), rig.point().join("d/g")).unwrap();
    let status = ok(&format!("status {}", rig.point().display()));
    assert!(status.contains("mount_options"), "{status}");
    rig.remount(&[]);
    assert!(fs::read(rig.point().join("d/g")).unwrap() == bytes);
    fs::remove_file(rig.point().join("d/g")).unwrap();
    rig.unmount();
    ok(&format!("fsck -n {}", rig.image().display()));
}
