//! How a lock changes hands on the virtual machine: a waiter spins or sleeps, and what the lock
//! protects moves, too.

use std::sync::Arc;

use cores::lockstat::{self, LockUse};
use cores::{Machine, Mutex, Profile, RwLock, now, spawn};

fn profile() -> Profile {
    Profile::named("xeon-4116").unwrap()
}

fn run<T>(seed: u64, f: impl FnOnce() -> T) -> T {
    Machine::simulated(&profile(), seed).run(f).unwrap()
}

/// Eight threads on cores of their own take a lock `times` times each and hold it as `hold` does;
/// how long that took in all, and what the lock profile says.
fn contend(times: usize, hold: fn()) -> (u64, LockUse) {
    run(1, || {
        let lock = Arc::new(Mutex::named("log", 0_u64));
        lockstat::start();
        let threads = (0..8).map(|core| {
            let lock = lock.clone();
            spawn("holder", Some(core), move || {
                for _ in 0..times {
                    let _held = lock.lock();
                    hold();
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().for_each(cores::JoinHandle::join);
        (now(), lockstat::finish()[0])
    })
}

#[test]
fn each_hand_over_moves_the_lock_and_its_data() {
    let (profile, times) = (profile(), 100);
    let (time, used) = contend(times, || cores::spend(1_000));
    assert_eq!(used.sleep, Some(0), "the holder is on its core");
    let line = profile.transfer(Some(0), 1);
    let least = 8 * times as u64 * (1_000 + profile.lock_lines() * line);
    // A little more for the lock's own line, which moves to each holder and each new waiter.
    assert!((least..least * 5 / 4).contains(&time), "{time} ns, at least {least}");
}

#[test]
fn a_lock_around_nothing_moves_alone() {
    let time_of = |lock: Mutex<()>| {
        run(1, || {
            drop(lock.lock());
            spawn("other", Some(1), move || {
                let start = now();
                drop(lock.lock());
                now() - start
            })
            .join()
        })
    };
    let profile = profile();
    let line = profile.transfer(Some(0), 1) + profile.transfer(Some(1), 1);
    assert_eq!(time_of(Mutex::named("bit", ())), line);
}

#[test]
fn who_waits_for_a_sleeper_sleeps_and_is_woken() {
    let profile = profile();
    let (time, used) = contend(4, || cores::sleep(20_000));
    // Every other time the one who lets go has it again before the sleeper is there.
    let woken = used.contended * (profile.wake_call() + profile.wake());
    assert!(used.contended > 10 && used.sleep.unwrap() > 5 * used.spin.unwrap(), "{used:?}");
    assert!(time > 32 * 20_000 + woken / 2, "{time} ns, {used:?}");
}

#[test]
fn a_thread_that_runs_passes_one_that_is_still_waking_up_but_not_twice() {
    let order = run(1, || {
        let lock = Arc::new(Mutex::new(Vec::new()));
        let held = lock.lock();
        let other = lock.clone();
        let sleeper = spawn("sleeper", Some(1), move || other.lock().push("sleeper"));
        cores::sleep(10_000);
        // It is woken now. Before it is there, others come.
        drop(held);
        let others = (2..6).map(|core| {
            let lock = lock.clone();
            spawn("other", Some(core), move || {
                let mut held = lock.lock();
                cores::spend(10_000);
                held.push("other");
            })
        });
        let others: Vec<_> = others.collect();
        others.into_iter().for_each(cores::JoinHandle::join);
        sleeper.join();
        lock.lock().clone()
    });
    let at = order.iter().position(|&who| who == "sleeper");
    assert_eq!((order.len(), at), (5, Some(1)), "{order:?}");
}

#[test]
fn a_thread_that_sleeps_gets_its_turn_though_others_always_spin() {
    let got = run(1, || {
        let lock = Arc::new(Mutex::new(None));
        let held = lock.lock();
        let other = lock.clone();
        let sleeper = spawn("sleeper", Some(1), move || {
            let mut got = other.lock();
            *got = Some(now());
        });
        cores::sleep(10_000);
        let others = (2..6).map(|core| {
            let lock = lock.clone();
            spawn("other", Some(core), move || {
                while now() < 20_000_000 {
                    let held = lock.lock();
                    cores::spend(1_000);
                    if held.is_some() {
                        break;
                    }
                }
            })
        });
        let others: Vec<_> = others.collect();
        // They come while the holder is on its core.
        cores::spend(50_000);
        drop(held);
        others.into_iter().for_each(cores::JoinHandle::join);
        sleeper.join();
        lock.lock().unwrap()
    });
    assert!((4_000_000..5_000_000).contains(&got), "{got} ns");
}

#[test]
fn sleeping_readers_wake_together() {
    let (start, ends) = run(1, || {
        let lock = Arc::new(RwLock::new(()));
        let held = lock.write();
        let readers = (1..9).map(|core| {
            let lock = lock.clone();
            spawn("reader", Some(core), move || {
                let _held = lock.read();
                cores::sleep(100_000);
                now()
            })
        });
        let readers: Vec<_> = readers.collect();
        cores::sleep(10_000);
        let start = now();
        drop(held);
        (start, readers.into_iter().map(cores::JoinHandle::join).collect::<Vec<_>>())
    });
    assert!(ends.iter().all(|&end| end < start + 150_000), "{start}: {ends:?}");
}

/// A writer among readers that come again and again, on every seed of many.
#[test]
fn nobody_waits_for_ever() {
    for seed in 0..50 {
        run(seed, || {
            let lock = Arc::new(RwLock::new(0));
            let threads = (0..12).map(|core| {
                let lock = lock.clone();
                spawn("one", Some(core), move || {
                    for i in 0..50 {
                        if (core + i) % 4 == 0 {
                            *lock.write() += 1;
                        } else {
                            let held = lock.read();
                            if i % 7 == 0 {
                                cores::sleep(1_000);
                            } else {
                                cores::spend(500);
                            }
                            drop(held);
                        }
                    }
                })
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().for_each(cores::JoinHandle::join);
            assert_eq!(*lock.read(), 150);
        });
    }
}
