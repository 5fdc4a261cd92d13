//! Workloads of several threads, cut at every point there is: what had returned before the cut must
//! be there, whatever the other threads were doing.

use f2fs::technique;
use lab::campaign::{CHECK_EVERY, Job};
use lab::workload;
use vfs::kind::Technique;

use crate::harness::{self, CONVENTIONAL_MODES, broken, every_cut, share};

const ZONED: &str = "zn540-noplp";
const PROTECTED: &str = "zn540";
const CONVENTIONAL: &str = "conventional-noplp";
const ZONED_TEARING: &str = "zn540-noplp:512";
const CONVENTIONAL_TEARING: &str = "conventional-noplp:512";

fn job(workload: &str, drive: &str, mode: &'static Technique, seed: u64) -> Job {
    harness::job(workload::named(workload, 0).expect("a known workload"), drive, mode, seed)
}

/// The same job with these mount options.
fn with(mount_opts: &str, job: Job) -> Job {
    if mount_opts.is_empty() {
        return job;
    }
    let command = format!("{} --mount-opts {mount_opts}", job.command);
    Job { mount_opts: mount_opts.into(), command, ..job }
}

/// Cuts each run of these, and checks one cut of `check_every` structure by structure; fails with
/// one replay line per run in which a promise was broken.
fn promises_hold(
    workloads: &[&str],
    drive: &str,
    modes: &[&'static Technique],
    seeds: std::ops::Range<u64>,
    check_every: usize,
) {
    promises_hold_through("", workloads, drive, modes, seeds, check_every);
}

/// As above, with these mount options.
fn promises_hold_through(
    mount_opts: &str,
    workloads: &[&str],
    drive: &str,
    modes: &[&'static Technique],
    seeds: std::ops::Range<u64>,
    check_every: usize,
) {
    let (mut all, mut cuts) = (Vec::new(), 0);
    for workload in workloads {
        for &mode in modes {
            for seed in seeds.clone() {
                let job = job(workload, drive, mode, seed);
                match every_cut(Job { check_every, ..with(mount_opts, job) }) {
                    Ok(result) => {
                        cuts += result.cuts;
                        all.extend(broken(&result));
                    }
                    Err(error) => all.push(error),
                }
            }
        }
    }
    eprintln!("{drive} {mount_opts}: {cuts} cuts");
    assert!(all.is_empty(), "promises broken on {drive}:\n{}", all.join("\n"));
}

#[test]
fn the_same_seed_gives_the_same_json() {
    let json = || {
        let result = every_cut(job("threads:4:all", ZONED, technique::OPRW, 3)).expect("it runs");
        serde_json::to_string(&result).expect("results are plain data")
    };
    assert_eq!(json(), json());
}

const MIXES: [&str; 5] = [
    "threads:12:private",
    "threads:4:shared",
    "threads:4:names",
    "threads:4:cleaning",
    "threads:8:all",
];

/// The workloads on `drive`, the `nth` of its kind, each in one mode, all modes together.
fn a_share_holds<T: AsRef<str>>(
    workloads: &[T],
    drive: &str,
    nth: usize,
    modes: &'static [&'static Technique],
) {
    for (number, workload) in workloads.iter().enumerate() {
        let [mode, _] = share(modes, number, nth);
        promises_hold(&[workload.as_ref()], drive, &[mode], 1..2, CHECK_EVERY);
    }
}

/// A single thread that does everything the others do: tests the oracle and the workloads
/// themselves.
#[test]
fn one_thread() {
    let alone = MIXES.map(|mix| {
        let (_, mix) = mix.rsplit_once(':').expect("threads:N:MIX");
        format!("threads:1:{mix}")
    });
    a_share_holds(&alone, ZONED, 0, &technique::ALL);
    a_share_holds(&alone, PROTECTED, 1, &technique::ALL);
    a_share_holds(&alone, CONVENTIONAL, 0, &CONVENTIONAL_MODES);
}

/// A share of what [`many_runs`] cuts.
#[test]
fn zoned_without_plp() {
    a_share_holds(&MIXES, ZONED, 0, &technique::ALL);
}

/// As above.
#[test]
fn zoned_with_plp() {
    a_share_holds(&MIXES, PROTECTED, 1, &technique::ALL);
}

/// As above.
#[test]
fn conventional_without_plp() {
    a_share_holds(&MIXES, CONVENTIONAL, 0, &CONVENTIONAL_MODES);
}

/// As above, on drives that tear blocks.
#[test]
fn torn_blocks() {
    let modes = [technique::POSIX, technique::OPRW_STRICT];
    for (number, mix) in MIXES.iter().enumerate() {
        let (drive, mode) = match number % 2 {
            0 => (ZONED_TEARING, technique::OPRW),
            _ => (CONVENTIONAL_TEARING, modes[number / 2]),
        };
        promises_hold(&[mix], drive, &[mode], 1..2, CHECK_EVERY);
    }
}

/// Block layers that keep writes back, a zone's ahead of the scheduler or in it; the second has
/// fewer tags than there are threads.
const SORTED: [&str; 2] =
    ["sched=mq-deadline", "sched=mq-deadline,zone_order=lock,nr_requests=2,nr_hw_queues=1"];

/// Block layers whose completions are looked for, which takes a virtual machine long.
const POLLED: [&str; 2] =
    ["poll,nr_requests=1,nr_hw_queues=2", "sched=mq-deadline,zone_order=lock,nr_requests=1,poll"];

/// As above, through each of these block layers, in one mode on a drive with zones, in the other on
/// one without.
fn hold_through(layers: &[&str], mixes: &[&str], modes: [&'static Technique; 2], seed: u64) {
    for layer in layers {
        for (drive, mode) in [ZONED, CONVENTIONAL].into_iter().zip(modes) {
            promises_hold_through(layer, mixes, drive, &[mode], seed..seed + 1, CHECK_EVERY);
        }
    }
}

/// A share of what [`many_block_layers`] cuts: each layer on one drive.
#[test]
fn every_block_layer() {
    for (layers, mix) in [(SORTED, "threads:8:all"), (POLLED, "threads:4:shared")] {
        let drives = [(ZONED, technique::OPRW_STRICT), (CONVENTIONAL, technique::STRICT)];
        for (layer, (drive, mode)) in layers.into_iter().zip(drives) {
            promises_hold_through(layer, &[mix], drive, &[mode], 1..2, CHECK_EVERY);
        }
    }
}

#[test]
#[ignore = "long: make test-all"]
fn many_block_layers() {
    let modes = [technique::OPRW, technique::POSIX];
    hold_through(&[SORTED, POLLED].concat(), &MIXES, modes, 100);
}

/// Overwrites of one file lock pages, and share the inode.
const RANGES: &str = "range_lock=page";

/// A share of what [`many_range_locks`] cuts.
#[test]
fn range_locks() {
    for (drive, mix, mode) in [
        (CONVENTIONAL, "threads:4:shared", technique::POSIX),
        (CONVENTIONAL, "threads:8:all", technique::STRICT),
        (ZONED, "threads:4:shared", technique::OPRW),
        (ZONED, "threads:4:cleaning", technique::OPRW_STRICT),
    ] {
        promises_hold_through(RANGES, &[mix], drive, &[mode], 1..2, CHECK_EVERY);
    }
}

/// More than 20,000 cuts.
#[test]
#[ignore = "long: make test-all"]
fn many_range_locks() {
    let modes = [technique::POSIX, technique::STRICT];
    promises_hold_through(RANGES, &MIXES, CONVENTIONAL, &modes, 100..102, CHECK_EVERY);
    let modes = [technique::OPRW, technique::OPRW_STRICT];
    promises_hold_through(RANGES, &MIXES, ZONED, &modes, 100..101, CHECK_EVERY);
}

/// What protects one thread's fsync from another's is taken away, one thing at a time: each is
/// noticed within a few runs, of which the one with the seed given here comes first. The tests
/// above are the same runs with the protection.
fn are_noticed(faults: &[(&str, &str, &'static Technique, u64)]) {
    for &(inject, workload, mode, first) in faults {
        let is_noticed = |seed| {
            let sound = job(workload, CONVENTIONAL, mode, seed);
            let job = Job { inject: Some(inject.into()), ..sound };
            // A volume that stops on the way counts as noticed, too.
            every_cut(job).map_or(true, |result| result.broken > 0)
        };
        let noticed = is_noticed(first) || (1..20).any(is_noticed);
        assert!(noticed, "{inject} in {mode}: {workload} shows nothing");
    }
}

#[test]
fn faults_between_threads_are_noticed() {
    are_noticed(&[
        ("no-chain-order", "threads:12:private", technique::POSIX, 1),
        ("decide-once", "threads:4:names", technique::STRICT, 5),
        ("no-turn", "threads:4:shared", technique::POSIX, 1),
        ("early-tail", "threads:8:all", technique::OPRW_STRICT, 5),
    ]);
}

#[test]
#[ignore = "long: make test-all"]
fn faults_between_threads_are_noticed_in_other_modes() {
    are_noticed(&[
        ("no-chain-order", "threads:12:private", technique::STRICT, 1),
        ("no-chain-order", "threads:12:private", technique::OPRW_STRICT, 1),
        ("no-turn", "threads:4:shared", technique::STRICT, 1),
    ]);
}

/// More than 200,000 cuts.
#[test]
#[ignore = "long: make test-all"]
fn many_runs() {
    promises_hold(&MIXES, ZONED, &technique::ALL, 100..105, 1);
    promises_hold(&MIXES, PROTECTED, &technique::ALL, 100..102, 1);
    promises_hold(&MIXES, CONVENTIONAL, &CONVENTIONAL_MODES, 100..104, 1);
    promises_hold(&MIXES, ZONED_TEARING, &technique::ALL, 100..102, 1);
    promises_hold(&MIXES, CONVENTIONAL_TEARING, &CONVENTIONAL_MODES, 100..102, 1);
}
