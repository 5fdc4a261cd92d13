//! Fsync by a record of the file, in place of a commit of all changes.
//!
//! The caller's run asks the file system what a record must say ([`Source::record`]): all of a
//! file that is not durable, and the transaction that changed the file last. It writes the record
//! into the area of its core, and waits neither for running transactions nor for a commit under
//! way.
//!
//! What a cut may leave: before the commit block is durable, the file as its last record or commit
//! left it. `PreFlush` makes the data and the record durable before the commit block. Once the
//! transaction is committed and valid, what the record says of the file does not count; once that
//! goes for all its files, its blocks are used again.
//!
//! With checksums of the data (`record_csum`) there is no `PreFlush`: the record, its commit block
//! and the data become durable in any order, and what was not is found by its sum. An entry has the
//! sums of data that no flush of an earlier fsync covers, in blocks that the file has gained or as
//! far as the file has grown. Where one does not hold, recovery takes the file's record before.
//! That one must hold for ever, though its blocks are written again: the file system commits before
//! it changes what the last record that returned has summed. Blocks that are overwritten in place
//! have no sums: after a cut amid the fsync each has the old contents or the new, as with two
//! flushes; once the fsync has returned, the new.
//!
//! Records hold where there are several logs, too. Let T be the transaction that changed a file
//! last before its record. T owns the block of the inode or names who does, so T is valid if, and
//! only if, recovery finds the file as the record has it or newer: whatever changes it later
//! changes that block, and names T's owner. So without T no later state of the file or of its name
//! is there that the record could undo.

pub(crate) mod fast;
mod run;
mod slots;

use cores::{Line, Mutex, Rank};
use drive::Lba;
use vfs::Ino;

use crate::area::Ring;
use crate::chain::Frontier;
use crate::error::{Error, Result};
use crate::inject::Inject;
use crate::ondisk::fast::Change;
use crate::ondisk::header::Tid;
use crate::ondisk::record::{Entry, Record};
use crate::policy::grouped::Groups;
use crate::policy::{Holds, Recording};
use crate::{Client, Journal};

use slots::Slots;

/// Areas for records, at most.
const AREAS_MAX: usize = 8;

/// What an fsync by records asks of a file system.
pub trait Source {
    /// What can go wrong with a file's data.
    type Error: From<Error>;

    /// Writes the dirty data of `ino` to its place, and waits until the drive has it.
    fn write_data(&self, ino: Ino) -> Result<(), Self::Error>;

    /// Adds to `entries` what makes `ino` durable on top of what is valid, directories before what
    /// is in them. Each says which transaction changed the file last; inode and transaction are of
    /// one instant. False if a record cannot carry that. Others may wait for the caller, so this
    /// must not wait for a commit, nor for room in the log.
    fn record(&self, ino: Ino, entries: &mut Vec<Entry>) -> bool;

    /// What has changed in transaction `tid`, which is running, since the last call. `None` if a
    /// fast commit cannot carry all of it; then there is no other until the transaction is
    /// committed. No handle is open, and this must not wait for one, for a commit, nor for room in
    /// the log.
    fn changes(&self, tid: Tid) -> Option<Vec<Change>>;

    /// What [`Source::changes`] has just said will not be in a fast commit, so there is no other
    /// until the transaction is committed.
    fn not_recorded(&self);
}

/// Where records are written, and in which order.
pub(crate) struct Records {
    how: &'static Recording,
    areas: Box<[Mutex<Slots>]>,
    /// First block of the first area, and blocks of each.
    first: u32,
    blocks: u32,
    /// Bytes of a block.
    size: usize,
    /// Number of the next record.
    subs: Line,
    /// One for each core, or one for all.
    groups: Box<[Groups]>,
    counts: Counts,
}

/// What was done, since mount.
#[derive(Default)]
struct Counts {
    /// Records.
    runs: Line,
    /// Their blocks.
    blocks: Line,
    /// Fsyncs that needed no commit.
    fsyncs: Line,
    /// Fsyncs that needed one.
    fallen_back: Line,
}

