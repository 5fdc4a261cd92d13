//! Open inodes. One that has no name lives until its last user has closed it.

use cores::{Mutex, MutexGuard, Rank};
use rustc_hash::FxHashMap;

use super::shards::shard_of;
use crate::Ino;

/// How many locks there are, so that users of different inodes seldom meet.
const SHARDS: usize = 16;

/// The inodes that are open.
pub struct Opens {
    /// By [`shard_of`]. Innermost: nothing is taken within one.
    shards: [Mutex<FxHashMap<Ino, Users>>; SHARDS],
}

impl Default for Opens {
    fn default() -> Self {
        let shard = |_| Mutex::ranked(Rank::Opens, "opens", FxHashMap::default());
        Self { shards: std::array::from_fn(shard) }
    }
}

/// An inode's users. There is no entry without a call of `open`.
#[derive(Debug, Default)]
struct Users {
    /// Calls of `open` not yet matched by `release`.
    opens: u32,
    /// Made without a name, and may still be given one (`I_LINKABLE`).
    linkable: bool,
}

impl Opens {
    fn of(&self, ino: Ino) -> MutexGuard<'_, FxHashMap<Ino, Users>> {
        self.shards[shard_of(ino, SHARDS)].lock()
    }

    /// Counts one more user of `ino`.
    pub fn open(&self, ino: Ino) {
        self.of(ino).entry(ino).or_default().opens += 1;
    }

    /// A new inode without a name, open once; `linkable` if it may be given one (`O_TMPFILE`).
    pub fn open_nameless(&self, ino: Ino, linkable: bool) {
        self.of(ino).insert(ino, Users { opens: 1, linkable });
    }

    /// A user has closed `ino`. True if it was the last one.
    pub fn release(&self, ino: Ino) -> bool {
        let mut shard = self.of(ino);
        let Some(users) = shard.get_mut(&ino) else { return false };
        users.opens = users.opens.saturating_sub(1);
        let is_last = users.opens == 0;
        if is_last {
            shard.remove(&ino);
        }
        is_last
    }

    /// Drops the count of `ino`, even if it is still open.
    pub fn forget(&self, ino: Ino) {
        self.of(ino).remove(&ino);
    }

    /// Whether `ino` is open.
    pub fn is_open(&self, ino: Ino) -> bool {
        self.of(ino).contains_key(&ino)
    }

    /// Whether `ino` has no name and may be given one.
    pub fn is_linkable(&self, ino: Ino) -> bool {
        self.of(ino).get(&ino).is_some_and(|users| users.linkable)
    }

    /// `ino` has a name now.
    pub fn name(&self, ino: Ino) {
        if let Some(users) = self.of(ino).get_mut(&ino) {
            users.linkable = false;
        }
    }
}
