//! The list of orphans: inodes whose last link is gone, and files whose truncation takes several
//! transactions (`orphan.c`). The superblock names the first, and each one's `i_dtime` the next.
//!
//! A volume may have a file with orphans as well (`orphan_file`). What another mount left there is
//! freed like those of the list. We add to the list only, which the format allows: it is where the
//! kernel puts them once the file is full.
//!
//! The list is one for the volume, so it has a lock, which an operation keeps from the moment it
//! plans a change of the list until that is applied.

use drive::Block;
use rustc_hash::FxHashMap;

use crate::ondisk::superblock::RawSuperblock;
use crate::ondisk::{FsBlock, Ino};

/// The list, and the block that holds the superblock, as the running transaction has it.
pub(crate) struct Orphans {
    /// The first of the list, which the superblock names; 0 if it is empty.
    first: Ino,
    list: FxHashMap<Ino, Neighbours>,
    /// Those in the orphan file, until they are freed.
    slots: FxHashMap<Ino, Slot>,
    super_block: Block,
    /// Where in that block the superblock begins.
    byte: usize,
}

/// An orphan's place in the list; 0 for none.
#[derive(Clone, Copy, Default)]
struct Neighbours {
    before: Ino,
    next: Ino,
}

/// What a change of the list does on the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// The superblock names this first inode; 0 for none.
    First(Ino),
    /// The inode names the next one; 0 for none.
    Next(Ino, Ino),
}

/// A slot of the orphan file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) ino: Ino,
    /// Block of the volume.
    pub(crate) at: FsBlock,
    /// Which one of the block.
    pub(crate) slot: usize,
    /// Seed of the file's checksums.
    pub(crate) seed: Option<u32>,
}

impl Orphans {
    /// An empty list.
    pub(crate) fn new(super_block: Block, byte: usize) -> Self {
        let (list, slots) = (FxHashMap::default(), FxHashMap::default());
        Self { first: 0, list, slots, super_block, byte }
    }

    /// Whether `ino` is in the list, or in the orphan file.
    pub(crate) fn contains(&self, ino: Ino) -> bool {
        self.list.contains_key(&ino) || self.slots.contains_key(&ino)
    }

    /// All that are in the list.
    pub(crate) fn all(&self) -> Vec<Ino> {
        let mut all: Vec<_> = self.list.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// Notes what the orphan file has.
    pub(crate) fn found(&mut self, slot: Slot) {
        self.slots.insert(slot.ino, slot);
    }

    /// Whether the orphan file has any.
    pub(crate) fn has_slots(&self) -> bool {
        !self.slots.is_empty()
    }

    /// The slot of `ino` in the orphan file.
    pub(crate) fn slot(&self, ino: Ino) -> Option<Slot> {
        self.slots.get(&ino).copied()
    }

    /// What has to be written to put `ino` in front.
    pub(crate) fn links_to_add(&self, ino: Ino) -> [Link; 2] {
        [Link::First(ino), Link::Next(ino, self.first)]
    }

    /// What has to be written to take `ino` out; `None` if it is not in.
    pub(crate) fn link_to_remove(&self, ino: Ino) -> Option<Link> {
        let Neighbours { before, next } = *self.list.get(&ino)?;
        Some(if before == 0 { Link::First(next) } else { Link::Next(before, next) })
    }

    /// Notes that `ino` is in front now.
    pub(crate) fn added(&mut self, ino: Ino) {
        let next = std::mem::replace(&mut self.first, ino);
        self.list.insert(ino, Neighbours { before: 0, next });
        if let Some(next) = self.list.get_mut(&next) {
            next.before = ino;
        }
    }

    /// Notes that `ino` is out.
    pub(crate) fn removed(&mut self, ino: Ino) {
        self.slots.remove(&ino);
        let Some(Neighbours { before, next }) = self.list.remove(&ino) else { return };
        if let Some(next) = self.list.get_mut(&next) {
            next.before = before;
        }
        match self.list.get_mut(&before) {
            Some(before) => before.next = next,
            None => self.first = next,
        }
    }

    /// Changes the superblock, seals it, and returns the block that holds it.
    pub(crate) fn edit_superblock(&mut self, change: impl FnOnce(&mut RawSuperblock)) -> Block {
        RawSuperblock::edit(&mut self.super_block.make_mut()[self.byte..], change);
        self.super_block.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_linked_from_the_last_one_added() {
        let mut orphans = Orphans::new(Block::zeroed(), 0);
        for ino in [11, 12, 13] {
            orphans.added(ino);
        }
        assert!(orphans.contains(12) && !orphans.contains(14));
        assert_eq!(orphans.links_to_add(14), [Link::First(14), Link::Next(14, 13)]);
        assert_eq!(orphans.link_to_remove(13), Some(Link::First(12)));
        assert_eq!(orphans.link_to_remove(12), Some(Link::Next(13, 11)));
        assert_eq!(orphans.link_to_remove(11), Some(Link::Next(12, 0)));
        assert_eq!(orphans.link_to_remove(9), None);
        orphans.removed(12);
        assert_eq!(orphans.link_to_remove(11), Some(Link::Next(13, 0)));
        orphans.removed(13);
        assert_eq!(orphans.link_to_remove(11), Some(Link::First(0)));
        orphans.removed(11);
        assert_eq!(orphans.links_to_add(15), [Link::First(15), Link::Next(15, 0)]);
    }
}
