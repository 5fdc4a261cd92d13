//! A sparse file as media, with holes for what was discarded.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::slice;

use smallvec::SmallVec;

use super::{RamMedia, host};
use crate::{BLOCK_SIZE, Block, Blocks, Lba};

const BLOCK_BYTES: u64 = BLOCK_SIZE as u64;
/// Blocks in one system call: `IOV_MAX`.
const MAX_SLICES: usize = 1024;

/// A file of blocks.
#[derive(Debug)]
pub struct FileMedia {
    file: File,
    blocks: u64,
}

impl FileMedia {
    /// Uses `file`, which is `blocks` blocks long.
    pub fn new(file: File, blocks: u64) -> Self {
        Self { file, blocks }
    }

    /// Length in blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The block at `lba`.
    pub fn read(&self, lba: Lba) -> io::Result<Block> {
        let mut block = [Block::unspecified()];
        self.fill(lba, &mut block)?;
        let [block] = block;
        Ok(block)
    }

    /// Appends the `count` blocks from `lba` on to `to`, read by few system calls.
    pub fn read_run(&self, lba: Lba, count: u64, to: &mut Blocks) -> io::Result<()> {
        let start = to.len();
        to.extend((0..count).map(|_| Block::unspecified()));
        (lba..)
            .step_by(MAX_SLICES)
            .zip(to[start..].chunks_mut(MAX_SLICES))
            .try_for_each(|(lba, blocks)| self.fill(lba, blocks))
    }

    fn fill(&self, lba: Lba, blocks: &mut [Block]) -> io::Result<()> {
        let mut slices: SmallVec<[IoSliceMut<'_>; 4]> =
            blocks.iter_mut().map(|block| IoSliceMut::new(block.make_mut())).collect();
        let (mut rest, mut at) = (&mut slices[..], byte(lba)?);
        while !rest.is_empty() {
            match host::read(&self.file, rest, at) {
                // The file was truncated below the drive's size. What is missing reads as a hole.
                Ok(0) => {
                    rest.iter_mut().for_each(|slice| slice.fill(0));
                    break;
                }
                Ok(read) => {
                    IoSliceMut::advance_slices(&mut rest, read);
                    at += read as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Stores `blocks` from `lba` on, by few system calls.
    pub fn write(&self, lba: Lba, blocks: &[Block]) -> io::Result<()> {
        (lba..).step_by(MAX_SLICES).zip(blocks.chunks(MAX_SLICES)).try_for_each(|(lba, blocks)| {
            let mut slices: SmallVec<[IoSlice<'_>; 4]> =
                blocks.iter().map(|block| IoSlice::new(block.bytes())).collect();
            let (mut rest, mut at) = (&mut slices[..], byte(lba)?);
            while !rest.is_empty() {
                match host::write(&self.file, rest, at) {
                    Ok(0) => return Err(ErrorKind::WriteZero.into()),
                    Ok(written) => {
                        IoSlice::advance_slices(&mut rest, written);
                        at += written as u64;
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })
    }

    /// Punches a hole, or writes zeroes if the file system has no holes.
    pub fn discard(&self, lba: Lba, blocks: u64) -> io::Result<()> {
        match host::punch(&self.file, byte(lba)?, byte(blocks)?) {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                let zero = Block::zeroed();
                (lba..lba.saturating_add(blocks))
                    .try_for_each(|at| self.write(at, slice::from_ref(&zero)))
            }
            result => result,
        }
    }

    /// Makes everything durable that was written.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
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
        let found = match host::next_data(&self.file, byte(lba).ok()?) {
            Ok(at) => at? / BLOCK_BYTES,
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
        media.write(3, slice::from_ref(&page))?;
        media.write(900, &[page.clone(), page.clone()])?;
        media.discard(900, 1)?;
        assert_eq!(media.read(900)?, Block::zeroed());
        assert_eq!(media.read(999)?, Block::zeroed());
        let mut run = Blocks::new();
        media.read_run(899, 1000, &mut run)?;
        assert_eq!((run.len(), &run[2], &run[999]), (1000, &page, &Block::zeroed()));
        let (ram, unreadable) = media.snapshot();
        assert_eq!((ram.blocks_held(), unreadable), (2, 0));
        assert_eq!((ram.read(3), ram.read(901)), (page.clone(), page));
        Ok(())
    }
}
