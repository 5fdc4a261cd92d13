//! Every attribute that can be set changes what the volume does, not only the number. Those about
//! where blocks go are in `tunables.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use cores::{Machine, Profile};
use drive::Ssd;
use f2fs::F2fs;
use vfs::kind::Volume;
use vfs::{Creator, Errno, FileSystem, Ino, SetAttr};

use crate::harness::{Kind, findings, mount, power_on};

const SECOND: u64 = 1_000_000_000;
const PAGE: usize = 4096;
const FILE_PAGES: usize = 64;

fn on_virtual_cores<T>(f: impl FnOnce() -> T) -> T {
    Machine::simulated(&Profile::named("xeon-4116").unwrap(), 1).run(f).unwrap()
}

fn create(fs: &F2fs, name: &str) -> Ino {
    fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default()).unwrap().ino
}

fn end(drive: &Ssd, fs: &F2fs) {
    fs.unmount().unwrap();
    assert_eq!(findings(&drive.power_off()), "");
}

/// A volume with these settings, and whatever `measure` finds on it.
fn on_volume<T>(settings: &[(&str, &str)], measure: impl FnOnce(&F2fs) -> T) -> T {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, "");
    fs.set_tunables(settings).unwrap();
    let found = measure(&fs);
    end(&drive, &fs);
    found
}

/// Makes files in 60% of the volume and cuts half of each off, so that all segments are half empty.
fn fragment(fs: &F2fs) {
    let files = fs.statfs().unwrap().blocks * 6 / 10 / FILE_PAGES as u64;
    let inos: Vec<Ino> = (0..files).map(|n| create(fs, &format!("f{n}"))).collect();
    for &ino in &inos {
        fs.write(ino, 0, &vec![1; FILE_PAGES * PAGE]).unwrap();
    }
    fs.sync().unwrap();
    let half = SetAttr { size: Some((FILE_PAGES / 2 * PAGE) as u64), ..SetAttr::default() };
    for &ino in &inos {
        fs.setattr(ino, &half).unwrap();
    }
    fs.sync().unwrap();
}

/// How many sections of a fragmented volume are cleaned within so many seconds, with a request
/// every `pause` seconds.
fn cleaned(kind: Kind, settings: &[(&str, &str)], seconds: u64, pause: u64) -> u64 {
    on_virtual_cores(|| {
        let drive = kind.formatted(1);
        let fs = Arc::new(mount(&drive, "mode=lfs"));
        fragment(&fs);
        fs.set_tunables(settings).unwrap();
        let upkeep = Arc::clone(&fs).maintain();
        for _ in 0..seconds / pause {
            cores::sleep(pause * SECOND);
            fs.getattr(fs.root()).unwrap();
        }
        let cleaned = fs.cleaned_sections();
        drop(upkeep);
        end(&drive, &fs);
        cleaned
    })
}

/// The same on an idle volume without zones.
fn cleaned_idle(settings: &[(&str, &str)], seconds: u64) -> u64 {
    cleaned(Kind::Conventional, settings, seconds, seconds)
}

fn gc_min_sleep_time() {
    let of = |ms| cleaned_idle(&[("gc_min_sleep_time", ms), ("gc_idle_interval", "0")], 50);
    assert!(of("2000") > 2 * of("30000"), "{} {}", of("2000"), of("30000"));
}

fn gc_max_sleep_time() {
    let of = |ms| {
        let least = [("gc_min_sleep_time", "1000"), ("gc_idle_interval", "0")];
        cleaned_idle(&[&least[..], &[("gc_max_sleep_time", ms)]].concat(), 40)
    };
    assert!(of("1000") > 2 * of("60000"), "{} {}", of("1000"), of("60000"));
}

/// After a look that finds nothing, something is there to clean: when is it cleaned?
fn gc_no_gc_sleep_time() {
    let of = |ms| {
        on_virtual_cores(|| {
            let drive = Kind::Conventional.formatted(1);
            let fs = Arc::new(mount(&drive, "mode=lfs"));
            fs.set_tunables(&[("gc_no_gc_sleep_time", ms)]).unwrap();
            let upkeep = Arc::clone(&fs).maintain();
            cores::sleep(90 * SECOND);
            fragment(&fs);
            cores::sleep(150 * SECOND);
            let cleaned = fs.cleaned_sections();
            drop(upkeep);
            end(&drive, &fs);
            cleaned
        })
    };
    assert_eq!(of("300000"), 0);
    assert!(of("1000") > 0);
}

