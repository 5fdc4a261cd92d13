//! Inodes leave memory when there are many (`prune_icache_sb`).

use crate::inode::cached::{Cached, Shard};
use crate::mount::engine::Engine;
use crate::mount::inject::Inject;
use crate::ondisk::Ino;

/// What an inode takes in memory, about.
const INODE_BYTES: u64 = 1024;
/// A shard may have so many in any case: an operation needs all of its inodes at once.
const EACH_MIN: u64 = 16;

/// How many inodes each of so many shards may have, in about so many bytes together.
pub(crate) fn inodes_each(bytes: u64, shards: usize) -> usize {
    let each = bytes / INODE_BYTES / shards as u64;
    usize::try_from(each.max(EACH_MIN)).unwrap_or(usize::MAX)
}

impl Shard {
    /// Whether some of its inodes should be evicted, of which it may have `most`. If few could be,
    /// there have to be twice as many.
    fn is_full(&self, most: usize) -> bool {
        self.inodes.len() >= most.max(self.weed_at)
    }

    /// Evicts inodes that are as the drive has them, but for those `in_use`.
    fn weed(&mut self, in_use: impl Fn(Ino, &Cached) -> bool) {
        let Self { inodes, pages, changed, overwrites, .. } = self;
        inodes.retain(|ino, cached| {
            let is_newer = changed.contains(ino) || pages.dirty_count((*ino).into()) > 0;
            let stays = is_newer || cached.is_needed() || in_use(*ino, cached);
            if !stays {
                *overwrites = (*overwrites).max(cached.overwrites + 1);
            }
            stays
        });
        self.weed_at = 2 * self.inodes.len();
    }
}

impl Cached {
    /// Whether memory alone has something of it, or an operation will come back to it.
    fn is_needed(&self) -> bool {
        let is_orphan = self.inode.links() == 0;
        let has_other_size = self.inode.size != self.inode.raw.size();
        self.promised > 0 || self.cut || self.still || is_orphan || has_other_size
    }
}

impl Engine {
    /// Evicts inodes of a shard, if it has too many.
    pub(crate) fn weed(&self, shard: &mut Shard) {
        if shard.is_full(self.inodes_each) {
            shard.weed(|ino, cached| self.is_in_use(ino, cached));
        }
    }

    /// How many inodes memory has.
    pub(crate) fn inodes_in_memory(&self) -> u64 {
        let shards = (0..self.inodes.count()).filter_map(|index| self.inodes.at(index));
        shards.map(|shard| shard.inodes.len() as u64).sum()
    }

    /// Evicts all inodes that can be, if tests want that.
    pub(crate) fn weed_all(&self) {
        if self.inject.contains(Inject::WEED) {
            let shards = (0..self.inodes.count()).filter_map(|index| self.inodes.own_at(index));
            shards.for_each(|mut shard| shard.weed(|ino, cached| self.is_in_use(ino, cached)));
        }
    }

    /// Whether it is open, or an fsync of it would have to wait for a commit.
    fn is_in_use(&self, ino: Ino, cached: &Cached) -> bool {
        let Cached { recent, vouched, .. } = cached;
        let born = self.open_birth(recent).is_some();
        let ids = [cached.id, cached.data_id, recent.mixed, recent.lost_name, vouched.id()];
        born || ids.into_iter().any(|id| self.is_open(id)) || self.opens.is_open(ino.into())
    }
}
