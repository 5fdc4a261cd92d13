//! Reads and writes of one volume's blocks. Adjacent writes are merged, and what is in flight is
//! read from memory.
//!
//! Invariant (the kernel's `PG_writeback`): while the drive has not completed the write of a block,
//! the block is read from the write's own memory, so pages and metadata may be evicted as soon as
//! they are submitted. It is also not written again before then ([`Io::is_in_flight`]), because a
//! drive may finish two writes of one block in either order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use cores::{Line, Mutex, MutexGuard, Rank};
use drive::{BLOCK_SIZE, Block, Blocks, Command, Lba};
use smallvec::SmallVec;

use crate::slices::Slices;
use crate::{BlockQueue, IoError, Ticket};

/// Reads and writes blocks of one volume. They may be smaller than the drive's ([`Io::sliced`]);
/// then the rest of each [`Block`] in memory is not used, and read as zeroes.
pub struct Io {
    queue: Arc<BlockQueue>,
    slices: Option<Slices>,
    max_transfer: usize,
    zone_blocks: Option<u64>,
    /// What has been submitted and may not be complete.
    in_flight: Mutex<InFlight>,
    /// How many runs are in flight, so that none is seen without the lock.
    runs: Line,
    written_blocks: Line,
    /// Writes and flushes of the drive that had failed before this volume used it.
    failed_before: u64,
}

/// Adjacent blocks of one write command.
struct Run {
    start: Lba,
    blocks: Blocks,
}

impl Run {
    fn get(&self, lba: Lba) -> Option<&Block> {
        self.blocks.get(lba.checked_sub(self.start)? as usize)
    }
}

/// Writes in flight, by first block.
///
/// A run is in flight as long as its [`WriteSet`] holds it too. A wait drops it there, which needs
/// no lock. Completed runs are removed here from time to time.
#[derive(Default)]
struct InFlight {
    runs: BTreeMap<Lba, Arc<Run>>,
    blocks: usize,
    /// Remove completed runs at this many blocks.
    weed_at: usize,
}

/// How many blocks may be kept after their writes have completed.
const WEED_BLOCKS: usize = 512;

impl InFlight {
    fn get(&self, lba: Lba) -> Option<&Block> {
        let (_, run) = self.runs.range(..=lba).next_back()?;
        run.get(lba).filter(|_| Arc::strong_count(run) > 1)
    }

