//! An area: a ring of log blocks with its own transactions.

use std::collections::VecDeque;
use std::sync::Arc;

use cores::{Condvar, Line, Mutex, PerCoreRwLock, Rank};
use drive::Lba;

use crate::batch::Batch;
use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::ondisk::descriptor::Format;
use crate::ondisk::header::Tid;
use crate::ondisk::revoke::records_per_block;
use crate::ondisk::superblock::{RecordSpace, Superblock};
use crate::transaction::{Committed, Id, Running, Stamp};

/// Where the blocks of a log are on the drive.
pub type LogBlocks = Box<dyn Fn(u32) -> Option<Lba> + Send + Sync>;

/// A log to write to: closed in good order, or just recovered.
pub struct LogSpace {
    /// Its superblock.
    pub superblock: Superblock,
    /// Where its blocks are.
    pub blocks: LogBlocks,
}

/// An open handle, in the line of credits.
const HANDLE: u64 = 1 << 32;

/// No handle can be opened any more, but what was done is committed.
const CLOSED: u64 = 1;
/// Nothing is committed any more, either.
const ABORTED: u64 = 2;

/// Blocks of a transaction where there is no log to bound it.
const UNLOGGED_MAX: u32 = 1 << 14;

/// An area. See the crate's documentation for the order of its locks.
pub(crate) struct Area<K> {
    pub(crate) index: u16,
    /// Number of its first transaction.
    first: Tid,
    /// Credits of a transaction, at most: a quarter of the log (`j_max_transaction_buffers`), or
    /// all of it.
    pub(crate) max: u32,
    /// The running transaction. Handles read it for as long as they live; closing writes.
    pub(crate) gate: PerCoreRwLock<Tid>,
    /// Credits of open handles, and those that the running transaction has used
    /// (`t_outstanding_credits`), in its low half. The high half counts open handles (`t_updates`,
    /// which Linux has in the same line) if there is a `state_lock`. Changed only under the gate.
    pub(crate) credits: Line,
    /// Readers of Linux's `j_state_lock`, if a handle is to cost what it costs there. Nothing waits
    /// for it, since what that lock protects the gate does here.
    state_lock: Option<Line>,
    /// Blocks of the log that are neither used nor reserved by a transaction. Only closing lowers
    /// it, when no handle is open; so room that a handle has found stays.
    room: Line,
    /// [`CLOSED`], [`ABORTED`], or 0. Changed within `turns`; closed with the gate, so that no
    /// handle is open then.
    stopped: Line,
    /// What the running transaction has.
    pub(crate) running: Mutex<Running<K>>,
    /// Room in the log, and what is in it.
    pub(crate) log: Mutex<Log<K>>,
    /// Allows one commit at a time.
    pub(crate) turns: Mutex<Turns>,
    pub(crate) ended: Condvar,
    /// `None` where nothing is logged.
    pub(crate) ring: Option<Ring>,
}

/// The blocks of a log, and how they are written.
#[derive(Clone)]
pub(crate) struct Ring {
    pub(crate) first: u32,
    pub(crate) end: u32,
    /// Bytes of a block.
    pub(crate) size: usize,
    blocks: Arc<LogBlocks>,
    pub(crate) format: Format,
    pub(crate) seed: u32,
    pub(crate) incompat: crate::ondisk::superblock::Incompat,
}

/// The state of a log.
pub(crate) struct Log<K> {
    /// Blocks promised to the transaction that is being committed.
    pub(crate) closing: u32,
    /// Blocks that no transaction has.
    pub(crate) free: u32,
    /// Where the next block goes.
    pub(crate) head: u32,
    /// Where the transaction begins that is being logged.
    pub(crate) logging: Option<u32>,
    /// Number of the first transaction that is not in `committed`.
    pub(crate) next: Tid,
    /// Transactions whose images are not home, oldest first.
    pub(crate) committed: VecDeque<Committed<K>>,
    /// Says where the log begins, unless a table of areas does.
    pub(crate) superblock: Option<Superblock>,
}

/// Whether a handle can be opened.
pub(crate) enum Room {
    Enough,
    /// Once the running transaction is closed.
    FullTransaction,
    /// Once images are home.
    FullLog,
}

/// Whether a commit of the area is under way, and how many callers wait for its end.
#[derive(Default)]
pub(crate) struct Turns {
    /// A thread commits.
    pub(crate) leading: bool,
    /// And has begun its last flush.
    pub(crate) flushing: bool,
    pub(crate) batch: Batch,
    /// The newest committed transaction.
    pub(crate) committed: Tid,
    pub(crate) failed: Option<Error>,
}

