//! Turns: one fsync or write-back of a file at a time, and the file stays in being meanwhile.
//!
//! Two at once could each take the other's writes for done. And an inode that lost its last name
//! during one must not be freed under it: whoever would free it leaves that to the end of the turn.

use cores::{Condvar, Mutex};
use rustc_hash::FxHashMap;

use crate::ondisk::Nid;

/// Whose turns are under way.
pub(crate) struct Turns {
    /// By inode; whether it is to be freed at the end. Taken alone, or within the volume's lock.
    busy: Mutex<FxHashMap<Nid, bool>>,
    ended: Condvar,
}

impl Default for Turns {
    fn default() -> Self {
        let busy = Mutex::named("f2fs fsync turns", FxHashMap::default());
        Self { busy, ended: Condvar::new() }
    }
}

impl Turns {
    /// Waits until no other turn of `ino` is under way, and begins one.
    pub(crate) fn begin(&self, ino: Nid) {
        let mut busy = self.busy.lock();
        while busy.contains_key(&ino) {
            self.ended.wait(&mut busy);
        }
        busy.insert(ino, false);
    }

    /// Ends a turn. True if the inode is to be freed now.
    pub(crate) fn end(&self, ino: Nid) -> bool {
        let to_be_freed = self.busy.lock().remove(&ino).unwrap_or(false);
        self.ended.notify_all();
        to_be_freed
    }

    /// If a turn of `ino` is under way, leaves it to its end to free the inode.
    pub(crate) fn will_free(&self, ino: Nid) -> bool {
        match self.busy.lock().get_mut(&ino) {
            Some(to_be_freed) => {
                *to_be_freed = true;
                true
            }
            None => false,
        }
    }
}
