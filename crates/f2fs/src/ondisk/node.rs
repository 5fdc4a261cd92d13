//! Node blocks and the shape of the tree they form.
//!
//! Every node ends in a footer (`struct node_footer`, 24 bytes) that says to which file it belongs
//! and where in the file's tree it is. The place follows from the file's block index alone;
//! [`NodePath`] is that arithmetic, without I/O.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{ADDRS_PER_BLOCK, BLOCK_SIZE, BlockAddr, Nid, block_view};
use crate::error::{Error, Result};

/// Byte of a node block where its footer begins.
pub const FOOTER_OFFSET: usize = 4072;
/// Node offset of a file's xattr node.
pub const XATTR_NODE_OFFSET: u32 = 0x1fff_ffff;

const COLD: u32 = 1;
const FSYNC: u32 = 2;
const DENT: u32 = 4;
const OFFSET_SHIFT: u32 = 3;
const N: u32 = ADDRS_PER_BLOCK;

/// `struct node_footer`, 24 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawNodeFooter {
    /// This node.
    pub nid: U32,
    /// The inode it belongs to.
    pub ino: U32,
    /// Bits and node offset; use the accessors.
    pub flag: U32,
    /// The checkpoint after which it was written.
    pub cp_ver: U64,
    /// Where the next node of the same log goes: the roll-forward chain.
    pub next_blkaddr: U32,
}

/// `struct direct_node`, 4096 bytes: addresses of data.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawDirectNode {
    /// Block addresses.
    pub addr: [U32; ADDRS_PER_BLOCK as usize],
    /// Footer.
    pub footer: RawNodeFooter,
}
block_view!(RawDirectNode);

/// `struct indirect_node`, 4096 bytes: numbers of nodes.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawIndirectNode {
    /// Node numbers.
    pub nid: [U32; ADDRS_PER_BLOCK as usize],
    /// Footer.
    pub footer: RawNodeFooter,
}
block_view!(RawIndirectNode);

const _: () = assert!(std::mem::offset_of!(RawDirectNode, footer) == FOOTER_OFFSET);

impl RawNodeFooter {
    /// The footer of a node block.
    pub fn of(block: &[u8; BLOCK_SIZE]) -> &Self {
        &RawDirectNode::of(block).footer
    }

    /// The footer of a node block, to be changed.
    pub fn of_mut(block: &mut [u8; BLOCK_SIZE]) -> &mut Self {
        &mut RawDirectNode::of_mut(block).footer
    }

    /// A footer without bits, checkpoint and successor.
    pub fn new(nid: Nid, ino: Nid, node_offset: u32) -> Self {
        Self {
            nid: U32::new(nid),
            ino: U32::new(ino),
            flag: U32::new(node_offset << OFFSET_SHIFT),
            cp_ver: U64::new(0),
            next_blkaddr: U32::new(0),
        }
    }

    /// Where in the file's tree this node is.
    pub fn node_offset(&self) -> u32 {
        self.flag.get() >> OFFSET_SHIFT
    }

    /// Whether this is the file's inode.
    pub fn is_inode(&self) -> bool {
        self.nid == self.ino
    }

    /// Set for inodes and direct nodes, except those of directories.
    pub fn is_cold(&self) -> bool {
        self.flag.get() & COLD != 0
    }

    /// Written by an fsync, so that roll-forward takes it.
    pub fn is_fsync(&self) -> bool {
        self.flag.get() & FSYNC != 0
    }

    /// Written by an fsync of a file whose directory entry may not be on the drive.
    pub fn is_dent(&self) -> bool {
        self.flag.get() & DENT != 0
    }

    /// See [`Self::is_cold`].
    pub fn set_cold(&mut self, on: bool) {
        self.set_bit(COLD, on);
    }

    /// See [`Self::is_fsync`].
    pub fn set_fsync(&mut self, on: bool) {
        self.set_bit(FSYNC, on);
    }

    /// See [`Self::is_dent`].
    pub fn set_dent(&mut self, on: bool) {
        self.set_bit(DENT, on);
    }

    fn set_bit(&mut self, bit: u32, on: bool) {
        let flag = self.flag.get();
        self.flag.set(if on { flag | bit } else { flag & !bit });
    }

