//! Blocks of a file system's size on a drive, and the log among them.

use std::ops::Range;

use drive::{BLOCK_SIZE, Block, Blocks, Lba};
use queue::{Io, WriteSet};

use crate::error::{Error, Result};
use crate::ondisk::record::Floors;
use crate::ondisk::superblock::{SUPERBLOCK_SIZE, Superblock};

/// Log blocks read with one command while the log is scanned, at most.
const READ_AHEAD: u32 = 64;

/// A file system's blocks on a drive: of 1, 2 or 4 KiB.
#[derive(Clone, Copy)]
pub struct Volume<'a> {
    io: &'a Io,
    block_size: usize,
}

impl<'a> Volume<'a> {
    /// The blocks of `block_size` bytes behind `io`. Fails if a drive's block is not a multiple of
    /// that, or if that is too small for a superblock.
    pub fn new(io: &'a Io, block_size: u32) -> Result<Self> {
        let size = block_size as usize;
        if !size.is_power_of_two() || !(SUPERBLOCK_SIZE..=BLOCK_SIZE).contains(&size) {
            return Err(Error::unsupported(format!("journal blocks of {block_size} bytes")));
        }
        Ok(Self { io, block_size: size })
    }

    /// The drive's reads and writes.
    pub fn io(&self) -> &'a Io {
        self.io
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// How many blocks the drive has.
    pub fn blocks(&self) -> u64 {
        self.io.queue().identify().blocks * self.per_lba()
    }

    fn per_lba(&self) -> u64 {
        (BLOCK_SIZE / self.block_size) as u64
    }

    /// The drive's block that holds `block`, and where in it.
    pub(crate) fn place(&self, block: u64) -> (Lba, Range<usize>) {
        let at = (block % self.per_lba()) as usize * self.block_size;
        (block / self.per_lba(), at..at + self.block_size)
    }

    /// Writes `bytes` into `block`, forced to stable media, and waits.
    pub(crate) fn write_forced(&self, block: u64, bytes: &[u8]) -> Result<()> {
        let (lba, range) = self.place(block);
        let mut whole = self.io.read(lba)?;
        whole.make_mut()[range][..bytes.len()].copy_from_slice(bytes);
        let mut set = WriteSet::default();
        set.push_forced(self.io, lba, whole);
        Ok(set.wait(self.io.queue())?)
    }
}

/// Where the log's blocks are: the file-system block of each, as the journal inode maps it. `None`
/// for a hole.
pub type LogMap<'a> = &'a dyn Fn(u32) -> Option<u64>;

/// A log on a drive, to be read.
pub struct Log<'a> {
    volume: Volume<'a>,
    map: LogMap<'a>,
    superblock: Superblock,
    /// There were areas for records: numbers of transactions that records may have are skipped.
    had_records: bool,
    /// Which records count, from when the log is closed until they are applied.
    floors: Option<Floors>,
    /// The transaction that has to bring in fast commits: until it is committed, the log is open.
    awaited: Option<crate::Tid>,
    /// What has been read last: adjacent log blocks in adjacent blocks of the drive.
    ahead: Ahead,
}

#[derive(Default)]
struct Ahead {
    log: Range<u32>,
    /// The block that holds the first of them.
    first: u64,
    lba: Lba,
    blocks: Blocks,
}

impl<'a> Log<'a> {
    /// Reads the superblock of a journal whose file has `file_blocks` blocks, found by `map`.
    pub fn open(volume: Volume<'a>, map: LogMap<'a>, file_blocks: u32) -> Result<Self> {
        let hole = || Error::corrupt("journal inode", 0_u64, "a hole", "a block");
        let at = map(0).ok_or_else(hole)?;
        let (lba, range) = volume.place(at);
        let block = volume.io.read(lba)?;
        let superblock =
            Superblock::parse(&block[range], at, volume.block_size as u32, file_blocks)?;
        let had_records = superblock.records().is_some();
        let ahead = Ahead::default();
        Ok(Self { volume, map, superblock, had_records, floors: None, awaited: None, ahead })
    }

    /// The journal's superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The blocks around it.
    pub fn volume(&self) -> Volume<'a> {
        self.volume
    }

    /// The file system's block that holds block `block` of the log.
    pub(crate) fn home(&self, block: u32) -> Result<u64> {
        let blocks = self.volume.blocks();
        let found = (self.map)(block);
        found.filter(|at| *at < blocks).ok_or_else(|| {
            let found = found.map_or("a hole".to_owned(), |at| at.to_string());
            Error::corrupt("log block", block, found, format_args!("a block below {blocks}"))
        })
    }

    /// Reads block `block` of the log: the drive's block that holds it, and where in it.
    pub(crate) fn read(&mut self, block: u32) -> Result<(Block, Range<usize>)> {
        if !self.ahead.log.contains(&block) {
            self.read_ahead(block)?;
        }
        let at = self.ahead.first + u64::from(block - self.ahead.log.start);
        let (lba, range) = self.volume.place(at);
        Ok((self.ahead.blocks[(lba - self.ahead.lba) as usize].clone(), range))
    }

    fn read_ahead(&mut self, block: u32) -> Result<()> {
        let first = self.home(block)?;
        let end = if block < self.superblock.ring().end { self.superblock.ring().end } else { !0 };
        let max = READ_AHEAD.min(end - block);
        let follows = |n: &u32| self.home(block + n).ok() == Some(first + u64::from(*n));
        let count = 1 + (1..max).take_while(follows).count() as u32;
        let (lba, _) = self.volume.place(first);
        let (last, _) = self.volume.place(first + u64::from(count) - 1);
        let blocks = self.volume.io.read_run(lba, (last - lba + 1) as u32)?;
        self.ahead = Ahead { log: block..block + count, first, lba, blocks };
        Ok(())
    }

    /// The superblock that closes the log will keep its areas of records and say which count, or
    /// have none. Whether there are any.
    pub(crate) fn keep_records(&mut self, floors: Option<Floors>) -> bool {
        if floors.is_none() && self.had_records {
            self.superblock.drop_records();
        }
        self.floors = floors;
        self.had_records
    }

    /// [`Log::close`] leaves the log open for this transaction, if there is one.
    pub(crate) fn stay_open(&mut self, awaited: Option<crate::Tid>) {
        self.awaited = awaited;
    }

    /// Closes the log, and ends its areas: no transaction is to be recovered, and the next one is
    /// `sequence`. Durable when this returns. Where records count, which ones is durable before:
    /// as long as the log is open, it says that itself.
    pub(crate) fn close(&mut self, sequence: crate::Tid) -> Result<()> {
        if let (Some(floors), Some(space)) = (self.floors.take(), self.superblock.records())
            && !self.superblock.has_record_floors()
        {
            let floors = floors.emit(self.volume.block_size);
            self.volume.write_forced(self.home(space.floors_at())?, &floors)?;
            self.superblock.use_record_floors();
        }
        // Records may have the numbers of two transactions that were not committed: the one on its
        // way, and the one that was running. Neither may come back.
        let sequence = if self.had_records { sequence.next().next() } else { sequence };
        match self.awaited {
            Some(tid) => {
                let first = self.superblock.ring().start;
                self.superblock.set_tail(Some(first), tid);
            }
            None => self.superblock.set_areas(None, sequence),
        }
        self.volume.write_forced(self.home(0)?, &self.superblock.emit())
    }
}
