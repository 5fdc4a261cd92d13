//! What the drive holds, whose the blocks are, and writing what changed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use drive::{Block, Drive, Lba};
use queue::{BlockQueue, Io, IoError, WriteSet};
use vfs::kind::{self, Finding};
use vfs::{Buffers, Errno, Error, Ino, Result};
use zerocopy::{FromBytes, IntoBytes};

use crate::ondisk::{MAGIC, OWNERS, RawOwner, RawSuperblock};

/// A volume's drive and map.
pub(crate) struct Disk {
    io: Io,
    pub(crate) superblock: RawSuperblock,
    /// Blocks that can be allocated.
    pub(crate) data: Range<Lba>,
    /// Blocks as the drive has them, or will after the next write.
    known: BTreeMap<Lba, Block>,
    /// What that writes.
    changed: Buffers,
    pub(crate) free: BTreeSet<Lba>,
    /// The blocks of the tree in memory, as the map has them: by inode and slot.
    pub(crate) stored: BTreeMap<(Ino, u64), Lba>,
}

fn io_error(error: IoError) -> Error {
    Error::caused(Errno::IO, error)
}

/// The superblock, if the drive holds one.
pub(crate) fn superblock(queue: &BlockQueue) -> Result<Option<RawSuperblock>> {
    let block = queue.read_block(0).map_err(io_error)?;
    let (raw, _) = RawSuperblock::read_from_prefix(&block[..]).expect("a block is longer");
    Ok((raw.magic == MAGIC).then_some(raw))
}

/// A volume whose blocks all are free, as far as is known.
pub(crate) fn empty(queue: Arc<BlockQueue>, superblock: RawSuperblock) -> kind::Result<Disk> {
    let there = queue.identify().blocks;
    let Some(data) = superblock.data().filter(|data| data.end <= there) else {
        let allowed = format!("64 to {there}");
        let finding = Finding::new("superblock".into(), "blocks", superblock.blocks, allowed);
        return Err(damaged(finding));
    };
    Ok(Disk {
        io: Io::new(queue),
        superblock,
        known: BTreeMap::new(),
        changed: Buffers::default(),
        free: data.clone().collect(),
        stored: BTreeMap::new(),
        data,
    })
}

impl Disk {
    /// Reads the superblock.
    pub(crate) fn open(drive: &Arc<dyn Drive>) -> kind::Result<Self> {
        let queue = Arc::new(BlockQueue::new(drive.clone()));
        let raw = superblock(&queue)?;
        empty(queue, raw.ok_or_else(|| kind::Error::Unknown("not plainfs".into()))?)
    }

    pub(crate) fn read(&mut self, lba: Lba) -> Result<Block> {
        if let Some(block) = self.known.get(&lba) {
            return Ok(block.clone());
        }
        let block = self.io.read(lba).map_err(io_error)?;
        self.known.insert(lba, block.clone());
        Ok(block)
    }

    /// Changes a block if it is not so already.
    pub(crate) fn put(&mut self, lba: Lba, block: Block) {
        if self.known.get(&lba) != Some(&block) {
            self.known.insert(lba, block.clone());
            self.changed.put(lba, block);
        }
    }

    /// Whose a block is, as the map says.
    pub(crate) fn owner(&mut self, lba: Lba) -> Result<RawOwner> {
        let block = self.read(1 + lba / OWNERS)?;
        let owners = <[RawOwner; OWNERS as usize]>::ref_from_bytes(&block[..]);
        Ok(owners.expect("sizes are equal")[(lba % OWNERS) as usize])
    }

    fn set_owner(&mut self, lba: Lba, inode: Lba, slot: u64) -> Result<()> {
        let mut block = self.read(1 + lba / OWNERS)?;
        let owners = <[RawOwner; OWNERS as usize]>::mut_from_bytes(&mut block.make_mut()[..]);
        let owner = RawOwner { inode: inode.into(), slot: slot.into() };
        owners.expect("sizes are equal")[(lba % OWNERS) as usize] = owner;
        self.put(1 + lba / OWNERS, block);
        Ok(())
    }

    /// The block of this slot of `ino`; it gets one if it has none.
    pub(crate) fn block_of(&mut self, ino: Ino, slot: u64) -> Result<Lba> {
        if let Some(lba) = self.stored.get(&(ino, slot)) {
            return Ok(*lba);
        }
        let inode = if slot > 0 { Some(self.block_of(ino, 0)?) } else { None };
        let lba = self.free.pop_first().ok_or(Errno::NOSPC)?;
        self.stored.insert((ino, slot), lba);
        self.set_owner(lba, inode.unwrap_or(lba), slot)?;
        Ok(lba)
    }

    /// Frees the other blocks of `ino`.
    pub(crate) fn keep(&mut self, ino: Ino, stays: impl Fn(&u64) -> bool) -> Result<()> {
        let all = self.stored.range((ino, 0)..=(ino, u64::MAX));
        let gone: Vec<_> =
            all.map(|(&key, &lba)| (key, lba)).filter(|(k, _)| !stays(&k.1)).collect();
        for (key, lba) in gone {
            self.stored.remove(&key);
            self.set_owner(lba, 0, 0)?;
            self.free.insert(lba);
        }
        Ok(())
    }

    /// Writes whatever changed, each block where it belongs, in no order. What fails is written
    /// again next time.
    pub(crate) fn write(&mut self, clean: bool) -> Result<()> {
        self.superblock.clean.set(clean.into());
        self.put(0, Block::from_prefix(self.superblock.as_bytes()));
        let mut writes = WriteSet::default();
        self.changed.submit(&self.io, &mut writes);
        writes.wait(self.io.queue()).map_err(io_error)?;
        self.changed.forget();
        Ok(())
    }

    pub(crate) fn flush(&self) -> Result<()> {
        self.io.queue().flush().map_err(io_error)
    }
}

/// A structure on the drive holds a value that it must not.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Damaged(Finding);

pub(crate) fn damaged(finding: Finding) -> kind::Error {
    Error::caused(Errno::UCLEAN, Damaged(finding)).into()
}