fn gc_urgent_sleep_time() {
    let of = |ms| cleaned_idle(&[("gc_urgent", "1"), ("gc_urgent_sleep_time", ms)], 5);
    assert!(of("100") > 2 * of("1000"), "{} {}", of("100"), of("1000"));
}

fn gc_urgent() {
    for (mode, expected) in [("0", false), ("1", true), ("2", false), ("3", true)] {
        let soon = cleaned(Kind::Conventional, &[("gc_urgent", mode)], 8, 1);
        assert_eq!(soon > 3, expected, "gc_urgent={mode} in a busy volume, soon: {soon}");
        let later = cleaned(Kind::Conventional, &[("gc_urgent", mode)], 90, 1);
        assert_eq!(later > 0, mode != "0", "gc_urgent={mode} in a busy volume: {later}");
    }
}

fn gc_remaining_trials() {
    let of = |rounds| cleaned_idle(&[("gc_urgent", "1"), ("gc_remaining_trials", rounds)], 20);
    assert_eq!(of("3"), 3);
    assert!(of("0") > 10);
}

fn gc_idle_interval() {
    let of = |seconds| cleaned(Kind::Conventional, &[("gc_idle_interval", seconds)], 300, 20);
    assert!(of("5") > 0);
    assert_eq!(of("60"), 0);
}

/// It stands for both intervals.
fn idle_interval() {
    let of = |seconds| cleaned(Kind::Conventional, &[("idle_interval", seconds)], 300, 20);
    assert!(of("5") > 0);
    assert_eq!(of("60"), 0);
    on_volume(&[("idle_interval", "7")], |fs| {
        assert_eq!((fs.knobs().gc_idle_interval, fs.knobs().discard_idle_interval), (7, 7));
    });
}

/// An old segment with many valid blocks, and a young one with few: greedy takes the young one.
fn gc_idle() {
    let moved = |mode| {
        on_virtual_cores(|| {
            let drive = Kind::Conventional.formatted(1);
            let fs = Arc::new(mount(&drive, "mode=lfs"));
            let [old, young] = ["old", "young"].map(|name| create(&fs, name));
            let holes = |ino, share: usize| {
                fs.write(ino, 0, &vec![1; 1024 * PAGE]).unwrap();
                fs.fsync(ino, false).unwrap();
                for index in (0..1024).filter(|index| index % 8 < share) {
                    fs.write(ino, (index * PAGE) as u64, &[2; PAGE]).unwrap();
                }
                fs.fsync(ino, false).unwrap();
            };
            holes(old, 3);
            fs.sync().unwrap();
            cores::sleep(100_000 * SECOND);
            holes(young, 5);
            fs.sync().unwrap();
            fs.set_tunables(&[("gc_idle", mode)]).unwrap();
            let upkeep = Arc::clone(&fs).maintain();
            let mut seconds = 0;
            while fs.cleaned_sections() == 0 && seconds < 1000 {
                cores::sleep(SECOND);
                seconds += 1;
            }
            drop(upkeep);
            let moved = fs.status().moved_blocks_background;
            end(&drive, &fs);
            moved
        })
    };
    let (cost_benefit, greedy) = (moved("1"), moved("2"));
    assert!(greedy > 0 && cost_benefit > greedy, "{cost_benefit} {greedy}");
}

fn gc_no_zoned_gc_percent() {
    let of = |percent| {
        let settings = [("gc_no_zoned_gc_percent", percent), ("gc_min_sleep_time", "1000")];
        cleaned(Kind::Zoned, &settings, 200, 200)
    };
    assert_eq!(of("0"), 0);
    assert!(of("100") > 0);
}

fn gc_boost_zoned_gc_percent() {
    let of = |percent| {
        let sleeps = [("gc_min_sleep_time", "1000"), ("gc_max_sleep_time", "30000")];
        let percents = [("gc_no_zoned_gc_percent", "100"), ("gc_boost_zoned_gc_percent", percent)];
        let settings = [&sleeps[..], &percents, &[("gc_idle_interval", "0")]].concat();
        cleaned(Kind::Zoned, &settings, 12, 12)
    };
    assert!(of("100") > of("0") + 2, "{} {}", of("100"), of("0"));
}

