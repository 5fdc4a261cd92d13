//! Extents: which blocks hold which pages of an inode.
//!
//! They are a bag without order, in the inode's eight places and in map blocks, which form a list.
//! An empty place has a length of zero. Order is memory's business, so an extent is added, made
//! longer or removed by changing one place.

use super::superblock::Layout;
use super::{BLOCK, Corrupt};

/// Bytes of a place.
pub(crate) const PLACE: u64 = 16;
/// Places in an inode.
pub(crate) const INLINE: u64 = 8;
/// Places in a map block, behind two words: the next map block, and one in reserve.
pub(crate) const PER_BLOCK: u64 = BLOCK / PLACE - 1;
/// Longest extent, in blocks.
pub(crate) const LENGTH_MAX: u64 = 0xffff;
/// Page numbers end here.
const PAGES_MAX: u64 = super::inode::FILE_SIZE_MAX / BLOCK;

/// Pages `page..page + len` in blocks `block..block + len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) page: u64,
    pub(crate) block: u64,
    pub(crate) len: u64,
}

impl Extent {
    pub(crate) fn words(&self) -> [u64; 2] {
        [self.page, run_word(self.block, self.len)]
    }

    pub(crate) fn bytes(&self) -> [u8; PLACE as usize] {
        let mut bytes = [0; PLACE as usize];
        for (to, word) in bytes.chunks_mut(8).zip(self.words()) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// What the place at `at` holds; `None` if it is empty.
    pub(crate) fn parse(
        at: u64,
        words: [u64; 2],
        layout: &Layout,
    ) -> Result<Option<Self>, Corrupt> {
        let Some((block, len)) = parse_run(at, words[1], layout)? else { return Ok(None) };
        let page = words[0];
        if page.checked_add(len).is_none_or(|end| end > PAGES_MAX) {
            let (structure, what, allowed) = ("extent", "page", "within 16 TiB");
            return Err(Corrupt { structure, at, what, found: page, allowed });
        }
        Ok(Some(Self { page, block, len }))
    }

    pub(crate) fn end(&self) -> u64 {
        self.page + self.len
    }
}

/// A run of blocks in one word.
pub(crate) const fn run_word(block: u64, len: u64) -> u64 {
    len << 48 | block
}

/// The run in the word at `at`; `None` if it is empty.
pub(crate) fn parse_run(
    at: u64,
    word: u64,
    layout: &Layout,
) -> Result<Option<(u64, u64)>, Corrupt> {
    let (block, len) = (word & 0xffff_ffff_ffff, word >> 48);
    if len == 0 {
        return Ok(None);
    }
    let data = layout.data();
    if block < data.start || block + len > data.end {
        let (structure, what, allowed) = ("extent", "blocks", "data blocks");
        return Err(Corrupt { structure, at, what, found: block, allowed });
    }
    Ok(Some((block, len)))
}

/// The block in a word that points to a map block; `None` if it is zero.
pub(crate) fn parse_map(at: u64, word: u64, layout: &Layout) -> Result<Option<u64>, Corrupt> {
    match word {
        0 => Ok(None),
        block if layout.data().contains(&block) => Ok(Some(block)),
        found => {
            let (structure, what, allowed) = ("map", "next block", "a data block");
            Err(Corrupt { structure, at, what, found, allowed })
        }
    }
}
