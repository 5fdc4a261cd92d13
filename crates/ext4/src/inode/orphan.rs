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

use crate::ondisk::superblock::RawSuperblock;
use crate::ondisk::{FsBlock, Ino};
use crate::ondisk::{SUPERBLOCK_OFFSET, superblock::SUPERBLOCK_SIZE};
use zerocopy::IntoBytes;

/// The list, and the block that holds the superblock, as the running transaction has it.
pub(crate) struct Orphans {
    /// The first of the list is the last here.
    list: Vec<Ino>,
    /// Those in the orphan file, until they are freed.
    slots: Vec<Slot>,
    super_block: Block,
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
    pub(crate) fn new(super_block: Block) -> Self {
        Self { list: Vec::new(), slots: Vec::new(), super_block }
    }

    /// Whether `ino` is in the list, or in the orphan file.
    pub(crate) fn contains(&self, ino: Ino) -> bool {
        self.list.contains(&ino) || self.slot(ino).is_some()
    }

    /// Notes what the orphan file has.
    pub(crate) fn found(&mut self, slot: Slot) {
        self.slots.push(slot);
    }

    /// The slot of `ino` in the orphan file.
    pub(crate) fn slot(&self, ino: Ino) -> Option<Slot> {
        self.slots.iter().find(|slot| slot.ino == ino).copied()
    }

    /// What has to be written to put `ino` in front.
    pub(crate) fn links_to_add(&self, ino: Ino) -> [Link; 2] {
        let first = self.list.last().copied().unwrap_or(0);
        [Link::First(ino), Link::Next(ino, first)]
    }

    /// What has to be written to take `ino` out; `None` if it is not in.
    pub(crate) fn link_to_remove(&self, ino: Ino) -> Option<Link> {
        let place = self.list.iter().rposition(|other| *other == ino)?;
        let next = place.checked_sub(1).map_or(0, |next| self.list[next]);
        Some(match self.list.get(place + 1) {
            Some(before) => Link::Next(*before, next),
            None => Link::First(next),
        })
    }

    /// Notes that `ino` is in front now.
    pub(crate) fn added(&mut self, ino: Ino) {
        self.list.push(ino);
    }

    /// Notes that `ino` is out.
    pub(crate) fn removed(&mut self, ino: Ino) {
        self.list.retain(|other| *other != ino);
        self.slots.retain(|slot| slot.ino != ino);
    }

    /// Changes the superblock, seals it, and returns the block that holds it.
    pub(crate) fn edit_superblock(&mut self, change: impl FnOnce(&mut RawSuperblock)) -> Block {
        let bytes = self.super_block.make_mut();
        if let Ok(mut raw) = RawSuperblock::of_first_block(bytes) {
            change(&mut raw);
            raw.seal();
            bytes[SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE]
                .copy_from_slice(raw.as_bytes());
        }
        self.super_block.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_linked_from_the_last_one_added() {
        let mut orphans = Orphans::new(Block::zeroed());
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
    }
}
