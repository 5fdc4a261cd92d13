//! Turns: only one fsync or write-back of a file at a time, and the file is not freed during one.
//!
//! Two at once could each take the other's writes for completed ones. An inode that loses its last
//! name during a turn is freed when no thread waits for a turn of it any more.
//!
//! Turns are granted in the order of the requests. So a long write-back, which takes many turns,
//! delays another thread by one turn only.

use cores::{Condvar, Mutex, Rank};
use rustc_hash::FxHashMap;

use super::shards::shard_of;
use crate::Ino;

const SHARDS: u64 = 64;

/// The inodes that have a turn under way.
pub struct Turns(Box<[Shard]>);

/// The inodes that share a lock.
struct Shard {
    /// For each inode, its turn and the waiters. Locked alone, or within the volume's lock.
    busy: Mutex<FxHashMap<Ino, Line>>,
    ended: Condvar,
}

/// The requests for a turn of one inode, numbered like tickets.
#[derive(Default)]
struct Line {
    /// The number that has it.
    now: u64,
    /// The next number to give out.
    next: u64,
    /// Whether the last one has to free the inode.
    to_be_freed: bool,
}

impl Turns {
    /// No turns yet. `name` is the lock's name in reports.
    pub fn new(name: &'static str) -> Self {
        let busy = |key| Mutex::ranked(Rank::Turns, name, FxHashMap::default()).keyed(key);
        Self((0..SHARDS).map(|key| Shard { busy: busy(key), ended: Condvar::new() }).collect())
    }

    fn of(&self, ino: Ino) -> &Shard {
        &self.0[shard_of(ino, self.0.len())]
    }

    /// Waits until all earlier turns of `ino` have ended, and begins one.
    pub fn begin(&self, ino: Ino) {
        let Shard { busy, ended } = self.of(ino);
        let mut busy = busy.lock();
        let line = busy.entry(ino).or_default();
        let me = line.next;
        line.next += 1;
        while busy.get(&ino).is_some_and(|line| line.now != me) {
            ended.wait(&mut busy);
        }
    }

    /// Begins a turn of `ino` if none is under way; false if one is.
    pub fn try_begin(&self, ino: Ino) -> bool {
        let mut busy = self.of(ino).busy.lock();
        let is_free = !busy.contains_key(&ino);
        if is_free {
            busy.entry(ino).or_default().next += 1;
        }
        is_free
    }

    /// Ends a turn. True if the caller must free the inode now.
    pub fn end(&self, ino: Ino) -> bool {
        let Shard { busy, ended } = self.of(ino);
        let mut busy = busy.lock();
        let Some(line) = busy.get_mut(&ino) else { return false };
        line.now += 1;
        let is_last = line.now == line.next;
        let to_be_freed = is_last && line.to_be_freed;
        if is_last {
            busy.remove(&ino);
        }
        drop(busy);
        ended.notify_all();
        to_be_freed
    }

    /// Whether a turn of `ino` is under way.
    pub fn is_under_way(&self, ino: Ino) -> bool {
        self.of(ino).busy.lock().contains_key(&ino)
    }

    /// If a turn of `ino` is under way, leaves it to the end of the last one to free the inode.
    pub fn will_free(&self, ino: Ino) -> bool {
        match self.of(ino).busy.lock().get_mut(&ino) {
            Some(line) => {
                line.to_be_freed = true;
                true
            }
            None => false,
        }
    }
}

/// A volume whose inodes have turns.
pub trait HasTurns {
    /// Its turns.
    fn turns(&self) -> &Turns;

    /// Frees an inode that lost its last name during a turn; that turn has ended.
    fn end_of_last_turn(&self, ino: Ino);
}

/// One turn of one inode: the right to write its data and wait for it. Dropping it ends the turn.
pub struct Turn<'a, V: HasTurns> {
    volume: &'a V,
    ino: Ino,
}

impl<'a, V: HasTurns> Turn<'a, V> {
    /// Waits for a turn of `ino`, and begins it.
    pub fn take(volume: &'a V, ino: Ino) -> Self {
        volume.turns().begin(ino);
        Self::without_waiting(volume, ino)
    }

    /// Begins a turn of `ino`, unless another one is under way.
    pub fn try_take(volume: &'a V, ino: Ino) -> Option<Self> {
        volume.turns().try_begin(ino).then(|| Self::without_waiting(volume, ino))
    }

    /// A turn that does not exclude others: a deliberate fault, for campaigns that must notice.
    pub fn without_waiting(volume: &'a V, ino: Ino) -> Self {
        Self { volume, ino }
    }
}

impl<V: HasTurns> Drop for Turn<'_, V> {
    fn drop(&mut self) {
        if self.volume.turns().end(self.ino) {
            self.volume.end_of_last_turn(self.ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cores::{Machine, Profile};

    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn who_takes_many_turns_lets_others_in_between() {
        let profile = Profile::named("xeon-4116").unwrap();
        let test = || {
            let turns = Arc::new(Turns::new("test"));
            let many = turns.clone();
            let writer = cores::spawn("many", Some(1), move || {
                for _ in 0..100 {
                    many.begin(1);
                    cores::sleep(MS);
                    many.end(1);
                }
            });
            cores::sleep(MS / 2);
            let begun = cores::now();
            turns.begin(1);
            assert!(cores::now() - begun < 2 * MS);
            assert!(turns.will_free(1));
            assert!(!turns.end(1), "the other has one to come");
            writer.join();
            assert!(!turns.will_free(1));
        };
        for seed in 0..20 {
            Machine::simulated(&profile, seed).run(test).unwrap();
        }
    }
}
