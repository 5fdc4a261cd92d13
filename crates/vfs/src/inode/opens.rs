//! Open inodes. One that has no name lives until its last user has closed it.

use rustc_hash::FxHashMap;

use crate::Ino;

/// The inodes that are open.
#[derive(Debug, Default)]
pub struct Opens(FxHashMap<Ino, Users>);

/// An inode's users. There is no entry without a call of `open`.
#[derive(Debug, Default)]
struct Users {
    /// Calls of `open` not yet matched by `release`.
    opens: u32,
    /// Made without a name, and may still be given one (`I_LINKABLE`).
    linkable: bool,
}

impl Opens {
    /// Counts one more user of `ino`.
    pub fn open(&mut self, ino: Ino) {
        self.0.entry(ino).or_default().opens += 1;
    }

    /// A new inode without a name, open once; `linkable` if it may be given one (`O_TMPFILE`).
    pub fn open_nameless(&mut self, ino: Ino, linkable: bool) {
        self.0.insert(ino, Users { opens: 1, linkable });
    }

    /// A user has closed `ino`. True if it was the last one.
    pub fn release(&mut self, ino: Ino) -> bool {
        let Some(users) = self.0.get_mut(&ino) else { return false };
        users.opens = users.opens.saturating_sub(1);
        let is_last = users.opens == 0;
        if is_last {
            self.0.remove(&ino);
        }
        is_last
    }

    /// Drops the count of `ino`, whoever still has it open.
    pub fn forget(&mut self, ino: Ino) {
        self.0.remove(&ino);
    }

    /// Whether anybody has `ino` open.
    pub fn is_open(&self, ino: Ino) -> bool {
        self.0.contains_key(&ino)
    }

    /// Whether `ino` has no name and may be given one.
    pub fn is_linkable(&self, ino: Ino) -> bool {
        self.0.get(&ino).is_some_and(|users| users.linkable)
    }

    /// `ino` has a name now.
    pub fn name(&mut self, ino: Ino) {
        if let Some(users) = self.0.get_mut(&ino) {
            users.linkable = false;
        }
    }
}