fn cp_interval() {
    let of = |seconds| {
        on_virtual_cores(|| {
            let drive = Kind::Conventional.formatted(1);
            let fs = Arc::new(mount(&drive, ""));
            fs.set_tunables(&[("cp_interval", seconds)]).unwrap();
            let upkeep = Arc::clone(&fs).maintain();
            for n in 0..20 {
                create(&fs, &format!("{n}"));
                cores::sleep(10 * SECOND);
            }
            drop(upkeep);
            let status = fs.status();
            end(&drive, &fs);
            status.cp_background_calls
        })
    };
    assert!(of("10") > 2 * of("60") && of("60") > 0, "{} {}", of("10"), of("60"));
}

fn gc_pin_file_thresh() {
    let failures = |least| {
        on_volume(&[("gc_pin_file_thresh", least)], |fs| {
            let ino = create(fs, "pinned");
            fs.set_pin_file(ino, true).unwrap();
            fs.write(ino, 0, &[1; 8 * PAGE]).unwrap();
            fs.fsync(ino, false).unwrap();
            let others = (0..300).map(|n| create(fs, &format!("{n}")));
            for other in others.collect::<Vec<_>>() {
                fs.write(other, 0, &[2; 4 * PAGE]).unwrap();
                fs.fsync(other, false).unwrap();
            }
            fs.sync().unwrap();
            let start = u64::from(fs.status().main_blkaddr);
            let end = start + 20 * 512;
            let rounds = 4;
            (0..rounds).for_each(|_| fs.garbage_collect_range(true, start..end).unwrap());
            fs.inode_flags(ino).unwrap() & 0x80_0000 != 0
        })
    };
    assert!(failures("2048"), "still pinned");
    assert!(!failures("9"));
}

fn max_roll_forward_node_blocks() {
    let checkpoints = |most| {
        on_volume(&[("max_roll_forward_node_blocks", most)], |fs| {
            let ino = create(fs, "file");
            for n in 0..60 {
                fs.write(ino, n, b"x").unwrap();
                fs.fsync(ino, false).unwrap();
            }
            fs.status().cp_foreground_calls
        })
    };
    assert!(checkpoints("10") > checkpoints("0") + 3);
}

fn dirty_nats_ratio() {
    let checkpoints = |percent| {
        on_volume(&[("dirty_nats_ratio", percent)], |fs| {
            (0..3000).for_each(|n| _ = create(fs, &format!("{n}")));
            fs.status().cp_foreground_calls
        })
    };
    assert!(checkpoints("1") > checkpoints("10"));
}

fn reserved_blocks() {
    on_volume(&[], |fs| {
        let free = || fs.statfs().unwrap().blocks_free;
        let before = free();
        fs.set_tunable("reserved_blocks", "1000").unwrap();
        assert_eq!((free(), fs.status().current_reserved_blocks), (before - 1000, 1000));
        let ino = create(fs, "file");
        let mut pages = 0;
        let full = loop {
            match fs.write(ino, pages * PAGE as u64, &[1; PAGE]) {
                Ok(_) => pages += 1,
                Err(error) => break error.errno(),
            }
        };
        assert_eq!((full, free()), (Errno::NOSPC, 0));
        fs.set_tunable("reserved_blocks", "100000000").unwrap();
        assert_eq!(fs.status().current_reserved_blocks, 1000, "no more than are free");
        fs.set_tunable("reserved_blocks", "0").unwrap();
        fs.write(ino, pages * PAGE as u64, &[1; PAGE]).unwrap();
    });
}

