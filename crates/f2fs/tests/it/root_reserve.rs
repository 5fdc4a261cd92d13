//! For whom limits do not hold, and for whom free blocks are kept.

use std::sync::Arc;

use cores::{Caller, acting_for};
use drive::{Drive, Ssd, Timing};
use f2fs::mkfs::{MkfsOptions, format};
use f2fs::{F2fs, MountOptions};
use vfs::RootReserve;
use vfs::{Creator, Errno, FallocateMode, FileSystem, Ino, SetAttr};

use crate::harness::{Kind, findings, mount};

const PAGE: usize = 4096;
const ANN: Caller = Caller { uid: 1000, gid: 100 };
const BEN: Caller = Caller { uid: 1001, gid: 200 };

fn with_quota() -> Arc<Ssd> {
    let drive = Ssd::new(Kind::Conventional.spec(), Timing::Instant, 1).unwrap();
    let mut options = MkfsOptions::default();
    options.add_features("extra_attr,quota").unwrap();
    let dynamic: Arc<dyn Drive> = drive.clone();
    format(&dynamic, &options).unwrap();
    drive
}

fn end(drive: &Ssd, fs: &F2fs) {
    fs.unmount().unwrap();
    assert_eq!(findings(&drive.power_off()), "");
}

/// The file of `caller`.
fn create(fs: &F2fs, name: &str, caller: Caller) -> Result<Ino, Errno> {
    let creator = Creator { uid: caller.uid, gid: caller.gid };
    let made = acting_for(Some(caller), || fs.create(fs.root(), name.as_bytes(), 0o644, creator));
    made.map(|attr| attr.ino).map_err(|error| error.errno())
}

/// How many pages a user can write to a file from page `from` on, of `count`.
fn pages_written(fs: &F2fs, ino: Ino, who: Option<Caller>, from: usize, count: usize) -> usize {
    let write = |page: &usize| fs.write(ino, (page * PAGE) as u64, &[1; PAGE]).is_ok();
    acting_for(who, || (from..from + count).take_while(write).count())
}

/// `ignore_hardlimit`, of `CAP_SYS_RESOURCE`. Without a caller the limits hold.
#[test]
fn quota_limits_do_not_hold_for_root() {
    let drive = with_quota();
    let fs = mount(&drive, "usrquota");
    fs.set_tunable("quota_limits", "user:1000:0:40:0:2").unwrap();
    let ino = create(&fs, "a", ANN).unwrap();
    assert_eq!(pages_written(&fs, ino, Some(ANN), 0, 20), 10);
    assert_eq!(pages_written(&fs, ino, None, 10, 1), 0);
    assert_eq!(pages_written(&fs, ino, Some(Caller::ROOT), 10, 10), 10);
    assert_eq!(pages_written(&fs, ino, Some(ANN), 20, 1), 0);
    create(&fs, "b", ANN).unwrap();
    assert_eq!(create(&fs, "c", ANN), Err(Errno::DQUOT));
    let other = create(&fs, "d", BEN).unwrap();
    let to_ann = SetAttr { uid: Some(1000), ..SetAttr::default() };
    let given = |by| acting_for(Some(by), || fs.setattr(other, &to_ann)).map_err(|e| e.errno());
    assert_eq!(given(BEN).map(drop), Err(Errno::DQUOT));
    assert_eq!(given(Caller::ROOT).map(|attr| attr.uid), Ok(1000));
    let used = fs.status().quota_limits;
    assert_eq!(
        (&used["user"]["1000"]["kib"], &used["user"]["1000"]["inodes"]),
        (&80.into(), &3.into())
    );
    end(&drive, &fs);
}

/// What is left of a full volume goes to root, the user and the group that the options say.
#[test]
fn reserve_root_is_for_whom_the_options_say() {
    let may_have = [
        ("reserve_root=500", BEN, false),
        ("reserve_root=500", Caller::ROOT, true),
        ("reserve_root=500,resuid=1001", BEN, true),
        ("reserve_root=500,resuid=1002", BEN, false),
        ("reserve_root=500,resgid=200", BEN, true),
        ("reserve_root=500,resgid=200", Caller { uid: 7, gid: 0 }, false),
        // Its group says nothing if it is root's.
        ("reserve_root=500", Caller { uid: 7, gid: 0 }, false),
    ];
    for (options, caller, expected) in may_have {
        let drive = Kind::Conventional.formatted(1);
        let fs = mount(&drive, options);
        let ino = create(&fs, "fill", ANN).unwrap();
        let free = fs.statfs().unwrap();
        assert_eq!(free.blocks_available, free.blocks_free - 500, "{options}");
        let all = fs.statfs().unwrap().blocks as usize;
        let filled = pages_written(&fs, ino, Some(ANN), 0, all);
        assert!(filled > all / 2, "{options}: {filled}");
        assert_eq!(fs.statfs().unwrap().blocks_available, 0, "{options}");
        let more = pages_written(&fs, ino, Some(caller), filled, 100);
        assert_eq!(more, if expected { 100 } else { 0 }, "{options} {caller:?}");
        end(&drive, &fs);
    }
}

#[test]
fn a_reserve_is_an_eighth_at_most_and_binds_fallocate() {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, "reserve_root=1000000000");
    let free = fs.statfs().unwrap();
    assert_eq!(free.blocks_free - free.blocks_available, free.blocks / 8);
    let ino = create(&fs, "file", ANN).unwrap();
    let bytes = (free.blocks_available + 100) * PAGE as u64;
    let reserve = |who| {
        let done = || fs.fallocate(ino, FallocateMode::empty(), 0, bytes);
        acting_for(Some(who), done).map_err(|error| error.errno())
    };
    assert_eq!(reserve(ANN), Err(Errno::NOSPC));
    assert_eq!(reserve(Caller::ROOT), Ok(()));
    end(&drive, &fs);
}

#[test]
fn options_are_shown_as_they_were_given() {
    let given: MountOptions = "reserve_root=7,resuid=8,resgid=9".parse().unwrap();
    assert_eq!(given.root_reserve, RootReserve { blocks: 7, uid: 8, gid: 9 });
    assert!(given.to_string().contains(",reserve_root=7,resuid=8,resgid=9"), "{given}");
    assert!(!MountOptions::default().to_string().contains("resuid"));
    for wrong in ["reserve_root=many", "resuid=-1", "resgid="] {
        wrong.parse::<MountOptions>().unwrap_err();
    }
}
