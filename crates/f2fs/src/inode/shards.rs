//! What is cached of inodes: their node blocks and pages, in shards with a lock each.
//!
//! With the volume locked exclusively none of these locks is needed.
//!
//! Under `range_lock=page` a file is overwritten by several cores that share its shard's lock. What
//! they wrote is kept apart from the pages until the shard is locked exclusively. Every exclusive
//! lock of a shard first moves it into the pages ([`Shard::settled`]), so no other code handles it.

use std::sync::Arc;

use cores::{PerCoreReadGuard, Rank};
use rustc_hash::{FxHashMap, FxHashSet};
use vfs::inode::{OwnedShards, Shards};
use vfs::{Budget, Ino, Overwrites, PageCache, Timespec};

use crate::dir::index::{NameIndexes, NameRoom};
use crate::inode::extents::{ExtentCounts, Extents};
use crate::inode::node_cache::{NodeCache, NodeCounts};
use crate::ondisk::data_sums::DataSums;
use crate::ondisk::inode::RawInodeBlock;
use crate::ondisk::{BLOCK_SIZE, Nid};

/// A checkpoint writes the changed nodes when there are so many, to bound memory and recovery time.
pub(crate) const MAX_DIRTY_NODES: usize = 16 * 1024;
/// However small the cache is, so many nodes may change between two checkpoints.
const MIN_DIRTY_NODES: usize = 1024;

/// Shards on a machine with few cores.
const SHARDS_MIN: usize = 256;

/// All of them.
pub(crate) struct Inodes {
    shards: Shards<Shard>,
    pages: Arc<Budget>,
    nodes: Arc<NodeCounts>,
    /// How much the indexes of names take.
    pub(crate) names: Arc<NameRoom>,
    /// How many clean nodes are kept.
    nodes_max: usize,
    /// How many changed nodes are kept before a checkpoint writes them.
    changed_max: usize,
    /// The shard where the next page is evicted.
    hand: usize,
}

/// The inodes that share a lock.
pub(crate) struct Shard {
    pub(crate) nodes: NodeCache,
    pub(crate) pages: PageCache,
    /// Pages overwritten under the shared lock, once there was reason to lock pages.
    pub(crate) overwrites: Option<Box<Overwrites>>,
    /// Where the names of directories are.
    pub(crate) names: NameIndexes,
    /// Where runs of blocks of files are.
    pub(crate) extents: Extents,
    /// Blocks drawn from the credit, which changes under the shared lock may make dirty or write.
    pub(crate) purse: u64,
    /// Files whose last writes may not be stable yet.
    pub(crate) unflushed: FxHashSet<Nid>,
    /// Blocks of files overwritten in place since the mount (`inplace_count`).
    pub(crate) in_place: u64,
    /// Under OPRW: data, by file, that may not be stable yet and that no write pointer covers.
    pub(crate) unjudged: FxHashMap<Nid, DataSums>,
}

impl Shard {
    /// Moves what was overwritten under the shared lock into the pages.
    #[inline]
    fn settled(&mut self) -> &mut Self {
        if let Some(overwrites) = self.overwrites.as_mut().filter(|all| all.is_pending()) {
            let Self { pages, nodes, .. } = self;
            overwrites.settle(pages, |ino, time| wrote(nodes, ino, time));
        }
        self
    }

    /// The pages overwritten under the shared lock, if there are any.
    #[inline]
    pub(crate) fn overwritten(&self) -> Option<&Overwrites> {
        self.overwrites.as_deref().filter(|overwrites| overwrites.is_pending())
    }

    /// Drops all that is cached of inode `ino` except its nodes.
    pub(crate) fn forget(&mut self, ino: Nid) {
        self.pages.forget(ino.into());
        self.names.forget(ino);
        self.extents.forget(ino);
        self.unflushed.remove(&ino);
        self.unjudged.remove(&ino);
    }
}

/// Notes in an inode when it was overwritten. It is cached: it was when that happened, and only the
/// exclusive holder of the shard drops nodes.
#[cold]
fn wrote(nodes: &mut NodeCache, ino: Ino, time: Timespec) {
    let inode = Nid::try_from(ino).ok().and_then(|ino| nodes.change(ino));
    debug_assert!(inode.is_some(), "inode {ino} was overwritten and is not cached");
    if let Some(inode) = inode {
        RawInodeBlock::of_mut(inode).i.wrote(0, time);
    }
}

impl Inodes {
    /// Room for `bytes` of pages, for a quarter of that in clean nodes and a half of it in changed
    /// ones, and for an eighth of it in indexes of names.
    pub(crate) fn new(bytes: u64) -> Self {
        let pages = Arc::new(Budget::new(usize::try_from(bytes).unwrap_or(usize::MAX)));
        let (nodes, names) = (Arc::new(NodeCounts::default()), Arc::new(NameRoom::new(bytes / 8)));
        let (of_nodes, of_pages, of_names) = (nodes.clone(), pages.clone(), names.clone());
        let shard = move || {
            let (nodes, pages) = (NodeCache::new(&of_nodes), PageCache::sharing(&of_pages));
            let (unflushed, unjudged) = (FxHashSet::default(), FxHashMap::default());
            let names = NameIndexes::sharing(&of_names);
            let (extents, overwrites) = (Extents::default(), None);
            let (purse, in_place) = (0, 0);
            Shard { nodes, pages, overwrites, names, extents, purse, unflushed, in_place, unjudged }
        };
        let shards = Shards::new(Rank::Inode, "f2fs inodes", SHARDS_MIN, shard);
        let nodes_max = (bytes / 4 / BLOCK_SIZE as u64).max(64) as usize;
        let changed_max = (bytes / 2 / BLOCK_SIZE as u64) as usize;
        let changed_max = changed_max.clamp(MIN_DIRTY_NODES, MAX_DIRTY_NODES);
        Self { shards, pages, nodes, names, nodes_max, changed_max, hand: 0 }
    }

