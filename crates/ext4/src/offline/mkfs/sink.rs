//! Writes blocks of the file system to a drive, whose blocks may be larger.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use drive::{BLOCK_SIZE, Block, Lba};
use queue::BlockQueue;

use crate::error::Result;
use crate::ondisk::FsBlock;

/// Blocks of the drive that are gathered before they are written, and zeroes written at once.
const GATHERED: usize = 1024;

/// Gathers blocks, and writes adjacent ones together.
pub(super) struct Sink<'a> {
    queue: &'a BlockQueue,
    block_size: u64,
    gathered: BTreeMap<Lba, Block>,
    written: u64,
}

impl<'a> Sink<'a> {
    /// Writes blocks of `block_size` bytes.
    pub(super) fn new(queue: &'a BlockQueue, block_size: u32) -> Self {
        Self { queue, block_size: block_size.into(), gathered: BTreeMap::new(), written: 0 }
    }

    /// KiB written, or to be written at the next flush.
    pub(super) fn kib(&self) -> u64 {
        (self.written + self.gathered.len() as u64) * (BLOCK_SIZE as u64 / 1024)
    }

    /// Writes `bytes`, which lie in one block, from byte `offset` of block `at` on.
    pub(super) fn put(&mut self, at: FsBlock, offset: usize, bytes: &[u8]) -> Result<()> {
        let byte = at * self.block_size + offset as u64;
        let (lba, start) = (byte / BLOCK_SIZE as u64, (byte % BLOCK_SIZE as u64) as usize);
        if self.gathered.len() >= GATHERED && !self.gathered.contains_key(&lba) {
            self.write_out()?;
        }
        let block = match self.gathered.entry(lba) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(free) if bytes.len() == BLOCK_SIZE => free.insert(Block::zeroed()),
            Entry::Vacant(free) => free.insert(self.queue.read_block(lba)?),
        };
        block.make_mut()[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    /// Makes bytes of the drive's first block zero, durably.
    pub(super) fn erase(&mut self, bytes: Range<usize>) -> Result<()> {
        let mut block = self.queue.read_block(0)?;
        block.make_mut()[bytes].fill(0);
        self.queue.write_blocks(0, vec![block], false)?;
        Ok(self.queue.flush()?)
    }

    /// Makes blocks zero.
    pub(super) fn zero(&mut self, blocks: Range<FsBlock>) -> Result<()> {
        let each = BLOCK_SIZE as u64 / self.block_size;
        let zeroes = vec![0; self.block_size as usize];
        // Blocks that share one of the drive's with others, and then whole ones.
        let inner = blocks.start.next_multiple_of(each).min(blocks.end)
            ..(blocks.end / each * each).max(blocks.start);
        if inner.start >= inner.end {
            return blocks.into_iter().try_for_each(|at| self.put(at, 0, &zeroes));
        }
        let mut ends = (blocks.start..inner.start).chain(inner.end..blocks.end);
        ends.try_for_each(|at| self.put(at, 0, &zeroes))?;
        self.zero_whole(inner.start / each..inner.end / each)
    }

    fn zero_whole(&mut self, lbas: Range<Lba>) -> Result<()> {
        let identify = self.queue.identify();
        if identify.discard && identify.discard_zeroes {
            return Ok(self.queue.discard(lbas.start, lbas.end - lbas.start)?);
        }
        for at in lbas.clone().step_by(GATHERED) {
            let count = (lbas.end - at).min(GATHERED as u64) as usize;
            self.queue.write_blocks(at, vec![Block::zeroed(); count], false)?;
            self.written += count as u64;
        }
        Ok(())
    }

    fn write_out(&mut self) -> Result<()> {
        let mut gathered = std::mem::take(&mut self.gathered).into_iter().peekable();
        while let Some((start, block)) = gathered.next() {
            let mut run = vec![block];
            while let Some((_, next)) =
                gathered.next_if(|(lba, _)| *lba == start + run.len() as u64)
            {
                run.push(next);
            }
            self.written += run.len() as u64;
            self.queue.write_blocks(start, run, false)?;
        }
        Ok(())
    }

    /// Writes everything that was put, durably.
    pub(super) fn flush(&mut self) -> Result<()> {
        self.write_out()?;
        Ok(self.queue.flush()?)
    }
}