/// What was done about records since mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordStatus {
    /// Records written, each with two flushes (one where writes can be forced).
    pub records: u64,
    /// Their blocks.
    pub blocks: u64,
    /// Fsyncs that a record made durable.
    pub fsyncs: u64,
    /// Fsyncs that a record could not carry, so that a commit was needed.
    pub fallen_back: u64,
}

/// A record's place in an area.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    area: usize,
    at: u32,
}

impl Records {
    /// Areas at the end of the log, whose superblock says where.
    pub(crate) fn new(how: &'static Recording, superblock: &crate::Superblock) -> Option<Self> {
        let space = superblock.records()?;
        let slots =
            |key| Mutex::ranked(Rank::Log, "record area", Slots::new(space.blocks)).keyed(key + 1);
        Some(Self {
            how,
            areas: (0..u64::from(space.areas)).map(slots).collect(),
            first: space.first,
            blocks: space.blocks,
            size: superblock.block_size() as usize,
            subs: Line::new(1),
            groups: match how.holds {
                Holds::CoresGroup => (0..space.areas).map(|_| Groups::new()).collect(),
                _ => [Groups::new()].into(),
            },
            counts: Counts::default(),
        })
    }

    /// How many areas a machine gets: one for each core.
    pub(crate) fn areas() -> u32 {
        cores::core_count().clamp(1, AREAS_MAX) as u32
    }

    /// The groups of the calling core.
    fn groups(&self) -> &Groups {
        &self.groups[cores::current_core() % self.groups.len()]
    }

    /// A place for `record` in the area of this core. If that has no room, what must become valid
    /// to make some.
    fn reserve(
        &self,
        record: &Record,
        are_valid: impl Fn(&Frontier) -> bool,
        inject: Inject,
    ) -> Result<Slot, Frontier> {
        let shared = inject.contains(Inject::RECORD_SHARED);
        let area = if shared { 0 } else { cores::current_core() % self.areas.len() };
        let mut slots = self.areas[area].lock();
        if shared {
            *slots = Slots::new(self.blocks);
        }
        let of: Frontier = record.entries.iter().map(|entry| entry.of).collect();
        let at = slots.reserve(record.blocks(self.size), of, are_valid);
        at.map(|at| Slot { area, at }).ok_or_else(|| slots.oldest())
    }

    fn release(&self, slot: Slot) {
        self.areas[slot.area].lock().release(slot.at);
    }

    /// Block `n` of a record on the drive.
    fn lba(&self, ring: &Ring, slot: Slot, n: u32) -> Lba {
        ring.lba(self.first + slot.area as u32 * self.blocks + slot.at + n)
    }
}

impl<C: Client> Journal<C> {
    /// Whether an fsync writes a record or a fast commit.
    pub fn has_records(&self) -> bool {
        self.records.is_some() || self.fast.is_some()
    }

    /// Whether an fsync writes a fast commit.
    pub fn has_fast_commits(&self) -> bool {
        self.fast.is_some()
    }

    /// What was done about records or fast commits; `None` if the policy has none.
    pub fn record_status(&self) -> Option<RecordStatus> {
        let records = self.records.as_ref().map(|records| &records.counts);
        let counts = records.or(self.fast.as_ref().map(|fast| &fast.counts))?;
        Some(RecordStatus {
            records: counts.runs.load(),
            blocks: counts.blocks.load(),
            fsyncs: counts.fsyncs.load(),
            fallen_back: counts.fallen_back.load(),
        })
    }

    /// Whether the block at `lba`, as memory has it, is committed. A block that memory does not
    /// have is.
    pub fn is_committed(&self, lba: Lba) -> bool {
        let Some(buffer) = self.buffers.find(lba) else { return true };
        let state = buffer.lock();
        state.owner.is_none() && state.images.last().is_none_or(|image| image.valid)
    }
}
