//! The fuzz target's cases in `cargo test`: seeded, many, and the same each time.
//!
//! `FUZZ_EXECUTIONS=1000000 cargo test --release -p strandline-f2fs --test fuzz_smoke` runs a
//! million (with `CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true` for overflow checks and assertions),
//! `FUZZ_SEED` chooses others. A failure prints the bytes of the case.

#[path = "it/fuzz_body/mod.rs"]
mod fuzz_body;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cores::{Mutex, Nanos};
use drive::Drive;
use f2fs::F2fs;
use f2fs::check::{CheckOptions, check};
use fuzz_body::{MemoryDrive, Outcome, bases, run};
use rand::{RngCore, SeedableRng};
use rand_xoshiro::SplitMix64;
use rustix::time::{ClockId, clock_gettime};
use vfs::FileSystem;

/// A case that uses more processor time counts as endless: however busy the machine is, a case of a
/// few milliseconds does not come near.
const CASE_MAX: Nanos = 5_000_000_000;
/// Longest tape; a case seldom reads more.
const TAPE_LEN: usize = 96;

fn from_environment(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(default, |v| v.parse().unwrap_or_else(|e| panic!("{name}={v}: {e}")))
}

fn tape(seed: u64, number: u64) -> [u8; TAPE_LEN] {
    let mut tape = [0; TAPE_LEN];
    let seed = seed ^ number.wrapping_mul(0xd134_2543_de82_ef95);
    SplitMix64::seed_from_u64(seed).fill_bytes(&mut tape);
    tape
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// How long this thread has run.
fn processor_time() -> Nanos {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as Nanos * 1_000_000_000 + time.tv_nsec as Nanos
}

/// Runs a case; `Err` with where and how it panicked, or that it took too long.
fn attempt(data: &[u8], place: &Mutex<String>) -> Result<Outcome, String> {
    let start = processor_time();
    let result = catch_unwind(AssertUnwindSafe(|| run(data)));
    let outcome = result.map_err(|_| place.lock().clone())?;
    if processor_time() - start > CASE_MAX { Err("a case without end".into()) } else { Ok(outcome) }
}

#[test]
fn damaged_volumes_are_survived() {
    let count = from_environment("FUZZ_EXECUTIONS", 20_000);
    let seed = from_environment("FUZZ_SEED", 1);
    let place = Arc::new(Mutex::new(String::new()));
    let hooked = Arc::clone(&place);
    bases();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        *hooked.lock() = info.to_string();
    }));
    let start = cores::now();
    let (mut mounted, mut entries, mut errors, mut unmounted) = (0_u64, 0_u64, 0_u64, 0_u64);
    let mut failures: BTreeMap<String, (u64, String)> = BTreeMap::new();
    for number in 0..count {
        let data = tape(seed, number);
        match attempt(&data, &place) {
            Ok(outcome) => {
                mounted += u64::from(outcome.mounted);
                entries += outcome.entries;
                errors += outcome.errors;
                unmounted += u64::from(outcome.unmounted);
            }
            Err(why) => failures.entry(why).or_insert_with(|| (0, hex(&data))).0 += 1,
        }
    }
    std::panic::set_hook(hook);
    let seconds = (cores::now() - start) as f64 / 1e9;
    println!(
        "{count} cases of seed {seed} in {seconds:.1} s: {mounted} mounted, {entries} entries, \
         {errors} calls failed, {unmounted} unmounted"
    );
    for (why, (times, data)) in &failures {
        println!("{times} times: {why}\n  FUZZ_TAPE={data}");
    }
    assert!(failures.is_empty(), "{} kinds of failure", failures.len());
    // Cases that all end at the mount would show nothing.
    assert!(mounted > count / 4 && errors > count / 10, "the damage is not where it should be");
}

/// One case by its bytes: `FUZZ_TAPE=… cargo test -p strandline-f2fs --test fuzz_smoke replay`.
#[test]
fn replay() {
    let text = std::env::var("FUZZ_TAPE").unwrap_or_default();
    let digit = |i: usize| u8::from_str_radix(&text[i..i + 2], 16).expect("hexadecimal digits");
    let data: Vec<u8> = (0..text.len() / 2).map(|i| digit(2 * i)).collect();
    println!("{:?}", run(&data));
}

/// The volumes themselves are whole: what cases find comes from their damage.
#[test]
fn undamaged_volumes_are_whole() {
    for (number, base) in (0_u8..).zip(bases()) {
        let outcome = run(&[number, 1]);
        assert!(outcome.mounted && outcome.entries > 30, "{:?}: {outcome:?}", base.kind);
        assert_eq!(outcome.errors, 0, "{:?}", base.kind);
        let drive: Arc<dyn Drive> = MemoryDrive::on(base.snapshot.clone());
        let fs = F2fs::mount(Arc::clone(&drive), &"".parse().unwrap()).unwrap();
        fs.unmount().unwrap();
        let report = check(&drive, &CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "{:?}: {:?}", base.kind, report.findings);
    }
}