/// A directory of a higher level is larger at once, and holds the same names.
fn dir_level() {
    let size = |level: u8| {
        let drive = Kind::Conventional.formatted(1);
        let fs = mount(&drive, "");
        fs.set_tunable("dir_level", &level.to_string()).unwrap();
        let dir = fs.mkdir(fs.root(), b"dir", 0o755, Creator::default()).unwrap().ino;
        let names: Vec<String> = (0..1000).map(|n| format!("name number {n}")).collect();
        for name in &names {
            fs.create(dir, name.as_bytes(), 0o644, Creator::default()).unwrap();
        }
        fs.unmount().unwrap();
        drop(fs);
        let left = drive.power_off();
        assert_eq!(findings(&left), "", "dir_level={level}");
        let drive = power_on(&left);
        let fs = mount(&drive, "");
        let mut found = BTreeSet::new();
        fs.readdir(dir, 0, &mut |entry| found.insert(entry.name)).unwrap();
        assert_eq!(found.len(), names.len() + 2, "dir_level={level}");
        for name in &names {
            fs.lookup(dir, name.as_bytes()).unwrap();
        }
        let size = fs.getattr(dir).unwrap().size;
        end(&drive, &fs);
        size
    };
    let sizes = [0, 3, 9, 16].map(size);
    assert!(sizes.is_sorted_by(|a, b| a < b), "{sizes:?}");
}

/// Makes a test of each, and the list of their names.
macro_rules! behaviours {
    ($($name:ident)+) => {
        mod changes_with {
            $(#[test] fn $name() { super::$name() })+
        }

        /// Attributes with a test here.
        const HERE: &[&str] = &[$(stringify!($name)),+];
    };
}

behaviours! {
    gc_min_sleep_time gc_max_sleep_time gc_no_gc_sleep_time gc_urgent_sleep_time gc_urgent
    gc_remaining_trials gc_idle_interval idle_interval gc_idle
    gc_no_zoned_gc_percent gc_boost_zoned_gc_percent
    cp_interval gc_pin_file_thresh max_roll_forward_node_blocks dirty_nats_ratio reserved_blocks
    dir_level
}

/// Those with a test in `tunables.rs`, `discards.rs`, `caches.rs`, `versions.rs`,
/// `newer_attributes.rs`, `by_age.rs` and `quota.rs`.
const THERE: [&str; 32] = [
    "atgc_candidate_ratio",
    "atgc_candidate_count",
    "atgc_age_weight",
    "atgc_age_threshold",
    "quota_limits",
    "readdir_ra",
    "ra_nid_pages",
    "min_seq_blocks",
    "migration_granularity",
    "inject_rate",
    "inject_type",
    "extension_list",
    "ipu_policy",
    "min_ipu_util",
    "min_fsync_blocks",
    "min_hot_blocks",
    "min_ssr_sections",
    "max_victim_search",
    "reclaim_segments",
    "ram_thresh",
    "ra_node_pages",
    "fg_gc_sections",
    "iostat_enable",
    "max_small_discards",
    "batched_trim_sections",
    "discard_granularity",
    "discard_idle_interval",
    "umount_discard_timeout",
    "max_discard_request",
    "min_discard_issue_time",
    "mid_discard_issue_time",
    "max_discard_issue_time",
];

#[test]
fn each_that_has_an_effect_has_a_test() {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, "");
    let rows = Volume::attributes(&fs);
    let effective = rows.iter().filter(|row| row.allowed.is_some() && row.without_effect.is_none());
    let effective: BTreeSet<&str> = effective.map(|row| row.name).collect();
    let tested: BTreeSet<&str> = HERE.iter().copied().chain(THERE).collect();
    assert_eq!(effective, tested);
    let names: BTreeSet<&str> = rows.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), rows.len(), "a name is there twice");
    for row in &rows {
        assert!(row.value.is_some() && !row.about.is_empty(), "{row:?}");
        assert_eq!(row.default.is_some(), row.allowed.is_some(), "{row:?}");
    }
    end(&drive, &fs);
}

#[test]
fn several_are_set_or_none() {
    on_volume(&[], |fs| {
        let values = || (fs.knobs().cp_interval, fs.knobs().min_ipu_util);
        let before = values();
        let wrong = [("cp_interval", "7"), ("min_ipu_util", "101")];
        let error = fs.set_tunables(&wrong).unwrap_err().to_string();
        assert_eq!(error, "min_ipu_util: \"101\" is not a value for it; expected 0 to 100");
        assert_eq!(values(), before);
        let unknown = fs.set_tunable("gc_speed", "1").unwrap_err().to_string();
        assert!(unknown.starts_with("gc_speed: no such attribute, or not writable; there are gc_"));
        fs.set_tunables(&[("cp_interval", " 7\n"), ("min_ipu_util", "100")]).unwrap();
        assert_eq!(values(), (7, 100));
    });
}
