//! Several threads over one journal, in schedules by seed, with a power cut: each finds its
//! operations whole, and none lost that it was promised.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cores::{Machine, Profile, splitmix64};
use drive::{CutPoint, Spec, Ssd, Timing};
use journal::policy::ZJOURNAL;
use journal::{BatchTime, Inject, Options, Strictness};

use crate::client::{self, HOME, Store, WIDE_DRIVE_BLOCKS, io, recover};
use crate::explorer;

const THREADS: u64 = 4;
const ROUNDS: u64 = 8;
/// The block that all threads change, each its own word.
const SHARED: u64 = 9;
const SEEDS: u64 = 60;

fn slot(thread: u64) -> usize {
    64 + 8 * thread as usize
}

/// One operation: two blocks of the thread's own, and its word of the shared one.
fn operate(store: &Store, thread: u64, value: u64) -> journal::Result<journal::Id> {
    let mut handle = store.journal.start(3)?;
    for block in [2 * thread, 2 * thread + 1] {
        client::put(&mut handle, block as usize, value)?;
    }
    handle.change(HOME + SHARED, (), |bytes| {
        bytes[slot(thread)..slot(thread) + 8].copy_from_slice(&value.to_le_bytes());
    })?;
    Ok(handle.id())
}

/// One schedule, and a cut. The error says what was not whole, or lost.
fn run(seed: u64, options: Options) -> Result<(), String> {
    let drive = explorer::drive(WIDE_DRIVE_BLOCKS);
    let store = Arc::new(Store::make(drive.clone(), options));
    let point = splitmix64(seed) % 160;
    drive.cut_at(CutPoint::Command(point), seed);
    let promised: Arc<[AtomicU64; THREADS as usize]> = Arc::default();
    let thread = |thread: u64| {
        let (store, promised) = (store.clone(), promised.clone());
        cores::spawn("user", Some(thread as usize), move || {
            for value in 1..=ROUNDS {
                let Ok(id) = operate(&store, thread, value) else { return };
                if splitmix64(seed ^ value << 8 ^ thread).is_multiple_of(3) {
                    continue;
                }
                let done = match options.batch {
                    Some(_) => store.journal.fsync(thread, Some(id)),
                    None => store.journal.commit(id),
                };
                if done.is_err() {
                    return;
                }
                promised[thread as usize].store(value, Ordering::Relaxed);
            }
        })
    };
    let threads: Vec<_> = (0..THREADS).map(thread).collect();
    threads.into_iter().for_each(cores::JoinHandle::join);
    let left = drive.fallen().unwrap_or_else(|| drive.cut(seed));
    let io = io(Ssd::power_on(left, Timing::Instant, 1));
    let done = recover(&io, Strictness::Strict).expect("recovery");
    let shared = io.read(HOME + SHARED).expect("the shared block");
    for thread in 0..THREADS {
        let word = &shared[slot(thread)..slot(thread) + 8];
        let value = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        let least = promised[thread as usize].load(Ordering::Relaxed);
        if value < least {
            return Err(format!("thread {thread}: {value} of {least}, {done:?}"));
        }
        for block in [2 * thread, 2 * thread + 1] {
            let own = io.read(HOME + block).expect("a block");
            let own = u64::from_le_bytes(own[8..16].try_into().expect("eight bytes"));
            if own != value {
                return Err(format!("thread {thread}, block {block}: half an operation"));
            }
        }
    }
    Ok(())
}

/// A caller waits for others, even where a commit takes no time.
fn batched() -> Options {
    let batch = Some(BatchTime { min: 50_000, max: 15_000_000 });
    Options { batch, ..Options::default() }
}

/// What was not whole or lost in any of the schedules.
fn failures(seeds: std::ops::Range<u64>, options: Options) -> Vec<String> {
    let profile = Profile::named("xeon-4116").expect("profile");
    let one = |seed: u64| {
        let machine = Machine::simulated(&profile, seed).preempted();
        let run = std::panic::AssertUnwindSafe(|| machine.run(|| run(seed, options)));
        match std::panic::catch_unwind(run) {
            Ok(Ok(done)) => done.err().map(|error| format!("seed {seed}: {error}")),
            Ok(Err(error)) => panic!("seed {seed}: {error}"),
            Err(_) => panic!("seed {seed}"),
        }
    };
    seeds.filter_map(one).collect()
}

