//! Breaches of the order of locks are found, on either machine and with nobody to get stuck.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cores::{Condvar, Mutex, PerCoreRwLock, Rank, RwLock, Semaphore, spawn};

use super::both_machines::on_both;

/// What `breach` panics with.
fn panic_of(breach: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(breach)).expect_err("nobody noticed");
    *panic.downcast::<String>().expect("a message")
}

fn is_found(breach: impl FnOnce(), words: &[&str]) {
    let message = panic_of(breach);
    assert!(words.iter().all(|word| message.contains(word)), "{message}");
}

#[test]
fn an_inverted_order_is_found_and_both_places_are_told() {
    on_both(|| {
        let inode = Mutex::ranked(Rank::Inode, "inode", ());
        let log = Mutex::ranked(Rank::Log, "log", ());
        drop((inode.lock(), log.lock()));
        let held = log.lock();
        let (holds, takes) = (line!() - 1, line!() + 1);
        let message = panic_of(|| drop(inode.lock()));
        let place = |line| format!("lock_order.rs:{line}:");
        for word in ["\"inode\"", "\"log\"", &place(holds), &place(takes)] {
            assert!(message.contains(word), "{word}: {message}");
        }
        drop(held);
        drop((inode.lock(), log.lock()));
    });
}

#[test]
fn every_kind_of_lock_has_its_place() {
    on_both(|| {
        let gate = PerCoreRwLock::ranked(Rank::Gate, "gate", ());
        let node = RwLock::ranked(Rank::Node, "node", ());
        drop((gate.read(), node.read()));
        drop((gate.write(), node.write()));
        let held = node.read();
        is_found(|| drop(gate.read()), &["gate", "node"]);
        is_found(|| drop(gate.write()), &["gate", "node"]);
        is_found(|| drop(node.read()), &["\"node\""]);
        drop(held);
        let _held = gate.read();
        is_found(|| drop(gate.read()), &["\"gate\""]);
    });
}

#[test]
fn locks_of_one_rank_are_taken_by_ascending_keys() {
    on_both(|| {
        let shard = |key| Mutex::ranked(Rank::Nat, "shard", ()).keyed(key);
        let (low, high, same) = (shard(3), shard(7), shard(7));
        let held = (low.lock(), high.lock());
        is_found(|| drop(same.lock()), &["Nat 7"]);
        drop(held);
        let _held = high.lock();
        is_found(|| drop(low.lock()), &["Nat 3", "Nat 7"]);
    });
}

#[test]
fn who_does_not_wait_may_go_against_the_order_but_is_held_to_it_afterwards() {
    on_both(|| {
        let gate = Mutex::ranked(Rank::Gate, "gate", ());
        let inode = Mutex::ranked(Rank::Inode, "inode", ());
        let held = inode.lock();
        let other = gate.try_lock().expect("it is free");
        drop(held);
        let rename = Mutex::ranked(Rank::Rename, "rename", ());
        is_found(|| drop(rename.lock()), &["rename", "gate"]);
        drop((inode.lock(), other));
        drop(rename.lock());
    });
}

#[test]
fn sleeping_under_a_short_lock_is_found() {
    on_both(|| {
        let log = Mutex::ranked(Rank::Log, "log", ());
        let other = Mutex::new(());
        let (condition, permits) = (Condvar::new(), Semaphore::new(1));
        let thread = spawn("short", None, || ());
        let held = log.lock();
        let found = |sleep: &mut dyn FnMut()| is_found(sleep, &["sleeps", "log"]);
        found(&mut || cores::sleep(1));
        found(&mut || permits.acquire(1));
        found(&mut || cores::may_sleep());
        found(&mut || _ = condition.wait_until(&mut other.lock(), 1));
        let mut thread = Some(thread);
        found(&mut || thread.take().unwrap().join());
        drop(held);
        // Its own condition is what it lets go of.
        condition.wait_until(&mut log.lock(), 1);
        let gate = Mutex::ranked(Rank::Gate, "gate", ());
        let _held = gate.lock();
        cores::sleep(1);
    });
}

#[test]
fn a_condition_under_an_inner_lock_is_found() {
    on_both(|| {
        let gate = Mutex::ranked(Rank::Gate, "gate", ());
        let inode = Mutex::ranked(Rank::Inode, "inode", ());
        let mut held = gate.lock();
        let inner = inode.lock();
        let condition = Condvar::new();
        is_found(|| _ = condition.wait_until(&mut held, 1), &["sleeps", "inode"]);
        drop(inner);
        condition.wait_until(&mut held, 1);
        drop(inode.lock());
    });
}

/// Virtual threads share an OS thread, and each has its own locks all the same.
#[test]
fn what_one_thread_holds_does_not_concern_another() {
    on_both(|| {
        let gate = Arc::new(Mutex::ranked(Rank::Gate, "gate", ()));
        let inode = Mutex::ranked(Rank::Inode, "inode", ());
        let held = inode.lock();
        let other = gate.clone();
        spawn("other", Some(1), move || drop(other.lock())).join();
        drop(held);
        drop(gate.lock());
    });
}
