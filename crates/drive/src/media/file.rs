//! A sparse file as media: `pread`, `pwrite`, holes for what was discarded.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, fdatasync, seek};
use rustix::io::Errno;

use super::RamMedia;
use crate::{BLOCK_SIZE, Block, Lba};

const BLOCK_BYTES: u64 = BLOCK_SIZE as u64;

/// A file of blocks.
#[derive(Debug)]
pub struct FileMedia {
    file: File,
    blocks: u64,
}

impl FileMedia {
    /// Takes `file`, which is `blocks` blocks long.
    pub fn new(file: File, blocks: u64) -> Self {
        Self { file, blocks }
    }

    /// Length in blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The block at `lba`.
    pub fn read(&self, lba: Lba) -> io::Result<Block> {
        let mut page = Block::zeroed();
        match self.file.read_exact_at(page.make_mut(), byte(lba)?) {
            Ok(()) => Ok(page),
            // Somebody cut the file shorter than the drive: a hole like any other.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(Block::zeroed()),
            Err(error) => Err(error),
        }
    }

    /// Stores `block` at `lba`.
    pub fn write(&self, lba: Lba, block: &Block) -> io::Result<()> {
        self.file.write_all_at(block.bytes(), byte(lba)?)
    }

    /// Punches a hole. A file system without holes gets zeroes.
    pub fn discard(&self, lba: Lba, blocks: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let (from, len) = (byte(lba)?, byte(blocks)?);
        match fallocate(&self.file, flags, from, len) {
            Err(Errno::OPNOTSUPP) => {
                let zero = Block::zeroed();
                (lba..lba.saturating_add(blocks)).try_for_each(|at| self.write(at, &zero))
            }
            result => Ok(result?),
        }
    }

    /// `fdatasync`.
    pub fn sync(&self) -> io::Result<()> {
        Ok(fdatasync(&self.file)?)
    }

    /// All data of the file in memory, and how many blocks could not be read.
    pub fn snapshot(&self) -> (RamMedia, u64) {
        let (mut ram, mut unreadable, mut at) = (RamMedia::new(), 0, 0);
        while let Some(lba) = self.next_data(at) {
            match self.read(lba) {
                Ok(block) if block == Block::zeroed() => {}
                Ok(block) => ram.write(lba, block),
                Err(_) => unreadable += 1,
            }
            at = lba + 1;
        }
        (ram, unreadable)
    }

    /// The first block from `lba` on that may hold data.
    fn next_data(&self, lba: Lba) -> Option<Lba> {
        let found = match seek(&self.file, SeekFrom::Data(byte(lba).ok()?)) {
            Ok(at) => at / BLOCK_BYTES,
            Err(Errno::NXIO) => return None,
            Err(_) => lba,
        };
        (found < self.blocks).then_some(found.max(lba))
    }
}

fn byte(blocks: u64) -> io::Result<u64> {
    blocks.checked_mul(BLOCK_BYTES).ok_or_else(|| ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_holes_and_snapshots() -> io::Result<()> {
        let file = tempfile::tempfile()?;
        file.set_len(1000 * BLOCK_BYTES)?;
        let media = FileMedia::new(file, 1000);
        let page = Block::from_prefix(b"strand");
        media.write(3, &page)?;
        media.write(900, &page)?;
        media.write(901, &page)?;
        media.discard(900, 1)?;
        assert_eq!(media.read(900)?, Block::zeroed());
        assert_eq!(media.read(999)?, Block::zeroed());
        let (ram, unreadable) = media.snapshot();
        assert_eq!((ram.blocks_held(), unreadable), (2, 0));
        assert_eq!((ram.read(3), ram.read(901)), (page.clone(), page));
        Ok(())
    }
}