/// A log for each thread's core, or one for two of them.
const CORES: [u16; 2] = [4, 3];

fn zjournal(areas: u16, inject: Inject) -> Options {
    Options { policy: &ZJOURNAL, areas, inject, ..Options::default() }
}

#[test]
fn operations_of_several_threads_are_whole_and_kept() {
    assert_eq!(failures(0..SEEDS, Options::default()), [""; 0]);
    assert_eq!(failures(0..SEEDS, batched()), [""; 0]);
    for areas in CORES {
        let found = failures(0..SEEDS, zjournal(areas, Inject::empty()));
        assert_eq!(found, [""; 0], "{areas} areas");
    }
}

#[test]
#[ignore = "long: 10,000 schedules of each policy"]
fn operations_of_several_threads_are_whole_and_kept_in_many_schedules() {
    assert_eq!(failures(0..10_000, Options::default()), [""; 0]);
    assert_eq!(failures(0..10_000, batched()), [""; 0]);
    for areas in CORES {
        let found = failures(0..10_000, zjournal(areas, Inject::empty()));
        assert_eq!(found, [""; 0], "{areas} areas");
    }
}

#[test]
fn each_mistake_breaks_a_schedule() {
    for mistake in [Inject::DROP_CHAIN, Inject::LATE_MARK] {
        let broke =
            (0..20).any(|n| !failures(n * 50..n * 50 + 50, zjournal(4, mistake)).is_empty());
        assert!(broke, "{mistake:?} broke no schedule");
    }
}

/// Commits that threads need which fsync `rounds` each, and how long they take on a drive that
/// takes its time.
fn commits(rounds: &[u64], options: Options) -> (u64, cores::Nanos) {
    let machine = Machine::simulated(&Profile::named("xeon-4116").expect("profile"), 1);
    let work = move || {
        let spec = Spec::named("850-evo").expect("a profile").blocks(WIDE_DRIVE_BLOCKS);
        let drive = Ssd::new(spec, Timing::Virtual, 1).expect("a drive");
        let store = Arc::new(Store::make(drive, options));
        let (before, began) = (store.journal.commits(), cores::now());
        let thread = |(thread, rounds): (u64, u64)| {
            let store = store.clone();
            cores::spawn("user", Some(thread as usize), move || {
                for value in 1..=rounds {
                    cores::sleep(splitmix64(value << 8 ^ thread) % 50_000);
                    let mut handle = store.journal.start(1).expect("a handle");
                    client::put(&mut handle, thread as usize, value).expect("an operation");
                    let id = handle.id();
                    drop(handle);
                    store.journal.fsync(thread, Some(id)).expect("an fsync");
                }
            })
        };
        let threads: Vec<_> = (0..).zip(rounds.iter().copied()).map(thread).collect();
        threads.into_iter().for_each(cores::JoinHandle::join);
        (store.journal.commits() - before, cores::now() - began)
    };
    machine.run(work).expect("a machine")
}

#[test]
fn fsyncs_of_several_threads_share_a_commit() {
    let (alone, _) = commits(&[50, 50], Options::default());
    assert!(alone > 70, "{alone} commits without waiting for others");
    let (shared, _) = commits(&[50, 50], batched());
    assert!((50..=55).contains(&shared), "{shared} commits of 50 pairs");
    let (shared, _) = commits(&[50; 4], batched());
    assert!((50..=60).contains(&shared), "{shared} commits of 50 times four");
}

#[test]
fn a_thread_that_does_not_come_again_is_waited_for_once() {
    let (_, waits) = commits(&[50], batched());
    let (_, waits_not) = commits(&[50], Options::default());
    assert_eq!(waits, waits_not, "one thread has nobody to wait for");
    let (commits, took) = commits(&[50, 5], batched());
    assert!((50..=53).contains(&commits), "{commits} commits");
    // One more wait, and a commit of its own for a thread that came too late.
    let most = waits_not + 3 * waits_not / 50;
    assert!(took < most, "{took} ns, more than {most}");
}
