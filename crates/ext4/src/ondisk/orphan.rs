//! Blocks of the orphan file (`struct ext4_orphan_block_tail`): inodes that are freed or truncated
//! at the next mount.
//!
//! Without the feature `orphan_file`, orphans are a list that begins at `s_last_orphan` and goes on
//! through `i_dtime`.

use super::checksum::{compare, crc32c};
use super::{FsBlock, Ino, ensure, le32};
use crate::error::Result;

/// `EXT4_ORPHAN_BLOCK_MAGIC`.
const MAGIC: u32 = 0x0b10_ca04;
/// Bytes of the tail: magic number and checksum.
const TAIL: usize = 8;

/// Slots of a block of `block_size` bytes.
pub fn slots(block_size: usize) -> usize {
    (block_size - TAIL) / 4
}

/// The inodes in a block that was read from block `at`, with their slots. Fails if the magic number
/// is wrong.
pub fn inos(block: &[u8], at: FsBlock) -> Result<impl Iterator<Item = (usize, Ino)> + '_> {
    let (body, tail) = block.split_at(block.len() - TAIL);
    let magic = le32(tail, 0);
    ensure(magic == MAGIC, "orphan_block_tail.ob_magic", at, magic, MAGIC)?;
    let slots = body.as_chunks::<4>().0.iter().map(|slot| u32::from_le_bytes(*slot));
    Ok(slots.enumerate().filter(|(_, ino)| *ino != 0))
}

/// Sets slot `slot`; 0 frees it.
pub fn set_slot(block: &mut [u8], slot: usize, ino: Ino) {
    block[slot * 4..slot * 4 + 4].copy_from_slice(&ino.to_le_bytes());
}

/// Makes an empty block. [`seal`] then sets the checksum.
pub fn emit_empty(block: &mut [u8]) {
    block.fill(0);
    let at = block.len() - TAIL;
    block[at..at + 4].copy_from_slice(&MAGIC.to_le_bytes());
}

/// `ext4_orphan_file_block_csum`: with the number of the block on the volume.
fn right_checksum(block: &[u8], seed: u32, at: FsBlock) -> u32 {
    crc32c(crc32c(seed, &at.to_le_bytes()), &block[..block.len() - TAIL])
}

/// Sets the checksum of the block that will be at block `at`. `seed` is that of the orphan file.
pub fn seal(block: &mut [u8], seed: u32, at: FsBlock) {
    let right = right_checksum(block, seed, at);
    let tail = block.len() - 4;
    block[tail..].copy_from_slice(&right.to_le_bytes());
}

/// Fails if the checksum of the block read from block `at` is wrong. `seed` is that of the orphan
/// file.
pub fn verify(block: &[u8], seed: u32, at: FsBlock) -> Result<()> {
    let found = le32(block, block.len() - 4);
    compare("orphan_block_tail.ob_checksum", at, found, right_checksum(block, seed, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_round_trip() {
        let mut block = vec![0xff; 1024];
        emit_empty(&mut block);
        set_slot(&mut block, 253, 12);
        seal(&mut block, 1, 9);
        verify(&block, 1, 9).unwrap();
        verify(&block, 1, 8).unwrap_err();
        assert_eq!(slots(1024), 254);
        assert_eq!(inos(&block, 9).unwrap().collect::<Vec<_>>(), [(253, 12)]);
        assert!(inos(&[0; 1024], 9).is_err());
    }
}
