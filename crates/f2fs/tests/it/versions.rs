//! F2FS as versions of Linux have it: `linux=` and `without=`, and the attributes behind them.

use cores::{Machine, Profile};
use drive::Timing;
use f2fs::MountOptions;
use f2fs::versions::PATCHES;
use vfs::{Creator, FileSystem};

use crate::harness::{Kind, findings, mount, power_on};

const PAGE: u64 = 4096;

fn refusal(options: &str) -> String {
    options.parse::<MountOptions>().unwrap_err().to_string()
}

#[test]
fn a_version_sets_what_it_had() {
    let drive = Kind::Conventional.formatted(1);
    let with = |options: &str| {
        let fs = mount(&drive, options);
        let (knobs, options) = (fs.knobs(), fs.options().clone());
        fs.unmount().unwrap();
        (knobs, options)
    };
    let drive_state = |options: &str| {
        let (knobs, options) = with(options);
        (knobs.ipu_policy, knobs.min_hot_blocks, knobs.max_small_discards, options.inline_data)
    };
    assert_eq!(drive_state("linux=3.8"), (0, 0, 0, false));
    assert_eq!(drive_state("linux=3.14"), (0, 0, 0, true));
    assert_eq!(drive_state("linux=4.11"), (16, 0, 0, true));
    assert_eq!(drive_state("linux=4.16"), (16, 16, 28_672, true));
    assert_eq!(drive_state(""), (129, 16, 28_672, true));
    assert!(!with("linux=4.0").1.extent_cache && with("linux=4.1").1.extent_cache);
    assert!(!with("linux=3.15").1.flush_merge && with("linux=3.16").1.flush_merge);
    // What is named counts, in any order.
    assert!(with("inline_data,linux=3.8").1.inline_data);
    assert_eq!(with("min_fsync_blocks=3,linux=3.18").0.min_fsync_blocks, 3);
    assert_eq!(with("without=hot_small_io+extent_cache").0.min_hot_blocks, 0);
    let shown = with("linux=4.4,without=cp_interval").1.to_string();
    assert!(shown.contains(",linux=4.4,without=cp_interval"), "{shown}");
    assert_eq!(shown.parse::<MountOptions>().unwrap().linux, "4.4".parse().ok());
}

#[test]
fn what_a_version_does_not_have_is_refused() {
    assert_eq!(refusal("linux=3.10,ipu_policy=1"), "ipu_policy: Linux 3.10 does not have it");
    for wrong in ["linux=3.7", "linux=4.17", "linux=3.20", "linux=four", "linux=4"] {
        assert!(refusal(wrong).contains("expected a version from 3.8 to 4.16"), "{wrong}");
    }
    assert!(refusal("without=speed").contains("node_readahead, gc_sleep_time"));
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, "linux=4.13");
    let error = fs.set_tunable("gc_urgent", "1").unwrap_err().to_string();
    assert_eq!(error, "gc_urgent: Linux 4.13 does not have it");
    fs.set_tunable("gc_idle", "1").unwrap();
    fs.unmount().unwrap();
}

/// Each change that can be switched off changes an option or an attribute, or takes away one that
/// it brought.
#[test]
fn each_change_can_be_switched_off() {
    let drive = Kind::Conventional.formatted(1);
    let state = |options: &str| {
        let fs = mount(&drive, options);
        let mut options = fs.options().clone();
        (options.linux, options.without) = (None, Vec::new());
        let state = format!("{:?} {options:?}", fs.knobs());
        fs.unmount().unwrap();
        state
    };
    let usual = state("");
    for patch in &PATCHES {
        let name = patch.name;
        let changed = state(&format!("without={name}")) != usual;
        assert!(changed || !patch.attributes.is_empty(), "{name} changes nothing");
        let fs = mount(&drive, &format!("without={name}"));
        for attribute in patch.attributes {
            let said = format!("{attribute}: not without={name}");
            assert_eq!(refusal(&format!("{attribute}=1,without={name}")), said);
            assert_eq!(fs.set_tunable(attribute, "1").unwrap_err().to_string(), said);
            fs.set_tunable("cp_interval", "1").unwrap();
        }
        fs.unmount().unwrap();
        assert!(["read", "write", "gc", "trim"].contains(&patch.area) && !patch.before.is_empty());
    }
}

/// The gc thread's sleeps were constants, the same on every drive.
#[test]
fn without_gc_sleep_time_a_zoned_volume_is_cleaned_as_rarely_as_others() {
    let drive = Kind::Zoned.formatted(1);
    let sleeps = |options: &str| {
        let fs = mount(&drive, options);
        let knobs = fs.knobs();
        fs.unmount().unwrap();
        [knobs.gc_min_sleep_time, knobs.gc_max_sleep_time, knobs.gc_no_gc_sleep_time]
    };
    assert_eq!(sleeps(""), [10, 20, 60_000]);
    for options in ["without=gc_sleep_time", "linux=3.11"] {
        assert_eq!(sleeps(options), [30_000, 60_000, 300_000], "{options}");
    }
}

/// A file read in order: nodes that are read ahead cost less time.
#[test]
fn ra_node_pages_saves_time() {
    let seconds = |pages: u64| {
        let profile = Profile::named("xeon-4116").unwrap();
        let run = move || {
            let drive = Kind::Conventional.formatted_at(1, Timing::Virtual);
            let options = format!("cache=1m,noextent_cache,ra_node_pages={pages}");
            let fs = mount(&drive, &options);
            let ino = fs.create(fs.root(), b"file", 0o644, Creator::default()).unwrap().ino;
            for at in 0..120 {
                let megabyte = vec![at as u8; 128 * PAGE as usize];
                fs.write(ino, at * 128 * PAGE, &megabyte).unwrap();
            }
            fs.unmount().unwrap();
            let fs = mount(&drive, &options);
            let (from, mut page) = (cores::now(), [0; PAGE as usize]);
            for at in 0..120 * 128 {
                fs.read(ino, at * PAGE, &mut page).unwrap();
                assert_eq!(page, [(at / 128) as u8; PAGE as usize]);
            }
            let time = cores::now() - from;
            fs.unmount().unwrap();
            assert_eq!(findings(&drive.power_off()), "");
            time
        };
        Machine::simulated(&profile, 1).run(run).unwrap()
    };
    let (with, without) = (seconds(128), seconds(0));
    assert!(with < without, "{with} {without}");
}

/// With a larger reserve, overwriting a full volume has it cleaned more often.
#[test]
fn fg_gc_sections_cleans_earlier() {
    let cleanings = |sections: &str| {
        let drive = Kind::Conventional.formatted(1);
        let fs = mount(&drive, &format!("mode=lfs,fg_gc_sections={sections}"));
        let ino = fs.create(fs.root(), b"file", 0o644, Creator::default()).unwrap().ino;
        let pages = fs.statfs().unwrap().blocks * 8 / 10;
        for page in 0..pages {
            fs.write(ino, page * PAGE, &[1; PAGE as usize]).unwrap();
        }
        fs.sync().unwrap();
        for n in 0..4000 {
            fs.write(ino, n * 7919 % pages * PAGE, &[2; PAGE as usize]).unwrap();
            if n % 64 == 0 {
                fs.fsync(ino, false).unwrap();
            }
        }
        let cleanings = fs.status().gc_foreground_calls;
        fs.unmount().unwrap();
        let drive = power_on(&drive.power_off());
        assert_eq!(findings(&drive.power_off()), "");
        cleanings
    };
    let (late, early) = (cleanings("0"), cleanings("12"));
    assert!(early > late, "{early} {late}");
}
