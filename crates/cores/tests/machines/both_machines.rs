//! What holds on either machine: each body runs on OS threads and on virtual cores.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use cores::{
    Condvar, Line, Machine, Mutex, PerCoreRwLock, Profile, RwLock, Semaphore, Stage, spawn, trace,
};

/// Runs `body` on the real machine and on virtual ones of one, twelve and 192 cores.
pub(crate) fn on_both(body: impl Fn()) {
    Machine::real().run(&body).unwrap();
    for name in ["uniform-1", "xeon-4116", "e7-8890v4-192"] {
        let profile = Profile::named(name).unwrap();
        for seed in 0..3 {
            Machine::simulated(&profile, seed).run(&body).unwrap();
        }
    }
}

#[test]
fn mutex_excludes() {
    on_both(|| {
        let shared = Arc::new((Mutex::new(0_u64), AtomicBool::new(false)));
        let work = |shared: Arc<(Mutex<u64>, AtomicBool)>| {
            move || {
                for _ in 0..200 {
                    let mut count = shared.0.lock();
                    assert!(!shared.1.swap(true, Relaxed), "two holders at once");
                    let seen = *count;
                    cores::spend(50);
                    cores::yield_now();
                    *count = seen + 1;
                    shared.1.store(false, Relaxed);
                }
            }
        };
        let threads: Vec<_> =
            (0..8).map(|i| spawn("adder", Some(i), work(shared.clone()))).collect();
        threads.into_iter().for_each(cores::JoinHandle::join);
        assert_eq!(*shared.0.lock(), 1600);
    });
}

#[test]
fn try_lock_fails_while_held() {
    on_both(|| {
        let mutex = Arc::new(Mutex::new(()));
        let guard = mutex.lock();
        let other = mutex.clone();
        assert!(spawn("other", None, move || other.try_lock().is_none()).join());
        drop(guard);
        assert!(mutex.try_lock().is_some());
    });
}

#[test]
fn rwlock_shares_readers_and_excludes_writers() {
    on_both(|| {
        let lock = Arc::new(RwLock::new((0_u64, 0_u64)));
        let mut threads = Vec::new();
        for core in 0..4 {
            let lock = lock.clone();
            threads.push(spawn("writer", Some(core), move || {
                for _ in 0..100 {
                    let mut pair = lock.write();
                    pair.0 += 1;
                    cores::spend(100);
                    cores::yield_now();
                    pair.1 += 1;
                }
            }));
        }
        for core in 4..12 {
            let lock = lock.clone();
            threads.push(spawn("reader", Some(core), move || {
                for _ in 0..100 {
                    let pair = lock.read();
                    cores::spend(30);
                    cores::yield_now();
                    assert_eq!(pair.0, pair.1, "read in the middle of a write");
                }
            }));
        }
        threads.into_iter().for_each(cores::JoinHandle::join);
        assert_eq!(*lock.read(), (400, 400));
        let first = lock.read();
        let second = lock.clone();
        assert!(spawn("reader", None, move || second.try_read().is_some()).join());
        assert!(lock.try_write().is_none());
        drop(first);
        assert!(lock.try_write().is_some());
    });
}

/// Readers see a pair of numbers that only ever changes as a pair, on the short way and on the
/// long one, whatever the schedule. A writer that does not wait for the readers on the short way,
/// or a reader that looks before it counts itself, breaks this.
#[test]
fn percore_rwlock_shares_readers_and_excludes_writers() {
    let chance = |seed: u64, i: u64, n: u64| cores::mix(seed << 32 | i << 16 | (n + 1));
    let run = |seed: u64| {
        let shared = Arc::new(PerCoreRwLock::named("pair", (AtomicU64::new(0), 0_u64)));
        let inside = Arc::new(AtomicU64::new(0));
        let work = |i: u64| {
            let (shared, inside) = (shared.clone(), inside.clone());
            move || {
                for n in 0..300 {
                    let chance = chance(seed, i, n);
                    if chance % 96 < i {
                        let mut pair = shared.write();
                        assert_eq!(inside.fetch_add(1, Relaxed), 0, "somebody was in");
                        let next = pair.1 + 1;
                        pair.0.store(next, Relaxed);
                        cores::spend(chance >> 8 & 0x1ff);
                        cores::yield_now();
                        pair.1 = next;
                        inside.fetch_sub(1, Relaxed);
                    } else {
                        let tried = (chance >> 20 & 1 == 1).then(|| shared.try_read()).flatten();
                        let pair = tried.unwrap_or_else(|| shared.read());
                        inside.fetch_add(1, Relaxed);
                        cores::spend(chance >> 8 & 0x1ff);
                        assert_eq!(pair.0.load(Relaxed), pair.1);
                        inside.fetch_sub(1, Relaxed);
                    }
                }
            }
        };
        let threads: Vec<_> = (0..6).map(|i| spawn("either", Some(i as usize), work(i))).collect();
        threads.into_iter().for_each(cores::JoinHandle::join);
        let asked: u64 = (0..6)
            .flat_map(|i| (0..300).map(move |n| (i, n)))
            .filter(|&(i, n)| chance(seed, i, n) % 96 < i)
            .count() as u64;
        assert_eq!(shared.read().1, asked);
        assert!(shared.readers() > 1800 - asked);
    };
    Machine::real().run(|| (0..20).for_each(run)).unwrap();
    for name in ["uniform-1", "xeon-4116", "e7-8890v4-192"] {
        let profile = Profile::named(name).unwrap();
        for seed in 0..300 {
            let machine = Machine::simulated(&profile, seed).preempted();
            machine
                .run(|| run(seed))
                .unwrap_or_else(|stuck| panic!("{name}, seed {seed}: {stuck}"));
        }
    }
}

