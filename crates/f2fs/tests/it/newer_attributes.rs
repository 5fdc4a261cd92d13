//! What the attributes change that read ahead, keep write-back and cleaning in pieces, and make
//! calls fail; and the list of extensions.

use std::sync::Arc;

use cores::{Machine, Profile};
use drive::{Ssd, Timing};
use f2fs::F2fs;
use vfs::kind::PageAt;
use vfs::{Creator, Errno, FileSystem, Ino, SetAttr};

use crate::harness::{Kind, findings, mount, power_on};

const PAGE: usize = 4096;

fn create(fs: &F2fs, name: &str) -> Ino {
    fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default()).unwrap().ino
}

fn file(fs: &F2fs, name: &str, pages: usize) -> Ino {
    let ino = create(fs, name);
    fs.write(ino, 0, &vec![1; pages * PAGE]).unwrap();
    fs.fsync(ino, false).unwrap();
    ino
}

/// The volume again, with nothing of it in memory.
fn again(drive: &Ssd, fs: F2fs, options: &str) -> (Arc<Ssd>, F2fs) {
    fs.unmount().unwrap();
    drop(fs);
    let drive = power_on(&drive.power_off());
    let fs = mount(&drive, options);
    (drive, fs)
}

fn end(drive: &Ssd, fs: &F2fs) {
    fs.unmount().unwrap();
    assert_eq!(findings(&drive.power_off()), "");
}

/// Where the pages of a file are on the drive, which must have all of them.
fn places(fs: &F2fs, name: &str, pages: u64) -> Vec<u64> {
    let ino = fs.lookup(fs.root(), name.as_bytes()).unwrap().ino;
    let mut places = Vec::new();
    let mut see = |_, page: PageAt<'_>| match page {
        PageAt::Drive(at) => places.push(at),
        PageAt::Memory(_) => panic!("it is in memory"),
    };
    fs.pages(ino, 0..pages, &mut see).unwrap();
    places
}

/// After a listing, attributes cost no reads if the inodes were read with it.
#[test]
fn readdir_ra_reads_inodes_that_were_listed() {
    let reads = |ahead: &str| {
        let drive = Kind::Conventional.formatted(1);
        let fs = mount(&drive, "");
        (0..300).for_each(|n| _ = create(&fs, &format!("a file's name {n}")));
        let (drive, fs) = again(&drive, fs, &format!("readdir_ra={ahead}"));
        let mut inos = Vec::new();
        fs.readdir(fs.root(), 0, &mut |entry| {
            inos.push(entry.ino);
            true
        })
        .unwrap();
        let listed = drive.stats().reads;
        inos.iter().for_each(|ino| _ = fs.getattr(*ino).unwrap());
        let reads = drive.stats().reads - listed;
        end(&drive, &fs);
        (inos.len(), reads)
    };
    assert_eq!(reads("1"), (302, 0));
    assert!(reads("0").1 >= 300, "{:?}", reads("0"));
}

/// Blocks of the node table that a search for free numbers comes to have been read before. After a
/// cut, nothing says which of them are empty.
#[test]
fn ra_nid_pages_reads_the_table_ahead() {
    let reads = |ahead: &str| {
        let drive = Kind::Conventional.formatted(1);
        let fs = mount(&drive, "");
        create(&fs, "first");
        fs.sync().unwrap();
        drop(fs);
        let drive = Ssd::power_on(drive.survivors(1), Timing::Instant, 1);
        let fs = mount(&drive, &format!("ra_nid_pages={ahead}"));
        let count = |from: usize, to: usize| {
            let before = drive.stats().reads;
            (from..to).for_each(|n| _ = create(&fs, &format!("{n}")));
            drive.stats().reads - before
        };
        let reads = (count(0, 1), count(1, 7 * 455));
        end(&drive, &fs);
        reads
    };
    let (without, with) = (reads("0"), reads("16"));
    assert_eq!(with.0, without.0 + 16, "{with:?} {without:?}");
    assert_eq!((with.1, without.1), (0, 7));
}

/// While one large file is written back, another is made: with the threshold, neither lies in the
/// midst of the other.
#[test]
fn min_seq_blocks_keeps_large_files_in_one_piece() {
    let pieces = |least: &'static str| {
        let machine = Machine::simulated(&Profile::named("xeon-4116").unwrap(), 1);
        machine.run(move || pieces_of_two_files(least)).unwrap()
    };
    let (together, apart) = (pieces("512"), pieces("1000000"));
    assert!(together <= 12 && apart > together + 1, "{together} {apart}");
}

