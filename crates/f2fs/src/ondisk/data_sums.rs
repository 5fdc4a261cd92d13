//! What the last node of an atomic fsync says about data that no write pointer covers: checksums of
//! runs of blocks, in the part of the inode's name field that the name does not use.
//!
//! This is not part of F2FS as Linux has it. Linux and f2fs-tools ignore it, because they read only
//! the first `i_namelen` bytes of the field. A checksum of its own, seeded with the node's
//! checkpoint version, tells it apart from what an earlier name or an earlier use of the block left
//! there.
//!
//! The checksums of data are not CRCs. A CRC is linear: whatever its seed, it is the same for all
//! blocks that end in their own CRC, as those of many databases do. Zeroes are such a block too.
//! And just that is what a cut leaves in place of a block: zeroes, or what was there before.

use drive::Block;
use smallvec::SmallVec;
use twox_hash::XxHash3_64;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::inode::RawInode;
use super::{BLOCKS_PER_SEGMENT, BlockAddr, Nid, crc32, node_sums};

/// Longest run, which is how much is read at once for the comparison.
const MAX_RUN: u16 = BLOCKS_PER_SEGMENT as u16;
/// "OPR2". With "OPRW" there were sums of another kind, which are ignored.
const MAGIC: u32 = 0x4f50_5232;

/// Blocks that follow one another on the drive, 10 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRun {
    start: U32,
    blocks: U16,
    /// See [`Run`].
    sum: U32,
}

/// The last bytes of the name field, 10 bytes. The runs are before it.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTrailer {
    count: U16,
    /// [`crc32`] of the runs, seeded with that of the footer's `cp_ver`.
    crc: U32,
    magic: U32,
}

const _: () = assert!(size_of::<RawRun>() == 10 && size_of::<RawTrailer>() == 10);

/// Blocks that follow one another on the drive, and a checksum of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First block.
    pub start: BlockAddr,
    /// How many.
    pub blocks: u16,
    /// The blocks' checksums, added up.
    sum: u32,
}

impl Run {
    /// Whether the run holds what file `ino` wrote there after the checkpoint `cp_ver`.
    pub fn agrees(&self, cp_ver: u64, ino: Nid, contents: &[Block]) -> bool {
        let sums =
            (self.start..).zip(contents).map(|(at, block)| sum_of(cp_ver, ino, at, &block[..]));
        contents.len() == usize::from(self.blocks) && sums.fold(0, u32::wrapping_add) == self.sum
    }
}

/// A checksum of contents and their place. The same contents in another file or place, or after
/// another checkpoint, have a different one.
pub(super) fn sum_of(cp_ver: u64, ino: Nid, addr: BlockAddr, contents: &[u8]) -> u32 {
    let place = u64::from(ino) << 32 | u64::from(addr);
    let seed = XxHash3_64::oneshot_with_seed(cp_ver, &place.to_le_bytes());
    XxHash3_64::oneshot_with_seed(seed, contents) as u32
}

/// Data blocks of one file with the checksums of their contents, in the order they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataSums(SmallVec<[Run; 2]>);

impl DataSums {
    /// The runs.
    pub fn runs(&self) -> &[Run] {
        &self.0
    }

    /// Adds that file `ino` wrote `block` to `addr` after the checkpoint `cp_ver`.
    pub fn push(&mut self, cp_ver: u64, ino: Nid, addr: BlockAddr, block: &Block) {
        let sum = sum_of(cp_ver, ino, addr, &block[..]);
        match self.0.last_mut() {
            Some(run)
                if run.blocks < MAX_RUN
                    && u64::from(run.start) + u64::from(run.blocks) == u64::from(addr) =>
            {
                run.blocks += 1;
                run.sum = run.sum.wrapping_add(sum);
            }
            _ => self.0.push(Run { start: addr, blocks: 1, sum }),
        }
    }

    /// Whether `inode` has room for them, after [`node_sums`] if it gets a seal.
    pub fn fit(&self, inode: &RawInode, sealed: bool) -> bool {
        let seal = if sealed { node_sums::LEN } else { 0 };
        let room = inode.behind_name().len().saturating_sub(size_of::<RawTrailer>() + seal);
        self.0.len() <= room / size_of::<RawRun>()
    }

    /// Stores them in `inode`, whose node has checkpoint version `cp_ver`, in place of earlier
    /// ones. If there are none, or more than fit, stores zeroes.
    pub fn store(&self, inode: &mut RawInode, cp_ver: u64, sealed: bool) {
        let fit = self.fit(inode, sealed);
        let room = inode.behind_name_mut();
        room.fill(0);
        if self.0.is_empty() || !fit {
            return;
        }
        let runs: SmallVec<[RawRun; 25]> = self.0.iter().map(RawRun::of).collect();
        let crc = crc32(seed(cp_ver), runs.as_bytes()).into();
        let count = (runs.len() as u16).into();
        let trailer = RawTrailer { count, crc, magic: MAGIC.into() };
        let at = room.len() - size_of::<RawTrailer>();
        room[at..].copy_from_slice(trailer.as_bytes());
        room[at - size_of_val(&runs[..])..at].copy_from_slice(runs.as_bytes());
    }

    /// Those in `inode`, whose node has checkpoint version `cp_ver`. Empty if there are none.
    pub fn load(inode: &RawInode, cp_ver: u64) -> Self {
        Self::parse(inode.behind_name(), cp_ver).unwrap_or_default()
    }