#[test]
fn condvar_loses_no_wake_up() {
    on_both(|| {
        let channel = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let consume = |channel: Arc<(Mutex<Vec<u64>>, Condvar)>| {
            move || {
                let mut sum = 0;
                for _ in 0..100 {
                    let mut queue = channel.0.lock();
                    while queue.is_empty() {
                        channel.1.wait(&mut queue);
                    }
                    sum += queue.pop().unwrap();
                }
                sum
            }
        };
        let consumers: Vec<_> =
            (0..3).map(|i| spawn("consumer", Some(i), consume(channel.clone()))).collect();
        for i in 0..300 {
            channel.0.lock().push(i);
            channel.1.notify_one();
            cores::spend(i % 7 * 100);
        }
        let sum: u64 = consumers.into_iter().map(cores::JoinHandle::join).sum();
        assert_eq!(sum, 299 * 300 / 2);
    });
}

#[test]
fn condvar_wait_ends_at_its_deadline() {
    on_both(|| {
        let pair = Arc::new((Mutex::new(false), Condvar::new()));
        let mut guard = pair.0.lock();
        let deadline = cores::now() + 200_000;
        assert!(pair.1.wait_until(&mut guard, deadline), "nobody notifies");
        assert!(cores::now() >= deadline);
        let other = pair.clone();
        let thread = spawn("notifier", None, move || {
            *other.0.lock() = true;
            other.1.notify_all();
        });
        let deadline = cores::now() + 60_000_000_000;
        while !*guard {
            assert!(!pair.1.wait_until(&mut guard, deadline), "notified in time");
        }
        drop(guard);
        thread.join();
    });
}

#[test]
fn semaphore_admits_as_many_as_it_has() {
    on_both(|| {
        let shared = Arc::new((Semaphore::new(5), AtomicU64::new(0), AtomicU64::new(0)));
        let work = |wants: u64, shared: Arc<(Semaphore, AtomicU64, AtomicU64)>| {
            move || {
                for _ in 0..50 {
                    shared.0.acquire(wants as usize);
                    let inside = shared.1.fetch_add(wants, Relaxed) + wants;
                    assert!(inside <= 5, "{inside} permits out of 5");
                    shared.2.fetch_max(inside, Relaxed);
                    cores::spend(500);
                    cores::yield_now();
                    shared.1.fetch_sub(wants, Relaxed);
                    shared.0.release(wants as usize);
                }
            }
        };
        let threads: Vec<_> = (0..6)
            .map(|i| spawn("user", Some(i), work(1 + i as u64 % 3, shared.clone())))
            .collect();
        threads.into_iter().for_each(cores::JoinHandle::join);
        assert_eq!(shared.0.available(), 5);
        assert!(!shared.0.try_acquire(6) && shared.0.try_acquire(5));
    });
}

#[test]
fn line_counts() {
    on_both(|| {
        let line = Arc::new(Line::new(0));
        let work = |line: Arc<Line>| {
            move || {
                for _ in 0..100 {
                    line.fetch_add(1);
                    let mut seen = line.load();
                    while let Err(now) = line.compare_exchange(seen, seen + 1) {
                        seen = now;
                    }
                }
            }
        };
        let threads: Vec<_> = (0..8).map(|i| spawn("adder", Some(i), work(line.clone()))).collect();
        threads.into_iter().for_each(cores::JoinHandle::join);
        assert_eq!(line.load(), 1600);
        line.store(7);
        assert_eq!(line.load(), 7);
    });
}

