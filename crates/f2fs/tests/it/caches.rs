//! The extent cache and the counts of iostat: the attributes `ram_thresh` and `iostat_enable`.

use std::sync::Arc;

use drive::Ssd;
use f2fs::F2fs;
use serde_json::Value;
use vfs::{Creator, FallocateMode, FileSystem, Ino, SetAttr};

use crate::harness::{Kind, findings, mount, power_on};

const PAGE: u64 = 4096;

fn create(fs: &F2fs, name: &str, pages: u64) -> Ino {
    let ino = fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default()).unwrap().ino;
    for page in 0..pages {
        fs.write(ino, page * PAGE, &[page as u8; PAGE as usize]).unwrap();
    }
    fs.fsync(ino, false).unwrap();
    ino
}

fn end(drive: &Ssd, fs: &F2fs) {
    fs.unmount().unwrap();
    assert_eq!(findings(&drive.power_off()), "");
}

/// A volume with a file of so many pages that are not in memory.
fn with_file(options: &str, pages: u64) -> (Arc<Ssd>, F2fs, Ino) {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, options);
    let ino = create(&fs, "file", pages);
    fs.unmount().unwrap();
    let drive = power_on(&drive.power_off());
    let fs = mount(&drive, options);
    (drive, fs, ino)
}

fn read_all(fs: &F2fs, ino: Ino, pages: u64, from: impl Fn(u64) -> u8) {
    let mut page = [0; PAGE as usize];
    for index in 0..pages {
        fs.read(ino, index * PAGE, &mut page).unwrap();
        assert_eq!(page, [from(index); PAGE as usize], "page {index}");
    }
}

/// A second reading of a file that memory does not hold asks the extents, and needs no nodes.
#[test]
fn extents_stand_in_for_nodes() {
    let reads = |options: &str| {
        let (drive, fs, ino) = with_file(&format!("cache=1m,{options}"), 12_000);
        read_all(&fs, ino, 12_000, |index| index as u8);
        let before = drive.stats().reads;
        read_all(&fs, ino, 12_000, |index| index as u8);
        let (status, reads) = (fs.status(), drive.stats().reads - before);
        end(&drive, &fs);
        (status.extent_hits, status.extents, reads)
    };
    let (hits, extents, with) = reads("extent_cache");
    assert!(hits > 100 && (1..1000).contains(&extents), "{hits} hits in {extents} extents");
    let (hits, extents, without) = reads("noextent_cache");
    assert_eq!((hits, extents), (0, 0));
    assert!(with <= without, "{with} {without}");
}

/// Reading in any order, too, when memory cannot keep the nodes.
#[test]
fn extents_save_reads_of_nodes() {
    const NODES: u64 = 200;
    let reads = |options: &str| {
        let options = format!("cache=1m,ra_node_pages=0,{options}");
        let (drive, fs, ino) = with_file(&options, 1);
        // A run under each node.
        let runs = (0..NODES).map(|node| 873 + 1018 * (node * 77 % NODES));
        for first in runs.clone() {
            fs.write(ino, first * PAGE, &[first as u8; 4 * PAGE as usize]).unwrap();
        }
        fs.sync().unwrap();
        let mut page = [0; PAGE as usize];
        let mut read = |at: u64| {
            for first in runs.clone() {
                fs.read(ino, (first + at) * PAGE, &mut page).unwrap();
                assert_eq!(page, [first as u8; PAGE as usize], "page {}", first + at);
            }
        };
        read(2);
        let before = drive.stats().reads;
        [1, 3, 0].into_iter().for_each(&mut read);
        let reads = drive.stats().reads - before;
        end(&drive, &fs);
        reads
    };
    let (with, without) = (reads("extent_cache"), reads("noextent_cache"));
    assert!(with + 2 * NODES < without, "{with} {without}");
}

