//! Several threads over one journal, in schedules by seed, with a power cut: each finds its
//! operations whole, and none lost that it was promised.

mod client;
mod explorer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use client::{DRIVE_BLOCKS, HOME, Store, io, recover};
use cores::{Machine, Profile, splitmix64};
use drive::{CutPoint, Ssd, Timing};
use journal::{Options, Result, Strictness};

const THREADS: u64 = 4;
const ROUNDS: u64 = 8;
/// The block that all threads change, each its own word.
const SHARED: u64 = 9;
const SEEDS: u64 = 60;

fn slot(thread: u64) -> usize {
    64 + 8 * thread as usize
}

/// One operation: two blocks of the thread's own, and its word of the shared one.
fn operate(store: &Store, thread: u64, value: u64) -> Result<journal::Id> {
    let mut handle = store.journal.start(3)?;
    for block in [2 * thread, 2 * thread + 1] {
        client::put(&mut handle, block as usize, value)?;
    }
    handle.change(HOME + SHARED, (), |bytes| {
        bytes[slot(thread)..slot(thread) + 8].copy_from_slice(&value.to_le_bytes());
    })?;
    Ok(handle.id())
}

fn run(seed: u64) {
    let drive = explorer::drive(DRIVE_BLOCKS);
    let store = Arc::new(Store::make(drive.clone(), Options::default()));
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
                if store.journal.commit(id).is_err() {
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
        assert!(value >= least, "thread {thread}: {value} of {least}, {done:?}");
        for block in [2 * thread, 2 * thread + 1] {
            let own = io.read(HOME + block).expect("a block");
            let own = u64::from_le_bytes(own[8..16].try_into().expect("eight bytes"));
            assert_eq!(own, value, "thread {thread}, block {block}: half an operation");
        }
    }
}

#[test]
fn operations_of_several_threads_are_whole_and_kept() {
    let profile = Profile::named("xeon-4116").expect("profile");
    for seed in 0..SEEDS {
        let machine = Machine::simulated(&profile, seed).preempted();
        let run = std::panic::AssertUnwindSafe(|| machine.run(|| run(seed)));
        match std::panic::catch_unwind(run) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => panic!("seed {seed}: {error}"),
            Err(_) => panic!("seed {seed}"),
        }
    }
}
