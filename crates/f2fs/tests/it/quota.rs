//! Quota: usage follows every change and every cut, limits hold, and `fsck.f2fs` agrees.

use std::sync::Arc;

use drive::{Drive, Ssd, Timing};
use f2fs::F2fs;
use f2fs::mkfs::{MkfsOptions, format};
use serde_json::Value;
use vfs::kind::Volume;
use vfs::{Creator, Errno, FileKind, FileSystem, Ino, RenameFlags, SetAttr};

use crate::harness::{Kind, dump, findings, mount, power_on};
use crate::judge::{Scratch, assert_fsck_clean, open_image, tool};

const PAGE: usize = 4096;
const MIB: u64 = 1 << 20;
const ANN: Creator = Creator { uid: 1000, gid: 100 };
const BEN: Creator = Creator { uid: 1001, gid: 100 };
const PROJINHERIT: u32 = 0x2000_0000;

fn with_quota(kind: Kind) -> Arc<Ssd> {
    let drive = Ssd::new(kind.spec(), Timing::Instant, 1).unwrap();
    let mut options = MkfsOptions::default();
    options.add_features("extra_attr,quota,project_quota,lost_found").unwrap();
    let dynamic: Arc<dyn Drive> = drive.clone();
    format(&dynamic, &options).unwrap();
    drive
}

fn file(fs: &F2fs, name: &str, creator: Creator, pages: usize) -> Ino {
    let ino = fs.create(fs.root(), name.as_bytes(), 0o644, creator).unwrap().ino;
    fs.write(ino, 0, &vec![1; pages * PAGE]).unwrap();
    ino
}

/// Inodes and KiB of an id.
fn usage(fs: &F2fs, kind: &str, id: u32) -> (u64, u64) {
    let all = fs.status().quota_limits;
    let of = |what: &str| all[kind][id.to_string()][what].as_u64().unwrap_or(0);
    (of("inodes"), of("kib"))
}

fn end(drive: &Ssd, fs: &F2fs) {
    fs.unmount().unwrap();
    assert_eq!(findings(&drive.power_off()), "");
}

fn set(fs: &F2fs, limits: &str) {
    fs.set_tunable("quota_limits", limits).unwrap();
}

/// Makes and changes files of two users and two projects.
fn work(fs: &F2fs) {
    let (a, b) = (file(fs, "a", ANN, 20), file(fs, "b", BEN, 3000));
    let small = file(fs, "small", ANN, 0);
    fs.write(small, 0, b"inline").unwrap();
    let dir = fs.mkdir(fs.root(), b"dir", 0o755, BEN).unwrap().ino;
    Volume::set_project(fs, dir, 7).unwrap();
    Volume::set_flags(fs, dir, Volume::flags(fs, dir).unwrap() | PROJINHERIT).unwrap();
    let inner = fs.create(dir, b"inner", 0o644, ANN).unwrap().ino;
    fs.write(inner, 0, &[3; 5 * PAGE]).unwrap();
    assert_eq!(Volume::project(fs, inner).unwrap(), 7);
    fs.fsync(a, false).unwrap();
    let cut = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    fs.setattr(b, &cut(1500 * PAGE as u64)).unwrap();
    fs.fsync(b, false).unwrap();
    fs.sync().unwrap();
    fs.setattr(a, &SetAttr { uid: Some(1001), gid: Some(5), ..SetAttr::default() }).unwrap();
    fs.fsync(a, false).unwrap();
    let gone = file(fs, "gone", ANN, 30);
    fs.fsync(gone, false).unwrap();
    fs.unlink(fs.root(), b"gone").unwrap();
    fs.setxattr(a, b"user.large", &[7; 3000], vfs::XattrMode::Set).unwrap();
    fs.fsync(a, false).unwrap();
    Volume::atomic_write(fs, b, vfs::kind::Atomic::Start).unwrap();
    fs.write(b, 0, &[9; 3 * PAGE]).unwrap();
    fs.write(b, 2000 * PAGE as u64, &[9; PAGE]).unwrap();
    Volume::atomic_write(fs, b, vfs::kind::Atomic::Commit).unwrap();
}

