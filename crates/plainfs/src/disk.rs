//! What the drive holds, what of it is in use, and writing what changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drive::{BLOCK_SIZE, Block, Drive, Lba};
use queue::{BlockQueue, Io, IoError, WriteSet};
use vfs::kind::{self, Finding};
use vfs::{Errno, Error, Ino, Result};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::ondisk::{BITS, Geometry, INODES_PER_BLOCK, MAGIC, RawInode, RawSuperblock};

/// A volume's tables in memory, and its drive.
///
/// Invariant: `known` has blocks as the drive has them (or its buffer; only a flush tells), so a
/// block that is equal need not be written.
pub(crate) struct Disk {
    queue: Arc<BlockQueue>,
    io: Io,
    pub(crate) geometry: Geometry,
    pub(crate) superblock: RawSuperblock,
    pub(crate) table: Vec<RawInode>,
    /// One bit for each block, the lowest bit first.
    pub(crate) bitmap: Vec<u8>,
    known: BTreeMap<Lba, Block>,
    /// To be written next.
    ahead: BTreeMap<Lba, Block>,
    /// The inodes of the tree in memory that are on the drive.
    pub(crate) stored: BTreeMap<Ino, Stored>,
    /// Inodes of the table that are in use, or about to be.
    pub(crate) taken: BTreeSet<u32>,
    /// Where the search for a free block goes on.
    next: Lba,
}

/// Where an inode is.
#[derive(Default)]
pub(crate) struct Stored {
    /// In the inode table.
    pub(crate) number: u32,
    /// Its blocks, by page.
    pub(crate) pages: BTreeMap<u64, Lba>,
}

pub(crate) fn io_error(error: IoError) -> Error {
    Error::caused(Errno::IO, error)
}

/// The superblock, if the drive holds one.
pub(crate) fn superblock(queue: &BlockQueue) -> Result<Option<RawSuperblock>> {
    let block = queue.read_block(0).map_err(io_error)?;
    let (raw, _) = RawSuperblock::read_from_prefix(&block[..]).map_err(|_| Errno::IO)?;
    Ok((raw.magic == MAGIC).then_some(raw))
}

impl Disk {
    /// Reads the tables.
    pub(crate) fn open(drive: &Arc<dyn Drive>) -> kind::Result<Self> {
        let queue = Arc::new(BlockQueue::new(drive.clone()));
        let Some(raw) = superblock(&queue)? else {
            return Err(kind::Error::Unknown("not plainfs".into()));
        };
        let fits = |geometry: &Geometry| {
            geometry.blocks <= queue.identify().blocks && geometry.inodes == raw.inodes.get()
        };
        let Some(geometry) = Geometry::of(raw.blocks.get()).filter(fits) else {
            let found = format!("{} blocks, {} inodes", raw.blocks, raw.inodes);
            let allowed = format!("what fits {} blocks", queue.identify().blocks);
            let finding = Finding::new("superblock".into(), "size", found, allowed);
            return Err(Damaged(finding).into());
        };
        let mut disk = Self::empty(queue, geometry, raw);
        disk.read(0)?;
        for at in 1..geometry.data {
            let block = disk.read(at)?;
            if at < geometry.table {
                disk.bitmap.extend_from_slice(&block[..]);
            } else {
                let (raw, _) = <[RawInode; INODES_PER_BLOCK]>::read_from_prefix(&block[..])
                    .map_err(|_| Error::from(Errno::IO))?;
                disk.table.extend(raw);
            }
        }
        disk.taken = (0..).zip(&disk.table).filter(|(_, i)| i.mode != 0).map(|(n, _)| n).collect();
        Ok(disk)
    }

    /// A volume without tables.
    pub(crate) fn empty(
        queue: Arc<BlockQueue>,
        geometry: Geometry,
        superblock: RawSuperblock,
    ) -> Self {
        Self {
            io: Io::new(queue.clone()),
            queue,
            geometry,
            superblock,
            table: Vec::new(),
            bitmap: Vec::new(),
            known: BTreeMap::new(),
            ahead: BTreeMap::new(),
            stored: BTreeMap::new(),
            taken: BTreeSet::new(),
            next: geometry.data,
        }
    }

    /// Reads a block and remembers it.
    pub(crate) fn read(&mut self, lba: Lba) -> Result<Block> {
        if let Some(block) = self.known.get(&lba) {
            return Ok(block.clone());
        }
        let block = self.io.read(lba).map_err(io_error)?;
        self.known.insert(lba, block.clone());
        Ok(block)
    }

