//! The map of files without extents: twelve block numbers in the inode, then a block of numbers, a
//! block of such blocks, and one more level (`EXT4_IND_BLOCK` and so on). These blocks have no
//! checksum.

use super::{FileBlock, FsBlock, le32};

/// Block numbers in the inode.
pub const DIRECT: u32 = 12;

/// How to get to one block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The slot in each block of numbers on the way; the first is in `i_block`.
    slots: [u32; 4],
    len: usize,
}

impl Path {
    /// The way to `block` with blocks of `block_size` bytes; `None` if no map reaches that far.
    pub fn to(block: FileBlock, block_size: u32) -> Option<Self> {
        let each = u64::from(block_size / 4);
        let mut rest = u64::from(block);
        if block < DIRECT {
            return Some(Self { slots: [block, 0, 0, 0], len: 1 });
        }
        rest -= u64::from(DIRECT);
        for (level, below) in (1..).zip([each, each * each, each * each * each]) {
            if rest < below {
                let mut slots = [DIRECT + level as u32 - 1, 0, 0, 0];
                let mut span = below;
                for slot in &mut slots[1..=level] {
                    span /= each;
                    *slot = (rest / span) as u32;
                    rest %= span;
                }
                return Some(Self { slots, len: level + 1 });
            }
            rest -= below;
        }
        None
    }

    /// The slots, from `i_block` down.
    pub fn slots(&self) -> &[u32] {
        &self.slots[..self.len]
    }

    /// How many blocks of the file the slot at level `depth` of the path stands for.
    pub fn span(&self, depth: usize, block_size: u32) -> u64 {
        u64::from(block_size / 4).pow((self.len - 1).saturating_sub(depth) as u32)
    }

    /// How many of them are not in front of the path's own.
    pub fn rest(&self, depth: usize, block_size: u32) -> u64 {
        let below = (depth + 1..self.len)
            .map(|level| u64::from(self.slots[level]) * self.span(level, block_size));
        self.span(depth, block_size) - below.sum::<u64>()
    }
}

/// The number in slot `slot` of `i_block` or of a block; 0 is a hole.
pub fn number(bytes: &[u8], slot: u32) -> FsBlock {
    le32(bytes, slot as usize * 4).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_is_reached() {
        let slots = |block| Path::to(block, 1024).map(|path| path.slots().to_vec());
        assert_eq!(slots(11), Some(vec![11]));
        assert_eq!(slots(12), Some(vec![12, 0]));
        assert_eq!(slots(12 + 255), Some(vec![12, 255]));
        assert_eq!(slots(12 + 256), Some(vec![13, 0, 0]));
        assert_eq!(slots(12 + 256 + 65_536), Some(vec![14, 0, 0, 0]));
        assert_eq!(slots(12 + 256 + 65_536 + (1 << 24) - 1), Some(vec![14, 255, 255, 255]));
        assert_eq!(slots(12 + 256 + 65_536 + (1 << 24)), None);
        let path = Path::to(12 + 256, 1024).unwrap();
        assert_eq!([0, 1, 2].map(|depth| path.span(depth, 1024)), [65_536, 256, 1]);
        let path = Path::to(12 + 256 + 600, 1024).unwrap();
        assert_eq!([0, 1, 2].map(|depth| path.rest(depth, 1024)), [65_536 - 600, 168, 1]);
    }
}
