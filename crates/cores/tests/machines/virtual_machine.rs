//! What holds on the virtual machine only: determinism, costs, deadlocks, the machine's end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cores::{
    Condvar, JoinHandle, Line, Machine, MachineError, Mutex, Profile, RwLock, Semaphore, Stage,
    now, spawn, trace,
};

pub(crate) fn profile(name: &str) -> Profile {
    Profile::named(name).unwrap()
}

pub(crate) fn run<T>(name: &str, seed: u64, f: impl FnOnce() -> T) -> T {
    Machine::simulated(&profile(name), seed).run(f).unwrap()
}

fn join_all(threads: Vec<JoinHandle<()>>) {
    threads.into_iter().for_each(JoinHandle::join);
}

/// Who got the lock when, in a run full of ties.
fn interleaving(seed: u64) -> Vec<(usize, u64)> {
    run("e7-8870v2-120", seed, || {
        let log = Arc::new(Mutex::new(Vec::new()));
        let work = |i: usize, log: Arc<Mutex<Vec<(usize, u64)>>>| {
            move || {
                for step in 0..20 {
                    cores::spend(100);
                    log.lock().push((i, now()));
                    if (i + step).is_multiple_of(5) {
                        cores::sleep(1_000);
                    }
                }
            }
        };
        let threads = (0..150).map(|i| spawn("w", Some(i), work(i, log.clone()))).collect();
        join_all(threads);
        log.lock().clone()
    })
}

#[test]
fn the_seed_decides_the_interleaving() {
    let first = interleaving(7);
    assert_eq!(first.len(), 3000);
    assert_eq!(first, interleaving(7));
    assert_ne!(first, interleaving(8));
}

#[test]
fn threads_run_in_the_order_of_their_clocks() {
    for seed in 0..20 {
        let order = run("gold-6138-80", seed, || {
            let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
            let work = |i: u64, order: Arc<parking_lot::Mutex<Vec<u64>>>| {
                move || {
                    for _ in 0..10 {
                        cores::spend(37 * (i + 1));
                        order.lock().push(now());
                    }
                }
            };
            let threads =
                (0..80).map(|i| spawn("w", Some(i), work(i as u64, order.clone()))).collect();
            join_all(threads);
            order.lock().clone()
        });
        assert_eq!(order.len(), 800);
        assert!(order.is_sorted(), "seed {seed}: time ran backwards");
    }
}

#[test]
fn a_mutex_serves_in_order_of_arrival() {
    run("e7-8890v4-192", 3, || {
        let order = Arc::new(Mutex::new(Vec::new()));
        let guard = order.lock();
        let work = |i: usize, order: Arc<Mutex<Vec<usize>>>| {
            move || {
                cores::sleep_until(1_000_000 + 10_000 * i as u64);
                order.lock().push(i);
            }
        };
        let threads: Vec<_> =
            (0..100).map(|i| spawn("w", Some(i + 1), work(i, order.clone()))).collect();
        cores::sleep_until(10_000_000);
        drop(guard);
        join_all(threads);
        assert!(order.lock().iter().copied().eq(0..100));
    });
}

/// Time in which `cores` threads, spread over the machine, do one step of `work` each 1000 times.
fn time_of(cores: usize, work: impl Fn() + Clone + Send + 'static) -> u64 {
    run("e7-8870v2-120", 1, move || {
        let start = now();
        let body = move |work: &dyn Fn()| (0..1000).for_each(|_| work());
        let threads = (0..cores)
            .map(|i| {
                let work = work.clone();
                spawn("w", Some(i), move || body(&work))
            })
            .collect();
        join_all(threads);
        now() - start
    })
}

