//! The volume's metadata blocks in memory, in shards with a lock each. They are never dirty.

use std::sync::Arc;

use cores::{Mutex, Rank};
use drive::{BLOCK_SIZE, Block};
use queue::{BlockQueue, Io};
use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::ondisk::FsBlock;

/// Neighbouring blocks are in different shards.
const SHARDS: usize = 64;

/// Reads blocks, and keeps those with metadata.
pub(crate) struct Blocks {
    io: Io,
    /// Each protects its blocks; nothing is read from the drive under it.
    shards: Box<[Mutex<FxHashMap<FsBlock, Block>>]>,
    /// Blocks in a shard. A full one is emptied, which costs a few reads again.
    each: usize,
}

impl Blocks {
    /// Blocks of `size` bytes on the drive of `queue`; about `bytes` of metadata are kept.
    pub(crate) fn new(queue: Arc<BlockQueue>, size: u32, bytes: u64) -> Self {
        let shard = |key| Mutex::ranked(Rank::Node, "ext4 blocks", FxHashMap::default()).keyed(key);
        let each = bytes / BLOCK_SIZE as u64 / SHARDS as u64;
        Self {
            io: Io::sliced(queue, size),
            shards: (0..SHARDS as u64).map(shard).collect(),
            each: usize::try_from(each).unwrap_or(usize::MAX).max(8),
        }
    }

    /// Block `at`, which is on the volume.
    pub(crate) fn read(&self, at: FsBlock) -> Result<Block> {
        let shard = &self.shards[at as usize % SHARDS];
        if let Some(block) = shard.lock().get(&at) {
            return Ok(block.clone());
        }
        let block = self.io.read(at)?;
        let mut shard = shard.lock();
        if shard.len() >= self.each {
            shard.clear();
        }
        shard.insert(at, block.clone());
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
