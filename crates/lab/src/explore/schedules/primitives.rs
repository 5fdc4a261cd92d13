//! Scenarios over what file systems are built from, and two that are broken on purpose.

use std::sync::Arc;

use cores::{Line, Mutex, PerCoreRwLock};
use vfs::Gate;
use vfs::inode::Turns;

use super::{Check, Stage, Structure, must, together};

/// How often each thread does its part.
const TIMES: u64 = 8;

type Threads = Vec<Box<dyn FnOnce() -> Check + Send>>;

/// A pair that only a torn or unlocked access finds unequal.
struct Pair {
    one: Line,
    other: Line,
}

impl Pair {
    fn new() -> Self {
        Self { one: Line::new(0), other: Line::new(0) }
    }

    fn change(&self) {
        self.one.store(self.one.load() + 1);
        self.other.store(self.other.load() + 1);
    }

    fn check(&self) -> Check {
        let (one, other) = (self.one.load(), self.other.load());
        must(one == other, || format!("a reader saw {one} and {other}"))
    }
}

pub(super) const PERCORE: Structure = Structure {
    name: "percore",
    about: "readers that count themselves on their cores never meet a writer",
    injected: false,
    zoned: false,
    run: |_| {
        let lock = Arc::new(PerCoreRwLock::named("pair", Pair::new()));
        let mut threads: Threads = Vec::new();
        for core in 0..4 {
            let lock = lock.clone();
            threads.push(Box::new(move || {
                for turn in 0..TIMES {
                    if core == 0 || core == 1 && turn % 4 == 0 {
                        lock.write().change();
                    } else {
                        lock.read().check()?;
                    }
                }
                Ok(())
            }));
        }
        together(threads)?;
        let changes = lock.read().one.load();
        must(changes == TIMES + TIMES / 4, || format!("{changes} changes are left"))
    },
};

pub(super) const GATE: Structure = Structure {
    name: "gate",
    about: "nothing changes during a commit, and all can look meanwhile",
    injected: false,
    zoned: false,
    run: |_| {
        let gate = Arc::new(Gate::new("scenario", Pair::new()));
        let mut threads: Threads = Vec::new();
        let (changer, looker, committer) = (gate.clone(), gate.clone(), gate.clone());
        threads.push(Box::new(move || {
            (0..TIMES).for_each(|_| changer.settled().change());
            Ok(())
        }));
        threads.push(Box::new(move || (0..TIMES).try_for_each(|_| looker.look().check())));
        threads.push(Box::new(move || {
            for _ in 0..TIMES / 2 {
                let hold = committer.settled();
                let before = hold.one.load();
                let (_hold, same) = committer.commit(hold, || {
                    cores::sleep(1_000);
                    committer.look().one.load() == before
                });
                must(same, || "something changed during a commit".to_owned())?;
            }
            Ok(())
        }));
        together(threads)?;
        let changes = gate.look().one.load();
        must(changes == TIMES, || format!("{changes} of {TIMES} changes are left"))
    },
};

pub(super) const TURNS: Structure = Structure {
    name: "turns",
    about: "one turn of an inode at a time, and it is freed once, after the last",
    injected: false,
    zoned: false,
    run: |_| {
        let turns = Arc::new((Turns::new("scenario"), Line::new(0), Line::new(0)));
        let mut threads: Threads = Vec::new();
        for core in 0..3 {
            let turns = turns.clone();
            threads.push(Box::new(move || {
                let (turns, busy, freed) = &*turns;
                for turn in 0..TIMES {
                    turns.begin(7);
                    must(busy.fetch_add(1) == 0, || "two turns at once".to_owned())?;
                    if core == 0 && turn == TIMES / 2 {
                        must(turns.will_free(7), || "a turn was not under way".to_owned())?;
                    }
                    busy.store(0);
                    freed.fetch_add(u64::from(turns.end(7)));
                }
                Ok(())
            }));
        }
        together(threads)?;
        let freed = turns.2.load();
        must(freed == 1, || format!("the inode was freed {freed} times"))
    },
};

pub(super) const RACE: Structure = Structure {
    name: "race",
    about: "broken on purpose: two threads count without a lock",
    injected: true,
    zoned: false,
    run: |_| {
        let count = Arc::new(Line::new(0));
        let mut threads: Threads = Vec::new();
        for _ in 0..2 {
            let count = count.clone();
            threads.push(Box::new(move || {
                (0..2).for_each(|_| count.store(count.load() + 1));
                Ok(())
            }));
        }
        together(threads)?;
        must(count.load() == 4, || format!("{} of 4 counted", count.load()))
    },
};

pub(super) const INVERTED: Structure = Structure {
    name: "inverted",
    about: "broken on purpose: two threads take two locks in opposite orders",
    injected: true,
    zoned: false,
    run: |_: &Arc<Stage>| {
        let locks = Arc::new([Mutex::named("first", ()), Mutex::named("second", ())]);
        let mut threads: Threads = Vec::new();
        for thread in 0..2 {
            let locks = locks.clone();
            threads.push(Box::new(move || {
                let _outer = locks[thread].lock();
                let _inner = locks[1 - thread].lock();
                Ok(())
            }));
        }
        together(threads)
    },
};