#[test]
fn readers_of_one_rwlock_slow_each_other_and_private_work_does_not() {
    let lock = Arc::new(RwLock::new(0));
    let shared = move || {
        let _value = lock.read();
        cores::spend(200);
    };
    let (one, many) = (time_of(1, shared.clone()), time_of(60, shared));
    assert!(many > 5 * one, "60 readers of a line took {many} ns, one {one} ns");
    let private = || cores::spend(200);
    let (one, many) = (time_of(1, private), time_of(60, private));
    assert!(many < one + one / 20, "60 cores by themselves took {many} ns, one {one} ns");
}

#[test]
fn readers_overlap_while_they_hold_the_lock() {
    let lock = Arc::new(RwLock::new(0));
    let long = move || {
        let _value = lock.read();
        cores::spend(100_000);
    };
    let (one, many) = (time_of(1, long.clone()), time_of(10, long));
    assert!(many < one + one / 10, "10 readers took {many} ns, one {one} ns");
}

/// Two cores take turns in changing a line: the time per turn.
fn ping_pong(other: usize) -> u64 {
    run("e7-8870v2-120", 5, move || {
        const TURNS: u64 = 1000;
        let line = Arc::new(Line::new(0));
        let play = |mine: u64, line: Arc<Line>| {
            move || {
                cores::sleep_until(10_000);
                for turn in 0..TURNS {
                    while line.compare_exchange(2 * turn + mine, 2 * turn + mine + 1).is_err() {}
                }
            }
        };
        let there = spawn("pong", Some(other), play(1, line.clone()));
        play(0, line.clone())();
        there.join();
        (now() - 10_000) / (2 * TURNS)
    })
}

#[test]
fn a_line_costs_its_transfer() {
    let profile = profile("e7-8870v2-120");
    let near = ping_pong(1);
    let far = ping_pong(119);
    for (turn, cost) in
        [(near, profile.transfer(Some(0), 1)), (far, profile.transfer(Some(0), 119))]
    {
        // At best every access is a turn; at worst every turn is preceded by one that fails.
        assert!((cost..=2 * cost + 1).contains(&turn), "{turn} ns a turn, {cost} ns a transfer");
    }
    run("e7-8870v2-120", 0, move || {
        let (line, start) = (Line::new(0), now());
        (0..100).for_each(|_| line.store(1));
        assert_eq!(now() - start, 100 * profile.transfer(Some(0), 0));
    });
}

#[test]
fn a_copy_is_read_without_a_transfer() {
    run("e7-8870v2-120", 0, || {
        let line = Arc::new(Line::new(0));
        line.store(1);
        let other = line.clone();
        let times = spawn("reader", Some(119), move || {
            let start = now();
            let values = (other.load(), other.load());
            assert_eq!(values, (1, 1));
            now() - start
        });
        let profile = profile("e7-8870v2-120");
        assert_eq!(times.join(), profile.transfer(Some(0), 119) + profile.transfer(Some(0), 0));
    });
}

#[test]
fn a_socket_shares_its_memory() {
    let copy = || cores::memory(4096);
    let (one, socket, two) = (time_of(1, copy), time_of(15, copy), time_of(30, copy));
    let profile = profile("e7-8870v2-120");
    let least = 15_000 * profile.socket_memory_time(4096);
    assert!(socket >= least && socket > one + one / 2, "{one} ns alone, {socket} ns shared");
    assert!(two < socket + socket / 10, "another socket has memory of its own: {two} {socket}");
}

#[test]
fn spans_charge_the_profile_and_virtual_time_is_exact() {
    run("xeon-4116", 0, || {
        let profile = profile("xeon-4116");
        trace::start();
        let start = now();
        for stage in [Stage::FsyncPrepare, Stage::MapBlock, Stage::AllocBlock, Stage::QueueDispatch]
        {
            drop(cores::span(stage));
        }
        assert_eq!(now() - start, 10_400, "Table 3.1: prepare and dispatch of data");
        let start = now();
        for stage in [Stage::FsyncNode, Stage::AllocBlock, Stage::NodeUpdate, Stage::QueueDispatch]
        {
            drop(cores::span(stage));
        }
        assert_eq!(now() - start, 16_160, "Table 3.1: prepare and dispatch of the node");
        let trace = trace::finish();
        assert_eq!(trace.total(Stage::AllocBlock).time, 2 * profile.cost(Stage::AllocBlock));
        cores::sleep_until(1_000_000);
        assert_eq!(now(), 1_000_000);
        assert_eq!(cores::wall_clock().as_nanos(), 1_767_225_600_001_000_000);
    });
}

