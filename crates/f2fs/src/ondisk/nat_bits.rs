//! nat_bits: which NAT blocks are full and which are empty, so that a mount can skip reading them.
//!
//! They are in the last blocks of a checkpoint pack's segment, and count only if they have that
//! checkpoint's version and checksum. A mismatch is not an error.

use drive::Block;

use super::bits::lsb;
use super::checkpoint::Checkpoint;
use super::nat::{ENTRIES_PER_BLOCK, RawNatBlock};
use super::superblock::Superblock;
use super::{BLOCK_SIZE, BLOCKS_PER_SEGMENT};

/// Full and empty NAT blocks, least significant bit first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatBits {
    /// Blocks without a free node number.
    pub full: Vec<u8>,
    /// Blocks with only free node numbers.
    pub empty: Vec<u8>,
}

/// How many blocks nat_bits take.
pub fn blocks(sb: &Superblock) -> u32 {
    (8 + 2 * bytes(sb)).div_ceil(BLOCK_SIZE) as u32
}

/// First block of nat_bits in its pack's segment. `None` if there is no room behind a pack of
/// `pack_total` blocks.
pub fn start(sb: &Superblock, pack_total: u32) -> Option<u32> {
    BLOCKS_PER_SEGMENT.checked_sub(blocks(sb)).filter(|&start| pack_total <= start)
}

/// Bytes of each of the two maps.
fn bytes(sb: &Superblock) -> usize {
    sb.nat_blocks() as usize / 8
}

impl NatBits {
    /// Maps in which nothing is marked yet.
    pub fn new(sb: &Superblock) -> Self {
        Self { full: vec![0; bytes(sb)], empty: vec![0; bytes(sb)] }
    }

    /// Notes what table block `index` holds now (`__update_nat_bits`). Number 0 counts as used.
    pub fn update(&mut self, index: u32, table: &RawNatBlock) {
        let first = index * ENTRIES_PER_BLOCK as u32;
        let used = (first..)
            .take(ENTRIES_PER_BLOCK)
            .filter(|&nid| nid == 0 || !table.entry(nid).is_free())
            .count();
        let put = |map: &mut [u8], on| {
            if on { lsb::set(map, index as usize) } else { lsb::clear(map, index as usize) }
        };
        put(&mut self.full, used == ENTRIES_PER_BLOCK);
        put(&mut self.empty, used == 0);
    }

    /// As [`NatBits::update`], but fast if the table block was never written, as most of them are
    /// not.
    pub fn look_at(&mut self, index: u32, block: &Block) {
        if index > 0 && *block == Block::zeroed() {
            lsb::clear(&mut self.full, index as usize);
            lsb::set(&mut self.empty, index as usize);
        } else {
            self.update(index, RawNatBlock::of(block));
        }
    }

    /// The blocks to write with checkpoint `cp`, whose checksum is known.
    pub fn encode(&self, cp: &Checkpoint) -> Vec<Block> {
        let stamp = stamp(cp).to_le_bytes();
        let all = [stamp.as_slice(), &self.full, &self.empty].concat();
        all.chunks(BLOCK_SIZE).map(Block::from_prefix).collect()
    }

    /// Decodes `data`, the blocks one after the other. `None` if they do not belong to `cp`.
    pub fn decode(sb: &Superblock, cp: &Checkpoint, data: &[u8]) -> Option<Self> {
        let (found, maps) = data.split_first_chunk::<8>()?;
        let size = bytes(sb);
        let (full, empty) = (maps.get(..size)?, maps.get(size..2 * size)?);
        (u64::from_le_bytes(*found) == stamp(cp))
            .then(|| Self { full: full.to_vec(), empty: empty.to_vec() })
    }
}

fn stamp(cp: &Checkpoint) -> u64 {
    u64::from(cp.crc) << 32 | cp.version
}
