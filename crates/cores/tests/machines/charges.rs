//! What pages of memory cost on the virtual machine, and that instruments cost nothing.

use std::sync::Arc;

use cores::{Condvar, Mutex, Residence, now, spawn};

use super::virtual_machine::{profile, run};

/// The time each of `movers` needs in turn to read, or to write, a page that `first` has written.
fn page_times(first: usize, movers: &[(usize, bool)]) -> Vec<u64> {
    run("e7-8870v2-120", 0, || {
        let page = Arc::new(Residence::new());
        let on = |core, changes| {
            let page = page.clone();
            let moved = move || {
                let start = now();
                if changes {
                    page.write(4096);
                } else {
                    page.read(4096);
                }
                now() - start
            };
            spawn("mover", Some(core), moved).join()
        };
        on(first, true);
        movers.iter().map(|&(core, changes)| on(core, changes)).collect()
    })
}

#[test]
fn a_page_is_cheap_for_whose_cache_has_it_and_dear_across_sockets() {
    let profile = profile("e7-8870v2-120");
    let (near, local, remote) = (
        profile.cache_time(4096),
        profile.core_memory_time(4096),
        profile.remote_memory_time(4096),
    );
    assert!(near < local && local < remote);
    let (reads, writes) = (false, true);
    let alone = page_times(0, &[(0, reads), (0, writes), (0, reads)]);
    assert_eq!(alone, [near; 3], "its own cache has it");
    let shared = page_times(0, &[(1, reads), (16, reads), (0, reads), (1, reads), (16, reads)]);
    assert_eq!(shared, [local, remote, near, near, near], "readers keep copies");
    let changed = page_times(0, &[(1, reads), (0, writes), (1, reads)]);
    assert_eq!(changed, [local, near, local], "a change takes the copies away");
}

#[test]
fn a_cache_holds_so_much_and_no_more() {
    let profile = profile("e7-8870v2-120");
    let fits = profile.cache_bytes() / 4096;
    for (count, time) in
        [(fits, profile.cache_time(4096)), (fits * 2, profile.core_memory_time(4096))]
    {
        run("e7-8870v2-120", 0, || {
            let pages: Vec<_> = (0..count).map(|_| Residence::new()).collect();
            pages.iter().for_each(|page| page.read(4096));
            let start = now();
            pages.iter().for_each(|page| page.read(4096));
            assert_eq!(now() - start, count * time, "{count} pages");
        });
    }
}

#[test]
fn an_instrument_costs_nothing_and_still_excludes() {
    let instrument = || Arc::new(Mutex::instrument("instrument", 0_u64));
    run("xeon-4116", 0, || {
        let seen = instrument();
        let counters = (0..12).map(|core| {
            let seen = seen.clone();
            let count = move || {
                let start = now();
                for _ in 0..1000 {
                    *seen.lock() += 1;
                }
                now() - start
            };
            spawn("counter", Some(core), count)
        });
        let counters: Vec<_> = counters.collect();
        counters.into_iter().for_each(|counter| assert_eq!(counter.join(), 0));
        assert_eq!(*seen.lock(), 12_000);
    });
    // Who waits with it for a condition goes on when it comes.
    run("xeon-4116", 0, || {
        let start = Arc::new((instrument(), Condvar::new()));
        let waiter = start.clone();
        let waiter = spawn("waiter", Some(1), move || {
            let mut word = waiter.0.lock();
            while *word == 0 {
                waiter.1.wait(&mut word);
            }
            now()
        });
        cores::sleep(1_000_000);
        *start.0.lock() = 1;
        let said = now();
        start.1.notify_all();
        assert_eq!((waiter.join(), said), (said, 1_000_000));
    });
    // A holder that lets time pass does keep others out.
    run("xeon-4116", 0, || {
        let seen = instrument();
        let other = seen.clone();
        let holder = spawn("holder", Some(1), move || {
            let mut held = other.lock();
            cores::spend(1_000_000);
            *held = now();
        });
        cores::sleep(500_000);
        assert!(*seen.lock() >= 1_000_000 && now() >= 1_000_000);
        holder.join();
    });
}
