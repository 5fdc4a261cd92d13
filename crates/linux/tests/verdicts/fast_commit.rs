//! ext4's fast commits, both ways: the kernel replays ours, and we replay the kernel's. e2fsck
//! finds nothing wrong with what either has recovered.
//!
//! e2fsck is not asked to recover: of our crashes, 1.47 brings what was unlinked to `lost+found`,
//! and may lose what only the log has.

use std::ops::Range;
use std::sync::Arc;

use ::ext4::mkfs::{MkfsOptions, format};
use ::ext4::{Ext4, Format};
use drive::{Drive, Spec, Ssd, Timing};
use linux::Guest;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use vfs::ops::{Generator, Mix, Op, Session};

use crate::recorded::{Run, record, shares};
use crate::verdict::Batch;
use crate::volumes::{Kind, dump, open};

const SIZE_MIB: u64 = 64;
/// Of each kind, unless `STRANDLINE_RUNS` says otherwise; so many are judged at once.
const RUNS: u64 = 4;
const CUTS: u64 = 10;
/// Operations of a run.
const OPS: u64 = 600;

/// A run's volume: one after the other, with blocks of each size.
fn with_fast_commits(run: u64) -> MkfsOptions {
    let block_size = Some([4096, 1024, 4096, 2048][run as usize % 4]);
    let time = 1_700_000_000;
    let mut options =
        MkfsOptions { block_size, lazy_tables: false, time, ..MkfsOptions::default() };
    options.features.change("fast_commit").expect("it is known");
    options
}

/// Operations with many an fsync. What a fast commit of ours cannot say is rare once there is a
/// tree: as likely as `more` says.
fn operations(seed: u64, more: f64) -> Vec<Op> {
    let is_more = |op: &Op| match op {
        Op::Mkdir { .. } | Op::Rmdir { .. } | Op::Mknod { .. } | Op::Symlink { .. } => true,
        Op::SetXattr { .. } | Op::RemoveXattr { .. } | Op::Chattr { .. } | Op::Sync => true,
        Op::Chmod { .. } | Op::Chown { .. } | Op::Utimens { .. } => true,
        Op::Rename { flags, .. } => !flags.is_empty(),
        Op::Fallocate { mode, .. } => mode.bits() > 1,
        _ => false,
    };
    let mix = Mix { syncs: 40, handles: 1, reads: 0, ..Mix::default() };
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
    let ops = Generator::with_mix(seed, mix).enumerate();
    let ops = ops.filter(|(n, op)| *n < 60 || !is_more(op) || chance.random_bool(more));
    ops.map(|(_, op)| op).take(OPS as usize).collect()
}

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn the_kernel_replays_ours() {
    shares(RUNS).for_each(the_kernel_replays_some_of_ours);
}

fn the_kernel_replays_some_of_ours(seeds: Range<u64>) {
    let mut batch = Batch::of(&Format, "fast-ours", Kind::Conventional, SIZE_MIB);
    let (mut records, wanted) = (0, 20 * (seeds.end - seeds.start));
    for seed in seeds {
        let spec = Spec::named("conventional-noplp").unwrap().blocks(SIZE_MIB * 256);
        let drive = Ssd::new(spec, Timing::Instant, seed).unwrap();
        let dynamic: Arc<dyn Drive> = drive.clone();
        format(&dynamic, &with_fast_commits(seed)).unwrap();
        let fs = Ext4::mount(dynamic, &"journal=fast".parse().unwrap()).unwrap();
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
        let cuts: Vec<u64> = (0..CUTS).map(|_| chance.random_range(50..OPS)).collect();
        let mut session = Session::new(&fs);
        for (op, at) in operations(seed, 0.03).iter().zip(0..) {
            let _errors_are_part_of_it = session.apply(op);
            for _ in cuts.iter().filter(|cut| **cut == at) {
                let path = batch.add(format!("seed {seed}, cut after op {at}"));
                dump(&drive.survivors(seed ^ at), &path);
            }
        }
        records += vfs::kind::Volume::status(&fs)["journal/records"].as_u64().unwrap();
    }
    assert!(records > wanted, "{records} fast commits");
    batch.judge();
}

