//! What was read and does not change, by number, in shards with a lock each. Neighbouring numbers
//! are in different shards.

use cores::{Mutex, Rank};
use rustc_hash::FxHashMap;

/// As many as can be in use at a time, and some more.
const SHARDS: u64 = 256;

/// Blocks or inodes in memory.
pub(super) struct Kept<T> {
    /// Nothing is read from the drive under one of the locks.
    shards: Box<[Mutex<FxHashMap<u64, T>>]>,
    /// How many a shard has at most. A full one is emptied, which costs a few reads again.
    each: usize,
}

impl<T: Clone> Kept<T> {
    /// Room for `bytes`, where each takes `size`.
    pub(super) fn new(rank: Rank, name: &'static str, bytes: u64, size: u64) -> Self {
        let shard = |key| Mutex::ranked(rank, name, FxHashMap::default()).keyed(key);
        let each = usize::try_from(bytes / size / SHARDS).unwrap_or(usize::MAX);
        Self { shards: (0..SHARDS).map(shard).collect(), each: each.max(8) }
    }

    pub(super) fn get(&self, number: u64) -> Option<T> {
        self.shards[(number % SHARDS) as usize].lock().get(&number).cloned()
    }

    pub(super) fn put(&self, number: u64, read: T) {
        let mut shard = self.shards[(number % SHARDS) as usize].lock();
        if shard.len() >= self.each {
            shard.clear();
        }
        shard.insert(number, read);
    }
}