fn pieces_of_two_files(least: &str) -> usize {
    const PAGES: usize = 4096;
    let drive = Kind::Conventional.formatted_at(1, Timing::Virtual);
    let fs = Arc::new(mount(&drive, &format!("min_seq_blocks={least},ipu_policy=0")));
    let (a, b) = (create(&fs, "a"), create(&fs, "b"));
    fs.write(a, 0, &vec![1; PAGES * PAGE]).unwrap();
    let writer = {
        let fs = fs.clone();
        cores::spawn("first", None, move || fs.sync().unwrap())
    };
    cores::sleep(1_000_000);
    fs.write(b, 0, &vec![2; PAGES * PAGE]).unwrap();
    fs.sync().unwrap();
    writer.join();
    let (drive, fs) = again(&drive, Arc::into_inner(fs).unwrap(), "");
    let places = ["a", "b"].map(|name| places(&fs, name, PAGES as u64));
    let breaks = |at: &Vec<u64>| at.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
    let pieces = places.iter().map(|at| 1 + breaks(at)).sum();
    end(&drive, &fs);
    pieces
}

/// With a section of two segments, a cleaning in the background moves one or both.
#[test]
fn migration_granularity_cleans_a_section_in_pieces() {
    let moved = |most: &str, times: u64| {
        let drive = Kind::Zoned.formatted(1);
        let fs = mount(&drive, &format!("migration_granularity={most}"));
        let ino = file(&fs, "file", 4 * 768);
        for index in (0..4 * 768).step_by(2) {
            fs.write(ino, (index * PAGE) as u64, &[2; PAGE]).unwrap();
        }
        fs.sync().unwrap();
        (0..times).for_each(|_| assert!(fs.background_gc().unwrap()));
        let status = fs.status();
        end(&drive, &fs);
        (status.moved_blocks_background, status.gc_background_calls)
    };
    let (whole, first, both) = (moved("2", 1), moved("1", 1), moved("1", 2));
    assert!(first.0 > 0 && first.0 < whole.0, "{first:?} {whole:?}");
    assert_eq!(both, whole);
}

/// Sets faults on a volume with a file of 4 pages that is not in memory.
fn with_faults(kinds: &str, test: impl FnOnce(&F2fs, Ino)) {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, "noinline_data");
    file(&fs, "file", 4);
    let (drive, fs) = again(&drive, fs, "noinline_data");
    let ino = fs.lookup(fs.root(), b"file").unwrap().ino;
    fs.set_tunables(&[("inject_rate", "1"), ("inject_type", kinds)]).unwrap();
    test(&fs, ino);
    fs.set_tunable("inject_rate", "0").unwrap();
    let is_sound = fs.status().cp_status & 8 == 0;
    if is_sound {
        end(&drive, &fs);
    }
    drop(fs);
    let drive = power_on(&drive.power_off());
    let fs = mount(&drive, "");
    assert_eq!(fs.status().cp_status & 8, 0, "{kinds}");
    end(&drive, &fs);
}

#[test]
fn inject_type_says_what_fails() {
    let root = 3;
    let new = |fs: &F2fs, name: &str| {
        let made = fs.create(root, name.as_bytes(), 0o644, Creator::default());
        made.map(drop).map_err(|error| error.errno())
    };
    let full = Err(Errno::NOSPC);
    // No numbers, no names, no blocks.
    for kind in ["32", "256", "128"] {
        with_faults(kind, |fs, _| assert_eq!(new(fs, "new"), full, "{kind}"));
    }
    let write = |fs: &F2fs, ino, page: u64| {
        let written = fs.write(ino, page * PAGE as u64, &[3; PAGE]);
        written.map(drop).map_err(|error| error.errno())
    };
    with_faults("128", |fs, ino| {
        assert_eq!(write(fs, ino, 0), Ok(()), "its block is there");
        assert_eq!(write(fs, ino, 9), full);
    });
    with_faults("64", |fs, _| {
        assert_eq!(fs.unlink(root, b"file").unwrap_err().errno(), Errno::NOSPC);
        assert!(fs.lookup(root, b"file").is_ok());
    });
    with_faults("512", |fs, _| {
        let before = fs.statfs().unwrap().blocks_free;
        fs.unlink(root, b"file").unwrap();
        assert_eq!(fs.statfs().unwrap().blocks_free, before, "it was not freed");
    });
    with_faults("1024", |fs, ino| {
        let shorter = SetAttr { size: Some(5), ..SetAttr::default() };
        assert_eq!(fs.setattr(ino, &shorter).unwrap_err().errno(), Errno::IO);
    });
    with_faults("2048", |fs, ino| {
        assert_eq!(fs.read(ino, 0, &mut [0; PAGE]).unwrap_err().errno(), Errno::IO);
    });
    with_faults("8192", |fs, _| {
        fs.unlink(root, b"file").unwrap();
        fs.sync().unwrap();
        fs.trim(0..u64::MAX, 0).unwrap();
        assert_eq!(fs.status().discarded_blocks, 0, "the drive did not take it");
    });
    // The volume stops writing.
    with_faults("16384", |fs, ino| {
        write(fs, ino, 0).unwrap();
        assert_eq!(fs.fsync(ino, false).unwrap_err().errno(), Errno::IO);
        assert_eq!(new(fs, "new"), Err(Errno::IO));
    });
    with_faults("4096", |fs, _| assert_eq!(new(fs, "new"), Err(Errno::IO)));
    // Memory, quota, locks.
    with_faults("229407", |fs, ino| {
        new(fs, "new").unwrap();
        write(fs, ino, 9).unwrap();
        fs.unlink(root, b"new").unwrap();
        fs.sync().unwrap();
        let unknown = fs.set_tunable("inject_type", "262144").unwrap_err().to_string();
        assert!(unknown.ends_with("expected 0 to 262143"), "{unknown}");
    });
}

