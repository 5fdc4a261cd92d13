//! Structures under many schedules, and races that are found.

use lab::Extra;
use lab::explore::schedules::{ALL, Explored, Structure, explore, named};

/// Schedules of each structure on every run of the tests.
const SHARE: u64 = 200;

fn run(structure: &'static Structure, first: u64, count: u64) -> Explored {
    run_on("f2fs", structure, first, count)
}

fn run_on(fs: &str, structure: &'static Structure, first: u64, count: u64) -> Explored {
    let format = subjects::named(fs).expect("it is known");
    explore(structure, (format, None), &Extra::default(), first, count, &mut || ())
        .expect("the machine runs")
}

fn all_hold(fs: &str, count: u64) {
    let format = subjects::named(fs).expect("it is known");
    let suits = |structure: &&Structure| structure.suits(format).expect("a built-in drive");
    let sound = ALL.iter().filter(|structure| !structure.injected).filter(suits);
    let failed: Vec<String> = sound
        .flat_map(|structure| {
            let found = run_on(fs, structure, 0, count);
            eprintln!("{fs}, {}: {count} schedules, {} switches", structure.name, found.switches);
            found.failed.into_iter().map(|failed| format!("{}\n  {}", failed.what, failed.replay))
        })
        .collect();
    assert!(failed.is_empty(), "{} failed, the first:\n{}", failed.len(), failed[0]);
}

/// Schedules of a structure on F2FS with these mount options.
fn explored_with(mount_opts: &str, structure: &str, count: u64) -> Explored {
    let format = subjects::named("f2fs").expect("it is known");
    let extra = Extra { mount_opts: mount_opts.into(), ..Extra::default() };
    let structure = named(structure).expect("it is known");
    explore(structure, (format, None), &extra, 0, count, &mut || ()).expect("the machine runs")
}

/// Blocks of the inode table that were never used have four inodes each.
#[test]
fn numbers_of_inodes_in_small_blocks() {
    let format = subjects::named("ext4").expect("it is known");
    let extra = Extra { features: "block_size=1024".into(), ..Extra::default() };
    let structure = named("numbers").expect("it is known");
    let found = explore(structure, (format, None), &extra, 0, SHARE, &mut || ());
    assert_eq!(found.expect("the machine runs").failed, []);
}

fn range_locks_hold(count: u64) {
    for name in
        ["ranges", "inode", "fsync", "checkpoint", "cleaner", "truncate", "reuse", "uncached"]
    {
        let found = explored_with("range_lock=page", name, count);
        assert_eq!(found.failed, [], "{name}");
    }
}

/// A share of what [`many_schedules_of_range_locks`] runs.
#[test]
fn a_share_of_the_schedules_of_range_locks() {
    range_locks_hold(SHARE);
}

#[test]
#[ignore = "long: make test-all"]
fn many_schedules_of_range_locks() {
    range_locks_hold(10_000);
}

#[test]
fn a_range_lock_that_is_left_out_is_found() {
    // Two threads have to be stopped between the same pages: one schedule in 500 does that.
    let count = 10 * SHARE;
    let found = explored_with("range_lock=page,inject=no-range-lock", "ranges", count);
    let failed = found.failed.first().expect("some schedule needs the range lock");
    assert!(failed.what.contains("half an overwrite was read"), "{}", failed.what);
    assert!(failed.replay.contains("range_lock=page,inject=no-range-lock --seed"));
}

#[test]
fn a_read_that_counts_whatever_was_written_is_found() {
    let found = explored_with("inject=trust-reads", "uncached", SHARE);
    let failed = found.failed.first().expect("a direct write while a page is read");
    assert!(failed.what.contains("was read after"), "{}", failed.what);
}

/// A share of what [`many_schedules`] runs.
#[test]
fn a_share_of_the_schedules() {
    all_hold("f2fs", SHARE);
}

/// The same of ext4's engine and journal.
#[test]
fn a_share_of_the_schedules_of_ext4() {
    all_hold("ext4", SHARE / 4);
}

#[test]
#[ignore = "long: make test-all"]
fn many_schedules() {
    all_hold("f2fs", 10_000);
}

#[test]
#[ignore = "long: make test-all"]
fn many_schedules_of_ext4() {
    all_hold("ext4", 10_000);
}

#[test]
fn what_is_broken_on_purpose_is_found_and_can_be_replayed() {
    for (name, what) in [("race", "of 4 counted"), ("inverted", "deadlock")] {
        let structure = named(name).expect("it is known");
        let found = run(structure, 0, 400);
        // By either way to explore.
        for odd in [0, 1] {
            let failed = found.failed.iter().find(|failed| failed.seed % 2 == odd);
            let failed =
                failed.unwrap_or_else(|| panic!("{name}: no schedule with seed % 2 = {odd}"));
            assert!(failed.what.contains(what), "{}", failed.what);
            assert!(failed.replay.ends_with(&format!("--seed {} --count 1", failed.seed)));
            let again = run(structure, failed.seed, 1);
            assert_eq!(again.failed.first(), Some(failed));
        }
        assert!(found.failed.len() < 400, "{name} fails always: no schedule is needed");
    }
}

#[test]
fn a_schedule_is_its_seed() {
    let structure = named("fsync").expect("it is known");
    assert_eq!(run(structure, 40, 10), run(structure, 40, 10));
}
