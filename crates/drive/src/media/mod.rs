//! Where the bytes of an emulated drive are: in memory or in a file.
//!
//! Media hold what is *durable*. What a drive has only buffered is kept in the drive, so a power
//! cut need only forget it.

mod file;
mod host;
mod over;
mod ram;

use std::io;
use std::sync::Arc;

pub use file::FileMedia;
pub use over::OverMedia;
pub use ram::RamMedia;

use crate::{Block, Blocks, Lba, Status};

/// The status of a write that the host refused with `error`.
pub(crate) fn write_failure(error: io::Error) -> Status {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Status::CapacityExceeded,
        _ => Status::WriteFault,
    }
}

/// Memory, a file, or memory over a drive, indexed by block. The owner checks ranges; what lies
/// beyond the end reads as zeroes.
#[derive(Clone, Debug)]
pub enum Media {
    /// In memory. A clone is a snapshot.
    Ram(RamMedia),
    /// In a file. A clone is another handle of the same file.
    File(Arc<FileMedia>),
    /// In memory over another drive. A clone is a snapshot.
    Over(OverMedia),
}

impl Media {
    /// The block at `lba`; zeroes if it was never written.
    pub fn read(&self, lba: Lba) -> io::Result<Block> {
        match self {
            Self::Ram(ram) => Ok(ram.read(lba)),
            Self::File(file) => file.read(lba),
            Self::Over(over) => over.read(lba),
        }
    }

    /// Shows the block at `lba`. If it is in memory, shows the block itself and no copy.
    pub(crate) fn look(&self, lba: Lba, see: &mut dyn FnMut(&Block)) -> io::Result<()> {
        let held = if let Self::Ram(ram) = self { ram.get(lba) } else { None };
        match held {
            Some(block) => see(block),
            None => see(&self.read(lba)?),
        }
        Ok(())
    }

    /// Appends the `count` blocks from `lba` on to `to`.
    pub fn read_run(&self, lba: Lba, count: u64, to: &mut Blocks) -> io::Result<()> {
        match self {
            Self::Ram(ram) => to.extend((lba..lba + count).map(|lba| ram.read(lba))),
            Self::File(file) => file.read_run(lba, count, to)?,
            Self::Over(over) => {
                for lba in lba..lba + count {
                    to.push(over.read(lba)?);
                }
            }
        }
        Ok(())
    }

    /// Stores `block` at `lba`.
    pub fn write(&mut self, lba: Lba, block: Block) -> io::Result<()> {
        self.write_run(lba, std::iter::once(block))
    }

    /// Stores `blocks` from `lba` on.
    pub fn write_run(
        &mut self,
        lba: Lba,
        blocks: impl IntoIterator<Item = Block>,
    ) -> io::Result<()> {
        match self {
            Self::Ram(ram) => (lba..).zip(blocks).for_each(|(lba, block)| ram.write(lba, block)),
            Self::File(file) => file.write(lba, &blocks.into_iter().collect::<Blocks>())?,
            Self::Over(over) => (lba..).zip(blocks).for_each(|(lba, block)| over.write(lba, block)),
        }
        Ok(())
    }

    /// Makes `blocks` blocks from `lba` read as zeroes, and frees their space.
    pub fn discard(&mut self, lba: Lba, blocks: u64) -> io::Result<()> {
        match self {
            Self::Ram(ram) => {
                ram.discard(lba, blocks);
                Ok(())
            }
            Self::File(file) => file.discard(lba, blocks),
            Self::Over(over) => {
                over.discard(lba, blocks);
                Ok(())
            }
        }
    }

    /// Makes these media durably hold what `other` holds. If both are in memory, nothing is copied.
    pub(crate) fn assume(&mut self, other: &RamMedia, blocks: u64) -> io::Result<()> {
        match self {
            Self::Ram(ram) => *ram = other.clone(),
            _ => {
                self.discard(0, blocks)?;
                other.each(|lba, block| self.write(lba, block.clone()))?;
            }
        }
        self.sync()
    }

    /// Whether both are snapshots between which nothing was written.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Ram(one), Self::Ram(other)) if one.is_same(other))
    }

    /// Makes a file's contents survive the host's power. In memory there is nothing to do.
    pub fn sync(&self) -> io::Result<()> {
        match self {
            Self::Ram(_) | Self::Over(_) => Ok(()),
            Self::File(file) => file.sync(),
        }
    }

    /// A separate copy of the present contents. In memory only later changes cost something; a file
    /// is read completely. The count says how many blocks could not be read; they are zero in the
    /// copy.
    pub fn snapshot(&self) -> (RamMedia, u64) {
        match self {
            Self::Ram(ram) => (ram.clone(), 0),
            Self::File(file) => file.snapshot(),
            Self::Over(over) => over.snapshot(),
        }
    }
}
