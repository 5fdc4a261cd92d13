//! The lock profile, on both machines.

use std::sync::Arc;

use cores::{Condvar, LockUse, Machine, Mutex, Profile, RwLock, lockstat, spawn};

fn machines() -> [Machine; 2] {
    let profile = Profile::named("xeon-4116").unwrap();
    [Machine::real(), Machine::simulated(&profile, 1)]
}

/// What was counted under `name`.
fn row(rows: &[LockUse], name: &str, kind: &str) -> LockUse {
    let found = rows.iter().find(|row| row.name == name && row.kind == kind);
    *found.unwrap_or_else(|| panic!("no {kind} {name:?} in {rows:?}"))
}

#[test]
fn each_hold_counts_under_its_locks_name() {
    for machine in machines() {
        let body = || {
            let locks = Arc::new((Mutex::named("nat", 0), RwLock::named("sit", 0), Mutex::new(0)));
            drop(locks.0.lock());
            lockstat::start();
            let threads = (0..4).map(|core| {
                let locks = locks.clone();
                spawn("counter", Some(core), move || {
                    for _ in 0..50 {
                        *locks.0.lock() += 1;
                        drop(locks.1.read());
                    }
                    *locks.1.write() += 1;
                    *locks.2.try_lock().unwrap() += 1;
                })
            });
            // One after the other, so that `try_lock` finds its lock free.
            threads.for_each(cores::JoinHandle::join);
            let rows = lockstat::finish();
            drop(locks.0.lock());
            (rows, lockstat::finish())
        };
        let (rows, afterwards) = machine.run(body).unwrap();
        assert_eq!(afterwards, [], "nothing is counted after the end");
        assert_eq!(row(&rows, "nat", "mutex").taken, 200);
        assert_eq!(row(&rows, "sit", "rwlock (to read)").taken, 200);
        assert_eq!(row(&rows, "sit", "rwlock (to write)").taken, 4);
        assert_eq!(row(&rows, "i32", "mutex").taken, 4, "a lock without a name, by its type");
        let virtual_only = row(&rows, "nat", "mutex").spin.is_some();
        assert_eq!(virtual_only, machine.is_simulated());
    }
}

/// Eight cores of a virtual machine take one lock in turn; the profile, and when they were done.
fn queue_up(profiled: bool) -> (Vec<LockUse>, u64) {
    let profile = Profile::named("xeon-4116").unwrap();
    let body = || {
        let lock = Arc::new(Mutex::named("log", ()));
        if profiled {
            lockstat::start();
        }
        let one = |core| {
            let lock = lock.clone();
            spawn("writer", Some(core), move || {
                let guard = lock.lock();
                cores::spend(10_000);
                drop(guard);
            })
        };
        let threads: Vec<_> = (0..8).map(one).collect();
        threads.into_iter().for_each(cores::JoinHandle::join);
        (lockstat::finish(), cores::now())
    };
    Machine::simulated(&profile, 1).run(body).unwrap()
}

#[test]
fn waits_and_holds_are_what_they_were() {
    let (rows, _) = queue_up(true);
    let log = row(&rows, "log", "mutex");
    assert_eq!((log.taken, log.contended), (8, 7));
    assert!(log.hold >= 80_000 && log.hold_max >= 10_000, "{log:?}");
    // The last of them waits for the seven before it, and all together for 1 + 2 + … + 7 holds,
    // less the time until they come and more that of the lock's line.
    assert!((65_000..75_000).contains(&log.wait_max), "{log:?}");
    assert!((270_000..290_000).contains(&log.wait), "{log:?}");
    // The holders stay on their cores, so waiters spin.
    assert_eq!(log.sleep, Some(0));
    assert!(log.spin.is_some_and(|spin| spin > log.wait && spin < log.wait + log.hold), "{log:?}");
}

#[test]
fn a_profile_costs_no_virtual_time() {
    let ((rows, profiled), (none, plain)) = (queue_up(true), queue_up(false));
    assert_eq!(profiled, plain);
    assert_eq!((rows.len(), none.len()), (1, 0));
}

#[test]
fn a_thread_waiting_for_a_condition_does_not_hold_the_lock() {
    for machine in machines() {
        let body = || {
            let (lock, never) = (Mutex::named("state", ()), Condvar::new());
            lockstat::start();
            let mut guard = lock.lock();
            assert!(never.wait_until(&mut guard, cores::now() + 5_000_000));
            drop(guard);
            lockstat::finish()
        };
        let rows = machine.run(body).unwrap();
        assert_eq!(row(&rows, "state", "mutex").taken, 2, "before the wait and after it");
    }
}

#[test]
fn a_real_profile_is_of_one_family_of_threads() {
    let lock = Arc::new(Mutex::named("family", 0));
    lockstat::start();
    *lock.lock() += 1;
    let stranger = lock.clone();
    std::thread::spawn(move || *stranger.lock() += 1).join().unwrap();
    let child = lock.clone();
    spawn("child", None, move || *child.lock() += 1).join();
    assert_eq!(row(&lockstat::finish(), "family", "mutex").taken, 2);
    assert_eq!(*lock.lock(), 3);
}
