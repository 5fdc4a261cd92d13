//! Cleaning by age (`atgc`): which section is cleaned, where its blocks go, and what each attribute
//! changes of that.

use std::collections::BTreeSet;
use std::sync::Arc;

use cores::{Machine, Profile};
use drive::Ssd;
use f2fs::F2fs;
use vfs::kind::PageAt;
use vfs::{Creator, Errno, FileSystem};

use crate::harness::{Kind, findings, mount, power_on};

const SECOND: u64 = 1_000_000_000;
const PAGE: usize = 4096;
/// Seconds between two files.
const APART: u64 = 100_000;
const YOUNG_VOLUME: &str = "atgc,atgc_age_threshold=0,ipu_policy=0";

fn on_virtual_cores<T>(f: impl FnOnce() -> T) -> T {
    Machine::simulated(&Profile::named("uniform-1").unwrap(), 1).run(f).unwrap()
}

/// A file of `pages` pages, of each eight of which `holes` lie elsewhere in the end.
fn file(fs: &F2fs, name: &str, pages: usize, holes: usize) {
    let ino = fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default()).unwrap().ino;
    fs.write(ino, 0, &vec![1; pages * PAGE]).unwrap();
    fs.fsync(ino, false).unwrap();
    for index in (0..pages).filter(|index| index % 8 < holes) {
        fs.write(ino, (index * PAGE) as u64, &[2; PAGE]).unwrap();
    }
    fs.sync().unwrap();
}

/// The segments of the pages of a file that is not in memory.
fn segments_of(fs: &F2fs, name: &str) -> Vec<u64> {
    let ino = fs.lookup(fs.root(), name.as_bytes()).unwrap().ino;
    let main = u64::from(fs.status().main_blkaddr);
    let mut segments = Vec::new();
    let mut see = |_, page: PageAt<'_>| match page {
        PageAt::Drive(at) => segments.push((at - main) / 512),
        PageAt::Memory(_) => panic!("it is in memory"),
    };
    fs.pages(ino, 0..fs.getattr(ino).unwrap().size / PAGE as u64, &mut see).unwrap();
    segments
}

fn end(drive: &Ssd, fs: &F2fs) {
    fs.unmount().unwrap();
    assert_eq!(findings(&drive.power_off()), "");
}

/// How many blocks a cleaning moves of three files, the first of which is the oldest and has most
/// blocks left where it was, and the last is the emptiest. `None` if nothing is cleaned.
fn moved(settings: &[(&str, &str)]) -> Option<u64> {
    on_virtual_cores(|| {
        let drive = Kind::Conventional.formatted(1);
        let fs = mount(&drive, YOUNG_VOLUME);
        for (name, holes) in [("old", 2), ("middle", 4), ("young", 6)] {
            file(&fs, name, 1024, holes);
            cores::sleep(APART * SECOND);
        }
        fs.set_tunables(settings).unwrap();
        let cleaned = fs.garbage_collect(false);
        let moved = fs.status().moved_blocks_background;
        end(&drive, &fs);
        match cleaned {
            Ok(()) => Some(moved),
            Err(error) => {
                assert_eq!(vfs::Error::from(error).errno(), Errno::NODATA);
                None
            }
        }
    })
}

#[test]
fn atgc_age_threshold_keeps_young_sections() {
    let of = |seconds: u64| moved(&[("atgc_age_threshold", &seconds.to_string())]);
    assert!(of(0) > Some(0));
    assert!(of(APART / 2) > Some(0));
    assert_eq!(of(3 * APART - 1), None, "nothing is that much older than the youngest");
    // A volume that is younger than the threshold has none.
    assert_eq!(of(100 * APART), of(0));
}

#[test]
fn atgc_age_weight_prefers_the_old_or_the_empty() {
    let of = |percent| moved(&[("atgc_age_weight", percent)]).unwrap();
    let (empty, old) = (of("0"), of("100"));
    assert!(0 < empty && empty < old, "{empty} {old}");
}

#[test]
fn atgc_candidate_count_and_ratio_bound_the_choice() {
    let of = |count, ratio| {
        let bounds = [("atgc_candidate_count", count), ("atgc_candidate_ratio", ratio)];
        moved(&[&bounds[..], &[("atgc_age_weight", "0")]].concat()).unwrap()
    };
    let all = of("100", "0");
    assert!(all < of("1", "0"), "only the oldest is looked at, which is the fullest");
    assert_eq!(of("1", "100"), all);
}

/// Blocks of an old section go to holes of the fullest of those near it in age; without `atgc` to
/// the cold log.
#[test]
fn blocks_go_where_others_are_as_old() {
    let places = |options: &str| {
        on_virtual_cores(|| {
            let drive = Kind::Conventional.formatted(1);
            let fs = mount(&drive, options);
            for (name, holes) in [("old", 5), ("as old", 2)] {
                file(&fs, name, 1024, holes);
            }
            cores::sleep(APART * SECOND);
            for name in ["young", "younger"] {
                file(&fs, name, 1024, 1);
            }
            fs.garbage_collect(false).unwrap();
            assert!(fs.status().moved_blocks_background > 0);
            let holes = fs.status().ssr_blocks;
            fs.unmount().unwrap();
            drop(fs);
            let drive = power_on(&drive.power_off());
            let fs = mount(&drive, "");
            // Pages that were written once, in the middle of their file.
            let middle = |name: &str| -> BTreeSet<u64> {
                let segments = segments_of(&fs, name);
                (256..768).filter(|page| page % 8 >= 5).map(|page| segments[page]).collect()
            };
            let [old, young] = ["old", "young"].map(middle);
            end(&drive, &fs);
            (holes > 0, !old.is_disjoint(&young))
        })
    };
    let nearest = format!("{YOUNG_VOLUME},atgc_candidate_count=1,atgc_candidate_ratio=0");
    assert_eq!(places(&nearest), (true, false));
    assert_eq!(places(YOUNG_VOLUME), (true, true), "the young ones are the fullest of 20");
    assert_eq!(places("ipu_policy=0"), (false, false));
}

#[test]
fn a_volume_younger_than_the_threshold_is_mounted_without() {
    let is_on = |options: &str| {
        let drive = Kind::Conventional.formatted(1);
        let fs = mount(&drive, options);
        let atgc = fs.status().atgc;
        let chosen = fs.set_tunables(&[("gc_idle", "3")]);
        assert_eq!(chosen.is_ok(), atgc, "{options}");
        assert_eq!(fs.knobs().gc_idle == 3, atgc);
        end(&drive, &fs);
        atgc
    };
    assert!(!is_on("atgc") && !is_on("noatgc,atgc_age_threshold=0") && is_on(YOUNG_VOLUME));
}

/// Where blocks have an order on the drive, none goes to a hole.
#[test]
fn not_with_lfs() {
    for (kind, options) in [(Kind::Conventional, "mode=lfs,atgc"), (Kind::Zoned, "atgc")] {
        let drive: Arc<dyn drive::Drive> = kind.formatted(1);
        let refused = F2fs::mount(drive, &options.parse().unwrap()).err().expect("it mounts");
        assert!(refused.to_string().contains("atgc"), "{refused}");
    }
}
