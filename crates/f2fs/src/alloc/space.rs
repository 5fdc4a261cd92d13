//! How much is in use, and how much users may have (`inc_valid_block_count` and the like).

use crate::error::{Error, Result};
use crate::ondisk::checkpoint::Checkpoint;
use crate::ondisk::superblock::Superblock;

/// Blocks, nodes and inodes in use.
pub(crate) struct Space {
    user_blocks: u64,
    /// Data and node blocks, including those that are reserved but not yet written.
    pub(crate) valid_blocks: u64,
    /// Nodes, including inodes.
    pub(crate) valid_nodes: u32,
    /// Inodes.
    pub(crate) valid_inodes: u32,
}

impl Space {
    /// The counts of `checkpoint`. It counts a segment that ends beyond its zone's capacity as a
    /// whole one (`f2fs_get_usable_segments`). So users get at most `usable_blocks` less the
    /// reserve; otherwise there would be no section for the last blocks.
    pub(crate) fn new(checkpoint: &Checkpoint, sb: &Superblock, usable_blocks: u64) -> Self {
        let kept = u64::from(checkpoint.overprov_segment_count) * usable_blocks
            / u64::from(sb.segment_count_main);
        Self {
            user_blocks: checkpoint.user_block_count.min(usable_blocks.saturating_sub(kept)),
            valid_blocks: checkpoint.valid_block_count,
            valid_nodes: checkpoint.valid_node_count,
            valid_inodes: checkpoint.valid_inode_count,
        }
    }

    /// Blocks users may fill, and how many of them are free.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.user_blocks, self.user_blocks.saturating_sub(self.valid_blocks))
    }

    /// Takes one block.
    pub(crate) fn take_block(&mut self) -> Result<()> {
        self.take_blocks(1)
    }

    /// Takes `count` blocks, or none.
    pub(crate) fn take_blocks(&mut self, count: u64) -> Result<()> {
        if count > self.user_blocks.saturating_sub(self.valid_blocks) {
            return Err(Error::NoSpace);
        }
        self.valid_blocks += count;
        Ok(())
    }

    /// Gives one block back.
    pub(crate) fn give_block(&mut self) {
        self.valid_blocks = self.valid_blocks.saturating_sub(1);
    }

    /// Takes the block of a new node, which may be an `inode`.
    pub(crate) fn take_node(&mut self, inode: bool) -> Result<()> {
        self.take_block()?;
        self.valid_nodes += 1;
        self.valid_inodes += u32::from(inode);
        Ok(())
    }

    /// Gives a node's block back.
    pub(crate) fn give_node(&mut self, inode: bool) {
        self.give_block();
        self.valid_nodes = self.valid_nodes.saturating_sub(1);
        self.valid_inodes = self.valid_inodes.saturating_sub(u32::from(inode));
    }
}
