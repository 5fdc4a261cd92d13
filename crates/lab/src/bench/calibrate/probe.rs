//! What a machine's parts cost, measured on the one this process runs on.

use std::hint::black_box;
use std::sync::Arc;

use cores::{Condvar, JoinHandle, Line, Mutex, Nanos, core_count, now, spawn};

use crate::Result;

/// Bytes of a page.
const PAGE: usize = 4096;
/// More than any cache holds.
const MEMORY: usize = 64 << 20;

/// Numbers by their path in a profile.
pub(super) type Numbers = Vec<(&'static str, u64)>;

/// The best of several runs, since whatever else runs only makes it longer.
fn best(mut run: impl FnMut() -> f64) -> f64 {
    (0..5).map(|_| run()).fold(f64::INFINITY, f64::min)
}

fn both(work: impl Fn(usize) + Clone + Send + 'static, first: usize, second: usize) -> Nanos {
    let start = now();
    let threads = [(0, first), (1, second)].map(|(parity, core)| {
        let work = work.clone();
        spawn("probe", Some(core), move || work(parity))
    });
    threads.into_iter().for_each(JoinHandle::join);
    now() - start
}

/// One atomic operation on a line that this core has.
fn own_line() -> f64 {
    let (line, times) = (Line::new(0), 200_000);
    best(|| {
        let start = now();
        for _ in 0..times {
            black_box(line.fetch_add(1));
        }
        (now() - start) as f64 / f64::from(times)
    })
}

/// Two cores change one line in turn.
fn other_line() -> f64 {
    let times = 100_000;
    best(|| {
        let line = Arc::new(Line::new(0));
        let turns = move |parity: usize| {
            for turn in 0..times {
                let mine = 2 * turn + parity as u64;
                while line.load() != mine {
                    std::hint::spin_loop();
                }
                line.store(mine + 1);
            }
        };
        both(turns, 0, 1) as f64 / (2 * times) as f64
    })
}

/// Picoseconds per KiB that `threads` cores need together to copy out of `bytes` each, over and
/// over.
fn copying(bytes: usize, times: usize, threads: usize) -> f64 {
    best(|| {
        let copy = move |_: usize| {
            let from = vec![1_u8; bytes];
            let mut page = [0_u8; PAGE];
            let start = now();
            for _ in 0..times {
                for chunk in from.chunks_exact(PAGE) {
                    page.copy_from_slice(black_box(chunk));
                    black_box(&page);
                }
            }
            now() - start
        };
        let running: Vec<_> =
            (0..threads).map(|core| spawn("probe", Some(core), move || copy(core))).collect();
        let longest = running.into_iter().map(JoinHandle::join).max().unwrap_or(0);
        longest as f64 * 1000.0 * 1024.0 / (bytes * times * threads) as f64
    })
}

/// Two threads wake each other in turn. Time from one call to the other's return, and that of the
/// call itself.
fn waking(first: usize, second: usize) -> (f64, f64) {
    let times = 2_000_u64;
    let calls = Arc::new(Mutex::named("calls", f64::INFINITY));
    let kept = calls.clone();
    let all = best(|| {
        let (turn, calls) = (Arc::new((Mutex::named("turn", 0), Condvar::new())), calls.clone());
        let turns = move |parity: usize| {
            let mut in_calls = 0;
            for turns in 0..times {
                let mut held = turn.0.lock();
                while *held != 2 * turns + parity as u64 {
                    turn.1.wait(&mut held);
                }
                *held += 1;
                drop(held);
                let start = now();
                turn.1.notify_one();
                in_calls += now() - start;
            }
            let mut least = calls.lock();
            *least = least.min(in_calls as f64 / times as f64);
        };
        both(turns, first, second) as f64 / (2 * times) as f64
    });
    let call = *kept.lock();
    (all, call)
}

/// Measures everything that a profile says of the machine itself.
pub(super) fn probe() -> Result<Numbers> {
    let cores = core_count();
    let (own, other) = (own_line(), if cores > 1 { other_line() } else { own_line() });
    let far = 1.min(cores - 1);
    let (woken, call) = waking(0, far);
    let (switched, switch_call) = waking(0, 0);
    let at_least_one = |number: f64| (number.round() as u64).max(1);
    Ok(vec![
        ("line.same_core", at_least_one(own)),
        ("line.same_socket", at_least_one(other)),
        ("line.other_socket", at_least_one(other)),
        ("memory.socket", at_least_one(copying(MEMORY, 1, cores))),
        ("memory.core", at_least_one(copying(MEMORY, 1, 1))),
        ("memory.remote", at_least_one(copying(MEMORY, 1, 1))),
        ("memory.cache", at_least_one(copying(16 * PAGE, 500, 1))),
        ("thread.wake_call", at_least_one(call)),
        ("thread.wake", at_least_one(woken - call)),
        ("thread.context_switch", at_least_one(switched - switch_call)),
    ])
}