#[test]
fn usage_is_what_is_there() {
    for kind in Kind::ALL {
        let drive = with_quota(kind);
        let fs = mount(&drive, "");
        assert_eq!(usage(&fs, "user", 0), (2, 8), "the root and lost+found");
        work(&fs);
        // A direct node for each 1018 pages beyond the 923 in the inode, and one of attributes.
        assert_eq!(usage(&fs, "user", 1000), (2, 5 * 4));
        let (inodes, kib) = usage(&fs, "user", 1001);
        assert_eq!(inodes, 3);
        assert!((1500 + 20..1550).contains(&(kib / 4)), "{kib}");
        assert_eq!(usage(&fs, "group", 5).0, 1);
        assert_eq!(usage(&fs, "project", 7).0, 2);
        let before = fs.status().quota_limits;
        fs.unmount().unwrap();
        drop(fs);
        let left = drive.power_off();
        assert_eq!(findings(&left), "");
        let drive = power_on(&left);
        let fs = mount(&drive, "");
        assert_eq!(fs.status().quota_limits, before);
        end(&drive, &fs);
    }
}

#[test]
fn limits_hold() {
    let drive = with_quota(Kind::Conventional);
    let fs = mount(&drive, "usrquota,grpquota,prjquota");
    set(&fs, "user:1000:0:2048:0:3");
    let ino = file(&fs, "a", ANN, 100);
    let more = |ino, page: usize, pages: usize| {
        let done = fs.write(ino, (page * PAGE) as u64, &vec![2; pages * PAGE]);
        done.map_err(|error| error.errno())
    };
    // 2 MiB are 512 blocks.
    assert_eq!(more(ino, 100, 411), Ok(411 * PAGE));
    assert_eq!(more(ino, 511, 1), Ok(PAGE));
    assert_eq!(more(ino, 512, 1), Err(Errno::DQUOT));
    assert_eq!(more(ino, 0, 4), Ok(4 * PAGE), "they are there");
    file(&fs, "b", ANN, 0);
    file(&fs, "c", ANN, 0);
    let made = fs.create(fs.root(), b"d", 0o644, ANN);
    assert_eq!(made.unwrap_err().errno(), Errno::DQUOT);
    let other = file(&fs, "other", BEN, 10);
    let to_ann = SetAttr { uid: Some(1000), ..SetAttr::default() };
    assert_eq!(fs.setattr(other, &to_ann).unwrap_err().errno(), Errno::DQUOT);
    assert_eq!(fs.getattr(other).unwrap().uid, 1001);
    set(&fs, "group:100:0:2200:0:0");
    assert_eq!(more(other, 10, 100), Ok(28 * PAGE), "what still fits");
    set(&fs, "project:7:0:0:0:1");
    let dir = fs.mkdir(fs.root(), b"dir", 0o755, Creator::default()).unwrap().ino;
    Volume::set_project(&fs, dir, 7).unwrap();
    Volume::set_flags(&fs, dir, PROJINHERIT).unwrap();
    let made = fs.create(dir, b"x", 0o644, Creator::default());
    assert_eq!(made.unwrap_err().errno(), Errno::DQUOT);
    let moved = fs.rename(fs.root(), b"b", dir, b"b", RenameFlags::empty());
    assert_eq!(moved.unwrap_err().errno(), Errno::XDEV);
    assert_eq!(fs.link(other, dir, b"l").unwrap_err().errno(), Errno::XDEV);
    fs.unlink(fs.root(), b"a").unwrap();
    assert_eq!(usage(&fs, "user", 1000), (2, 0));
    for wrong in ["user:1:2:3:4", "world:1:0:0:0:0", "user:x:0:0:0:0"] {
        fs.set_tunable("quota_limits", wrong).unwrap_err();
    }
    end(&drive, &fs);
}

/// Limits that no option asks for do not count, and come with the volume.
#[test]
fn limits_count_if_asked_for() {
    let drive = with_quota(Kind::Conventional);
    let fs = mount(&drive, "");
    set(&fs, "user:1000:0:40:0:0");
    file(&fs, "a", ANN, 50);
    fs.unmount().unwrap();
    let fs = mount(&drive, "usrquota");
    let ino = fs.lookup(fs.root(), b"a").unwrap().ino;
    let error = fs.write(ino, 60 * PAGE as u64, &[1]).unwrap_err();
    assert_eq!(error.errno(), Errno::DQUOT);
    assert!(fs.options().to_string().contains(",usrquota"));
    end(&drive, &fs);
    let plain = Kind::Conventional.formatted(1);
    let refused = F2fs::mount(plain, &"prjquota".parse().unwrap()).map(drop).unwrap_err();
    assert!(refused.to_string().contains("project_quota"), "{refused}");
}

