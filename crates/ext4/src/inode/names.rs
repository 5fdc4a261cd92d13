//! Names that were looked up (the kernel's dentries), so that a second look-up reads no block: all
//! cores would contend for the blocks of the directories that most paths begin with.
//!
//! New directories are cached at once: cores that look up the same paths at the same time would
//! contend for the locks of the directories that these begin with.
//!
//! Invariant: a name here is an entry of its directory. A change that removes an entry, or points
//! it to another inode, drops all names of its directory under the same lock. A new entry makes
//! none of them wrong.

use std::sync::Arc;

use cores::Line;
use rustc_hash::FxHashMap;

use crate::ondisk::Ino;

/// What a name takes in memory, about.
const NAME_BYTES: u64 = 256;

/// Names that a shard may have without asking, and at most.
const NAMES_FIRST: usize = 16;
const NAMES_MAX: usize = 1024;

/// How many names all shards may have together, besides the first few of each.
pub(crate) struct NameRoom {
    taken: Line,
    most: u64,
}

/// The names in a shard of inodes, by directory.
pub(crate) struct Names {
    dirs: FxHashMap<Ino, FxHashMap<Box<[u8]>, Ino>>,
    count: usize,
    /// As many as it may have. It doubles, so a shard asks for room a few times in its life.
    most: usize,
    room: Arc<NameRoom>,
    /// Counts losses of names: what was found before one of them may be old.
    changes: u64,
}

impl NameRoom {
    /// For about so many bytes.
    pub(crate) fn new(bytes: u64) -> Self {
        Self { taken: Line::new(0), most: bytes / NAME_BYTES }
    }

    fn has(&self, more: usize) -> bool {
        self.taken.load() + more as u64 <= self.most
    }

    /// Takes room for so many names, for good.
    fn take(&self, more: usize) {
        self.taken.fetch_add(more as u64);
    }
}

impl Names {
    /// None yet.
    pub(crate) fn new(room: &Arc<NameRoom>) -> Self {
        let (dirs, most) = (FxHashMap::default(), NAMES_FIRST);
        Self { dirs, count: 0, most, room: room.clone(), changes: 0 }
    }

    /// The inode that `name` stands for in `dir`, if that is known.
    pub(crate) fn get(&self, dir: Ino, name: &[u8]) -> Option<Ino> {
        self.dirs.get(&dir)?.get(name).copied()
    }

    /// How many losses there have been, for [`Names::insert`].
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether another name fits.
    pub(crate) fn has_room(&self) -> bool {
        self.count < self.most || self.may_grow()
    }

    fn may_grow(&self) -> bool {
        self.most < NAMES_MAX && self.room.has(self.most)
    }

    /// Notes what was found after so many `changes`, unless there have been more since. If there is
    /// no room, all others are forgotten.
    pub(crate) fn insert(&mut self, dir: Ino, name: &[u8], ino: Ino, changes: u64) {
        if changes != self.changes {
            return;
        }
        if self.count >= self.most {
            if self.may_grow() {
                self.room.take(self.most);
                self.most *= 2;
            } else {
                self.dirs.clear();
                self.count = 0;
            }
        }
        let is_new = self.dirs.entry(dir).or_default().insert(name.into(), ino).is_none();
        self.count += usize::from(is_new);
    }

    /// Forgets the names of `dir`, which loses one.
    pub(crate) fn forget(&mut self, dir: Ino) {
        self.changes += 1;
        self.count -= self.dirs.remove(&dir).map_or(0, |names| names.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_before_a_change_is_not_kept() {
        let mut names = Names::new(&Arc::new(NameRoom::new(0)));
        let before = names.changes();
        names.insert(2, b"a", 12, before);
        assert_eq!((names.get(2, b"a"), names.get(3, b"a")), (Some(12), None));
        names.forget(2);
        assert_eq!(names.get(2, b"a"), None);
        names.insert(2, b"a", 12, before);
        assert_eq!(names.get(2, b"a"), None);
        names.insert(2, b"a", 13, names.changes());
        assert_eq!(names.get(2, b"a"), Some(13));
    }

    #[test]
    fn there_are_no_more_than_fit() {
        // Nothing for both of them; three times the first few; more than they may have.
        for (room, most) in [(0, [16, 16]), (50, [64, 16]), (1 << 20, [1024, 1024])] {
            let room = Arc::new(NameRoom::new(room * NAME_BYTES));
            let fill = |most: usize| {
                let mut names = Names::new(&room);
                let mut seen = 0;
                for number in 0..5000_u32 {
                    names.insert(number % 3, &number.to_le_bytes(), number, 0);
                    let all: usize = names.dirs.values().map(FxHashMap::len).sum();
                    assert!(all == names.count && all <= most, "{all}");
                    seen = seen.max(all);
                }
                seen
            };
            assert_eq!(most.map(fill), most);
        }
    }
}
