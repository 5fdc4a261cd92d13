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
        self.promise_if(pages, |before| self.kept(before + pages))
    }

    /// Promises `blocks` blocks to a call that is about to take them. Long runs need few nodes, so
    /// it gets all that are [left](Self::left_for_caller).
    pub(crate) fn promise_to_call(&self, blocks: u64) -> Result<Promise<'_>> {
        self.promise_if(blocks, |before| self.kept(before) + blocks)?;
        Ok(Promise { room: self, left: blocks })
    }

    /// Promises `blocks` blocks if as many are free as `kept` says of those promised before.
    fn promise_if(&self, blocks: u64, kept: impl FnOnce(u64) -> u64) -> Result<()> {
        if blocks == 0 {
            return Ok(());
        }
        let before = self.promised.fetch_add(blocks);
        if self.free.load() >= kept(before) + self.reserve.kept_from_caller() {
            return Ok(());
        }
        self.release(blocks);
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

/// What a call has been promised, and not taken yet. The rest goes back when it ends.
pub(crate) struct Promise<'a> {
    room: &'a Room,
    left: u64,
}

impl Promise<'_> {
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// An operation has taken `blocks` of them, and released their promise ([`Room::release`]).
    pub(crate) fn taken(&mut self, blocks: u64) {
        self.left -= blocks.min(self.left);
    }
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        self.room.release(self.left);
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
    fn a_call_gets_what_it_has_not_taken_until_it_ends() {
        let room = Room::new(10_000, 10_000, RootReserve::default());
        let all = room.left();
        let mut promise = room.promise_to_call(all).unwrap();
        assert!(room.promise_to_call(1).is_err() && room.promise(1).is_err());
        room.allocated(100);
        room.release(100);
        promise.taken(100);
        assert_eq!((promise.left(), room.promised()), (all - 100, all - 100));
        drop(promise);
        assert_eq!((room.left(), room.promised()), (all - 100, 0));
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
