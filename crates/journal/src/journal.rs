//! The journal as a whole, and what it asks of a file system.

use std::sync::Arc;

use cores::{Line, Mutex, Nanos, Rank};
use drive::{Block, Lba};
use queue::plan::Plan;
use queue::{Io, WriteSet};
use vfs::Ino;

use crate::area::{Area, LogSpace, Ring};
use crate::batch::BatchTime;
use crate::buffer::Buffers;
use crate::chain::Chain;
use crate::checkpoint::Homing;
use crate::error::Result;
use crate::handle::Pin;
use crate::inject::Inject;
use crate::ondisk::superblock::Superblock;
use crate::policy::{Areas, Holds, JBD2, Policy, Submit};
use crate::records::Records;
use crate::records::fast::Fast;
use crate::tails::Tails;
use crate::transaction::Id;

/// All that a journal knows of a file system.
pub trait Client: Send + Sync {
    /// What a block of metadata is, as far as [`Client::seal`] needs it.
    type Kind: Copy + Send + Sync;

    /// Submits the dirty data of `ino` that has places on the drive, for an fsync. Nothing by
    /// default, for file systems that write data back before they commit.
    fn submit_data(&self, ino: Ino, io: &Io, set: &mut WriteSet) -> Result<()> {
        let _ = (ino, io, set);
        Ok(())
    }

    /// Completes a block that a transaction is about to log: its checksum. The block does not
    /// change meanwhile. Must not use the journal, nor wait.
    fn seal(&self, kind: Self::Kind, lba: Lba, block: &mut Block);

    /// A transaction is durable, and so are those before it in its area: what was freed in them may
    /// be used again. Calls for one area may come in any order. Must not use the journal.
    fn committed(&self, id: Id);
}

/// Areas where nothing is logged, at most.
const UNLOGGED_AREAS: u64 = 256;

/// Writes the superblock of an empty log. Durable when this returns.
fn mark<K>(area: &Area<K>, io: &Io) -> Result<()> {
    let superblock = area.log.lock().superblock.as_ref().map(Superblock::emit);
    let (Some(superblock), Some(ring)) = (superblock, &area.ring) else { return Ok(()) };
    let mut set = WriteSet::default();
    set.push_forced(io, ring.lba(0), Block::from_prefix(&superblock));
    Ok(set.wait(io.queue())?)
}

/// How a journal works.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What an fsync closes and waits for.
    pub policy: &'static Policy,
    /// Areas of a policy that has one per core; 0 for as many as there are cores, if the log is
    /// large enough.
    pub areas: u16,
    /// Blocks of the smallest area; an operation may change a quarter of them.
    pub area_min: u32,
    /// All that is done until the first commit is one transaction, or fails
    /// ([`crate::Error::TooLarge`]).
    pub is_single: bool,
    /// Records have checksums of their data, and are written together with it.
    pub record_csum: bool,
    /// How long an fsync waits for those of other threads to share a commit with, if it does. Only
    /// where there is one area and no other way than to commit.
    pub batch: Option<BatchTime>,
    /// Handles cost what they cost in Linux: for comparisons.
    pub counts_as_linux: bool,
    /// Mistakes for tests.
    pub inject: Inject,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: &JBD2,
            areas: 0,
            area_min: 16,
            is_single: false,
            record_csum: false,
            batch: None,
            counts_as_linux: false,
            inject: Inject::empty(),
        }
    }
}

/// A journal that is written to.
pub struct Journal<C: Client> {
    pub(crate) areas: Box<[Area<C::Kind>]>,
    pub(crate) buffers: Buffers<C::Kind>,
    pub(crate) chain: Chain,
    /// Where there are several areas.
    pub(crate) tails: Option<Tails>,
    pub(crate) homing: Homing,
    /// Held while images of transactions that have become valid are marked so. No other lock of the
    /// journal is held by the thread that takes it.
    pub(crate) settling: Mutex<()>,
    pub(crate) io: Arc<Io>,
    pub(crate) plan: &'static Plan<Submit>,
    /// The plan forces its commit block, so it ends without a flush.
    pub(crate) is_forced: bool,
    /// Of the next transaction that is closed.
    pub(crate) stamps: Line,
    pub(crate) options: Options,
    pub(crate) client: C,
    pub(crate) records: Option<Records>,
    pub(crate) fast: Option<Fast>,
}

impl<C: Client> Journal<C> {
    /// A journal that logs to `space`, unless the policy needs none. The log must have been closed
    /// in good order or recovered. Where a policy has several areas or records, the log is marked
    /// as in use when this returns; otherwise nothing is written until the first commit.
    pub fn open(io: Arc<Io>, space: LogSpace, mut options: Options, client: C) -> Result<Self> {
        let identify = io.queue().identify();
        let is_forced = identify.volatile_cache && identify.fua;
        let policy = options.policy;
        let (mut records, mut fast) = (None, None);
        let (tails, mut areas) = match policy.areas {
            // An area per core, so that callers do not meet where nothing is logged.
            Areas::None => {
                let count = (cores::core_count() as u64).clamp(1, UNLOGGED_AREAS) as u16;
                let sequence = space.superblock.sequence();
                (None, (0..count).map(|n| Area::new(n, sequence, None, None)).collect())
            }
            Areas::One => {
                let LogSpace { mut superblock, blocks } = space;
                match &policy.records {
                    Some(how) if how.holds == Holds::Changes => {
                        fast = Some(Fast::new(how, &mut superblock)?);
                    }
                    Some(how) => {
                        superblock.use_records(Records::areas());
                        records = Records::new(how, &superblock);
                    }
                    None => {}
                }
                let ring = Ring::new(&superblock, Arc::new(blocks))?;
                let sequence = superblock.sequence();
                let mut area = Area::new(0, sequence, Some(ring), Some(superblock));
                if options.is_single {
                    area.take_whole_log();
                }
                (None, vec![area])
            }
            Areas::PerCore => {
                let mut space = space;
                if let Some(how) = &policy.records {
                    space.superblock.use_records(Records::areas());
                    records = Records::new(how, &space.superblock);
                }
                let (tails, areas) = Tails::begin(&io, space, &options)?;
                (Some(tails), areas)
            }
        };
        if policy.areas != Areas::One || policy.records.is_some() {
            options.batch = None;
        }
        if options.counts_as_linux && policy.areas != Areas::None {
            areas.iter_mut().for_each(Area::count_as_linux);
        }
        if let (Some(_), None, [area]) = (&records, &tails, &*areas) {
            mark(area, &io)?;
        }
        Ok(Self {
            chain: Chain::new(areas.iter().map(|area| *area.gate.read())),
            areas: areas.into(),
            tails,
            homing: Homing::default(),
            settling: Mutex::ranked(Rank::Gate, "journal validity", ()).keyed(u64::MAX),
            records,
            fast,
            buffers: Buffers::new(),
            plan: if is_forced { &policy.forced } else { &policy.plan },
            is_forced,
            io,
            stamps: Line::default(),
            options,
            client,
        })
    }

