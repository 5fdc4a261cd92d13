//! Whether there is room: blocks that are free, and blocks promised to dirty pages that have none
//! yet (delayed allocation).

use cores::Line;
use vfs::RootReserve;

use crate::error::{Error, Result};

/// Extent blocks that promised pages may need, worst case: one extent each, 340 in a block.
const PAGES_PER_NODE: u64 = 256;
/// Blocks for trees and directories that nothing was promised to.
const MARGIN: u64 = 64;

/// Counts of blocks. Each is a shared line; operations add to it and never wait. Those that promise
/// and free nothing, as overwrites, leave it alone.
pub(crate) struct Room {
    /// Blocks that no file has, those of uncommitted transactions included.
    free: Line,
    /// Pages that have been promised a block.
    promised: Line,
    /// Free blocks that only some users get.
    reserve: RootReserve,
}

impl Room {
    /// For a volume with `free` blocks.
    pub(crate) fn new(free: u64, reserve: RootReserve) -> Self {
        Self { free: Line::new(free), promised: Line::new(0), reserve }
    }

    /// Blocks that can still be promised to the user for whom the calling thread works.
    pub(crate) fn left_for_caller(&self) -> u64 {
        self.left().saturating_sub(self.reserve.kept_from_caller())
    }

    /// Blocks that can still be promised.
    pub(crate) fn left(&self) -> u64 {
        let promised = self.promised.load();
        let kept = promised + promised / PAGES_PER_NODE + MARGIN;
        self.free.load().saturating_sub(kept)
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
        let kept = promised + promised / PAGES_PER_NODE + MARGIN;
        if self.free.load() >= kept + self.reserve.kept_from_caller() {
            return Ok(());
        }
        self.release(pages);
        Err(Error::NoSpace)
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

#[cfg(test)]
mod tests {
    use cores::{Caller, acting_for};

    use super::*;

    #[test]
    fn promises_keep_room_for_the_trees() {
        let room = Room::new(1_000, RootReserve::default());
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
    fn what_is_kept_for_root_is_not_promised_to_others() {
        let room = Room::new(1_000, RootReserve { blocks: 500, uid: 7, gid: 0 });
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
