//! Random operations against the reference file system, on conventional and zoned drives, on the
//! real machine and a virtual one, with remounts and power cuts in between; `fsck.f2fs` looks at
//! some of what is left.
//!
//! A failure prints the shrunk operations and the seed; `PROPTEST_RNG_SEED` tries others.

use cores::{Machine, Profile};
use drive::Timing;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};
use vfs::ops::{Generator, Op, print, sequences};

use crate::harness::{Kind, Pair, dump};
use crate::judge::{Scratch, assert_fsck_clean};

/// Cases of each of the four tests.
const CASES: u32 = 55;

/// Mount options to take turns, for both kinds of drives.
const OPTIONS: [&str; 5] = [
    "",
    "noinline_data,noinline_dentry,noinline_xattr",
    "fsync_mode=strict,cache=1m",
    "cache=1m",
    "mode=lfs,noinline_xattr",
];

fn options(kind: Kind, choice: usize) -> String {
    match (kind, choice % 2) {
        (Kind::Zoned, 1) => format!("oprw,{}", OPTIONS[choice % OPTIONS.len()]),
        _ => OPTIONS[choice % OPTIONS.len()].into(),
    }
}

/// Directories for the rest to meet in, then what proptest chose.
fn operations() -> impl Strategy<Value = Vec<Op>> {
    sequences(160).prop_map(|ops| [Generator::new(0).take_ops(5), ops].concat())
}

fn case(kind: Kind, machine: &Machine, ops: &[Op], seed: u64) -> Result<Pair, String> {
    let timing = if machine.is_simulated() { Timing::Virtual } else { Timing::Instant };
    let run = || {
        let mut pair = Pair::new(kind, &options(kind, seed as usize), seed, timing);
        pair.run(ops, 50).map(|()| pair)
    };
    machine.run(run).map_err(|e| e.to_string())?
}

fn agrees(kind: Kind, machine: impl Fn(u64) -> Machine) {
    let mut config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(1);
    }
    let scratch = Scratch::new();
    let outcome = TestRunner::new(config).run(&(operations(), 0..1_000_u64), |(ops, seed)| {
        let pair = case(kind, &machine(seed), &ops, seed).map_err(TestCaseError::fail)?;
        if seed % 10 == 0 {
            let image = scratch.dir().join("image");
            dump(&pair.drive.power_off(), &image);
            assert_fsck_clean(&image);
        }
        Ok(())
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, (ops, seed))) => {
            let options = options(kind, seed as usize);
            panic!("{kind:?} -o {options} seed {seed}: {why}\n{}", print(&ops));
        }
        Err(error) => panic!("{error}"),
    }
}

fn uniform(seed: u64) -> Machine {
    Machine::simulated(&Profile::named("uniform-1").unwrap(), seed)
}

#[test]
fn conventional_on_the_real_machine() {
    agrees(Kind::Conventional, |_| Machine::real());
}

#[test]
fn zoned_on_the_real_machine() {
    agrees(Kind::Zoned, |_| Machine::real());
}

#[test]
fn conventional_on_a_virtual_machine() {
    agrees(Kind::Conventional, uniform);
}

#[test]
fn zoned_on_a_virtual_machine() {
    agrees(Kind::Zoned, uniform);
}
