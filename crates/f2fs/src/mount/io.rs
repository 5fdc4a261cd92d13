//! The volume's way to the drive: its blocks, and metadata kept back until the checkpoint that
//! makes it valid.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use cores::{Mutex, Rank};
use drive::{Block, Blocks, Lba};
use queue::{BlockQueue, WriteSet};
use rustc_hash::FxHashMap;
use vfs::{Buffers, Errno};

use crate::error::{Error, Result};
use crate::ondisk::BlockAddr;

/// Reads and writes blocks of one volume.
pub(crate) struct Io {
    blocks: u64,
    io: queue::Io,
    /// Metadata as the next checkpoint will have it.
    meta: Mutex<Buffers>,
    /// What the cleaner has read ahead. The drive's contents of these blocks do
    /// not change meanwhile.
    ahead: Mutex<Ahead>,
}

/// Blocks read ahead.
#[derive(Default)]
struct Ahead {
    blocks: FxHashMap<BlockAddr, Block>,
    /// If there is a list, reads that would wait for the drive fail and are noted on it.
    lacking: Option<BTreeSet<BlockAddr>>,
}

impl Io {
    pub(crate) fn new(queue: Arc<BlockQueue>) -> Self {
        let blocks = queue.identify().blocks;
        let meta = Mutex::ranked(Rank::Meta, "f2fs meta", Buffers::default());
        let ahead = Mutex::named("f2fs read ahead", Ahead::default());
        Self { blocks, io: queue::Io::new(queue), meta, ahead }
    }

    /// What a [`WriteSet`] writes to.
    pub(crate) fn writer(&self) -> &queue::Io {
        &self.io
    }

    /// The queue, to wait on with the volume unlocked.
    pub(crate) fn queue(&self) -> &Arc<BlockQueue> {
        self.io.queue()
    }

    /// Whether a cut may leave a block with some old and some new sectors.
    pub(crate) fn tears(&self) -> bool {
        (self.queue().identify().atomic_write as usize) < drive::BLOCK_SIZE
    }

    /// Blocks written since the mount.
    pub(crate) fn written_blocks(&self) -> u64 {
        self.io.written_blocks()
    }

    /// Reads one block.
    pub(crate) fn read(&self, addr: BlockAddr) -> Result<Block> {
        if u64::from(addr) >= self.blocks {
            return Err(Error::corrupt("block address", addr, addr, format!("0..{}", self.blocks)));
        }
        {
            let mut ahead = self.ahead.lock();
            if let Some(block) = ahead.blocks.get(&addr) {
                return Ok(block.clone());
            }
            if let Some(lacking) = &mut ahead.lacking
                && !self.is_in_flight(addr)
            {
                lacking.insert(addr);
                return Err(Errno::AGAIN.into());
            }
        }
        Ok(self.io.read(addr.into())?)
    }

    /// From now on, blocks that would have to be read are listed instead, and reading them fails.
    pub(crate) fn begin_list(&mut self) {
        self.ahead.get_mut().lacking = Some(BTreeSet::new());
    }

    /// The blocks listed. Blocks are read again from now on.
    pub(crate) fn end_list(&mut self) -> BTreeSet<BlockAddr> {
        self.ahead.get_mut().lacking.take().unwrap_or_default()
    }

    /// Keeps blocks that have been read, until [`Io::forget_ahead`]. Until then they must not be
    /// written.
    pub(crate) fn keep_ahead(&mut self, blocks: Vec<(BlockAddr, Block)>) {
        self.ahead.get_mut().blocks.extend(blocks);
    }

    /// Forgets what was read ahead.
    pub(crate) fn forget_ahead(&mut self) {
        self.ahead.get_mut().blocks.clear();
    }

    /// Reads `count` adjacent blocks.
    pub(crate) fn read_run(&self, addr: BlockAddr, count: u32) -> Result<Blocks> {
        Ok(self.io.read_run(addr.into(), count)?)
    }

    /// Whether some of these blocks may be on their way to the drive.
    pub(crate) fn has_in_flight(&self, blocks: Range<Lba>) -> bool {
        self.io.has_in_flight(blocks)
    }

    /// Whether a write of this block has been submitted and may not be complete.
    pub(crate) fn is_in_flight(&self, addr: BlockAddr) -> bool {
        self.io.is_in_flight(addr.into())
    }

    /// Reads a metadata block as the next checkpoint will have it.
    pub(crate) fn read_meta(&self, addr: BlockAddr) -> Result<Block> {
        let changed = self.meta.lock().get(addr.into()).cloned();
        changed.map_or_else(|| self.read(addr), Ok)
    }

    /// Whether the next checkpoint leaves this metadata block as it is on the drive.
    pub(crate) fn is_unchanged(&self, addr: BlockAddr) -> bool {
        self.meta.lock().get(addr.into()).is_none() && !self.is_in_flight(addr)
    }

    /// Changes a metadata block for the next checkpoint.
    pub(crate) fn write_meta(&self, addr: BlockAddr, block: Block) {
        self.meta.lock().put(addr.into(), block);
    }

    /// A metadata block, to be changed in place for the next checkpoint.
    pub(crate) fn meta_mut(&mut self, addr: BlockAddr) -> Result<&mut Block> {
        if self.meta.get_mut().get(addr.into()).is_none() {
            self.write_meta(addr, self.read(addr)?);
        }
        Ok(self.meta.get_mut().get_mut(addr.into()).expect("it is there now"))
    }

    /// Submits all changed metadata, in address order. Returns how many blocks that is.
    pub(crate) fn submit_meta(&mut self, set: &mut WriteSet) -> usize {
        let meta = self.meta.get_mut();
        meta.submit(&self.io, set);
        meta.len()
    }

    /// To be called when the checkpoint that wrote the changed metadata is durable.
    pub(crate) fn forget_meta(&mut self) {
        self.meta.get_mut().forget();
    }

    /// Makes the drive flush: all completed writes are then stable.
    pub(crate) fn flush(&self) -> Result<()> {
        Ok(self.queue().flush()?)
    }
}
