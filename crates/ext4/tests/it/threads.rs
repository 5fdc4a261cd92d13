//! Several threads on one volume, on real cores.

use std::sync::Arc;

use ext4::Ext4;
use vfs::kind::Format as _;
use vfs::ops::fill;
use vfs::{Creator, Errno, FileSystem, Ino, RenameFlags, SetAttr};

use crate::harness::{self, Image};

const THREADS: usize = 4;

/// Files come, grow, move between directories that all threads use, shrink and go.
fn work(fs: &dyn FileSystem, dirs: &[Ino], me: usize, rounds: u64) {
    let mut data = vec![0; 40_000];
    for round in 0..rounds {
        let name = format!("{me}-{}", round % 7);
        let (from, to) = (dirs[round as usize % 2], dirs[(round as usize + 1) % 2]);
        let file = match fs.create(from, name.as_bytes(), 0o644, Creator::default()) {
            Ok(attr) => attr.ino,
            Err(error) => {
                assert_eq!(error.errno(), Errno::EXIST);
                fs.lookup(from, name.as_bytes()).unwrap().ino
            }
        };
        let seed = (me as u32 + 1) << 16 | round as u32;
        fill(seed, 0, &mut data);
        let len = 1 + (seed as usize * 7919) % data.len();
        assert_eq!(fs.write(file, 0, &data[..len]).unwrap(), len);
        if round % 3 == 0 {
            fs.fsync(file, false).unwrap();
        }
        let mut back = vec![0; len];
        assert_eq!(fs.read(file, 0, &mut back).unwrap(), len);
        assert!(back == data[..len], "thread {me}, round {round}");
        fs.rename(from, name.as_bytes(), to, name.as_bytes(), RenameFlags::empty()).unwrap();
        if round % 5 == 0 {
            let size = Some(u64::from(seed) % 9000);
            fs.setattr(file, &SetAttr { size, ..SetAttr::default() }).unwrap();
        }
        if round % 4 == 0 {
            fs.unlink(to, name.as_bytes()).unwrap();
        }
        if me == 0 && round % 16 == 0 {
            fs.sync().unwrap();
        }
    }
}

