//! Turns: only one fsync or write-back of a file at a time, and the file is not freed meanwhile.
//!
//! Two at once could each take the other's writes for completed ones. An inode that loses its last
//! name during a turn is freed at the end of that turn.

use cores::{Condvar, Mutex, Rank};
use rustc_hash::FxHashMap;

use crate::Ino;

/// The inodes that have a turn under way.
pub struct Turns {
    /// For each inode, whether to free it at the end of its turn. Taken alone, or within the
    /// volume's lock.
    busy: Mutex<FxHashMap<Ino, bool>>,
    ended: Condvar,
}

impl Turns {
    /// No turns yet. `name` is the lock's name in reports.
    pub fn new(name: &'static str) -> Self {
        Self { busy: Mutex::ranked(Rank::Turns, name, FxHashMap::default()), ended: Condvar::new() }
    }

    /// Waits until `ino` has no other turn under way, and begins one.
    pub fn begin(&self, ino: Ino) {
        let mut busy = self.busy.lock();
        while busy.contains_key(&ino) {
            self.ended.wait(&mut busy);
        }
        busy.insert(ino, false);
    }

    /// Ends a turn. True if the caller must free the inode now.
    pub fn end(&self, ino: Ino) -> bool {
        let to_be_freed = self.busy.lock().remove(&ino).unwrap_or(false);
        self.ended.notify_all();
        to_be_freed
    }

    /// If a turn of `ino` is under way, leaves it to that turn's end to free the inode.
    pub fn will_free(&self, ino: Ino) -> bool {
        match self.busy.lock().get_mut(&ino) {
            Some(to_be_freed) => {
                *to_be_freed = true;
                true
            }
            None => false,
        }
    }
}
