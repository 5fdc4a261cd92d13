//! The journal below a mounted volume: its blocks on the drive, and what it asks of ext4.

use std::sync::Arc;

use cores::{Mutex, Rank};
use drive::{Block, Lba};
use journal::ondisk::fast::Change;
use journal::{Log, LogSpace, Record, Strictness, Tid, Volume, recover};
use queue::{BlockQueue, Io};

use crate::error::{Error, Result};
use crate::inode::map::{Mapped, find};
use crate::ondisk::extent::Extent;
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{FsBlock, ensure};
use crate::reader::Reader;

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

/// The most parts that a journal may be in. Those of e2fsprogs have a few.
const PARTS_MAX: usize = 1 << 20;

/// The journal's file: how many blocks it has, and where they are.
pub(crate) struct JournalFile {
    blocks: u32,
    extents: Vec<Extent>,
    has_holes: bool,
}

impl JournalFile {
    /// That of the volume of `reader`.
    pub(crate) fn read(reader: &Reader) -> Result<Self> {
        let ino = reader.sb.raw.journal_inum.get();
        if ino == 0 {
            return Err(Error::unsupported("a journal on a drive of its own"));
        }
        let inode = reader.inode(ino)?;
        let blocks = (inode.size / u64::from(reader.sb.block_size)).min(u32::MAX.into()) as u32;
        let (mut extents, mut has_holes, mut block) = (Vec::new(), false, 0);
        while block < blocks {
            // One that was made by allocation only has unwritten blocks in front of its first use.
            let end = match find(reader, &inode, block)? {
                Mapped::Extent(extent) => {
                    extents.push(extent);
                    extent.end()
                }
                // To be read, a log may do without what is missing.
                Mapped::Hole(end) => {
                    has_holes = true;
                    end
                }
            };
            ensure(extents.len() <= PARTS_MAX, "journal", inode.at, extents.len(), PARTS_MAX)?;
            block = end.min(blocks.into()) as u32;
        }
        Ok(Self { blocks, extents, has_holes })
    }

    /// That of the volume of `sb` on the drive of `queue`, which is to be mounted for writing.
    fn of_mounted(sb: &Superblock, queue: &Arc<BlockQueue>) -> Result<Self> {
        // The log may have the sound copy of a descriptor.
        let reader = Reader::new(sb.clone(), queue.clone(), 0).lenient();
        let file = Self::read(&reader)?;
        let inode = reader.inode(sb.raw.journal_inum.get())?;
        // The upgrade of a volume of ext2 or ext3, whose other files have none either.
        if !inode.has_extents() {
            let what = "writing with a journal without extents; mount it -o ro";
            return Err(Error::unsupported(what));
        }
        ensure(!file.has_holes, "journal", inode.at, "a hole", "blocks")?;
        Ok(file)
    }

    /// Opens the log in it, in blocks of `block_size` bytes on the drive of `queue`.
    pub(crate) fn with_log<T>(
        &self,
        queue: &Arc<BlockQueue>,
        block_size: u32,
        job: impl FnOnce(Log<'_>) -> Result<T>,
    ) -> Result<T> {
        let io = Io::new(queue.clone());
        let map = |block| self.at(block);
        job(Log::open(Volume::new(&io, block_size)?, &map, self.blocks)?)
    }

    fn at(&self, block: u32) -> Option<FsBlock> {
        let place = self.extents.partition_point(|extent| extent.block <= block).checked_sub(1)?;
        self.extents.get(place)?.at(block.into())
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
pub(super) fn replay(sb: &Superblock, queue: &Arc<BlockQueue>) -> Result<(Replay, Left)> {
    let file = JournalFile::of_mounted(sb, queue)?;
    let replay = |log: Log<'_>| Ok(recover(log, Strictness::Strict)?);
    let done = file.with_log(queue, sb.block_size, replay)?;
    let (transactions, blocks) = (done.transactions as u64, done.blocks as u64);
    let left = Left { records: done.records, fast: done.fast };
    Ok((Replay { transactions, blocks, ..Replay::default() }, left))
}

/// The log to write to. Its transactions have been recovered; there may be fast commits that its
/// next one `brings_in`.
pub(super) fn log_of(
    sb: &Superblock,
    queue: &Arc<BlockQueue>,
    brings_in: bool,
) -> Result<LogSpace> {
    let file = JournalFile::of_mounted(sb, queue)?;
    let mut superblock = file.with_log(queue, sb.block_size, |log| Ok(log.superblock().clone()))?;
    superblock.use_sums();
    if brings_in {
        superblock.take_over();
    }
    Ok(LogSpace { superblock, blocks: Box::new(move |block| file.at(block)) })
}