    /// A block is in memory, too: one copy will do.
    pub(crate) fn share(&mut self, lba: Lba, block: &Block) {
        if self.known.get(&lba) == Some(block) {
            self.known.insert(lba, block.clone());
        }
    }

    /// Changes a block if it is not so already.
    pub(crate) fn put(&mut self, lba: Lba, block: Block) {
        if self.known.get(&lba) != Some(&block) {
            self.ahead.insert(lba, block);
        }
    }

    pub(crate) fn is_used(&self, lba: Lba) -> bool {
        self.bitmap.get((lba / 8) as usize).is_none_or(|byte| byte >> (lba % 8) & 1 == 1)
    }

    pub(crate) fn mark(&mut self, lba: Lba, used: bool) {
        if let Some(byte) = self.bitmap.get_mut((lba / 8) as usize) {
            *byte = *byte & !(1 << (lba % 8)) | u8::from(used) << (lba % 8);
        }
    }

    /// A free block that is now in use.
    pub(crate) fn allocate(&mut self) -> Result<Lba> {
        let Geometry { data, blocks, .. } = self.geometry;
        let mut found = (self.next..blocks).chain(data..self.next);
        let lba = found.find(|&lba| !self.is_used(lba)).ok_or(Errno::NOSPC)?;
        self.mark(lba, true);
        self.next = lba + 1;
        Ok(lba)
    }

    /// Where `ino` is or will be; a new inode gets a free place in the table.
    pub(crate) fn number_of(&mut self, ino: Ino) -> Result<u32> {
        if let Some(stored) = self.stored.get(&ino) {
            return Ok(stored.number);
        }
        let mut numbers = crate::ondisk::ROOT..self.geometry.inodes;
        let number = numbers.find(|number| !self.taken.contains(number)).ok_or(Errno::NOSPC)?;
        self.taken.insert(number);
        self.stored.insert(ino, Stored { number, ..Stored::default() });
        Ok(number)
    }

    /// Frees the inode of `ino` and its blocks.
    pub(crate) fn forget(&mut self, ino: Ino) {
        let Some(stored) = self.stored.remove(&ino) else { return };
        self.taken.remove(&stored.number);
        self.set_inode(stored.number, RawInode::new_zeroed());
        stored.pages.values().for_each(|&lba| self.mark(lba, false));
    }

    /// Changes one inode of its block in the table.
    pub(crate) fn set_inode(&mut self, number: u32, raw: RawInode) {
        let number = number as usize;
        self.table[number] = raw;
        let first = number / INODES_PER_BLOCK * INODES_PER_BLOCK;
        let block = Block::from_prefix(self.table[first..first + INODES_PER_BLOCK].as_bytes());
        self.put(self.geometry.table + (number / INODES_PER_BLOCK) as u64, block);
    }

    /// Writes the bitmap and whatever was put, each where it belongs, in no order.
    pub(crate) fn write(&mut self) -> Result<()> {
        for i in 0..self.geometry.blocks.div_ceil(BITS) {
            let from = i as usize * BLOCK_SIZE;
            let block = Block::from_prefix(&self.bitmap[from..from + BLOCK_SIZE]);
            self.put(1 + i, block);
        }
        if !self.ahead.is_empty() {
            self.superblock.clean.set(0);
        }
        self.put(0, Block::from_prefix(self.superblock.as_bytes()));
        let ahead = std::mem::take(&mut self.ahead);
        let mut writes = WriteSet::default();
        for (lba, block) in &ahead {
            self.known.remove(lba);
            writes.push(&mut self.io, *lba, block.clone());
        }
        writes.submit(&mut self.io);
        // What failed is not known, and so written again.
        writes.wait(&self.queue).map_err(io_error)?;
        self.known.extend(ahead);
        Ok(())
    }

    pub(crate) fn flush(&self) -> Result<()> {
        self.queue.flush().map_err(io_error)
    }

    /// Nothing is in memory that the drive does not have: says so on the drive.
    pub(crate) fn mark_clean(&mut self) -> Result<()> {
        self.flush()?;
        self.superblock.clean.set(1);
        self.write()?;
        self.flush()
    }
}

/// A structure on the drive holds a value that it must not.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Damaged(pub(crate) Finding);

impl From<Damaged> for kind::Error {
    fn from(damaged: Damaged) -> Self {
        Error::caused(Errno::UCLEAN, damaged).into()
    }
}
