//! Turns: one fsync or write-back of a file at a time, during which the file is not freed.
//!
//! Two at once could each mistake the other's writes for completed ones. And an inode that loses
//! its last name meanwhile must not be freed: that is left to the end of the turn.

use cores::{Condvar, Mutex};
use rustc_hash::FxHashMap;

use crate::Ino;

/// Whose turns are under way.
pub struct Turns {
    /// By inode, whether to free it at the end. Taken alone, or within the volume's lock.
    busy: Mutex<FxHashMap<Ino, bool>>,
    ended: Condvar,
}

impl Turns {
    /// No turns yet. `name` is the lock's name in reports.
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

    /// Ends a turn. True if the inode must be freed now.
    pub fn end(&self, ino: Ino) -> bool {
        let to_be_freed = self.busy.lock().remove(&ino).unwrap_or(false);
        self.ended.notify_all();
        to_be_freed
    }

    /// If a turn of `ino` is under way, leaves freeing the inode to its end.
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
