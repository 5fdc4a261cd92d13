//! What the kernel wrote and a crash left, recovered by the kernel and by us.
//!
//! Conventional drives: `dm-log-writes` records a run, and from the record come the disks that a
//! loss of power at any moment could have left, with and without a cache that forgets. Zoned
//! drives: a file system shut down under way (`f2fs_io shutdown`), over and over on one drive. And
//! a machine that is reset while it writes.

use std::path::Path;

use crate::AGENT;
use crate::recorded::{Run, record};
use crate::verdict::Batch;
use crate::volumes::{CONVENTIONAL_ZONES, Kind, MIB, ZONE_MIB, copy_slot, create, sparse};
use linux::Guest;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use vfs::ops::{Generator, Mix, Op, print};

const MIB_EACH: u64 = 128;
const ZONED_MIB: u64 = 320;
/// Mount options, of which each run has the next.
const OPTIONS: [&str; 4] = [
    "fsync_mode=posix",
    "fsync_mode=strict",
    "fsync_mode=posix,mode=lfs",
    "fsync_mode=strict,mode=lfs,noinline_data",
];
const FEATURES: [&str; 3] =
    ["", "extra_attr,inode_checksum,inode_crtime", "lost_found,sb_checksum"];

/// Operations with many an fsync and few checkpoints.
pub(crate) fn operations(seed: u64, count: usize) -> Vec<Op> {
    let mix = Mix { syncs: 30, handles: 1, reads: 0, ..Mix::default() };
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
    let ops =
        Generator::with_mix(seed, mix).filter(|op| *op != Op::Sync || chance.random_bool(0.1));
    ops.take(count).collect()
}

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn power_lost_at_any_write_is_recovered_alike() {
    const RUNS: u64 = 8;
    const CUTS: u64 = 5;
    let mut batch = Batch::new("log-writes", Kind::Conventional, MIB_EACH);
    let runs: Vec<Run> = (0..RUNS)
        .map(|run| {
            let base = batch.dir().join(format!("base-{run}"));
            create(&base, Kind::Conventional, MIB_EACH, FEATURES[run as usize % 3]);
            let options = OPTIONS[run as usize % 4].to_owned();
            Run { base, options, ops: operations(run, 800) }
        })
        .collect();
    record(&mut batch, &runs, CUTS, "true");
    batch.judge();
}

/// Appends and fsyncs that need no checkpoint, to files made durable by the one before them. `mark`
/// grows by a page each time it is fsynced.
fn stretch(seed: u64, count: usize) -> [String; 2] {
    let path = |n: u32| format!("mark-{n}");
    let made = (0..4).map(|n| Op::Create { path: path(n), perm: 0o644 }).chain([Op::Sync]);
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut ops = Vec::new();
    for _ in 0..count {
        for n in 1..chance.random_range(1..=4) {
            let len = chance.random_range(1..20_000);
            ops.push(Op::Append { path: path(n), len, seed: chance.random() });
            match chance.random_range(0..3) {
                0 => ops.push(Op::Fsync { path: path(n) }),
                1 => ops.push(Op::Fdatasync { path: path(n) }),
                _ => {}
            }
        }
        ops.push(Op::Append { path: path(0), len: 4096, seed: chance.random() });
        ops.push(Op::Fsync { path: path(0) });
    }
    [print(&made.collect::<Vec<_>>()), print(&ops)]
}

/// The reset comes when a number of fsyncs is done since the last checkpoint, and while more of
/// them are under way: counted, as by the clock it may come where there is nothing to recover.
#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn a_machine_reset_while_it_writes_is_recovered_alike() {
    const FSYNCS: u64 = 400;
    let mut batch = Batch::new("reset", Kind::Conventional, MIB_EACH);
    for seed in 20..24 {
        let options = OPTIONS[seed as usize % 4];
        let fsyncs = Xoshiro256PlusPlus::seed_from_u64(seed).random_range(1..FSYNCS / 2);
        let image = batch.add(format!("seed {seed}, {options}, after {fsyncs} fsyncs"));
        create(&image, Kind::Conventional, MIB_EACH, FEATURES[seed as usize % 3]);
        let [made, grown] = stretch(seed, FSYNCS as usize);
        let guest = Guest::new().drive(&image).program(Path::new(AGENT));
        let guest = guest.file("ops", print(&operations(seed, 1000))).file("made", made);
        let out = guest.file("grown", grown).run(&format!(
            "mount -t f2fs -o {options} /dev/vda /mnt || exit 1
            strandline-agent apply /mnt /host/ops
            strandline-agent apply /mnt /host/made
            strandline-agent apply /mnt /host/grown &
            while [ $(stat -c %s /mnt/mark-0) -le $(({fsyncs} * 4096)) ]; do :; done
            reset"
        ));
        assert_eq!(out.status, None, "{}", out.text);
    }
    batch.judge();
}

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn zoned_drives_are_recovered_alike() {
    const SEEDS: u64 = 3;
    const ROUNDS: u64 = 4;
    let mut batch = Batch::new("zoned", Kind::Zoned, ZONED_MIB);
    let disk = sparse(batch.dir().join("disk"), SEEDS * ROUNDS * ZONED_MIB * MIB);
    let mut guest = Guest::new().timeout(900).memory(1536).drive(&disk).program(Path::new(AGENT));
    let mut script = String::from("set -e\n");
    for seed in 0..SEEDS {
        let options = OPTIONS[seed as usize % 2];
        script += &format!(
            "null_blk 0 {ZONED_MIB} {ZONE_MIB} {CONVENTIONAL_ZONES}
            mkfs.f2fs -q -m -f /dev/nullb0\n"
        );
        for round in 0..ROUNDS {
            let slot = seed * ROUNDS + round;
            guest = guest.file(&format!("ops-{slot}"), print(&operations(100 + slot, 200)));
            let at = slot * ZONED_MIB * MIB;
            script += &format!(
                "mount -t f2fs -o {options} /dev/nullb0 /mnt
                strandline-agent apply /mnt /host/ops-{slot}
                f2fs_io shutdown 2 /mnt
                umount /mnt
                blkzone report /dev/nullb0 >/host/zones-{slot}
                strandline-agent take /dev/nullb0 /host/zones-{slot} /dev/vda {at}\n"
            );
        }
        script += "null_blk_remove 0\n";
    }
    let out = guest.run(&script);
    out.success();
    for slot in 0..SEEDS * ROUNDS {
        let raw = sparse(batch.dir().join("raw"), ZONED_MIB * MIB);
        copy_slot(&disk, slot * ZONED_MIB * MIB, &raw, ZONED_MIB * MIB);
        let crash = batch.add(format!("seed {}, round {}", slot / ROUNDS, slot % ROUNDS));
        let report = String::from_utf8(out.file(&format!("zones-{slot}"))).unwrap();
        drive::image::import(&raw, &report, &crash).unwrap();
    }
    batch.judge();
}
