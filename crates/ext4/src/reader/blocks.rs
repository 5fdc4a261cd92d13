//! The volume's blocks: those with metadata are kept in memory.

use std::sync::Arc;

use cores::Rank;
use drive::{BLOCK_SIZE, Block};
use queue::{BlockQueue, Io};

use super::kept::Kept;
use crate::error::Result;
use crate::ondisk::FsBlock;

/// Reads blocks, and keeps those with metadata.
pub(crate) struct Blocks {
    io: Io,
    kept: Kept<Block>,
}

impl Blocks {
    /// Blocks of `size` bytes on the drive of `queue`; about `bytes` of metadata are kept.
    pub(crate) fn new(queue: Arc<BlockQueue>, size: u32, bytes: u64) -> Self {
        let kept = Kept::new(Rank::Node, "ext4 blocks", bytes, BLOCK_SIZE as u64);
        Self { io: Io::sliced(queue, size), kept }
    }

    /// Block `at`, which is on the volume.
    pub(crate) fn read(&self, at: FsBlock) -> Result<Block> {
        if let Some(block) = self.kept.get(at) {
            return Ok(block);
        }
        let block = self.io.read(at)?;
        self.kept.put(at, block.clone());
        Ok(block)
    }

    /// Reads the bytes from byte `skip` of block `start` on into `buf`, past what is kept.
    pub(crate) fn read_bytes(&self, start: FsBlock, skip: usize, buf: &mut [u8]) -> Result<()> {
        /// Blocks of one piece: what is in memory at a time.
        const PIECE: usize = 256;
        let size = self.io.block_size();
        let (mut at, mut skip, mut rest) = (start, skip, buf);
        while !rest.is_empty() {
            let count = (skip + rest.len()).div_ceil(size).min(PIECE);
            for block in self.io.read_run(at, count as u32)? {
                let (into, behind) = rest.split_at_mut(rest.len().min(size - skip));
                into.copy_from_slice(&block[skip..skip + into.len()]);
                (rest, skip) = (behind, 0);
            }
            at += count as u64;
        }
        Ok(())
    }
}