    /// Checks that the block read from `at` is node `nid` of inode `ino`.
    pub fn check(&self, nid: Nid, ino: Nid, at: BlockAddr) -> Result<()> {
        for (field, found, allowed) in
            [("node_footer.nid", self.nid.get(), nid), ("node_footer.ino", self.ino.get(), ino)]
        {
            if found != allowed {
                return Err(Error::corrupt(field, at, found, allowed));
            }
        }
        Ok(())
    }
}

/// What a node is, by its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// The inode.
    Inode,
    /// Addresses of data.
    Direct,
    /// Numbers of direct nodes.
    Indirect,
    /// Numbers of indirect nodes.
    DoubleIndirect,
    /// Extended attributes.
    Xattr,
}

impl NodeKind {
    /// Kind of the node at `node_offset`; `None` beyond the largest file.
    pub fn of(node_offset: u32) -> Option<Self> {
        const LAST: u32 = 5 + 2 * N + N * (N + 1);
        Some(match node_offset {
            0 => Self::Inode,
            3 => Self::Indirect,
            _ if node_offset == 4 + N => Self::Indirect,
            _ if node_offset == 5 + 2 * N => Self::DoubleIndirect,
            XATTR_NODE_OFFSET => Self::Xattr,
            _ if node_offset > LAST => return None,
            _ if node_offset > 5 + 2 * N && (node_offset - 6 - 2 * N).is_multiple_of(N + 1) => {
                Self::Indirect
            }
            _ => Self::Direct,
        })
    }

    /// Whether the node holds addresses of data: the inode and direct nodes.
    pub fn is_dnode(self) -> bool {
        matches!(self, Self::Inode | Self::Direct)
    }
}

/// How many of the file's blocks its nodes point to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddrCounts {
    /// The inode.
    pub inode: u32,
    /// Each direct node: [`ADDRS_PER_BLOCK`], or the whole clusters of a compressed file in that.
    pub node: u32,
}

impl AddrCounts {
    /// How many blocks `height` levels of nodes below the inode cover; 0 levels are a block itself.
    pub fn coverage(self, height: u32) -> u64 {
        match height.checked_sub(1) {
            None => 1,
            Some(indirect) => u64::from(self.node) * u64::from(N).pow(indirect),
        }
    }

    /// Blocks of the largest file.
    pub fn max_blocks(self) -> u64 {
        u64::from(self.inode) + 2 * self.coverage(1) + 2 * self.coverage(2) + self.coverage(3)
    }
}

/// The way from an inode to the address of one of the file's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePath {
    /// How many nodes below the inode are on the way, 0..=3.
    pub level: usize,
    /// The slot in each node. At `level` 0 that is the address slot in the inode. Otherwise it is
    /// first the index into `i_nid`, then the slots in nodes, and at `level` the address slot.
    pub slots: [u16; 4],
    /// Node offset of each node on the way. The first is the inode's, 0.
    pub node_offsets: [u32; 4],
}

impl NodePath {
    /// The way to block `index` of a file whose nodes hold `addrs`; `None` beyond the largest file.
    pub fn of(index: u64, addrs: AddrCounts) -> Option<Self> {
        if index >= addrs.max_blocks() {
            return None;
        }
        let path = |level, slots, node_offsets| Some(Self { level, slots, node_offsets });
        let Some(rest) = index.checked_sub(addrs.inode.into()) else {
            return path(0, [index as u16, 0, 0, 0], [0; 4]);
        };
        let n = u64::from(N);
        // In range below: group < 2 + 2n + n², so each part fits its type.
        let per_node = u64::from(addrs.node);
        let (slot, group) = ((rest % per_node) as u16, rest / per_node);
        if group < 2 {
            return path(1, [group as u16, slot, 0, 0], [0, 1 + group as u32, 0, 0]);
        }
        let group = group - 2;
        let (child, tree) = ((group % n) as u32, group / n);
        if tree < 2 {
            let top = if tree == 0 { 3 } else { 4 + N };
            let slots = [2 + tree as u16, child as u16, slot, 0];
            return path(2, slots, [0, top, top + 1 + child, 0]);
        }
        let tree = (tree - 2) as u32;
        let (top, middle) = (5 + 2 * N, 6 + 2 * N + tree * (N + 1));
        path(3, [4, tree as u16, child as u16, slot], [0, top, middle, middle + 1 + child])
    }