impl<K> Area<K> {
    /// An area whose next transaction is `tid`. If no table of areas says where its log begins,
    /// `superblock` does.
    pub(crate) fn new(
        index: u16,
        tid: Tid,
        ring: Option<Ring>,
        superblock: Option<Superblock>,
    ) -> Self {
        let size = ring.as_ref().map(|ring| ring.end - ring.first);
        let max = size.map_or(UNLOGGED_MAX, |size| size / 4);
        let log = Log {
            closing: 0,
            free: size.unwrap_or(u32::MAX),
            head: ring.as_ref().map_or(0, |ring| ring.first),
            logging: None,
            next: tid,
            committed: VecDeque::new(),
            superblock,
        };
        let turns = Turns { committed: tid.previous(), ..Turns::default() };
        let key = u64::from(index);
        Self {
            index,
            first: tid,
            max,
            gate: PerCoreRwLock::ranked(Rank::Gate, "journal gate", tid).keyed(key),
            credits: Line::new(0),
            state_lock: None,
            room: Line::new(log.free.into()),
            stopped: Line::new(0),
            running: Mutex::ranked(Rank::Meta, "running transaction", Running::new(tid)).keyed(key),
            log: Mutex::ranked(Rank::Log, "journal log", log).keyed(key),
            turns: Mutex::ranked(Rank::Commit, "journal turns", turns).keyed(key),
            ended: Condvar::new(),
            ring,
        }
    }

    /// A transaction may be as large as the log, which is empty: replay must fit one, whatever the
    /// transaction came to that it brings back.
    pub(crate) fn take_whole_log(&mut self) {
        self.max = self.ring.as_ref().map_or(self.max, |ring| ring.end - ring.first);
    }

    /// Its transaction of this number.
    pub(crate) fn id(&self, tid: Tid) -> Id {
        Id { area: self.index, tid }
    }

    /// How many transactions it has committed.
    pub(crate) fn commits(&self) -> u64 {
        self.turns.lock().committed.next().since(self.first) as u64
    }

    /// Fails if the journal was aborted.
    pub(crate) fn check(&self) -> Result<()> {
        if self.stopped.load() == ABORTED { Err(Error::Aborted) } else { Ok(()) }
    }

    /// Fails if no handle may be opened. The caller has the gate.
    pub(crate) fn check_open(&self) -> Result<()> {
        match self.stopped.load() {
            0 => Ok(()),
            CLOSED => Err(Error::Closed),
            _ => Err(Error::Aborted),
        }
    }

    /// No handle is open when this returns, and none will be.
    pub(crate) fn close(&self) {
        let _gate = self.gate.write();
        let _turns = self.turns.lock();
        if self.stopped.load() == 0 {
            self.stopped.store(CLOSED);
        }
    }

    /// Stops it.
    pub(crate) fn abort(&self, error: &Error) {
        let mut turns = self.turns.lock();
        self.stopped.store(ABORTED);
        turns.failed = Some(error.clone());
        drop(turns);
        self.ended.notify_all();
    }

    /// Room for handles follows from what `log` says, which the caller has locked.
    pub(crate) fn note_room(&self, log: &Log<K>) {
        self.room.store(log.free.saturating_sub(log.closing).into());
    }

    /// From now on handles are counted as in Linux, which the gate makes unnecessary: each makes
    /// six changes of two lines that cores share (`start_this_handle`, `jbd2_journal_stop`). Linux
    /// makes one more, of `t_handle_count`.
    pub(crate) fn count_as_linux(&mut self) {
        self.state_lock = Some(Line::new(0));
    }

    /// Takes `credits` for a handle that is being opened, under the gate.
    pub(crate) fn join(&self, credits: u32) -> Result<Room> {
        let Some(state_lock) = &self.state_lock else { return self.reserve(credits) };
        state_lock.fetch_add(1);
        let room = self.reserve(credits);
        if matches!(room, Ok(Room::Enough)) {
            self.credits.fetch_add(HANDLE);
        }
        state_lock.fetch_add(1_u64.wrapping_neg());
        room
    }

    /// The handle is closed, and has not used these credits. Before it gives up the gate.
    pub(crate) fn part(&self, credits: u32) {
        self.give_back(credits);
        if self.state_lock.is_some() {
            self.credits.fetch_add(HANDLE.wrapping_neg());
        }
    }

