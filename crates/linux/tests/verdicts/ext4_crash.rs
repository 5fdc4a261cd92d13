//! ext4 after a loss of power, in each data mode: what the kernel wrote, and what we wrote,
//! recovered by both. `e2fsck` finds nothing wrong with either.

use ::ext4::Format;
use drive::Spec;
use vfs::kind::Format as _;

use crate::kernel_crash::operations;
use crate::our_crash;
use crate::recorded::{Run, record, runs};
use crate::verdict::Batch;
use crate::volumes::{Kind, open};

const SIZE_MIB: u64 = 64;
/// Of each mode, unless `STRANDLINE_RUNS` says otherwise; so many are judged at once.
const RUNS: u64 = 4;
const CUTS: u64 = 10;
const MODES: [&str; 3] = ["data=ordered", "data=writeback", "data=journal"];
/// What the volumes have, one after the other.
const FEATURES: [&str; 4] =
    ["", "^metadata_csum,^64bit", "block_size=1024", "block_size=2048,^metadata_csum"];

/// Batches of as many runs as are judged at once.
fn batches(name: &str, mut add: impl FnMut(&mut Batch, &str, std::ops::Range<u64>)) {
    for mode in MODES {
        for first in (0..runs(RUNS)).step_by(RUNS as usize) {
            let mut batch =
                Batch::of(&Format, &format!("{name}-{mode}"), Kind::Conventional, SIZE_MIB);
            add(&mut batch, mode, first..runs(RUNS).min(first + RUNS));
            batch.judge();
        }
    }
}

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn the_kernels_crashes_are_recovered_alike() {
    batches("kernels", |batch, mode, seeds| {
        let run = |seed: u64| {
            let base = batch.dir().join(format!("base-{seed}"));
            drive::image::create(&base, &Kind::Conventional.spec(SIZE_MIB)).expect("a drive");
            let features = FEATURES[seed as usize % FEATURES.len()];
            Format.make_with(&open(&base), features).expect("a volume");
            Run { base, options: mode.to_owned(), ops: operations(seed, 800) }
        };
        let runs: Vec<Run> = seeds.map(run).collect();
        record(batch, &runs, CUTS, "true");
    });
}

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn our_crashes_are_recovered_alike() {
    batches("ours", |batch, mode, seeds| {
        for seed in seeds {
            let spec = Spec::named("conventional-noplp").unwrap().blocks(SIZE_MIB * 256);
            let features = FEATURES[seed as usize % FEATURES.len()];
            our_crash::run(batch, spec, (features, mode), seed);
        }
    });
}
