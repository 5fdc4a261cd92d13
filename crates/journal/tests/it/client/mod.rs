//! The smallest file system that has a journal: a table of blocks, each with one value.
//!
//! A block in use holds its value and, at its end, a checksum that only sealing writes. Some begin
//! with the journal's magic. A block that was freed may be used for *data*, written in place.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use std::sync::Arc;

use cores::Mutex;
use drive::{BLOCK_SIZE, Block, Drive, Lba};
use journal::policy::Areas;
use journal::{
    Client, Handle, Id, Journal, Log, LogSpace, Options, Replayed, Result, Strictness, Superblock,
    Volume,
};
use queue::{BlockQueue, Io, WriteSet};

/// The log's blocks, in two pieces; the second one lies ahead of the first.
pub const LOG_BLOCKS: u32 = 33;
/// Those of a log that is divided into areas: more follow behind the table.
pub const WIDE_LOG_BLOCKS: u32 = LOG_BLOCKS + 64;
/// The table.
pub const HOME: Lba = 40;
pub const BLOCKS: usize = 10;
/// Blocks of the drive.
pub const DRIVE_BLOCKS: u64 = 64;
/// With a log that is divided into areas.
pub const WIDE_DRIVE_BLOCKS: u64 = DRIVE_BLOCKS + 64;

const MAGIC: [u8; 4] = [0xc0, 0x3b, 0x39, 0x98];
const DATA: u64 = 1 << 63;

/// A file system whose blocks are logged as they are.
pub struct Raw;

impl Client for Raw {
    type Kind = ();

    fn seal(&self, (): (), _: Lba, _: &mut Block) {}

    fn committed(&self, _: Id) {}
}

/// What the file system has been told.
#[derive(Default)]
pub struct Table {
    pub committed: Mutex<Vec<Id>>,
}

impl Client for Table {
    type Kind = ();

    fn seal(&self, (): (), lba: Lba, block: &mut Block) {
        let sum = checksum(lba, block);
        block.make_mut()[BLOCK_SIZE - 4..].copy_from_slice(&sum);
    }

    fn committed(&self, id: Id) {
        self.committed.lock().push(id);
    }
}

fn checksum(lba: Lba, block: &Block) -> [u8; 4] {
    let seed = journal::ondisk::crc32c(0, &lba.to_le_bytes());
    journal::ondisk::crc32c(seed, &block[..BLOCK_SIZE - 4]).to_le_bytes()
}

/// A volume with its journal.
pub struct Store {
    pub journal: Journal<Table>,
    pub io: Arc<Io>,
}

pub fn log_block(block: u32) -> Option<Lba> {
    let half = LOG_BLOCKS / 2;
    match block {
        0..LOG_BLOCKS => Some(u64::from((block + half) % LOG_BLOCKS)),
        LOG_BLOCKS..WIDE_LOG_BLOCKS => Some(DRIVE_BLOCKS + u64::from(block - LOG_BLOCKS)),
        _ => None,
    }
}

pub fn io(drive: Arc<dyn Drive>) -> Arc<Io> {
    Arc::new(Io::new(Arc::new(BlockQueue::new(drive))))
}

/// As [`io`], without the drive's forced writes.
pub fn io_without_fua(drive: Arc<dyn Drive>) -> Arc<Io> {
    let options = queue::Options { fua: false, ..queue::Options::default() };
    Arc::new(Io::new(Arc::new(BlockQueue::for_files(drive, options))))
}

/// Recovers the log on a drive, if there is one.
pub fn recover(io: &Io, strictness: Strictness) -> Result<Replayed> {
    let log = Log::open(Volume::new(io, BLOCK_SIZE as u32)?, &log_block, WIDE_LOG_BLOCKS)?;
    journal::recover(log, strictness)
}

/// The journal's superblock on a drive.
pub fn superblock(io: &Io) -> Result<Superblock> {
    let volume = Volume::new(io, BLOCK_SIZE as u32)?;
    Ok(Log::open(volume, &log_block, WIDE_LOG_BLOCKS)?.superblock().clone())
}

