//! What we wrote and a loss of power left, recovered by the kernel and by us.
//!
//! The drives are emulated ones without power-loss protection: blocks that were not flushed may be
//! there or not, and a zone ends where its flash was programmed to.

use std::path::Path;
use std::sync::Arc;

use crate::verdict::Batch;
use crate::volumes::{self, CONVENTIONAL_ZONES, Kind, ZONE_MIB, zone_report};
use drive::{Drive, DriveState, Spec, Ssd, Timing, image};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use vfs::ops::{Generator, Mix, Op, Session};

const SIZE_MIB: u64 = 320;
const RUNS: u64 = 6;
const OPS: u64 = 600;
const CUTS: u64 = 5;

fn spec(kind: Kind) -> Spec {
    match kind {
        Kind::Conventional => Spec::named("conventional-noplp").unwrap().blocks(SIZE_MIB * 256),
        Kind::Zoned => Spec::named("zn540-noplp")
            .unwrap()
            .zone_size(ZONE_MIB * 256, ZONE_MIB * 256)
            .zones((SIZE_MIB / ZONE_MIB) as u32, CONVENTIONAL_ZONES),
    }
}

/// Puts what a drive holds into a file of the same kind.
fn dump(state: &DriveState, path: &Path) {
    if state.identify().zones.is_none() {
        return volumes::dump(state, path);
    }
    let raw = path.with_extension("raw");
    volumes::dump(state, &raw);
    let drive: Arc<dyn Drive> = Ssd::power_on(state.clone(), Timing::Instant, 0);
    image::import(&raw, &zone_report(&drive), path).unwrap();
    std::fs::remove_file(&raw).unwrap();
}

/// Adds crashes of a run with this `seed` on a new `spec`, of a volume with these features.
pub(crate) fn run(batch: &mut Batch, spec: Spec, (features, options): (&str, &str), seed: u64) {
    let drive = Ssd::new(spec, Timing::Instant, seed).unwrap();
    let dynamic: Arc<dyn Drive> = drive.clone();
    batch.format().make_with(&dynamic, features).unwrap();
    let fs = batch.format().mount(dynamic, options).unwrap();
    let mix = Mix { syncs: 30, reads: 0, ..Mix::default() };
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
    let cuts: Vec<u64> = (0..CUTS).map(|_| chance.random_range(50..OPS)).collect();
    let mut session = Session::new(&*fs);
    for (op, at) in Generator::with_mix(seed, mix).zip(0..OPS) {
        if op == Op::Sync && chance.random_bool(0.9) {
            continue;
        }
        let _errors_are_part_of_it = session.apply(&op);
        for _ in cuts.iter().filter(|cut| **cut == at) {
            let path = batch.add(format!("{features} {options}, seed {seed}, cut after op {at}"));
            dump(&drive.survivors(seed ^ at), &path);
        }
    }
}

fn judge(kind: Kind, name: &str) {
    let mut batch = Batch::new(name, kind, SIZE_MIB);
    for seed in 0..RUNS {
        let modes = ["fsync_mode=posix", "fsync_mode=strict", "fsync_mode=strict,oprw"];
        let options = modes[seed as usize % modes.len()];
        run(&mut batch, spec(kind), ("", options), seed);
    }
    batch.judge();
}

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn our_crashes_on_a_conventional_drive_are_recovered_alike() {
    judge(Kind::Conventional, "ours-conventional");
}

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn our_crashes_on_a_zoned_drive_are_recovered_alike() {
    judge(Kind::Zoned, "ours-zoned");
}