    /// Takes `credits` for a handle. The caller has the gate, so the running transaction stays.
    pub(crate) fn reserve(&self, credits: u32) -> Result<Room> {
        if credits > self.max {
            return Err(Error::TooLarge { wanted: credits, max: self.max });
        }
        let wanted = (self.credits.fetch_add(credits.into()) as u32).saturating_add(credits);
        let room = match wanted <= self.max {
            true if u64::from(self.cost(wanted)) <= self.room.load() => return Ok(Room::Enough),
            true => Room::FullLog,
            false => Room::FullTransaction,
        };
        self.give_back(credits);
        Ok(room)
    }

    /// Credits that a handle has not used.
    fn give_back(&self, credits: u32) {
        self.credits.fetch_add(u64::from(credits).wrapping_neg());
    }

    /// Blocks of the log that a transaction of `credits` takes at most.
    pub(crate) fn cost(&self, credits: u32) -> u32 {
        let Some(ring) = &self.ring else { return 0 };
        let tags = ring.format.tags_per_block(ring.size) as u32;
        let revokes = records_per_block(ring.incompat, ring.size) as u32;
        credits + credits.div_ceil(tags) + credits.div_ceil(revokes) + 1
    }
}

impl Ring {
    /// All of a log's blocks. Fails unless it was closed in good order.
    pub(crate) fn new(superblock: &Superblock, blocks: Arc<LogBlocks>) -> Result<Self> {
        let (ring, incompat, seed) = (superblock.ring(), superblock.incompat(), superblock.seed());
        if superblock.start().is_some() {
            let start = superblock.start().unwrap_or(0);
            return Err(Error::corrupt("s_start", 0_u64, start, "0: the log must be recovered"));
        }
        let end = superblock.records().map_or(ring.end, RecordSpace::end);
        if let Some(hole) = (0..end).find(|block| blocks(*block).is_none()) {
            return Err(Error::corrupt("journal inode", hole, "a hole", "a block"));
        }
        let format = Format::new(incompat, seed);
        let size = superblock.block_size() as usize;
        Ok(Self { first: ring.start, end: ring.end, size, blocks, format, seed, incompat })
    }

    /// Some of its blocks, as a ring of their own.
    pub(crate) fn part(&self, blocks: std::ops::Range<u32>) -> Self {
        Self { first: blocks.start, end: blocks.end, ..self.clone() }
    }

    /// The block behind `block`.
    pub(crate) fn next(&self, block: u32) -> u32 {
        if block + 1 == self.end { self.first } else { block + 1 }
    }

    /// Where a block of the log is.
    pub(crate) fn lba(&self, block: u32) -> Lba {
        (self.blocks)(block).expect("it was there when the log was opened")
    }
}

/// Stamp, buffers and revoked buffers of a transaction.
type Images<K> = (Stamp, Arc<[Arc<Buffer<K>>]>, Vec<Arc<Buffer<K>>>);

impl<K> Log<K> {
    /// Where recovery begins once the `count` oldest transactions are home: with the next one, or
    /// where that is or will be logged.
    pub(crate) fn tail_behind(&self, count: usize) -> (u32, Tid) {
        match self.committed.get(count) {
            Some(oldest) => (oldest.start, oldest.id.tid),
            None => (self.logging.unwrap_or(self.head), self.next),
        }
    }

    /// A committed transaction. Asked for just after its commit, it is among the last of many.
    fn committed_mut(&mut self, id: Id) -> Option<&mut Committed<K>> {
        self.committed.iter_mut().rev().find(|committed| committed.id == id)
    }

    /// Stamp and buffers of a committed transaction, and those it revoked, which it gives away.
    pub(crate) fn images(&mut self, id: Id) -> Option<Images<K>> {
        let found = self.committed_mut(id)?;
        Some((found.stamp, found.buffers.clone(), std::mem::take(&mut found.revoked)))
    }

    /// Notes that a committed transaction is valid.
    pub(crate) fn validate(&mut self, id: Id) {
        if let Some(found) = self.committed_mut(id) {
            found.valid = true;
        }
    }
}

impl<K> Area<K> {
    /// The blocks of the `count` oldest transactions are free.
    pub(crate) fn drop_oldest(&self, count: usize) {
        let mut log = self.log.lock();
        log.free += log.committed.drain(..count).map(|home| home.blocks).sum::<u32>();
        self.note_room(&log);
    }
}