#[test]
fn threads_of_one_core_take_turns() {
    run("uniform-1", 0, || {
        let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let work = |i: usize, order: Arc<parking_lot::Mutex<Vec<usize>>>| {
            move || {
                for _ in 0..3 {
                    order.lock().push(i);
                    cores::yield_now();
                }
            }
        };
        join_all((0..3).map(|i| spawn("w", None, work(i, order.clone()))).collect());
        assert_eq!(*order.lock(), [0, 1, 2, 0, 1, 2, 0, 1, 2]);
    });
}

#[test]
fn a_busy_thread_shares_its_core_by_time_slices() {
    let late = run("uniform-1", 0, || {
        let busy = spawn("busy", None, || (0..1000).for_each(|_| cores::spend(1_000_000)));
        let late = spawn("late", None, now).join();
        busy.join();
        late
    });
    assert!(late < 10_000_000, "the second thread waited {late} ns for a core");
}

fn deadlock(f: impl FnOnce()) -> cores::DeadlockReport {
    match Machine::simulated(&profile("xeon-4116"), 0).run(f) {
        Err(MachineError::Deadlock(report)) => report,
        other => panic!("no deadlock but {other:?}"),
    }
}

#[test]
fn a_deadlock_names_who_waits_for_what_and_who_has_it() {
    let report = deadlock(|| {
        let locks = Arc::new((Mutex::named("nat", 1_u32), RwLock::named("sit", 2_u64)));
        let other = locks.clone();
        let thread = spawn("flusher", Some(3), move || {
            let _sit = other.1.write();
            cores::sleep(1_000);
            let _nat = other.0.lock();
        });
        let _nat = locks.0.lock();
        cores::sleep(1_000);
        let _sit = locks.1.read();
        thread.join();
    });
    let line = |i: usize| {
        let thread = &report.blocked[i];
        (thread.thread.as_str(), thread.core, thread.waits_for.as_str(), thread.held_by.clone())
    };
    assert_eq!(report.blocked.len(), 2);
    assert_eq!(line(0), ("main", 0, "rwlock (to read) \"sit\"", vec!["flusher".to_owned()]));
    assert_eq!(line(1), ("flusher", 3, "mutex \"nat\"", vec!["main".to_owned()]));
    let text = report.to_string();
    assert!(text.contains("\"flusher\" on core 3 waits for mutex \"nat\" held by main"), "{text}");
}

#[test]
fn a_deadlock_tells_conditions_permits_joins_and_unnamed_locks() {
    let report = deadlock(|| {
        let condition = spawn("condition", None, || {
            Condvar::new().wait(&mut Mutex::new(()).lock());
        });
        let _permits = spawn("permits", None, || Semaphore::new(1).acquire(2));
        let _unnamed = spawn("unnamed", None, || {
            let mutex = Mutex::new(String::new());
            let _first = mutex.lock();
            let _second = mutex.lock();
        });
        condition.join();
    });
    let waits: Vec<_> = report.blocked.iter().map(|thread| thread.waits_for.as_str()).collect();
    assert_eq!(
        waits,
        [
            "the end of thread \"condition\"",
            "a condition",
            "2 semaphore permits",
            "mutex of alloc::string::String"
        ]
    );
    assert_eq!(report.blocked[3].held_by, ["unnamed"]);
}

/// Counts how many of its kind were dropped.
struct Drops(Arc<AtomicUsize>);