    /// The area of the calling core.
    pub(crate) fn area(&self) -> &Area<C::Kind> {
        match &*self.areas {
            [one] => one,
            all => &all[cores::slot() % all.len()],
        }
    }

    /// The block at `lba` as it is now, read if memory does not have it.
    pub fn get(&self, lba: Lba) -> Result<Block> {
        let buffer = self.buffers.get(lba);
        let state = buffer.loaded(&self.io)?;
        Ok(state.live.clone().unwrap_or_else(Block::zeroed))
    }

    /// The block at `lba` as it is now, if memory has it. Never waits for the drive.
    pub fn peek(&self, lba: Lba) -> Option<Block> {
        self.buffers.find(lba)?.lock().live.clone()
    }

    /// The block at `lba` as it is now, if a transaction has changed it and it is not home: then
    /// the drive has an older one. Never waits.
    pub fn ahead_of_home(&self, lba: Lba) -> Option<Block> {
        let buffer = self.buffers.find(lba)?;
        let state = buffer.lock();
        let is_ahead = state.owner.is_some() || !state.images.is_empty();
        state.live.clone().filter(|_| is_ahead)
    }

    /// As [`Journal::pin`], if memory has the block. Never waits for the drive.
    pub fn pin_cached(&self, lba: Lba) -> Option<Pin<C::Kind>> {
        let buffer = self.buffers.find(lba)?;
        let is_here = buffer.lock().live.is_some();
        is_here.then(|| Pin(buffer))
    }

    /// As [`Journal::pin`], without reading: for a block that the caller or another thread is about
    /// to create.
    pub fn hold(&self, lba: Lba) -> Pin<C::Kind> {
        Pin(self.buffers.get(lba))
    }

    /// Reads the block at `lba`, unless memory has it, and keeps it if `check` finds it sound. The
    /// caller holds no lock.
    pub fn load<E: From<crate::Error>>(
        &self,
        lba: Lba,
        check: impl FnOnce(&Block) -> Result<(), E>,
    ) -> Result<(), E> {
        let buffer = self.buffers.get(lba);
        if buffer.lock().live.is_some() {
            return Ok(());
        }
        // Read without the buffer's lock: threads with locks of their own may wait for it. If the
        // block is freed meanwhile, what was read stays until a new block is made of it.
        let block = self.io.read(lba).map_err(crate::Error::from)?;
        check(&block)?;
        buffer.lock().live.get_or_insert(block);
        Ok(())
    }

    /// Reads the block at `lba` if memory does not have it, and keeps it there until the pin is
    /// dropped.
    pub fn pin(&self, lba: Lba) -> Result<Pin<C::Kind>> {
        let buffer = self.buffers.get(lba);
        drop(buffer.loaded(&self.io)?);
        Ok(Pin(buffer))
    }

    /// Keeps the block at `lba` in memory until the pin is dropped, for a caller that has it: as
    /// the drive has it, or as it is to be if it was never written. Nothing has changed it yet.
    pub fn pin_as(&self, lba: Lba, block: Block) -> Pin<C::Kind> {
        let buffer = self.buffers.get(lba);
        let mut state = buffer.lock();
        debug_assert!(state.owner.is_none() && state.images.is_empty(), "block {lba} was changed");
        state.live = Some(block);
        drop(state);
        Pin(buffer)
    }

    /// Blocks that one operation may change, at most.
    pub fn credits_max(&self) -> u32 {
        self.area().max
    }

    /// The file system.
    pub fn client(&self) -> &C {
        &self.client
    }

    /// How it was opened.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Blocks of metadata in memory.
    pub fn cached(&self) -> usize {
        self.buffers.len()
    }

    /// How many areas it has, each with its own running transaction.
    pub fn areas(&self) -> usize {
        self.areas.len()
    }

    /// The running transaction of an area, and when it began. `None` if it has changed nothing.
    pub fn running(&self, area: usize) -> Option<(Id, Nanos)> {
        let area = self.areas.get(area)?;
        let running = area.running.lock();
        (!running.is_empty()).then(|| (area.id(running.tid), running.since))
    }

    /// Transactions committed since it was opened, of all areas.
    pub fn commits(&self) -> u64 {
        self.areas.iter().map(Area::commits).sum()
    }

    /// Fails if an error has stopped the journal.
    pub fn check(&self) -> Result<()> {
        self.areas.iter().try_for_each(Area::check)
    }
}