#[test]
fn polling_ends_with_a_notification_or_at_its_end() {
    Machine::real()
        .run(|| {
            let shared = Arc::new((Mutex::new(false), Condvar::new()));
            let other = shared.clone();
            let mut is_set = shared.0.lock();
            let thread = spawn("notifier", None, move || {
                *other.0.lock() = true;
                other.1.notify_all();
            });
            let end = cores::now() + 60_000_000_000;
            while !*is_set {
                assert!(shared.1.poll(&mut is_set, end), "a minute without a notification");
            }
            drop(is_set);
            thread.join();
            let end = cores::now() + 100_000;
            assert!(!shared.1.poll(&mut shared.0.lock(), end));
            assert!(cores::now() >= end);
        })
        .unwrap();
}

/// Notifiers change the condition with the mutex and notify without it, as commits do.
#[test]
fn no_notification_is_lost_between_polling_and_sleeping() {
    Machine::real()
        .run(|| {
            let shared = Arc::new((Mutex::new(0_u64), Condvar::new()));
            const ROUNDS: u64 = 20_000;
            let turns = |mine: u64| {
                let shared = shared.clone();
                move || {
                    for round in 0..ROUNDS {
                        let mut turn = shared.0.lock();
                        let mut may_poll = true;
                        while *turn != 2 * round + mine {
                            match may_poll {
                                // Often over just when the other one notifies.
                                true => may_poll = shared.1.poll(&mut turn, cores::now() + 300),
                                false => shared.1.wait(&mut turn),
                            }
                        }
                        *turn += 1;
                        drop(turn);
                        shared.1.notify_all();
                    }
                }
            };
            let threads = [spawn("even", None, turns(0)), spawn("odd", None, turns(1))];
            threads.into_iter().for_each(cores::JoinHandle::join);
            assert_eq!(*shared.0.lock(), 2 * ROUNDS);
        })
        .unwrap();
}

#[test]
fn a_panic_reaches_who_joins_and_frees_its_locks() {
    on_both(|| {
        let mutex = Arc::new(Mutex::new(1));
        let other = mutex.clone();
        let thread = spawn("unlucky", None, move || {
            let _guard = other.lock();
            std::panic::resume_unwind(Box::new("boom"));
        });
        let panic = thread.result().unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"boom"));
        assert_eq!(*mutex.lock(), 1);
    });
}

#[test]
fn a_panic_of_the_first_thread_leaves_the_machine() {
    for machine in [Machine::real(), simulated()] {
        let caught = std::panic::catch_unwind(|| {
            machine.run(|| {
                let _bystander = spawn("bystander", None, || cores::sleep(1000));
                std::panic::resume_unwind(Box::new("first"));
            })
        });
        assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"first"));
    }
}

#[test]
fn sleep_takes_its_time_and_the_calendar_follows() {
    on_both(|| {
        let (start, date) = (cores::now(), cores::wall_clock());
        let thread = spawn("sleeper", None, || cores::sleep(300_000));
        cores::sleep_until(start + 200_000);
        assert!(cores::now() >= start + 200_000);
        thread.join();
        assert!(cores::now() >= start + 300_000);
        assert!(cores::wall_clock() > date);
        assert!(cores::current_core() < cores::core_count());
    });
}

#[test]
fn spans_add_up() {
    on_both(|| {
        trace::start_timeline();
        let thread = spawn("worker", None, || {
            let _span = cores::span(Stage::Gc);
            cores::sleep(1_000);
        });
        thread.join();
        for _ in 0..3 {
            drop(cores::span(Stage::CopyPage));
        }
        let trace = trace::finish();
        assert_eq!(trace.total(Stage::CopyPage).count, 3);
        assert_eq!(trace.total(Stage::Gc).count, 1);
        assert!(trace.total(Stage::Gc).time >= 1_000);
        assert_eq!(trace.totals().count(), 2);
        assert_eq!(trace.timeline.len(), 4);
        assert!(trace.timeline.iter().all(|event| event.end >= event.start));
        drop(cores::span(Stage::Gc));
        assert_eq!(trace::finish().totals().count(), 0, "nothing is recorded after the end");
    });
}

fn simulated() -> Machine {
    Machine::simulated(&Profile::named("xeon-4116").unwrap(), 1)
}
