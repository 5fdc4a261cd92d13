//! The logs that overwrites of one file go to while the inode is shared (pNOVA, MASCOTS 2020): the
//! inode points to the *global log*, a block of words, each of which points to the log of a core.
//!
//! *What a cut leaves.* Each log ends by its own tail, so each overwrite counts by one word. The
//! global log is zeroed, durably, before the inode points to it, and a core's first page is whole
//! before its word does. Which of two overwrites is newer cannot be told from their logs; it is
//! told by their versions, which are drawn under the lock of the segment. A version that a cut
//! loses does no harm, since whole pages are copied.

use std::sync::atomic::{AtomicU64, Ordering};

use cores::{Mutex, Rank, slot};
use drive::pm::Pm;
use rustc_hash::FxHashSet;
use vfs::{Errno, Result};

use super::{Log, replay};
use crate::alloc::BlockRun;
use crate::commit::Change;
use crate::inode::node::Inode;
use crate::mount::Pmfs;
use crate::ondisk::extent::parse_map;
use crate::ondisk::inode::CORES_AT;
use crate::ondisk::log::Entry;
use crate::ondisk::superblock::Layout;
use crate::ondisk::{BLOCK, Corrupt};

/// Words of a global log.
const WORDS: u64 = BLOCK / 8;

/// A file's global log.
pub(crate) struct CoreLogs {
    /// Its block; zero if it has none yet. Set once, and read by every overwrite, so not in a lock.
    block: AtomicU64,
    /// Held by the first who needs it.
    making: Mutex<()>,
    /// By slot. Each protects a log, from when its entries are staged until they are durable.
    logs: Box<[Mutex<Log>]>,
}

impl CoreLogs {
    /// No logs yet, for so many cores.
    pub(crate) fn new(cores: usize) -> Self {
        let logs = (0..cores.clamp(1, WORDS as usize)).map(|n| Self::log(n, Log::new(0)));
        Self {
            block: AtomicU64::new(0),
            making: Mutex::ranked(Rank::Space, "pmfs global log", ()),
            logs: logs.collect(),
        }
    }

    fn log(slot: usize, log: Log) -> Mutex<Log> {
        Mutex::ranked(Rank::Log, "pmfs core log", log).keyed(slot as u64 + 1)
    }

    /// Reads the logs of the inode at `inode_at`, and shows their entries. Returns the highest
    /// version as well.
    pub(super) fn load(
        pm: &dyn Pm,
        layout: &Layout,
        inode_at: u64,
        met: &mut FxHashSet<u64>,
        mut see: impl FnMut(u64, Entry),
    ) -> Result<Option<(Self, u64)>, Corrupt> {
        let at = inode_at + CORES_AT;
        let Some(block) = parse_map(at, pm.load(at), layout)? else { return Ok(None) };
        let mut logs = Vec::new();
        for word in 0..WORDS {
            let log = replay(pm, layout, block * BLOCK + word * 8, met, &mut see)?;
            logs.push(log);
        }
        let last = logs.iter().rposition(|log| !log.pages.is_empty()).map_or(1, |last| last + 1);
        logs.truncate(last);
        let version = logs.iter().map(|log| log.version).max().unwrap_or(0);
        let logs = logs.into_iter().enumerate().map(|(n, log)| Self::log(n, log)).collect();
        let making = Mutex::ranked(Rank::Space, "pmfs global log", ());
        Ok(Some((Self { block: AtomicU64::new(block), making, logs }, version)))
    }

    /// At least so many logs.
    pub(crate) fn grow(self, cores: usize) -> Self {
        let block = self.block.load(Ordering::Relaxed);
        let mut logs = self.logs.into_vec();
        for slot in logs.len()..cores.min(WORDS as usize) {
            logs.push(Self::log(slot, Log::new(slot_at(block, slot))));
        }
        Self { logs: logs.into(), ..self }
    }

    /// Every block that it has.
    pub(crate) fn blocks(&self) -> Vec<u64> {
        let own = Some(self.block.load(Ordering::Relaxed)).filter(|&block| block != 0);
        let logs = self.logs.iter().flat_map(|log| log.lock().blocks().collect::<Vec<_>>());
        own.into_iter().chain(logs).collect()
    }

    /// Runs of blocks that the medium says it has.
    pub(crate) fn runs(&self) -> Vec<BlockRun> {
        let own = Some(self.block.load(Ordering::Relaxed)).filter(|&block| block != 0);
        let logs = self.logs.iter().flat_map(|log| log.lock().pages.clone());
        own.into_iter().chain(logs).map(|block| (block, 1)).collect()
    }

    /// Pages of all logs.
    pub(crate) fn pages(&self) -> usize {
        self.logs.iter().map(|log| log.lock().pages.len()).sum()
    }
}

fn slot_at(block: u64, slot: usize) -> u64 {
    if block == 0 { 0 } else { block * BLOCK + slot as u64 * 8 }
}

impl Pmfs {
    /// Makes `entries` of `version` durable in the log of the calling core, with what `change` has
    /// stored, by one word. True if the log has become long.
    pub(crate) fn append_shared(
        &self,
        inode: &Inode,
        mut change: Change<'_>,
        version: u64,
        entries: &[Entry],
    ) -> Result<bool> {
        let cores = inode.cores.as_ref().ok_or(Errno::INVAL)?;
        let block = self.global_log(inode.at, cores)?;
        let number = slot() % self.log_count().min(cores.logs.len());
        let mut log = cores.logs[number].lock();
        if log.pages.is_empty() {
            log.slot_at = slot_at(block, number);
        }
        log.reserve(&self.space, entries.len() as u64, false)?;
        // The version is the segments', not this log's.
        for entry in entries {
            log.version = version - 1;
            log.stage(entry);
        }
        log.flush(&mut change);
        let _done = self.journal.commit(change);
        let lines = log.pages.len() as u64 * super::PAGE_ROOM * self.log_count() as u64;
        Ok(log.pages.len() >= LONG && lines > 2 * inode.raw.size.get().div_ceil(BLOCK))
    }

    /// The block of the global log, made if there is none.
    fn global_log(&self, inode_at: u64, cores: &CoreLogs) -> Result<u64> {
        let known = cores.block.load(Ordering::Acquire);
        if known != 0 {
            return Ok(known);
        }
        let taken = self.space.take_run(1).ok_or(Errno::NOSPC)?;
        let _making = cores.making.lock();
        let known = cores.block.load(Ordering::Acquire);
        if known != 0 {
            return Ok(known);
        }
        let &[(block, _)] = taken.runs() else { return Err(Errno::NOSPC.into()) };
        let mut change = Change::new(&*self.pm);
        change.zero(block * BLOCK, BLOCK);
        change.patch(inode_at + CORES_AT, &block.to_le_bytes());
        let _done = self.journal.commit(change);
        taken.keep();
        cores.block.store(block, Ordering::Release);
        Ok(block)
    }
}

/// A core's log of so many pages is worth a look whether to clean.
const LONG: usize = 64;