impl Store {
    /// On a new drive.
    pub fn make(drive: Arc<dyn Drive>, options: Options) -> Self {
        Self::made_with(io(drive), options, |_| {})
    }

    /// On a new drive, with another superblock.
    pub fn made_with(io: Arc<Io>, options: Options, change: impl FnOnce(&mut Superblock)) -> Self {
        let is_wide = options.policy.areas == Areas::PerCore;
        let blocks = if is_wide { WIDE_LOG_BLOCKS } else { LOG_BLOCKS };
        let mut superblock = Superblock::new(BLOCK_SIZE as u32, blocks, [9; 16]);
        change(&mut superblock);
        let at = log_block(0).unwrap();
        let block = Block::from_prefix(&superblock.emit());
        io.queue().write_blocks(at, [block].as_slice(), false).unwrap();
        io.queue().flush().unwrap();
        Self::open(io, superblock, options).unwrap()
    }

    /// On a drive that was recovered.
    pub fn open(io: Arc<Io>, superblock: Superblock, options: Options) -> Result<Self> {
        let space = LogSpace { superblock, blocks: Box::new(log_block) };
        Ok(Self { journal: Journal::open(io.clone(), space, options, Table::default())?, io })
    }

    /// Gives blocks a value in one transaction, freeing others.
    pub fn put(&self, blocks: &[usize], freed: &[usize], value: u64) -> Result<Id> {
        let mut handle = self.journal.start((blocks.len() + freed.len()) as u32)?;
        blocks.iter().try_for_each(|block| put(&mut handle, *block, value))?;
        freed.iter().for_each(|block| handle.forget(HOME + *block as u64));
        Ok(handle.id())
    }

    /// Writes data in place of a block that has been freed, and makes it durable.
    pub fn put_data(&self, block: usize, value: u64) -> Result<()> {
        let mut set = WriteSet::default();
        set.push(&self.io, HOME + block as u64, Block::from_prefix(&(value | DATA).to_le_bytes()));
        set.submit(&self.io);
        set.wait(self.io.queue())?;
        Ok(self.io.queue().flush()?)
    }
}

/// Changes one block within an operation.
pub fn put(handle: &mut Handle<'_, Table>, block: usize, value: u64) -> Result<()> {
    handle.change(HOME + block as u64, (), |bytes| {
        bytes[..8].fill(0);
        bytes[..4].copy_from_slice(if block % 2 == 1 { &MAGIC } else { &[0; 4] });
        bytes[8..16].copy_from_slice(&value.to_le_bytes());
    })
}

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// It was never used.
    Zero,
    Table(u64),
    Data(u64),
    /// Nobody cares.
    Free,
}

/// The table on a drive; an error names a block that nobody can have written.
pub fn read(io: &Io) -> Result<Vec<Value>, String> {
    (0..BLOCKS).map(|block| read_block(io, HOME + block as u64)).collect()
}

fn read_block(io: &Io, lba: Lba) -> Result<Value, String> {
    let block = io.read(lba).map_err(|error| error.to_string())?;
    if block == Block::zeroed() {
        return Ok(Value::Zero);
    }
    let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap());
    if word(0) & DATA != 0 && block[..4] != MAGIC {
        return Ok(Value::Data(word(0) & !DATA));
    }
    let starts_well = block[..4] == [0; 4] || block[..4] == MAGIC;
    if starts_well && block[BLOCK_SIZE - 4..] == checksum(lba, &block) {
        return Ok(Value::Table(word(8)));
    }
    Err(format!("block {lba} holds {block:?}"))
}

/// Whether a recovered table is that of some state from `durable` on.
pub fn is_one_of(found: &[Value], states: &[Vec<Value>], durable: usize) -> bool {
    let fits = |state: &Vec<Value>| {
        state.iter().zip(found).all(|(want, found)| *want == Value::Free || want == found)
    };
    states[durable..].iter().any(fits)
}