    /// The shard of inode `ino`, with the volume locked exclusively.
    #[inline]
    pub(crate) fn of(&mut self, ino: Nid) -> &mut Shard {
        self.shards.of(ino.into()).settled()
    }

    /// The shard of inode `ino`, locked shared.
    #[inline]
    pub(crate) fn look(&self, ino: Nid) -> PerCoreReadGuard<'_, Shard> {
        self.shards.look(ino.into())
    }

    /// Locks the shards of `inos` for changes; `None` for no inode.
    #[inline]
    pub(crate) fn own<const N: usize>(&self, inos: [Nid; N]) -> Option<OwnedShards<'_, Shard>> {
        let mut shards = self.shards.own_all(inos.map(Into::into))?;
        for ino in inos {
            if let Some(shard) = shards.get_mut(ino.into()) {
                shard.settled();
            }
        }
        Some(shards)
    }

    /// The index of the shard that has inode `ino`.
    #[inline]
    pub(crate) fn index(&self, ino: Nid) -> usize {
        self.shards.index(ino.into())
    }

    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut Shard> {
        self.shards.all().map(Shard::settled)
    }

    /// Takes back what shards were given of the credit.
    pub(crate) fn empty_purses(&mut self) {
        for shard in self.all() {
            shard.purse = 0;
            if let Some(overwrites) = &mut shard.overwrites {
                overwrites.empty_purses();
            }
        }
    }

    /// To be called when a checkpoint is durable: so is all that was written before it.
    pub(crate) fn all_is_stable(&mut self) {
        for shard in self.all() {
            shard.unflushed.clear();
            shard.unjudged.clear();
        }
    }

    /// Blocks of files overwritten in place since the mount.
    pub(crate) fn in_place(&mut self) -> u64 {
        self.all().map(|shard| shard.in_place).sum()
    }

    /// What the extent caches count.
    pub(crate) fn extent_counts(&mut self) -> ExtentCounts {
        self.all().map(|shard| shard.extents.counts()).sum()
    }

    /// How many pages there are, and may be.
    pub(crate) fn pages(&self) -> &Budget {
        &self.pages
    }

    /// How many nodes there are, and have changed.
    pub(crate) fn nodes(&self) -> &NodeCounts {
        &self.nodes
    }

    /// The inodes that have dirty pages, ascending.
    pub(crate) fn with_dirty_pages(&mut self) -> Vec<Nid> {
        let inos = self.all().flat_map(|shard| shard.pages.dirty_inos());
        let mut inos: Vec<Nid> = inos.filter_map(|ino| ino.try_into().ok()).collect();
        inos.sort_unstable();
        inos
    }

    /// All changed nodes, with their inodes: what an fsync has to write, then what it has not.
    pub(crate) fn changed_nodes(&mut self) -> Vec<(Nid, Nid)> {
        let mut dirty: Vec<_> = self.all().flat_map(|shard| shard.nodes.dirty_all()).collect();
        dirty.sort_unstable();
        let mut moved: Vec<_> = self.all().flat_map(|shard| shard.nodes.moved_all()).collect();
        moved.sort_unstable();
        dirty.extend(moved);
        dirty
    }

    /// Makes room for changes under the shared lock, which cannot evict: evicts pages if no more
    /// fit, the clock going round all shards, and drops nodes and name indexes beyond their limits.
    #[inline]
    pub(crate) fn make_room(&mut self) {
        self.shrink_names();
        self.shrink_nodes();
        if self.pages.room() == 0 {
            self.evict_pages();
        }
    }

    #[cold]
    fn evict_pages(&mut self) {
        loop {
            let excess = self.pages.excess(self.pages.batch());
            if excess == 0 {
                return;
            }
            let shard = self.shards.at_mut(self.hand);
            if !shard.is_some_and(|shard| shard.settled().pages.evict(excess)) {
                self.hand = (self.hand + 1) % self.shards.count();
            }
        }
    }

    /// Drops clean nodes that were not used since the last time, if there are too many. Nodes
    /// made here count like those that were read: a checkpoint has made them clean.
    pub(crate) fn shrink_nodes(&mut self) {
        if self.has_many_clean_nodes() {
            self.all().for_each(|shard| shard.nodes.drop_unused());
        }
    }

    /// How many clean nodes are kept.
    pub(crate) fn clean_nodes_max(&self) -> usize {
        self.nodes_max
    }

    /// Whether there are more clean nodes than are kept.
    pub(crate) fn has_many_clean_nodes(&self) -> bool {
        self.nodes.all() >= self.nodes_max + self.nodes.changed()
    }

    /// Whether so many nodes have changed that it is time for a checkpoint.
    pub(crate) fn has_many_changed_nodes(&self) -> bool {
        self.would_be_many_changed(0)
    }

    /// Whether it would be time for a checkpoint if `more` nodes were changed.
    pub(crate) fn would_be_many_changed(&self, more: usize) -> bool {
        self.nodes.changed() + more > self.changed_max
    }
}