    fn insert(&mut self, run: Arc<Run>) {
        if self.blocks >= self.weed_at {
            self.runs.retain(|_, run| Arc::strong_count(run) > 1);
            self.blocks = self.runs.values().map(|run| run.blocks.len()).sum();
            self.weed_at = WEED_BLOCKS.max(2 * self.blocks);
        }
        // No block is written twice at a time. So a run that begins within this one is done, and
        // would hide the rest of this one.
        let end = run.start + run.blocks.len() as u64;
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
/// before another set writes to the same log; otherwise a sequential zone would see them out of
/// order.
#[derive(Default)]
pub struct WriteSet {
    start: Lba,
    run: Blocks,
    tickets: SmallVec<[(Ticket, Option<Arc<Run>>); 4]>,
    /// Why a write could not be submitted.
    failed: Option<IoError>,
}

impl WriteSet {
    /// Adds the write of `block` at `lba`.
    #[inline]
    pub fn push(&mut self, io: &Io, lba: Lba, block: Block) {
        let follows = !self.run.is_empty()
            && self.start + self.run.len() as u64 == lba
            && self.run.len() < io.max_transfer
            && io.zone_blocks.is_none_or(|zone| !lba.is_multiple_of(zone));
        if !follows {
            self.submit(io);
            self.start = lba;
        }
        self.run.push(block);
    }

    /// Adds the write of `block` at `lba`, which completes only when the block is on stable media
    /// (`REQ_FUA`). It is a command of its own. What it must not overtake has to be waited for, and
    /// flushed, before.
    pub fn push_forced(&mut self, io: &Io, lba: Lba, block: Block) {
        self.submit(io);
        self.start = lba;
        self.run.push(block);
        self.send(io, true);
    }

    /// Submits the pending run to the queue.
    pub fn submit(&mut self, io: &Io) {
        if !self.run.is_empty() {
            self.send(io, false);
        }
    }

    fn send(&mut self, io: &Io, fua: bool) {
        let (start, data) = (self.start, std::mem::take(&mut self.run));
        match &io.slices {
            None => self.send_whole(io, start, data, fua),
            Some(slices) => self.send_slices(io, slices, (start, data), fua),
        }
    }

    /// Writes the drive blocks that slices lie in, one write of each at a time.
    fn send_slices(&mut self, io: &Io, slices: &Slices, (start, data): (u64, Blocks), fua: bool) {
        let _writing = slices.writing.lock();
        let around = slices.around(&(start..start + data.len() as u64));
        if io.has_in_flight(around.clone()) {
            // A failed write is reported to the thread that waits for it.
            let _ = io.queue.drain(io.failed_before);
        }
        match slices.compose(io, start, &data) {
            Ok(whole) => self.send_whole(io, around.start, whole, fua),
            Err(error) => self.failed = Some(error),
        }
    }

    fn send_whole(&mut self, io: &Io, start: Lba, data: Blocks, fua: bool) {
        let blocks = data.clone();
        io.written_blocks.fetch_add(data.len() as u64);
        let ticket = io.queue.submit(Command::Write { lba: start, data, fua });
        let run = (!ticket.is_answered()).then(|| Arc::new(Run { start, blocks }));
        if let Some(run) = &run {
            io.insert(run.clone());
        }
        self.tickets.push((ticket, run));
    }

    /// Waits until the drive has completed every write of the set.
    pub fn wait(&mut self, queue: &BlockQueue) -> Result<(), IoError> {
        debug_assert!(self.run.is_empty(), "a run was not submitted");
        let mut result = self.failed.take().map_or(Ok(()), Err);
        for (ticket, run) in self.tickets.drain(..) {
            if let Err(error) = queue.wait(ticket) {
                result = Err(error);
            }
            drop(run);
        }
        result
    }
}

impl Io {
    /// Reads and writes through `queue`.
    pub fn new(queue: Arc<BlockQueue>) -> Self {
        Self::sliced(queue, BLOCK_SIZE as u32)
    }

    /// Reads and writes blocks of `block_size` bytes, 512 to 4096, and counts in these. The drive
    /// is not zoned if they are smaller than its own.
    pub fn sliced(queue: Arc<BlockQueue>, block_size: u32) -> Self {
        let identity = queue.identify();
        Self {
            max_transfer: identity.max_transfer.max(1) as usize,
            zone_blocks: identity.zones.map(|z| z.size),
            in_flight: Mutex::ranked(Rank::InFlight, "blocks in flight", InFlight::default()),
            runs: Line::default(),
            written_blocks: Line::default(),
            failed_before: queue.failures(),
            slices: Slices::of(block_size),
            queue,
        }
    }

    fn insert(&self, run: Arc<Run>) {
        let mut in_flight = self.in_flight.lock();
        in_flight.insert(run);
        self.runs.store(in_flight.runs.len() as u64);
    }

    /// What is in flight; `None` if nothing is.
    #[inline]
    fn look(&self) -> Option<MutexGuard<'_, InFlight>> {
        (self.runs.load() > 0).then(|| self.in_flight.lock())
    }

    /// The queue, to wait on with the volume unlocked.
    pub fn queue(&self) -> &Arc<BlockQueue> {
        &self.queue
    }

    /// How many writes and flushes had failed before this volume used the drive: what a commit
    /// gives to [`BlockQueue::drain`].
    pub fn failed_before(&self) -> u64 {
        self.failed_before
    }

    /// Waits for every write in flight, of any thread, and fails if any write or flush has
    /// failed since the volume began to use the drive.
    pub fn drain(&self) -> Result<(), IoError> {
        self.queue.drain(self.failed_before)
    }

    /// Blocks written so far.
    pub fn written_blocks(&self) -> u64 {
        self.written_blocks.load()
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> usize {
        self.slices.as_ref().map_or(BLOCK_SIZE, Slices::size)
    }

    /// Discards these blocks, except drive blocks of which they are only a part.
    pub fn discard(&self, blocks: Range<Lba>) -> Result<(), IoError> {
        let whole = self.slices.as_ref().map_or(blocks.clone(), |slices| slices.within(&blocks));
        if whole.is_empty() {
            Ok(())
        } else {
            self.queue.discard(whole.start, whole.end - whole.start)
        }
    }

    /// Reads one block.
    pub fn read(&self, lba: Lba) -> Result<Block, IoError> {
        let Some(slices) = &self.slices else { return self.read_whole(lba) };
        let whole = self.read_whole(lba / slices.each())?;
        Ok(slices.cut(lba..lba + 1, &[whole]).remove(0))
    }

    /// Reads a block of the drive.
    pub(crate) fn read_whole(&self, lba: Lba) -> Result<Block, IoError> {
        let held = self.look().and_then(|in_flight| in_flight.get(lba).cloned());
        held.map_or_else(|| self.queue.read_block(lba), Ok)
    }

    /// Reads `count` adjacent blocks.
    pub fn read_run(&self, lba: Lba, count: u32) -> Result<Blocks, IoError> {
        let Some(slices) = &self.slices else { return self.read_whole_run(lba, count) };
        let wanted = lba..lba + u64::from(count);
        let around = slices.around(&wanted);
        let whole = self.read_whole_run(around.start, (around.end - around.start) as u32)?;
        Ok(slices.cut(wanted, &whole))
    }

    fn read_whole_run(&self, lba: Lba, count: u32) -> Result<Blocks, IoError> {
        // A write that completes during this read is also taken from memory, because it was in
        // flight when the drive was asked.
        let held = self.held(lba, count);
        if count > 0 && held.len() == count as usize {
            return Ok(held.into_iter().map(|(_, block)| block).collect());
        }
        let mut blocks = self.queue.read_blocks(lba, count)?;
        for (i, block) in held {
            blocks[i] = block;
        }
        Ok(blocks)
    }

    /// Those of `count` adjacent blocks that are in flight, by their distance from the first.
    fn held(&self, lba: Lba, count: u32) -> SmallVec<[(usize, Block); 4]> {
        let Some(in_flight) = self.look() else { return SmallVec::new() };
        let held = |i: u32| Some((i as usize, in_flight.get(lba + u64::from(i))?.clone()));
        (0..count).filter_map(held).collect()
    }

    /// Whether some of these blocks of the drive may be on their way there.
    #[inline]
    pub fn has_in_flight(&self, mut lbas: Range<Lba>) -> bool {
        self.look().is_some_and(|in_flight| lbas.any(|lba| in_flight.get(lba).is_some()))
    }

    /// Whether a write of this block of the drive has been submitted and may not be complete.
    #[inline]
    pub fn is_in_flight(&self, lba: Lba) -> bool {
        self.look().is_some_and(|in_flight| in_flight.get(lba).is_some())
    }
}