/// More threads than a block of the inode table has inodes.
#[test]
fn numbers_are_taken_in_blocks_that_were_never_used() {
    let image = Image::with_options(64, "", &["-b", "1024", "-I", "1024", "-N", "8192"]);
    let fs = Arc::new(image.mount());
    let mkdir =
        |parent, name: &[u8]| fs.mkdir(parent, name, 0o755, Creator::default()).unwrap().ino;
    // Below one of the root, directories and their files are near to each other.
    let above = mkdir(fs.root(), b"above");
    let threads: Vec<_> = (0..16)
        .map(|me| {
            let (fs, dir) = (fs.clone(), mkdir(above, format!("{me}").as_bytes()));
            cores::spawn("worker", None, move || {
                for n in 0..200 {
                    let name = format!("{n}");
                    fs.create(dir, name.as_bytes(), 0o644, Creator::default()).unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(cores::JoinHandle::join);
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("made");
}

/// A log per core, of which e2fsck knows nothing: it refuses the volume while they are in use, and
/// finds it in order after a clean unmount, and after a recovery.
#[test]
fn threads_share_blocks_of_several_logs() {
    ["zjournal", "zgrouped"].into_iter().for_each(share_blocks_of_several_logs);
}

fn share_blocks_of_several_logs(policy: &str) {
    let image = Image::new(64);
    let options = format!("journal={policy},areas=3").parse().unwrap();
    for round in 0..2 {
        let fs = Arc::new(Ext4::mount(image.drive(), &options).unwrap());
        let dirs = [b'a' + 2 * round, b'b' + 2 * round]
            .map(|name| fs.mkdir(fs.root(), &[name], 0o755, Creator::default()).unwrap().ino);
        let threads: Vec<_> = (0..THREADS)
            .map(|me| {
                let fs = fs.clone();
                cores::spawn("worker", None, move || work(&*fs, &dirs, me, 100))
            })
            .collect();
        threads.into_iter().for_each(cores::JoinHandle::join);
        fs.sync().unwrap();
        let out = harness::tool("e2fsck", &["-fn", image.name()]);
        let said = String::from_utf8_lossy(&out.stderr) + String::from_utf8_lossy(&out.stdout);
        assert!(out.status.code() >= Some(8), "in use, e2fsck must refuse: {said}");
        if round == 0 {
            fs.unmount().unwrap();
            drop(fs);
        } else {
            // The power fails.
            drop(fs);
            ext4::Format.recover(&image.drive()).unwrap();
        }
        image.assert_clean(if round == 0 { "unmounted" } else { "recovered" });
    }
}

#[test]
fn threads_share_directories() {
    ["", "inject=weed"].into_iter().for_each(share_directories);
}

fn share_directories(options: &str) {
    let image = Image::new(64);
    let fs = Arc::new(Ext4::mount(image.drive(), &options.parse().unwrap()).unwrap());
    let dirs = [&b"one"[..], b"two"]
        .map(|name| fs.mkdir(fs.root(), name, 0o755, Creator::default()).unwrap().ino);
    let threads: Vec<_> = (0..THREADS)
        .map(|me| {
            let fs = fs.clone();
            cores::spawn("worker", None, move || work(&*fs, &dirs, me, 300))
        })
        .collect();
    threads.into_iter().for_each(cores::JoinHandle::join);
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("threads");
}

/// Renames of directories into one another, which lock each other's ends and ancestors.
#[test]
fn directories_move_between_directories() {
    let image = Image::new(32);
    let fs = Arc::new(image.mount());
    let root = fs.root();
    for name in ["a", "b", "c", "d"] {
        fs.mkdir(root, name.as_bytes(), 0o755, Creator::default()).unwrap();
    }
    let threads: Vec<_> = (0..THREADS)
        .map(|me| {
            let fs = fs.clone();
            cores::spawn("mover", None, move || {
                let names = [&b"a"[..], b"b", b"c", b"d"];
                for round in 0..200 {
                    let (x, y) = (names[(me + round) % 4], names[(me + 2 * round + 1) % 4]);
                    let Ok(into) = fs.lookup(root, y) else { continue };
                    // It may be below the other one by now, or gone into a third.
                    let _ = fs.rename(root, x, into.ino, x, RenameFlags::empty());
                    let _ = fs.rename(into.ino, x, root, x, RenameFlags::empty());
                }
            })
        })
        .collect();
    threads.into_iter().for_each(cores::JoinHandle::join);
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("moved");
}

/// Whatever other threads do while a volume is unmounted, an fsync that succeeded holds, and the
/// volume is clean.
#[test]
fn what_is_durable_stays_so_while_a_volume_is_unmounted() {
    let policies = ["jbd2", "ijournal", "grouped", "zjournal", "zgrouped"];
    for (round, policy) in policies.into_iter().cycle().take(20).enumerate() {
        let image = Image::new(64);
        let options = format!("journal={policy}").parse().unwrap();
        let fs = Arc::new(Ext4::mount(image.drive(), &options).unwrap());
        let write = |me: usize| {
            let fs = fs.clone();
            move || {
                let mut durable = Vec::new();
                for n in 0.. {
                    let name = format!("{me}-{n}").into_bytes();
                    let made = fs.create(fs.root(), &name, 0o644, Creator::default());
                    let Ok(ino) = made.map(|attr| attr.ino) else { break };
                    let is_written = fs.write(ino, 0, &[me as u8 + 1; 5000]).is_ok();
                    if !is_written || fs.fsync(ino, false).is_err() {
                        break;
                    }
                    durable.push(name);
                }
                durable
            }
        };
        let writers: Vec<_> =
            (0..THREADS).map(|me| cores::spawn("writer", None, write(me))).collect();
        cores::sleep(3_000_000 + round as u64 * 700_000);
        fs.unmount().unwrap();
        let durable: Vec<_> = writers.into_iter().map(cores::JoinHandle::join).collect();
        drop(fs);
        image.assert_clean(policy);
        let fs = image.mount();
        for (me, names) in durable.iter().enumerate() {
            for name in names {
                let ino = fs.lookup(fs.root(), name).unwrap().ino;
                let mut found = [0; 5000];
                assert_eq!(fs.read(ino, 0, &mut found).unwrap(), 5000);
                assert!(found == [me as u8 + 1; 5000], "{policy} {me}");
            }
        }
    }
}