    fn parse(room: &[u8], cp_ver: u64) -> Option<Self> {
        let (rest, trailer) = RawTrailer::ref_from_suffix(room).ok()?;
        let count = usize::from(trailer.count.get());
        let (_, runs) = <[RawRun]>::ref_from_suffix_with_elems(rest, count).ok()?;
        let is_sound = trailer.magic.get() == MAGIC
            && crc32(seed(cp_ver), runs.as_bytes()) == trailer.crc.get()
            && runs.iter().all(|run| run.blocks.get() <= MAX_RUN);
        is_sound.then(|| Self(runs.iter().map(RawRun::decode).collect()))
    }
}

impl RawRun {
    fn of(run: &Run) -> Self {
        Self { start: run.start.into(), blocks: run.blocks.into(), sum: run.sum.into() }
    }

    fn decode(&self) -> Run {
        Run { start: self.start.get(), blocks: self.blocks.get(), sum: self.sum.get() }
    }
}

fn seed(cp_ver: u64) -> u32 {
    crc32(MAGIC, &cp_ver.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ondisk::inode::RawInodeBlock;
    use crate::ondisk::{BLOCK_SIZE, NAME_MAX};

    fn sums(runs: u32) -> DataSums {
        let mut sums = DataSums::default();
        for run in 0..runs {
            for block in 0..3 {
                sums.push(7, 5, 100 * run + block, &Block::new([(run + block) as u8; BLOCK_SIZE]));
            }
        }
        sums
    }

    fn inode_named(len: usize, check: impl FnOnce(&mut RawInode)) {
        let mut bytes = [0; BLOCK_SIZE];
        let inode = &mut RawInodeBlock::of_mut(&mut bytes).i;
        inode.set_name(3, &vec![b'n'; len]);
        check(inode);
        assert_eq!(inode.name(), vec![b'n'; len]);
    }

    #[test]
    fn what_was_stored_is_loaded() {
        inode_named(5, |inode| {
            assert_eq!(sums(24).runs().len(), 24);
            sums(24).store(inode, 7, false);
            assert_eq!(DataSums::load(inode, 7), sums(24));
            assert_eq!(DataSums::load(inode, 8), DataSums::default());
            DataSums::default().store(inode, 7, false);
            assert_eq!(DataSums::load(inode, 7), DataSums::default());
            assert!(!sums(24).fit(inode, true));
        });
    }

    #[test]
    fn what_does_not_fit_is_not_stored() {
        let names = [0, 1, 100, 227, 228, 235, 236, 245, 246, 250, NAME_MAX];
        for (len, sealed) in names.into_iter().flat_map(|len| [(len, false), (len, true)]) {
            let behind = NAME_MAX - len;
            let room = behind.saturating_sub(if sealed { 18 } else { 10 }) / 10;
            inode_named(len, |inode| {
                for runs in [room, room + 1] {
                    let sums = sums(runs as u32);
                    assert_eq!(sums.fit(inode, sealed), runs <= room, "{len}");
                    sums.store(inode, 1, sealed);
                    let seal = node_sums::LEN.min(if sealed { behind } else { 0 });
                    assert_eq!(inode.behind_name()[..seal], vec![0; seal], "{len}");
                    let kept = if runs <= room { sums } else { DataSums::default() };
                    assert_eq!(DataSums::load(inode, 1), kept, "{len}");
                }
            });
        }
    }

    /// A run of three blocks that holds `contents`.
    fn run_of(contents: &[Block]) -> Run {
        let mut sums = DataSums::default();
        for (at, block) in (0..).zip(contents) {
            sums.push(7, 5, 100 + at, block);
        }
        assert_eq!(sums.runs().len(), 1);
        sums.runs()[0]
    }

    fn filled(bytes: [u8; 3]) -> Vec<Block> {
        bytes.map(|byte| Block::new([byte; BLOCK_SIZE])).to_vec()
    }

    /// Ends in its own CRC, begun with `seed`.
    fn ending_in_crc(byte: u8, seed: u32) -> Block {
        let mut bytes = [byte; BLOCK_SIZE];
        let (contents, crc) = bytes.split_at_mut(BLOCK_SIZE - 4);
        crc.copy_from_slice(&crc32(seed, contents).to_le_bytes());
        Block::new(bytes)
    }

    #[test]
    fn other_contents_do_not_agree() {
        let right = filled([1, 2, 3]);
        let run = run_of(&right);
        assert!(run.agrees(7, 5, &right));
        assert!(!run.agrees(7, 5, &filled([1, 2, 0])) && !run.agrees(7, 5, &right[..2]));
    }

    #[test]
    fn zeroes_do_not_agree() {
        let zeroes = filled([0; 3]);
        for contents in [filled([1, 2, 3]), [1, 2, 3].map(|byte| ending_in_crc(byte, 0)).into()] {
            assert!(!run_of(&contents).agrees(7, 5, &zeroes));
        }
        assert_ne!(run_of(&zeroes).sum, 0);
    }

    #[test]
    fn blocks_in_another_order_do_not_agree() {
        let run = run_of(&filled([1, 2, 3]));
        for order in [[1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]] {
            assert!(!run.agrees(7, 5, &filled(order)), "{order:?}");
        }
    }

    #[test]
    fn blocks_that_end_in_their_own_crc_do_not_agree() {
        for seed in [0, !0, super::super::MAGIC] {
            let run = run_of(&[1, 2, 3].map(|byte| ending_in_crc(byte, seed)));
            assert!(!run.agrees(7, 5, &[4, 5, 6].map(|byte| ending_in_crc(byte, seed))));
        }
    }

    #[test]
    fn contents_of_another_checkpoint_file_or_place_do_not_agree() {
        let contents = filled([1, 2, 3]);
        let run = run_of(&contents);
        assert!(!run.agrees(8, 5, &contents) && !run.agrees(7, 6, &contents));
        assert!(!Run { start: 99, ..run }.agrees(7, 5, &contents));
    }
}
