//! The volume's blocks: those with metadata are kept in memory, as blocks of the drive.

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
    /// Bytes of a block of the volume.
    size: usize,
    kept: Kept<Block>,
}

impl Blocks {
    /// Blocks of `size` bytes on the drive of `queue`; about `bytes` of metadata are kept.
    pub(crate) fn new(queue: Arc<BlockQueue>, size: u32, bytes: u64) -> Self {
        let kept = Kept::new(Rank::Node, "ext4 blocks", bytes, BLOCK_SIZE as u64);
        Self { io: Io::new(queue), size: size as usize, kept }
    }

    /// Block `at`, which is on the volume.
    pub(crate) fn read(&self, at: FsBlock) -> Result<Block> {
        let each = (BLOCK_SIZE / self.size) as u64;
        let whole = self.read_whole(at / each)?;
        if each == 1 {
            return Ok(whole);
        }
        let from = (at % each) as usize * self.size;
        Ok(Block::from_prefix(&whole[from..from + self.size]))
    }

    fn read_whole(&self, lba: u64) -> Result<Block> {
        if let Some(block) = self.kept.get(lba) {
            return Ok(block);
        }
        let block = self.io.read(lba)?;
        self.kept.put(lba, block.clone());
        Ok(block)
    }

    /// Reads the bytes from byte `skip` of block `start` on into `buf`, past what is kept.
    pub(crate) fn read_bytes(&self, start: FsBlock, skip: usize, buf: &mut [u8]) -> Result<()> {
        /// Blocks of one piece: what is in memory at a time.
        const PIECE: usize = 256;
        let byte = start * self.size as u64 + skip as u64;
        let (mut lba, mut rest) = (byte / BLOCK_SIZE as u64, buf);
        let mut skip = (byte % BLOCK_SIZE as u64) as usize;
        while !rest.is_empty() {
            let count = (skip + rest.len()).div_ceil(BLOCK_SIZE).min(PIECE);
            for block in self.io.read_run(lba, count as u32)? {
                let (into, behind) = rest.split_at_mut(rest.len().min(BLOCK_SIZE - skip));
                into.copy_from_slice(&block[skip..skip + into.len()]);
                (rest, skip) = (behind, 0);
            }
            lba += count as u64;
        }
        Ok(())
    }
}