/// Whatever changes where blocks are, extents say where they are now.
#[test]
fn extents_follow_every_change() {
    for policy in ["0", "1"] {
        let options = format!("cache=1m,ipu_policy={policy}");
        let (drive, fs, ino) = with_file(&options, 3000);
        read_all(&fs, ino, 3000, |index| index as u8);
        assert!(fs.status().extents > 0);
        for index in (0..3000).step_by(7) {
            fs.write(ino, index * PAGE, &[200; PAGE as usize]).unwrap();
        }
        fs.fsync(ino, false).unwrap();
        let hole = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
        fs.fallocate(ino, hole, 1000 * PAGE, 100 * PAGE).unwrap();
        let shorter = SetAttr { size: Some(2500 * PAGE), ..SetAttr::default() };
        fs.setattr(ino, &shorter).unwrap();
        create(&fs, "other", 600);
        fs.defragment(ino, 0, 512 * PAGE).unwrap();
        fs.garbage_collect(true).unwrap();
        for page in 2500..2600 {
            fs.write(ino, page * PAGE, &[77; PAGE as usize]).unwrap();
        }
        fs.sync().unwrap();
        create(&fs, "more", 600);
        read_all(&fs, ino, 2600, |index| match index {
            1000..1100 => 0,
            2500.. => 77,
            _ if index % 7 == 0 => 200,
            _ => index as u8,
        });
        end(&drive, &fs);
    }
}

/// Without memory for tables every change makes a checkpoint due.
#[test]
fn ram_thresh_bounds_the_tables() {
    let checkpoints = |options: &str| {
        let drive = Kind::Conventional.formatted(1);
        let fs = mount(&drive, options);
        let before = fs.status().cp_foreground_calls;
        for n in 0..100 {
            let name = format!("{n}");
            fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default()).unwrap();
        }
        let after = fs.status().cp_foreground_calls;
        end(&drive, &fs);
        after - before
    };
    let (none, some) = (checkpoints("ram_thresh=0"), checkpoints("ram_thresh=1"));
    assert!(none > 50 && some < 3, "{none} {some}");
}

/// While it is on, each kind of reading and writing is counted; afterwards nothing is left.
#[test]
fn iostat_counts_by_kind() {
    let (drive, fs, ino) = with_file("ipu_policy=0", 100);
    let of = |name: &str| fs.status().iostat.get(name).and_then(Value::as_u64);
    assert_eq!(of("app_buffered"), None);
    fs.set_tunable("iostat_enable", "1").unwrap();
    read_all(&fs, ino, 100, |index| index as u8);
    assert_eq!(of("app_buffered_read"), Some(100 * PAGE));
    assert!(of("fs_data_read") >= Some(100 * PAGE) && of("fs_node_read") >= Some(PAGE));
    fs.write(ino, 0, &[1; 3 * PAGE as usize]).unwrap();
    assert_eq!((of("app_buffered"), of("fs_data")), (Some(3 * PAGE), Some(0)));
    fs.fsync(ino, false).unwrap();
    assert_eq!((of("fs_data"), of("fs_node")), (Some(3 * PAGE), Some(PAGE)));
    fs.write_direct(ino, 0, &[2; PAGE as usize]).unwrap();
    assert_eq!(of("app_direct"), Some(PAGE));
    fs.create(fs.root(), b"new", 0o644, Creator::default()).unwrap();
    let before = of("fs_meta");
    fs.sync().unwrap();
    assert!(of("fs_meta") > before && of("cp_node") > Some(0));
    let large = create(&fs, "large", 1200);
    (0..600).for_each(|n| _ = fs.write(large, 2 * n * PAGE, &[3; PAGE as usize]).unwrap());
    fs.sync().unwrap();
    let written = of("fs_data");
    fs.garbage_collect(true).unwrap();
    assert!(of("gc_data") > Some(0) && of("fs_data") == written);
    assert!(fs.trim(0..u64::MAX, 0).unwrap() > 0);
    assert!(of("discard") > Some(0));
    fs.set_tunable("iostat_enable", "0").unwrap();
    fs.set_tunable("iostat_enable", "1").unwrap();
    assert_eq!(of("app_buffered"), Some(0));
    end(&drive, &fs);
}
