//! Limits of users through a mount: they hold for nobody and not for root, and so with the room
//! that is kept for root.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::mounting::{Rig, as_nobody, run, strandline};

const NOBODY: u32 = 65534;

/// A volume with quota files that is not mounted.
fn with_quota() -> Rig {
    let rig = Rig::empty();
    File::create(rig.image()).unwrap().set_len(128 << 20).unwrap();
    let made = strandline(&["mkfs", "--fs", "f2fs", "-q", "-O", "extra_attr,quota"], &rig.image());
    assert!(made.status.success(), "{made:?}");
    rig
}

fn open_to_all(rig: &Rig) {
    fs::set_permissions(rig.point(), PermissionsExt::from_mode(0o777)).unwrap();
}

/// `ignore_hardlimit`.
#[test]
fn limits_do_not_hold_for_root() {
    let rig = with_quota();
    rig.mount(&["-o", "usrquota"]);
    open_to_all(&rig);
    let limit = format!("tune {} quota_limits=user:{NOBODY}:0:100:0:3", rig.point().display());
    let args: Vec<&str> = limit.split(' ').collect();
    let set = std::process::Command::new(env!("CARGO_BIN_EXE_strandline")).args(args).output();
    assert!(set.as_ref().unwrap().status.success(), "{set:?}");
    assert!(as_nobody("head -c 50000 /dev/zero >a", &rig.point()));
    assert!(!as_nobody("head -c 200000 /dev/zero >>a", &rig.point()), "100 KiB are the limit");
    let mut of_nobody = OpenOptions::new().append(true).open(rig.point().join("a")).unwrap();
    of_nobody.write_all(&[1; 200_000]).unwrap();
    of_nobody.sync_all().unwrap();
    drop(of_nobody);
    assert!(!as_nobody("head -c 20000 /dev/zero >b", &rig.point()), "no block is left");
    for name in ["c", "d", "e"] {
        fs::write(rig.point().join(name), name).unwrap();
        std::os::unix::fs::chown(rig.point().join(name), Some(NOBODY), None).unwrap();
    }
    assert_eq!(fs::metadata(rig.point().join("e")).unwrap().uid(), NOBODY);
    assert!(!as_nobody("touch f", &rig.point()), "three inodes are the limit");
    rig.unmount();
    rig.check();
}

#[test]
fn reserve_root_keeps_room() {
    let rig = Rig::new(&["-o", "reserve_root=1000"]);
    open_to_all(&rig);
    let blocks = || {
        let said = run("stat", &["-f", "-c", "%f %a"], &rig.point());
        let numbers: Vec<u64> = said.split_whitespace().map(|n| n.parse().unwrap()).collect();
        (numbers[0], numbers[1])
    };
    let (free, for_all) = blocks();
    assert_eq!(for_all, free - 1000);
    assert!(!as_nobody("cat /dev/zero >fill", &rig.point()), "the volume is full");
    let (free, for_all) = blocks();
    assert!((1000..1100).contains(&free) && for_all < 100, "{free} {for_all}");
    fs::write(rig.point().join("of-root"), [1; 400 * 4096]).unwrap();
    assert!(!as_nobody("head -c 900000 /dev/zero >>fill", &rig.point()));
    rig.unmount();
    rig.mount(&["-o", "reserve_root=1000,resuid=65534"]);
    assert!(as_nobody("head -c 900000 /dev/zero >>fill", &rig.point()), "it is kept for nobody");
    rig.unmount();
    rig.check();
}