/// Mount options of Linux.
#[test]
fn fault_injection_is_of_all_kinds() {
    let drive = Kind::Conventional.formatted(1);
    let knobs = |options: &str| {
        let fs = mount(&drive, options);
        let knobs = fs.knobs();
        (knobs.inject_rate, knobs.inject_type)
    };
    assert_eq!(knobs("fault_injection=1000000"), (1_000_000, 0x3_ffff));
    assert_eq!(knobs("fault_injection=1000000,fault_type=32"), (1_000_000, 32));
}

#[test]
fn inject_rate_counts_calls() {
    with_faults("32", |fs, _| {
        fs.set_tunable("inject_rate", "3").unwrap();
        let made = |n| fs.create(3, format!("{n}").as_bytes(), 0o644, Creator::default()).is_ok();
        let made: Vec<bool> = (0..9).map(made).collect();
        assert_eq!(made.iter().filter(|made| **made).count(), 6, "{made:?}");
    });
}

#[test]
fn extension_list_says_which_log_and_stays() {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, "min_hot_blocks=0");
    fs.set_tunables(&[("extension_list", "[h]wal"), ("extension_list", "[c]old\n")]).unwrap();
    drop(fs);
    // It was not unmounted.
    let drive = Ssd::power_on(drive.survivors(7), Timing::Instant, 1);
    let fs = mount(&drive, "min_hot_blocks=0");
    let last = |list: &str| {
        let list = fs.status().extension_list[list].as_array().unwrap().clone();
        list.last().unwrap().as_str().unwrap().to_owned()
    };
    assert_eq!((last("hot"), last("cold")), ("wal".into(), "old".into()));
    ["a.wal", "b.old", "c.txt"].iter().for_each(|name| _ = file(&fs, name, 2));
    fs.set_tunable("extension_list", "[h]!wal").unwrap();
    file(&fs, "d.wal", 2);
    for wrong in ["wal", "[h]", "[h]!wal", "[h]!old", "[c]old", "[h]!", "[x]a", "[c]12345678"] {
        let said = fs.set_tunable("extension_list", wrong).unwrap_err().to_string();
        assert!(said.contains("64 in all"), "{wrong}: {said}");
    }
    let listed = |list: &str| fs.status().extension_list[list].as_array().unwrap().len();
    let left = 64 - listed("hot") - listed("cold");
    for n in 0..left {
        fs.set_tunable("extension_list", &format!("[h]x{n}")).unwrap();
    }
    fs.set_tunable("extension_list", "[c]full").unwrap_err();
    // None is set if one is wrong.
    let wrong = [("extension_list", "[h]!x0"), ("min_ipu_util", "101")];
    fs.set_tunables(&wrong).unwrap_err();
    assert_eq!(listed("hot") + listed("cold"), 64);
    let (drive, fs) = again(&drive, fs, "");
    let segment = |name| places(&fs, name, 1)[0] / 512;
    let [hot, cold, warm, late] = ["a.wal", "b.old", "c.txt", "d.wal"].map(segment);
    assert!(hot != cold && cold != warm && warm != hot && late == warm);
    end(&drive, &fs);
}

/// `stat/sb_status` of a volume that was mounted and not changed.
#[test]
fn a_mount_that_changes_nothing_is_not_dirty() {
    for kind in Kind::ALL {
        let drive = kind.formatted(1);
        let dirty = |options| {
            let fs = mount(&drive, options);
            let dirty = fs.status().sb_status & 1 != 0;
            (fs, dirty)
        };
        assert!(!dirty("ro").1, "{kind:?}: as mkfs leaves it");
        let (fs, is_dirty) = dirty("");
        assert!(!is_dirty, "{kind:?}: the mount's checkpoint has all");
        file(&fs, "file", 9);
        assert_eq!(fs.status().sb_status & 1, 1, "{kind:?}");
        fs.unmount().unwrap();
        drop(fs);
        assert!(!dirty("ro").1, "{kind:?}: as an unmount leaves it");
    }
}

/// The kernel divides by the number of dirty segments, so it shows 0 without one.
#[test]
fn avg_vblocks_is_of_sections_in_part_use() {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, "mode=lfs");
    let ino = file(&fs, "file", 2048);
    fs.sync().unwrap();
    let before = (fs.status().dirty_segments, fs.status().avg_vblocks);
    for index in (0..2048).step_by(2) {
        fs.write(ino, (index * PAGE) as u64, &[2; PAGE]).unwrap();
    }
    fs.sync().unwrap();
    let after = fs.status().avg_vblocks;
    assert_eq!(before, (0, 0));
    assert!((100..257).contains(&after), "{after}");
    end(&drive, &fs);
}
