//! The volume's metadata blocks in memory, in shards with a lock each.
//!
//! A drive has blocks of 4 KiB; a block of the file system is one of them or a part of one. What is
//! kept here is never dirty.

use std::ops::Range;
use std::sync::Arc;

use cores::{Mutex, Rank};
use drive::{BLOCK_SIZE, Block, Lba};
use queue::{BlockQueue, Io};
use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::ondisk::FsBlock;

/// Neighbouring blocks are in different shards.
const SHARDS: usize = 64;

/// Reads blocks, and keeps those with metadata.
pub(crate) struct Blocks {
    io: Io,
    /// Bytes of a file system block.
    size: usize,
    /// Each protects its blocks; nothing is read from the drive under it.
    shards: Box<[Mutex<FxHashMap<Lba, Block>>]>,
    /// Blocks in a shard. A full one is emptied, which costs a few reads again.
    each: usize,
}

/// One block of the file system.
#[derive(Clone)]
pub(crate) struct Buf {
    block: Block,
    range: Range<usize>,
}

impl std::ops::Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.block[self.range.clone()]
    }
}

impl Blocks {
    /// Blocks of `size` bytes on the drive of `queue`; about `bytes` of metadata are kept.
    pub(crate) fn new(queue: Arc<BlockQueue>, size: usize, bytes: u64) -> Self {
        let shard = |key| Mutex::ranked(Rank::Node, "ext4 blocks", FxHashMap::default()).keyed(key);
        let each = bytes / BLOCK_SIZE as u64 / SHARDS as u64;
        Self {
            io: Io::new(queue),
            size,
            shards: (0..SHARDS as u64).map(shard).collect(),
            each: usize::try_from(each).unwrap_or(usize::MAX).max(8),
        }
    }

    /// Block `at` of the file system, which is on the volume.
    pub(crate) fn read(&self, at: FsBlock) -> Result<Buf> {
        let byte = at * self.size as u64;
        let lba = byte / BLOCK_SIZE as u64;
        let from = (byte % BLOCK_SIZE as u64) as usize;
        Ok(Buf { block: self.drive_block(lba)?, range: from..from + self.size })
    }

    fn drive_block(&self, lba: Lba) -> Result<Block> {
        let shard = &self.shards[lba as usize % SHARDS];
        if let Some(block) = shard.lock().get(&lba) {
            return Ok(block.clone());
        }
        let block = self.io.read(lba)?;
        let mut shard = shard.lock();
        if shard.len() >= self.each {
            shard.clear();
        }
        shard.insert(lba, block.clone());
        Ok(block)
    }

    /// Reads the bytes of the volume that begin at byte `from` into `buf`, past what is kept.
    pub(crate) fn read_bytes(&self, from: u64, buf: &mut [u8]) -> Result<()> {
        /// Blocks of one piece: what is in memory at a time.
        const PIECE: u64 = 256;
        let end = from + buf.len() as u64;
        let mut at = from;
        while at < end {
            let first = at / BLOCK_SIZE as u64;
            let count = (end.div_ceil(BLOCK_SIZE as u64) - first).min(PIECE);
            for (lba, block) in (first..).zip(self.io.read_run(first, count as u32)?) {
                let start = lba * BLOCK_SIZE as u64;
                let within = (at - start) as usize..(end - start).min(BLOCK_SIZE as u64) as usize;
                let into = (at - from) as usize;
                buf[into..into + within.len()].copy_from_slice(&block[within.clone()]);
                at += within.len() as u64;
            }
        }
        Ok(())
    }
}