/// The kernel's recovery gives a directory that a fast commit made too few links, and its parent as
/// well (6.1); so there are none here once there are fast commits. Nor does it count a file's block
/// of attributes, so there are no attributes.
#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn we_replay_the_kernels() {
    let operations = |run: u64| {
        let mut ops = operations(run, 0.0);
        let (made, rest) = ops.split_at_mut(60);
        made.iter_mut().filter(|op| is_fsync(op)).for_each(|op| *op = Op::Sync);
        let rest = rest.iter().filter(|op| !matches!(op, Op::Mkdir { .. }));
        let all = made.iter().chain([&Op::Sync]).chain(rest);
        all.filter(|op| !matches!(op, Op::SetXattr { .. })).cloned().collect()
    };
    // A first fast commit of several blocks that is torn is a wrong checksum to it (6.1).
    for runs in shares(RUNS) {
        kernels("fast-kernels", runs, operations).may_be_refused().reuses_orphans().judge();
    }
}

/// All that the kernel's fast commits say, new directories too: we bring it in, and e2fsck finds
/// nothing wrong with that.
#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn we_replay_the_kernels_whatever_they_say() {
    for runs in shares(RUNS) {
        kernels("fast-all", runs, |run| operations(100 + run, 0.5)).judge_ours();
    }
}

/// A file with the number of an orphan that was freed since the last commit: the kernel's recovery
/// takes the file for the orphan, and gives it the time of recovery.
#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn the_number_of_an_orphan_is_used_again() {
    let mut batch = Batch::of(&Format, "fast-orphan", Kind::Conventional, SIZE_MIB);
    let path = batch.add("an orphan's number".to_owned());
    drive::image::create(&path, &Kind::Conventional.spec(SIZE_MIB)).expect("a drive in a file");
    format(&open(&path), &with_fast_commits(0)).unwrap();
    let script = "mount -t ext4 /dev/vda /mnt || exit 1
        echo x >/mnt/a; number=$(stat -c %i /mnt/a)
        sync; exec 3</mnt/a; rm /mnt/a; sync; exec 3<&-
        : >/mnt/b; touch -d @1600000000 /mnt/b; f2fs_io fsync /mnt/b
        [ $(stat -c %i /mnt/b) = $number ] || exit 1
        grep -q '^1 commits' /proc/fs/ext4/vda/fc_info && echo by a fast commit
        reset";
    let out = Guest::new().drive(&path).run(script);
    assert!(out.text.contains("by a fast commit"), "{}", out.text);
    batch.reuses_orphans().judge();
}

fn is_fsync(op: &Op) -> bool {
    matches!(op, Op::Fsync { .. } | Op::Fdatasync { .. })
}

/// Crashes of the kernel in these runs, of these operations.
fn kernels(name: &str, runs: Range<u64>, operations: impl Fn(u64) -> Vec<Op>) -> Batch {
    let mut batch = Batch::of(&Format, name, Kind::Conventional, SIZE_MIB);
    let of = |run: u64| {
        let base = batch.dir().join(format!("base-{run}"));
        drive::image::create(&base, &Kind::Conventional.spec(SIZE_MIB)).expect("a drive in a file");
        format(&open(&base), &with_fast_commits(run)).unwrap();
        Run { base, options: "rw".to_owned(), ops: operations(run) }
    };
    let runs: Vec<Run> = runs.map(of).collect();
    let out = record(&mut batch, &runs, CUTS, "cat /proc/fs/ext4/dm-*/fc_info");
    for run in 0..runs.len() {
        println!("run {run}: {}", String::from_utf8_lossy(&out.file(&format!("look-{run}"))));
    }
    batch
}
