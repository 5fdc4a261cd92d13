//! Orphan blocks of a checkpoint pack: inodes without a name that were still open (`struct
//! f2fs_orphan_block`, 4096 bytes).

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BlockAddr, Nid, block_view};
use crate::error::{Error, Result};

/// Inode numbers one orphan block holds.
pub const ORPHANS_PER_BLOCK: usize = 1020;

/// `struct f2fs_orphan_block`, 4096 bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawOrphanBlock {
    /// Inode numbers, the first `entry_count` used.
    pub ino: [U32; ORPHANS_PER_BLOCK],
    reserved: U32,
    /// Number of this orphan block in the pack, from 1.
    pub blk_addr: U16,
    /// Orphan blocks in the pack.
    pub blk_count: U16,
    /// Inode numbers here.
    pub entry_count: U32,
    /// Not used, 0.
    pub check_sum: U32,
}
block_view!(RawOrphanBlock);

impl RawOrphanBlock {
    /// The inode numbers in use, read from block `at`.
    pub fn inos(&self, at: BlockAddr) -> Result<impl Iterator<Item = Nid> + '_> {
        let count = self.entry_count.get();
        match self.ino.get(..count as usize) {
            Some(inos) => Ok(inos.iter().map(|ino| ino.get())),
            None => Err(Error::corrupt("orphan_block.entry_count", at, count, "0..=1020")),
        }
    }

    /// Fills this block, which is number `index` (from 0) of `blocks`, with up to
    /// [`ORPHANS_PER_BLOCK`] numbers.
    pub fn fill(&mut self, index: u16, blocks: u16, inos: &[Nid]) {
        self.as_mut_bytes().fill(0);
        for (slot, &ino) in self.ino.iter_mut().zip(inos) {
            slot.set(ino);
        }
        self.blk_addr.set(index.saturating_add(1));
        self.blk_count.set(blocks);
        self.entry_count.set(inos.len().min(ORPHANS_PER_BLOCK) as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_bound() {
        let mut block = [0; 4096];
        RawOrphanBlock::of_mut(&mut block).fill(0, 1, &[7, 9]);
        let orphans = RawOrphanBlock::of(&block);
        assert_eq!(orphans.inos(5).unwrap().collect::<Vec<_>>(), [7, 9]);
        assert_eq!(orphans.blk_addr.get(), 1);
        RawOrphanBlock::of_mut(&mut block).entry_count.set(1021);
        assert!(RawOrphanBlock::of(&block).inos(5).is_err());
    }
}
