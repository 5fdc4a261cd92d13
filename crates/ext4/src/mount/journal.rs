//! The journal below a mounted volume: its blocks on the drive, and what it asks of ext4.

use std::sync::Arc;

use cores::{Mutex, Rank};
use drive::{Block, Lba};
use journal::ondisk::fast::Change;
use journal::{Log, LogSpace, Record, Strictness, Tid, Volume, recover};
use queue::Io;

use crate::blocks::{Blocks, Kind};
use crate::error::{Error, Result};
use crate::inode::cached::Inode;
use crate::inode::map::{Mapped, find};
use crate::ondisk::extent::Extent;
use crate::ondisk::group::RawGroupDesc;
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{FsBlock, JOURNAL_INO};

/// What the journal tells the engine: the last durable transaction of each of its areas.
pub(crate) struct Committed {
    last: Mutex<Vec<Tid>>,
    /// The last one before there were any here.
    before: Tid,
}

impl Committed {
    /// All transactions before `next` are durable.
    pub(crate) fn before(next: journal::Tid) -> Self {
        let last = Mutex::ranked(Rank::Space, "ext4 durable transactions", Vec::new()).keyed(1);
        Self { last, before: next.previous() }
    }

    /// Whether transaction `id` is durable.
    pub(crate) fn reaches(&self, id: journal::Id) -> bool {
        let last = self.last.lock().get(usize::from(id.area)).copied();
        last.unwrap_or(self.before).reaches(id.tid)
    }

    fn add(&self, id: journal::Id) {
        let (mut last, area) = (self.last.lock(), usize::from(id.area));
        if last.len() <= area {
            last.resize(area + 1, self.before);
        }
        if id.tid.is_after(last[area]) {
            last[area] = id.tid;
        }
    }
}

/// The engine's side of the journal.
pub(crate) struct Client {
    pub(crate) committed: Arc<Committed>,
}

impl journal::Client for Client {
    /// Blocks are sealed when they change: the operation knows the inode that they belong to.
    type Kind = ();

    fn seal(&self, (): (), _: Lba, _: &mut Block) {}

    fn committed(&self, id: journal::Id) {
        self.committed.add(id);
    }
}

/// The journal of a mounted volume.
pub(crate) type Journal = journal::Journal<Client>;

/// An operation in the running transaction.
pub(crate) type Handle<'a> = journal::Handle<'a, Client>;

/// Blocks as they are on the drive, before there is a journal.
struct OnDrive<'a> {
    sb: &'a Superblock,
    io: &'a Io,
}

impl Blocks for OnDrive<'_> {
    type Stop = Error;

    fn sb(&self) -> &Superblock {
        self.sb
    }

    fn block(&self, at: FsBlock, _: Kind) -> Result<Block> {
        Ok(self.io.read(at)?)
    }
}

/// The journal's inode: how many blocks it has, and its extents.
struct JournalFile {
    blocks: u32,
    extents: Vec<Extent>,
}

impl JournalFile {
    fn read(sb: &Superblock, io: &Io) -> Result<Self> {
        let place = sb.inode_place(JOURNAL_INO)?;
        let (at, byte) = sb.desc_place(place.group);
        let desc = RawGroupDesc::read(&io.read(at)?[byte..], sb.desc_size);
        let (at, byte) = sb.inode_at(desc.inode_table(), place.index);
        if !sb.holds(at, 1) {
            return Err(Error::corrupt("group_desc.bg_inode_table", at, at, "on the volume"));
        }
        let block = io.read(at)?;
        let bytes = &block[byte..byte + sb.inode_size as usize];
        let inode = Inode::parse(sb, JOURNAL_INO, bytes, at)?;
        let blocks = u32::try_from(inode.size / u64::from(sb.block_size)).unwrap_or(u32::MAX);
        let mut extents = Vec::new();
        let mut index = 0;
        while u64::from(index) < u64::from(blocks) {
            let Mapped::Extent(extent) = find(&OnDrive { sb, io }, &inode, index)? else {
                return Err(Error::corrupt("journal inode", index, "a hole", "a block"));
            };
            index = u32::try_from(extent.end()).unwrap_or(u32::MAX);
            extents.push(extent);
        }
        Ok(Self { blocks, extents })
    }

    fn at(&self, block: u32) -> Option<FsBlock> {
        let place = self.extents.partition_point(|extent| extent.block <= block).checked_sub(1)?;
        let extent = self.extents.get(place)?;
        let skip = block - extent.block;
        (skip < extent.len).then_some(extent.start + u64::from(skip))
    }
}

/// What recovery found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// Transactions that it brought home.
    pub transactions: u64,
    /// Their blocks.
    pub blocks: u64,
    /// Inodes that records of single files made durable.
    pub records: u64,
    /// Changes that fast commits made durable.
    pub fast: u64,
}

/// What recovery of the log leaves to an engine.
#[derive(Default)]
pub(super) struct Left {
    pub(super) records: Vec<Record>,
    pub(super) fast: Vec<Change>,
}

/// Brings home what a power cut left in the log. Returns what counts beside that, too.
pub(super) fn replay(sb: &Superblock, io: &Io) -> Result<(Replay, Left)> {
    let file = JournalFile::read(sb, io)?;
    let map = |block| file.at(block);
    let whole = Io::new(io.queue().clone());
    let volume = Volume::new(&whole, sb.block_size)?;
    let done = recover(Log::open(volume, &map, file.blocks)?, Strictness::Strict)?;
    let (transactions, blocks) = (done.transactions as u64, done.blocks as u64);
    let left = Left { records: done.records, fast: done.fast };
    Ok((Replay { transactions, blocks, ..Replay::default() }, left))
}

/// The log to write to. Its transactions have been recovered; there may be fast commits that its
/// next one `brings_in`.
pub(super) fn log_of(sb: &Superblock, io: &Io, brings_in: bool) -> Result<LogSpace> {
    let file = JournalFile::read(sb, io)?;
    let map = |block| file.at(block);
    let whole = Io::new(io.queue().clone());
    let volume = Volume::new(&whole, sb.block_size)?;
    let mut superblock = Log::open(volume, &map, file.blocks)?.superblock().clone();
    superblock.use_sums();
    if brings_in {
        superblock.take_over();
    }
    Ok(LogSpace { superblock, blocks: Box::new(move |block| file.at(block)) })
}