    /// The slot of the address in the last node of the way.
    pub fn addr_slot(&self) -> usize {
        usize::from(self.slots[self.level])
    }

    /// The node offset of the last node of the way.
    pub fn dnode_offset(&self) -> u32 {
        self.node_offsets[self.level]
    }
}

/// Index of the first file block to which the inode or direct node at `node_offset` points; `None`
/// for other nodes.
pub fn first_index_of(node_offset: u32, addrs: AddrCounts) -> Option<u64> {
    match NodeKind::of(node_offset)? {
        NodeKind::Inode => return Some(0),
        NodeKind::Direct => {}
        _ => return None,
    }
    let dnodes_before = match node_offset {
        ..=2 => node_offset - 1,
        _ if node_offset < 4 + N => 2 + (node_offset - 4),
        _ if node_offset < 5 + 2 * N => 2 + N + (node_offset - 5 - N),
        _ => {
            let rest = node_offset - 6 - 2 * N;
            2 + 2 * N + rest / (N + 1) * N + (rest % (N + 1) - 1)
        }
    };
    Some(u64::from(addrs.inode) + u64::from(dnodes_before) * u64::from(addrs.node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ondisk::MAX_INDIRECT_BLOCKS;

    #[test]
    fn paths_at_every_border_and_back() {
        for addrs in [AddrCounts { inode: 923, node: N }, AddrCounts { inode: 864, node: 1016 }] {
            let (d, i) = (addrs.coverage(1), addrs.coverage(2));
            for start in [0, d, 2 * d, 2 * d + i, 2 * d + 2 * i, MAX_INDIRECT_BLOCKS / 2] {
                let start = start + u64::from(addrs.inode);
                for index in [start - 1, start, start + d - 1, start + d, start + i - 1] {
                    let path = NodePath::of(index, addrs).unwrap();
                    let first = first_index_of(path.dnode_offset(), addrs).unwrap();
                    assert_eq!(first + path.addr_slot() as u64, index);
                    assert!(NodeKind::of(path.dnode_offset()).unwrap().is_dnode(), "{index}");
                }
            }
            assert_eq!(NodePath::of(addrs.max_blocks(), addrs), None);
        }
        let plain = AddrCounts { inode: 923, node: N };
        assert_eq!(plain.max_blocks(), 923 + MAX_INDIRECT_BLOCKS);
    }

    #[test]
    fn offsets_are_the_kernels() {
        let at = |index: u64| NodePath::of(index, AddrCounts { inode: 0, node: N }).unwrap();
        let n = u64::from(N);
        assert_eq!(at(0).node_offsets, [0, 1, 0, 0]);
        assert_eq!(at(n).node_offsets, [0, 2, 0, 0]);
        assert_eq!(at(2 * n).node_offsets, [0, 3, 4, 0]);
        assert_eq!(at(2 * n + n * n).node_offsets, [0, 4 + N, 5 + N, 0]);
        let double = at(2 * n + 2 * n * n);
        assert_eq!(double.node_offsets, [0, 5 + 2 * N, 6 + 2 * N, 7 + 2 * N]);
        assert_eq!(double.slots, [4, 0, 0, 0]);
        assert_eq!(NodeKind::of(3), Some(NodeKind::Indirect));
        assert_eq!(NodeKind::of(6 + 2 * N + N + 1), Some(NodeKind::Indirect));
        assert_eq!(NodeKind::of(XATTR_NODE_OFFSET), Some(NodeKind::Xattr));
        let last = at(MAX_INDIRECT_BLOCKS - 1).dnode_offset();
        assert!(NodeKind::of(last) == Some(NodeKind::Direct) && NodeKind::of(last + 1).is_none());
    }

    #[test]
    fn footer_bits_keep_the_offset() {
        let mut footer = RawNodeFooter::new(9, 9, XATTR_NODE_OFFSET);
        footer.set_cold(true);
        assert_eq!(footer.flag.get(), 0xffff_fff9);
        footer.set_fsync(true);
        footer.set_cold(false);
        assert!(footer.is_fsync() && !footer.is_cold() && !footer.is_dent());
        assert_eq!(footer.node_offset(), XATTR_NODE_OFFSET);
    }
}
