//! The engine's way to the queue: block reads, merged writes, and metadata held back until the
//! checkpoint that makes it true.
//!
//! Invariant (the kernel's `PG_writeback`): a block whose write the drive has not completed is read
//! from the write's own memory, so pages and nodes may be evicted as soon as they are submitted;
//! and it is not written again before ([`Io::is_in_flight`]), for a drive may finish two writes of
//! one block in either order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use drive::{Block, Blocks, Command};
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
    in_flight: InFlight,
    written_blocks: u64,
}

/// Adjacent blocks of one write command.
struct Run {
    start: BlockAddr,
    blocks: Blocks,
}

impl Run {
    fn get(&self, addr: BlockAddr) -> Option<&Block> {
        self.blocks.get(addr.checked_sub(self.start)? as usize)
    }
}

/// What is on its way to the drive, by first block.
///
/// A run is in flight while its [`WriteSet`] holds it too: whoever waits for it lets go of it, and
/// needs no lock for that. Those that are done are weeded out now and then.
#[derive(Default)]
struct InFlight {
    runs: BTreeMap<BlockAddr, Arc<Run>>,
    blocks: usize,
    /// Weed at this many blocks.
    weed_at: usize,
}

/// Blocks kept after their writes were done, before they are weeded out.
const WEED_BLOCKS: usize = 512;

impl InFlight {
    fn get(&self, addr: BlockAddr) -> Option<&Block> {
        let (_, run) = self.runs.range(..=addr).next_back()?;
        run.get(addr).filter(|_| Arc::strong_count(run) > 1)
    }

    fn insert(&mut self, run: Arc<Run>) {
        if self.blocks >= self.weed_at {
            self.runs.retain(|_, run| Arc::strong_count(run) > 1);
            self.blocks = self.runs.values().map(|run| run.blocks.len()).sum();
            self.weed_at = WEED_BLOCKS.max(2 * self.blocks);
        }
        // Nothing is written twice at a time, so what begins within this run is done, and would
        // hide the rest of it.
        let end = run.start + run.blocks.len() as u32;
        while let Some((&start, _)) = self.runs.range(run.start..end).next() {
            let done = self.runs.remove(&start);
            self.blocks -= done.map_or(0, |run| run.blocks.len());
        }
        self.blocks += run.blocks.len();
        self.runs.insert(run.start, run);
    }
}

/// Writes submitted together and waited for together.
///
/// Adjacent blocks become one command. The pending run must be submitted ([`WriteSet::submit`])
/// before another set writes to the same log, or a sequential zone would see them out of order.
#[derive(Default)]
pub(crate) struct WriteSet {
    start: BlockAddr,
    run: Blocks,
    tickets: SmallVec<[(Ticket, Option<Arc<Run>>); 4]>,
}

impl WriteSet {
    /// Adds the write of `block` at `addr`.
    pub(crate) fn push(&mut self, io: &mut Io, addr: BlockAddr, block: Block) {
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
    pub(crate) fn submit(&mut self, io: &mut Io) {
        if self.run.is_empty() {
            return;
        }
        let (start, data) = (self.start, std::mem::take(&mut self.run));
        let blocks = data.clone();
        io.written_blocks += data.len() as u64;
        let ticket = io.queue.submit(Command::Write { lba: u64::from(start), data, fua: false });
        let run = (!ticket.is_answered()).then(|| Arc::new(Run { start, blocks }));
        if let Some(run) = &run {
            io.in_flight.insert(run.clone());
        }
        self.tickets.push((ticket, run));
    }

    /// Waits until the drive has completed every write of the set.
    pub(crate) fn wait(&mut self, queue: &BlockQueue) -> Result<()> {
        debug_assert!(self.run.is_empty(), "a run was not submitted");
        let mut result = Ok(());
        for (ticket, run) in self.tickets.drain(..) {
            if let Err(error) = queue.wait(ticket) {
                result = Err(error.into());
            }
            drop(run);
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
            in_flight: InFlight::default(),
            written_blocks: 0,
            queue,
        }
    }

    /// The queue, to wait on without holding the volume.
    pub(crate) fn queue(&self) -> &Arc<BlockQueue> {
        &self.queue
    }

    /// Whether a cut may leave a block with some old and some new sectors.
    pub(crate) fn tears(&self) -> bool {
        (self.queue.identify().atomic_write as usize) < drive::BLOCK_SIZE
    }

    /// Blocks written since the mount.
    pub(crate) fn written_blocks(&self) -> u64 {
        self.written_blocks
    }

    /// Reads one block.
    pub(crate) fn read(&self, addr: BlockAddr) -> Result<Block> {
        if u64::from(addr) >= self.blocks {
            return Err(Error::corrupt("block address", addr, addr, format!("0..{}", self.blocks)));
        }
        match self.in_flight.get(addr) {
            Some(block) => Ok(block.clone()),
            None => Ok(self.queue.read_block(u64::from(addr))?),
        }
    }

    /// Reads `count` adjacent blocks.
    pub(crate) fn read_run(&self, addr: BlockAddr, count: u32) -> Result<Blocks> {
        // What completes during the read is taken from memory too: it was in flight when the drive
        // was asked.
        let any = if self.in_flight.runs.is_empty() { 0 } else { count };
        let held: SmallVec<[(usize, Block); 4]> = (0..any)
            .filter_map(|i| Some((i as usize, self.in_flight.get(addr + i)?.clone())))
            .collect();
        if count > 0 && held.len() == count as usize {
            return Ok(held.into_iter().map(|(_, block)| block).collect());
        }
        let mut blocks = self.queue.read_blocks(u64::from(addr), count)?;
        for (i, block) in held {
            blocks[i] = block;
        }
        Ok(blocks)
    }

    /// Whether some of these blocks may be on their way to the drive.
    pub(crate) fn has_in_flight(&self, mut addrs: Range<BlockAddr>) -> bool {
        !self.in_flight.runs.is_empty() && addrs.any(|addr| self.is_in_flight(addr))
    }

    /// Whether a write of this block has been submitted that the drive may not have completed.
    pub(crate) fn is_in_flight(&self, addr: BlockAddr) -> bool {
        self.in_flight.get(addr).is_some()
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

    /// A metadata block, to be changed for the next checkpoint in place.
    pub(crate) fn meta_mut(&mut self, addr: BlockAddr) -> Result<&mut Block> {
        if !self.meta.contains_key(&addr) {
            let block = self.read(addr)?;
            self.meta.insert(addr, block);
        }
        Ok(self.meta.get_mut(&addr).expect("it is there now"))
    }

    /// Submits all changed metadata, in address order. It stays here, to be read, until
    /// [`Io::forget_meta`]: a checkpoint that fails leaves the drive with half of it.
    pub(crate) fn submit_meta(&mut self, set: &mut WriteSet) {
        let meta = std::mem::take(&mut self.meta);
        for (addr, block) in &meta {
            set.push(self, *addr, block.clone());
        }
        set.submit(self);
        self.meta = meta;
    }

    /// The checkpoint that wrote the changed metadata is durable.
    pub(crate) fn forget_meta(&mut self) {
        self.meta.clear();
    }

    /// Asks the drive to make all completed writes stable.
    pub(crate) fn flush(&self) -> Result<()> {
        Ok(self.queue.flush()?)
    }
}
