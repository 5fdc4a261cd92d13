//! How much is in use, and how much users may have (`inc_valid_block_count` and the like).

use std::sync::Arc;

use cores::{Mutex, Rank};
use vfs::RootReserve;

use crate::error::{Error, Result};
use crate::mount::faults::{FaultType, Faults};
use crate::ondisk::checkpoint::Checkpoint;
use crate::ondisk::superblock::Superblock;

/// The largest part of the volume that can be kept from users without rights to it, as a power of
/// two: an eighth (`limit_reserve_root`).
const LARGEST_PART: u32 = 3;

/// How much of the volume is in use, counted by all who take or give something at once.
pub(crate) struct Space {
    user_blocks: u64,
    /// Free blocks that only some users get.
    root_reserve: RootReserve,
    used: Mutex<Used>,
    faults: Arc<Faults>,
}

/// Blocks, nodes and inodes in use.
#[derive(Clone, Copy)]
pub(crate) struct Used {
    /// Data and node blocks, including those that are reserved but not yet written.
    pub(crate) blocks: u64,
    /// Nodes, including inodes.
    pub(crate) nodes: u32,
    /// Inodes.
    pub(crate) inodes: u32,
    /// Blocks taken since the last checkpoint, those given back too: roll-forward takes as many,
    /// and need not find that anything was given back (`alloc_valid_block_count`).
    pub(crate) taken: u64,
    /// Free blocks that users do not get (`reserved_blocks`).
    kept: u64,
}

impl Used {
    fn give_node(&mut self, inode: bool) {
        self.nodes = self.nodes.saturating_sub(1);
        self.inodes = self.inodes.saturating_sub(u32::from(inode));
    }
}

impl Space {
    /// The counts of `checkpoint`. It counts a segment that ends beyond its zone's capacity as a
    /// whole one (`f2fs_get_usable_segments`). So users get at most `usable_blocks` less the
    /// reserve; otherwise there would be no section for the last blocks.
    pub(crate) fn new(
        checkpoint: &Checkpoint,
        sb: &Superblock,
        usable_blocks: u64,
        root_reserve: RootReserve,
        faults: Arc<Faults>,
    ) -> Self {
        let kept = u64::from(checkpoint.overprov_segment_count) * usable_blocks
            / u64::from(sb.segment_count_main);
        let used = Used {
            blocks: checkpoint.valid_block_count,
            nodes: checkpoint.valid_node_count,
            inodes: checkpoint.valid_inode_count,
            taken: 0,
            kept: 0,
        };
        let user_blocks = checkpoint.user_block_count.min(usable_blocks.saturating_sub(kept));
        Self {
            user_blocks,
            root_reserve: RootReserve {
                blocks: root_reserve.blocks.min(user_blocks >> LARGEST_PART),
                ..root_reserve
            },
            used: Mutex::ranked(Rank::Space, "f2fs space", used),
            faults,
        }
    }

    /// Blocks that users may fill.
    pub(crate) fn user_blocks(&self) -> u64 {
        self.user_blocks
    }

    /// How many of them are free.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.free_beside(&self.used())
    }

    /// How many of the free blocks users get who have no right to the others.
    pub(crate) fn free_for_all(&self) -> u64 {
        self.free_blocks().saturating_sub(self.root_reserve.blocks)
    }

    /// How many blocks the user gets for whom the calling thread works.
    pub(crate) fn free_for_caller(&self) -> u64 {
        self.granted_beside(&self.used())
    }

    fn granted_beside(&self, used: &Used) -> u64 {
        self.free_beside(used).saturating_sub(self.root_reserve.kept_from_caller())
    }

    fn free_beside(&self, used: &Used) -> u64 {
        self.user_blocks.saturating_sub(used.blocks).saturating_sub(used.kept)
    }

    /// Keeps up to so many free blocks from users (`f2fs_reserve_blocks`).
    pub(crate) fn reserve(&self, blocks: u64) {
        self.used.lock().kept = blocks;
    }

    /// How many blocks are kept from users now: no more than are free.
    pub(crate) fn reserved(&self) -> u64 {
        let used = self.used();
        used.kept.min(self.user_blocks.saturating_sub(used.blocks))
    }

    /// Percent of them in use, rounded down (`utilization`).
    pub(crate) fn used_percent(&self) -> u64 {
        self.used().blocks * 100 / self.user_blocks.max(1)
    }

    /// What is in use now.
    pub(crate) fn used(&self) -> Used {
        *self.used.lock()
    }

    /// Counts `blocks` that roll-forward may take although this mount has not taken them.
    pub(crate) fn claim(&self, blocks: u64) {
        self.used.lock().taken += blocks;
    }

    /// To be called when a checkpoint is durable.
    pub(crate) fn begin_chain(&self) {
        self.used.lock().taken = 0;
    }

    /// Takes `count` blocks, or none.
    pub(crate) fn take_blocks(&self, count: u64) -> Result<()> {
        self.take(count, |_| ())
    }

    /// Gives one block back.
    pub(crate) fn give_block(&self) {
        self.give(1, |_| ());
    }

    /// Takes the block of a new node, which may be an `inode`.
    pub(crate) fn take_node(&self, inode: bool) -> Result<()> {
        self.take(1, |used| {
            used.nodes += 1;
            used.inodes += u32::from(inode);
        })
    }

    /// Gives a node's block back.
    pub(crate) fn give_node(&self, inode: bool) {
        self.give(1, |used| used.give_node(inode));
    }

    /// Gives an inode's block back, and `blocks` that it had.
    pub(crate) fn give_inode(&self, blocks: u64) {
        self.give(1 + blocks, |used| used.give_node(true));
    }

    fn take(&self, blocks: u64, count: impl FnOnce(&mut Used)) -> Result<()> {
        let mut used = self.used.lock();
        if blocks > self.granted_beside(&used) || self.faults.fires(FaultType::BLOCK) {
            return Err(Error::NoSpace);
        }
        used.blocks += blocks;
        used.taken += blocks;
        count(&mut used);
        Ok(())
    }

    fn give(&self, blocks: u64, count: impl FnOnce(&mut Used)) {
        let mut used = self.used.lock();
        used.blocks = used.blocks.saturating_sub(blocks);
        count(&mut used);
    }
}
