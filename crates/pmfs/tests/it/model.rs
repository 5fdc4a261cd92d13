//! Random operations against the reference file system, with remounts and power cuts in between.
//! Nothing is synced: what a call did is durable when it returns. At the end of each stretch
//! nothing is wrong with the structures.
//!
//! A failure prints the shrunk operations and the seed; `PROPTEST_RNG_SEED` tries others.

use drive::pm::{Domain, PmSim};
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};
use vfs::kind::Volume;
use vfs::ops::{Generator, Op, Session, print, sequences, snapshot};
use vfs::{FileSystem, MemFs};

use crate::harness::{DESIGNS, empty, findings, mount};

const CASES: u32 = 60;
/// Operations between two mounts.
const STRETCH: usize = 40;
const BYTES: u64 = 64 << 20;

fn operations() -> impl Strategy<Value = Vec<Op>> {
    sequences(160).prop_map(|ops| [Generator::new(0).take_ops(5), ops].concat())
}

fn same(fs: &dyn FileSystem, model: &MemFs, when: &str) -> Result<(), String> {
    let ours = snapshot(fs).map_err(|e| format!("{when}: {e}"))?;
    let differences = snapshot(model).map_err(|e| e.to_string())?.diff(&ours);
    if differences.is_empty() { Ok(()) } else { Err(format!("{when}: {differences:?}")) }
}

fn apply(fs: &dyn FileSystem, model: &MemFs, ops: &[Op]) -> Result<(), String> {
    let (mut ours, mut models) = (Session::new(fs), Session::new(model));
    for op in ops {
        let (a, b) = (ours.apply(op), models.apply(op));
        if a != b {
            return Err(format!("{op}: pmfs {a:?}, model {b:?}"));
        }
    }
    Ok(())
}

fn case(ops: &[Op], seed: u64) -> Result<(), String> {
    let domain = [Domain::Memory, Domain::Caches, Domain::Process][seed as usize % 3];
    let mut pm = PmSim::power_on(empty(DESIGNS[seed as usize / 3 % DESIGNS.len()], BYTES), domain);
    let model = MemFs::new();
    for (round, ops) in ops.chunks(STRETCH).enumerate() {
        let fs: std::sync::Arc<dyn Volume> = mount(pm.clone())?;
        same(&*fs, &model, "after a mount")?;
        apply(&*fs, &model, ops)?;
        same(&*fs, &model, "at the end of a stretch")?;
        let cut = !(round as u64 + seed).is_multiple_of(2);
        if cut {
            if domain != Domain::Process && !pm.pending().is_settled() {
                return Err("something is dirty between calls".into());
            }
            pm = PmSim::power_on(pm.survivors(seed), domain);
        } else {
            fs.unmount().map_err(|e| format!("unmount: {e}"))?;
        }
        findings(pm.clone()).map_err(|why| format!("round {round}: {why}"))?;
    }
    Ok(())
}

#[test]
fn it_agrees_with_the_reference() {
    let mut config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(1);
    }
    let outcome = TestRunner::new(config).run(&(operations(), 0..1_000_u64), |(ops, seed)| {
        case(&ops, seed).map_err(TestCaseError::fail)
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, (ops, seed))) => panic!("seed {seed}: {why}\n{}", print(&ops)),
        Err(error) => panic!("{error}"),
    }
}
