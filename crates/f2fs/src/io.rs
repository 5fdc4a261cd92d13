//! The engine's way to the queue: block reads, merged writes, and metadata held back until the
//! checkpoint that makes it true.

use std::collections::BTreeMap;
use std::sync::Arc;

use drive::{Block, Blocks, Command, Output};
use queue::{BlockQueue, Ticket};
use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::ondisk::BlockAddr;

/// Reads and writes blocks of one volume.
pub(crate) struct Io {
    queue: Arc<BlockQueue>,
    max_transfer: usize,
    zone_blocks: Option<u64>,
    blocks: u64,
    /// Metadata blocks changed since the last checkpoint. Nothing outside the checkpoint writes
    /// them, so a cut can only see all of them or none.
    meta: BTreeMap<BlockAddr, Block>,
}

/// Writes submitted together and waited for together.
///
/// Adjacent blocks become one command. The pending run must be submitted ([`WriteSet::submit`])
/// before another set writes to the same log, or a sequential zone would see them out of order.
#[derive(Default)]
pub(crate) struct WriteSet {
    start: BlockAddr,
    run: Blocks,
    tickets: SmallVec<[Ticket; 4]>,
}

impl WriteSet {
    /// Adds the write of `block` at `addr`.
    pub(crate) fn push(&mut self, io: &Io, addr: BlockAddr, block: Block) {
        let follows = !self.run.is_empty()
            && u64::from(self.start) + self.run.len() as u64 == u64::from(addr)
            && self.run.len() < io.max_transfer
            && io.zone_blocks.is_none_or(|zone| u64::from(addr) % zone != 0);
        if !follows {
            self.submit(io);
            self.start = addr;
        }
        self.run.push(block);
    }

    /// Hands the pending run to the queue.
    pub(crate) fn submit(&mut self, io: &Io) {
        if !self.run.is_empty() {
            let data = std::mem::take(&mut self.run);
            let write = Command::Write { lba: u64::from(self.start), data, fua: false };
            self.tickets.push(io.queue.submit(write));
        }
    }

    /// Waits until the drive has completed every write of the set.
    pub(crate) fn wait(&mut self, queue: &BlockQueue) -> Result<()> {
        debug_assert!(self.run.is_empty(), "a run was not submitted");
        let mut result = Ok(());
        for ticket in self.tickets.drain(..) {
            if let Err(error) = queue.wait(ticket) {
                result = Err(error.into());
            }
        }
        result
    }
}

impl Io {
    pub(crate) fn new(queue: Arc<BlockQueue>) -> Self {
        let identity = queue.identify();
        Self {
            max_transfer: identity.max_transfer.max(1) as usize,
            zone_blocks: identity.zones.map(|z| z.size),
            blocks: identity.blocks,
            meta: BTreeMap::new(),
            queue,
        }
    }

    /// The queue, to wait on without holding the volume.
    pub(crate) fn queue(&self) -> &Arc<BlockQueue> {
        &self.queue
    }

    /// Reads one block.
    pub(crate) fn read(&self, addr: BlockAddr) -> Result<Block> {
        if u64::from(addr) >= self.blocks {
            return Err(Error::corrupt("block address", addr, addr, format!("0..{}", self.blocks)));
        }
        Ok(self.queue.read_block(u64::from(addr))?)
    }

    /// Reads `count` adjacent blocks.
    pub(crate) fn read_run(&self, addr: BlockAddr, count: u32) -> Result<Blocks> {
        Ok(self.queue.read_blocks(u64::from(addr), count)?)
    }

    /// Reads a metadata block, as the next checkpoint will have it.
    pub(crate) fn read_meta(&self, addr: BlockAddr) -> Result<Block> {
        match self.meta.get(&addr) {
            Some(block) => Ok(block.clone()),
            None => self.read(addr),
        }
    }

    /// Changes a metadata block for the next checkpoint.
    pub(crate) fn write_meta(&mut self, addr: BlockAddr, block: Block) {
        self.meta.insert(addr, block);
    }

    /// Submits all changed metadata, in address order.
    pub(crate) fn submit_meta(&mut self, set: &mut WriteSet) {
        for (addr, block) in std::mem::take(&mut self.meta) {
            set.push(self, addr, block);
        }
        set.submit(self);
    }

    /// Writes one block with force unit access and waits for it.
    pub(crate) fn write_fua(&self, addr: BlockAddr, block: Block) -> Result<()> {
        let data = Blocks::from_iter([block]);
        self.queue.run(Command::Write { lba: u64::from(addr), data, fua: true })?;
        Ok(())
    }

    /// Asks the drive to make all completed writes stable.
    pub(crate) fn flush(&self) -> Result<()> {
        match self.queue.run(Command::Flush)? {
            Output::Done => Ok(()),
            other => Err(Error::corrupt("flush completion", 0_u32, format!("{other:?}"), "Done")),
        }
    }
}
