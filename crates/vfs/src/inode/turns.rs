//! Turns: one fsync or write-back of a file at a time, and the file stays in being meanwhile.
//!
//! Two at once could each take the other's writes for done. And an inode that lost its last name
//! during one must not be freed under it: whoever would free it leaves that to the end of the turn.

use cores::{Condvar, Mutex};
use rustc_hash::FxHashMap;

use crate::Ino;

/// Whose turns are under way.
pub struct Turns {
    /// By inode; whether it is to be freed at the end. Taken alone, or within the volume's lock.
    busy: Mutex<FxHashMap<Ino, bool>>,
    ended: Condvar,
}

impl Turns {
    /// No turns yet. `name` is the lock's, in what is told of waiting.
    pub fn new(name: &'static str) -> Self {
        Self { busy: Mutex::named(name, FxHashMap::default()), ended: Condvar::new() }
    }

    /// Waits until no other turn of `ino` is under way, and begins one.
    pub fn begin(&self, ino: Ino) {
        let mut busy = self.busy.lock();
        while busy.contains_key(&ino) {
            self.ended.wait(&mut busy);
        }
        busy.insert(ino, false);
    }

    /// Ends a turn. True if the inode is to be freed now.
    pub fn end(&self, ino: Ino) -> bool {
        let to_be_freed = self.busy.lock().remove(&ino).unwrap_or(false);
        self.ended.notify_all();
        to_be_freed
    }

    /// If a turn of `ino` is under way, leaves it to its end to free the inode.
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
