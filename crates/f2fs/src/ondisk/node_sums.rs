//! What the last node of an fsync says about the contents of all its nodes: a checksum, and where
//! the node was written. Both are in the inode's name field, after the name.
//!
//! A drive may promise only that single sectors are whole (NVMe's AWUPF). The footer, which tells
//! recovery that a node is there, is in the last sector of the block and proves nothing about the
//! others. F2FS relies on blocks being written whole. Inodes have a checksum if the volume has the
//! feature; direct nodes have no room for one. So where a drive may tear a block, an fsync marks
//! only its last node, which has this checksum. A checkpoint says whether the nodes after it have
//! it ([`super::checkpoint::Checkpoint::sealed`]).
//!
//! Linux may use a volume after such a checkpoint without writing one of its own, if it finds
//! nothing to recover. Its nodes have no checksum. So the seal also says to which block it was
//! written: a node without that, or with an earlier one of another block, is Linux's ([`is_of`]).
//!
//! Linux and f2fs-tools ignore it, as they ignore [`super::data_sums`], which follows it.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::data_sums::sum_of;
use super::inode::{RawInode, RawInodeBlock};
use super::node::RawNodeFooter;
use super::{BLOCK_SIZE, BlockAddr};

/// How many bytes it takes after the name.
pub const LEN: usize = size_of::<RawSeal>();
/// The size of the pieces that no drive tears.
const SECTOR: usize = 512;

const _: () = assert!(std::mem::offset_of!(RawInode, dir_level) <= SECTOR);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSeal {
    /// Checksum of the block's address.
    place: U32,
    /// Checksum of the nodes.
    sum: U32,
}

/// The nodes of one fsync, in the order of the log.
#[derive(Debug, Default)]
pub struct NodeSums(u32);

impl NodeSums {
    /// Adds a node that is at `addr` or will be, and is not the last.
    pub fn add(&mut self, addr: BlockAddr, block: &[u8; BLOCK_SIZE]) {
        self.take_in(addr, RawNodeFooter::of(block), block);
    }

    /// Puts the sum into the last node, which is an inode with room for it.
    pub fn close(self, addr: BlockAddr, inode: &mut RawInodeBlock) {
        let sum = self.with_inode(addr, inode).into();
        if let Ok((seal, _)) = RawSeal::mut_from_prefix(inode.i.behind_name_mut()) {
            *seal = RawSeal { place: place_of(addr).into(), sum };
        }
    }

    /// Whether the added nodes and this last one are those that were written.
    pub fn agree(self, addr: BlockAddr, inode: &RawInodeBlock) -> bool {
        seal_in(&inode.i).is_some_and(|seal| seal.sum.get() == self.with_inode(addr, inode))
    }

    /// The sum is in the first sector, which is never torn: if the sum is right, so is the rest of
    /// that sector.
    fn with_inode(mut self, addr: BlockAddr, inode: &RawInodeBlock) -> u32 {
        self.take_in(addr, &inode.footer, &inode.as_bytes()[SECTOR..]);
        self.0
    }

    fn take_in(&mut self, addr: BlockAddr, footer: &RawNodeFooter, contents: &[u8]) {
        let sum = sum_of(footer.cp_ver.get(), footer.ino.get(), addr, contents);
        self.0 = self.0.wrapping_add(sum);
    }
}

fn place_of(addr: BlockAddr) -> u32 {
    sum_of(0, 0, addr, &[])
}

fn seal_in(inode: &RawInode) -> Option<&RawSeal> {
    RawSeal::ref_from_prefix(inode.behind_name()).ok().map(|(seal, _)| seal)
}

/// Whether the first sector of this inode was written to `addr` by an engine that seals, now or
/// earlier.
pub fn is_of(addr: BlockAddr, inode: &RawInode) -> bool {
    seal_in(inode).is_some_and(|seal| seal.place.get() == place_of(addr))
}

/// Whether the inode has room for the sum.
pub fn fits(inode: &RawInode) -> bool {
    inode.behind_name().len() >= LEN
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ondisk::NAME_MAX;

    /// A direct node and the inode that closes its fsync.
    fn fsync(fill: u8, cp_ver: u64) -> [[u8; BLOCK_SIZE]; 2] {
        let (mut node, mut inode) = ([fill; BLOCK_SIZE], [fill; BLOCK_SIZE]);
        *RawNodeFooter::of_mut(&mut node) = RawNodeFooter::new(6, 5, 1);
        *RawNodeFooter::of_mut(&mut inode) = RawNodeFooter::new(5, 5, 0);
        for block in [&mut node, &mut inode] {
            RawNodeFooter::of_mut(block).cp_ver.set(cp_ver);
        }
        let last = RawInodeBlock::of_mut(&mut inode);
        last.i.set_name(3, b"name");
        let mut sums = NodeSums::default();
        sums.add(100, &node);
        sums.close(101, last);
        [node, inode]
    }

    fn agree([node, inode]: &[[u8; BLOCK_SIZE]; 2]) -> bool {
        let mut sums = NodeSums::default();
        sums.add(100, node);
        sums.agree(101, RawInodeBlock::of(inode))
    }

    #[test]
    fn a_torn_node_does_not_agree() {
        let (new, old) = (fsync(1, 7), fsync(2, 6));
        assert!(agree(&new));
        for (block, sector) in (0..2).flat_map(|block| (0..8).map(move |sector| (block, sector))) {
            let mut torn = new;
            let at = sector * SECTOR..(sector + 1) * SECTOR;
            torn[block][at.clone()].copy_from_slice(&old[block][at.clone()]);
            assert!(!agree(&torn), "sector {sector} of node {block} is old");
            let mut torn = new;
            torn[block][at].fill(0);
            assert!(!agree(&torn), "sector {sector} of node {block} was never written");
        }
    }

    #[test]
    fn a_missing_node_does_not_agree() {
        let [_, inode] = fsync(1, 7);
        assert!(!NodeSums::default().agree(101, RawInodeBlock::of(&inode)));
    }

    #[test]
    fn only_a_very_long_name_leaves_no_room() {
        let [_, mut inode] = fsync(1, 7);
        for (len, room) in [(1, true), (NAME_MAX - LEN, true), (NAME_MAX - LEN + 1, false)] {
            let inode = RawInodeBlock::of_mut(&mut inode);
            inode.i.set_name(3, &vec![b'n'; len]);
            assert_eq!(fits(&inode.i), room, "{len}");
            NodeSums::default().close(101, inode);
            assert_eq!(inode.i.name(), vec![b'n'; len]);
            assert_eq!(NodeSums::default().agree(101, inode), room, "{len}");
            assert_eq!((is_of(101, &inode.i), is_of(102, &inode.i)), (room, false), "{len}");
        }
    }
}