impl Drop for Drops {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn the_end_of_the_first_thread_unwinds_the_others() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let owned = || Drops(dropped.clone());
    run("xeon-4116", 0, || {
        let mutex = Arc::new(Mutex::new(()));
        let (one, two, three, four, five) = (owned(), owned(), owned(), owned(), owned());
        let (a, b) = (mutex.clone(), mutex.clone());
        spawn("holder", None, move || {
            let (_one, _guard) = (one, a.lock());
            cores::sleep(u64::MAX);
        });
        spawn("waiter", None, move || {
            let _two = two;
            cores::sleep(10);
            let _guard = b.lock();
        });
        spawn("periodic", None, move || {
            let _three = three;
            loop {
                cores::sleep(100);
            }
        });
        spawn("spinner", None, move || {
            let _four = four;
            loop {
                cores::spend(100);
            }
        });
        cores::sleep(5_000);
        spawn("unborn", None, move || drop(five));
    });
    assert_eq!(dropped.load(Relaxed), 5);
}

#[test]
fn a_deadlocked_machine_drops_what_its_threads_own_even_by_joining() {
    struct Service {
        stop: Arc<(Mutex<bool>, Condvar)>,
        worker: Option<JoinHandle<()>>,
        _drops: Drops,
    }
    impl Drop for Service {
        fn drop(&mut self) {
            *self.stop.0.lock() = true;
            self.stop.1.notify_all();
            self.worker.take().unwrap().join();
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let report = deadlock(|| {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let other = (stop.clone(), Drops(dropped.clone()));
        let worker = spawn("worker", None, move || {
            let mut stopped = other.0.0.lock();
            while !*stopped {
                other.0.1.wait(&mut stopped);
            }
        });
        let _service = Service { stop, worker: Some(worker), _drops: Drops(dropped.clone()) };
        Semaphore::new(0).acquire(1);
    });
    assert_eq!(report.blocked.len(), 2);
    assert_eq!(dropped.load(Relaxed), 2);
}

#[test]
fn locks_outlive_machines_and_machines_nest() {
    let mutex = Arc::new(Mutex::new(0));
    for seed in 0..3 {
        let inner = mutex.clone();
        run("xeon-4116", seed, || {
            let other = inner.clone();
            spawn("holder", None, move || {
                let _guard = other.lock();
                cores::sleep(u64::MAX);
            });
            cores::spend(100);
        });
        *mutex.lock() += 1;
    }
    run("xeon-4116", 0, || {
        let before = now();
        run("uniform-1", 0, || cores::spend(5_000));
        Machine::real().run(|| assert!(cores::now() > 0)).unwrap();
        assert_eq!(now(), before, "another machine has another clock");
        assert_eq!(*mutex.lock(), 3);
    });
}

#[test]
fn machines_run_side_by_side_on_os_threads() {
    let expected = interleaving(11);
    let shards: Vec<_> = (0..4).map(|_| std::thread::spawn(|| interleaving(11))).collect();
    assert!(shards.into_iter().all(|shard| shard.join().unwrap() == expected));
}

#[test]
fn a_lock_shared_by_machines_on_os_threads_still_excludes() {
    let mutex = Arc::new(Mutex::new(0_u64));
    let shards: Vec<_> = (0..2)
        .map(|seed| {
            let mutex = mutex.clone();
            std::thread::spawn(move || {
                run("uniform-1", seed, || (0..100_000).for_each(|_| *mutex.lock() += 1));
            })
        })
        .collect();
    shards.into_iter().for_each(|shard| shard.join().unwrap());
    assert_eq!(*mutex.lock(), 200_000);
}

#[test]
fn thousands_of_machines_and_threads_come_and_go() {
    for seed in 0..2_000 {
        run("uniform-1", seed, || spawn("w", None, || cores::sleep(5)).join());
    }
    run("e7-8890v4-192", 0, || {
        for _ in 0..20_000 {
            spawn("w", None, || cores::spend(5)).join();
        }
    });
}