/// Beyond the soft limit a week is given.
#[test]
fn soft_limits_give_time() {
    let machine = cores::Machine::simulated(&cores::Profile::named("uniform-1").unwrap(), 1);
    machine
        .run(|| {
            let drive = with_quota(Kind::Conventional);
            let fs = mount(&drive, "usrquota");
            set(&fs, "user:1000:40:0:0:0");
            let ino = file(&fs, "a", ANN, 20);
            let day = 24 * 60 * 60 * 1_000_000_000;
            let write = |page: u64| fs.write(ino, page * PAGE as u64, &[1]).map_err(|e| e.errno());
            cores::sleep(6 * day);
            write(20).unwrap();
            cores::sleep(2 * day);
            assert_eq!(write(21), Err(Errno::DQUOT));
            let less = SetAttr { size: Some(5 * PAGE as u64), ..SetAttr::default() };
            fs.setattr(ino, &less).unwrap();
            write(20).unwrap();
            end(&drive, &fs);
        })
        .unwrap();
}

/// Whatever a cut leaves: as it is, and after recovery.
#[test]
fn cuts_leave_quota_that_fsck_accepts() {
    let scratch = Scratch::new();
    for (kind, seeds) in [(Kind::Conventional, 0..6), (Kind::Zoned, 0..4)] {
        for seed in seeds {
            let drive = with_quota(kind);
            let fs = mount(&drive, if seed % 2 == 0 { "" } else { "fsync_mode=strict" });
            work(&fs);
            let open = fs.lookup(fs.root(), b"a").unwrap().ino;
            fs.open(open).unwrap();
            fs.unlink(fs.root(), b"a").unwrap();
            if seed % 3 == 0 {
                fs.write_checkpoint().unwrap();
            }
            drop(fs);
            let left = drive.survivors(seed);
            if kind == Kind::Conventional {
                let image = scratch.dir().join("cut");
                dump(&left, &image);
                let out = tool("fsck.f2fs", &["--dry-run", image.to_str().unwrap()]);
                let said = String::from_utf8_lossy(&out.stdout);
                assert!(out.status.success() && !said.contains("FAIL"), "{seed}: {said}");
            }
            let drive = power_on(&left);
            let fs = mount(&drive, "");
            end(&drive, &fs);
            if kind == Kind::Conventional {
                let image = scratch.dir().join("recovered");
                dump(&drive.power_off(), &image);
                assert_fsck_clean(&image);
            }
        }
    }
}

/// Many ids, so that the trees and lists of the files grow; then our own mount again.
#[test]
fn many_owners_are_judged_by_fsck() {
    let scratch = Scratch::new();
    let image = scratch.image("owners", 128 * MIB);
    let mut options = MkfsOptions::default();
    options.add_features("extra_attr,quota,project_quota").unwrap();
    let drive = open_image(&image);
    format(&drive, &options).unwrap();
    for round in 0..3 {
        let fs = F2fs::mount(drive.clone(), &"".parse().unwrap()).unwrap();
        for n in 0..100_u32 {
            let id = n * 777 + round;
            let name = format!("{round}-{n}");
            let creator = Creator { uid: id, gid: n % 20 };
            file(&fs, &name, creator, (n % 7) as usize);
        }
        fs.sync().unwrap();
        for n in (0..100).step_by(3) {
            fs.unlink(fs.root(), format!("{round}-{n}").as_bytes()).unwrap();
        }
        fs.unmount().unwrap();
        assert_fsck_clean(&image);
    }
}

/// A damaged file is left as it is, and fsck is asked for.
#[test]
fn a_damaged_quota_file_is_not_touched() {
    let drive = with_quota(Kind::Conventional);
    let report = f2fs::check::check(&(drive.clone() as Arc<dyn Drive>), &Default::default());
    assert!(report.unwrap().is_clean());
    let main = {
        let fs = mount(&drive, "");
        let main = fs.status().main_blkaddr;
        fs.unmount().unwrap();
        main
    };
    let left = drive.power_off();
    // The header of the first quota file: the only block that begins with its magic.
    let is_quota =
        |lba: &u64| left.media().read(*lba).unwrap()[..4] == 0xd9c0_1f11_u32.to_le_bytes();
    let lba = (main.into()..left.identify().blocks).rev().find(is_quota).unwrap();
    let drive = power_on(&left);
    let queue = queue::BlockQueue::new(drive.clone());
    let mut block = queue.read_block(lba).unwrap();
    block.make_mut()[0] ^= 1;
    queue.write_blocks(lba, vec![block], true).unwrap();
    let found = findings(&drive.survivors(0));
    assert!(found.contains("user quota file"), "{found}");
    let fs = mount(&drive, "usrquota");
    assert_eq!(fs.status().cp_status & 0x800, 0x800);
    assert!(matches!(fs.status().quota_limits["user"], Value::Null));
    fs.create(fs.root(), b"x", 0o644, ANN).unwrap();
    assert_eq!(fs.getattr(fs.root()).unwrap().kind, FileKind::Directory);
    fs.unmount().unwrap();
}
