//! Whether there is room: blocks that are free, and blocks promised to dirty pages that have none
//! yet (delayed allocation).

use cores::Line;
use vfs::RootReserve;

use crate::error::{Error, Result};

/// Extent blocks that promised pages may need, worst case: one extent each, 340 in a block.
const PAGES_PER_NODE: u64 = 256;
/// Blocks for trees and directories that nothing was promised to, as for the pieces of an extent
/// that was allocated before it is written: a fiftieth of the volume between these
/// (`ext4_calculate_resv_clusters`, without the lower one).
const MARGIN: (u64, u64) = (64, 4096);

/// Counts of blocks. Each is a shared line; operations add to it and never wait. Those that promise
/// and free nothing, as overwrites, leave it alone.
pub(crate) struct Room {
    /// Blocks that no file has, those of uncommitted transactions included.
    free: Line,
    /// Pages that have been promised a block.
    promised: Line,
    /// Free blocks that nothing is promised of.
    margin: u64,
    /// Free blocks that only some users get.
    reserve: RootReserve,
}

impl Room {
    /// For a volume of `blocks` blocks of which `free` are free.
    pub(crate) fn new(free: u64, blocks: u64, reserve: RootReserve) -> Self {
        let margin = (blocks / 50).clamp(MARGIN.0, MARGIN.1);
        Self { free: Line::new(free), promised: Line::new(0), margin, reserve }
    }

    /// Blocks that can still be promised to the user for whom the calling thread works.
    pub(crate) fn left_for_caller(&self) -> u64 {
        self.left().saturating_sub(self.reserve.kept_from_caller())
    }

    /// Blocks that can still be promised.
    pub(crate) fn left(&self) -> u64 {
        self.free.load().saturating_sub(self.kept(self.promised.load()))
    }

    /// Free blocks of which no use is known.
    pub(crate) fn unpromised(&self) -> u64 {
        self.free.load().saturating_sub(self.promised.load())
    }

    /// Free blocks that are kept for this many promises, and for what none is made of.
    fn kept(&self, promised: u64) -> u64 {
        promised + promised / PAGES_PER_NODE + self.margin
    }

    /// Blocks that are promised.
    pub(crate) fn promised(&self) -> u64 {
        self.promised.load()
    }

    /// Promises `pages` blocks. Fails if there are not as many for the caller.
    pub(crate) fn promise(&self, pages: u64) -> Result<()> {
        if pages == 0 {
            return Ok(());
        }
        let promised = self.promised.fetch_add(pages) + pages;
        let kept = self.kept(promised) + self.reserve.kept_from_caller();
        if self.free.load() >= kept {
            return Ok(());
        }
        self.release(pages);
        Err(Error::NoSpace)
    }

    /// Sets aside `blocks` blocks, if as many are [left](Self::left_for_caller), for a call that is
    /// about to take them. They count as taken from now on: in no moment do they count twice.
    pub(crate) fn set_aside(&self, blocks: u64) -> Result<SetAside<'_>> {
        let mut free = self.free.load();
        loop {
            let kept = self.kept(self.promised.load()) + self.reserve.kept_from_caller();
            let left = free.checked_sub(blocks).filter(|left| *left >= kept);
            match self.free.compare_exchange(free, left.ok_or(Error::NoSpace)?) {
                Ok(_) => return Ok(SetAside { room: self, left: blocks }),
                Err(now) => free = now,
            }
        }
    }

    /// Promises `pages` blocks to pages that have just lost theirs.
    pub(crate) fn promise_freed(&self, pages: u64) {
        if pages > 0 {
            self.promised.fetch_add(pages);
        }
    }

    /// Takes a promise back, or a block has been allocated for it.
    pub(crate) fn release(&self, pages: u64) {
        if pages > 0 {
            self.promised.fetch_add(pages.wrapping_neg());
        }
    }

    /// Blocks belong to a file now.
    pub(crate) fn allocated(&self, blocks: u64) {
        self.free.fetch_add(blocks.wrapping_neg());
    }

    /// Blocks belong to no file any more.
    pub(crate) fn freed(&self, blocks: u64) {
        self.free.fetch_add(blocks);
    }
}

/// Blocks set aside for a call that it has not taken yet. They are free again when it ends.
pub(crate) struct SetAside<'a> {
    room: &'a Room,
    left: u64,
}

impl SetAside<'_> {
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// An operation has taken `blocks` of them.
    pub(crate) fn taken(&mut self, blocks: u64) {
        self.left -= blocks.min(self.left);
    }
}

impl Drop for SetAside<'_> {
    fn drop(&mut self) {
        self.room.freed(self.left);
    }
}

#[cfg(test)]
mod tests {
    use cores::{Caller, acting_for};

    use super::*;

    #[test]
    fn promises_keep_room_for_the_trees() {
        let room = Room::new(1_000, 1_000, RootReserve::default());
        assert_eq!(room.left(), 936);
        room.promise(930).unwrap();
        assert!(room.promise(10).is_err());
        assert_eq!(room.left(), 3, "what failed was taken back");
        room.allocated(930);
        room.release(930);
        assert_eq!(room.left(), 6);
        room.freed(100);
        assert_eq!(room.left(), 106);
    }

    #[test]
    fn what_is_set_aside_is_free_again_if_it_was_not_taken() {
        let room = Room::new(10_000, 10_000, RootReserve::default());
        let all = room.left();
        let mut aside = room.set_aside(all).unwrap();
        assert!(room.set_aside(1).is_err() && room.promise(1).is_err());
        aside.taken(100);
        drop(aside);
        assert_eq!((room.left(), room.promised()), (all - 100, 0));
        assert!(room.set_aside(u64::MAX).is_err());
        assert_eq!(room.left(), all - 100);
    }

    #[test]
    fn what_is_kept_for_root_is_not_promised_to_others() {
        let reserve = RootReserve { blocks: 500, uid: 7, gid: 0 };
        let room = Room::new(1_000, 1_000, reserve);
        let by = |uid| Some(Caller { uid, gid: 100 });
        acting_for(by(1000), || {
            assert_eq!(room.left_for_caller(), 436);
            assert!(room.promise(440).is_err());
            room.promise(430).unwrap();
            assert!(room.promise(10).is_err());
        });
        for privileged in [by(0), by(7), None] {
            acting_for(privileged, || room.promise(10).unwrap());
        }
    }
}
