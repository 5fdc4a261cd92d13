//! The inode (`struct f2fs_inode`, 4072 bytes, and the node footer).
//!
//! Three things share the 923 address slots: extra attributes in front, inline extended attributes
//! at the end, and between them block addresses or inline data. [`InodeLayout`] says what is where.
//! [`RawInodeBlock::check`] makes it once per inode.

mod check;

use std::ops::Range;

use bitflags::bitflags;
use vfs::FileKind;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::dentry::DentryGeometry;
use super::node::{AddrCounts, RawNodeFooter};
use super::superblock::{Features, Superblock};
use super::{ADDRS_PER_BLOCK, ADDRS_PER_INODE, BLOCK_SIZE, NAME_MAX, Nid, block_view, crc32};

/// The byte of the inode at which the address slots begin.
pub const ADDR_OFFSET: usize = 0x168;
/// Bytes of extra attributes a new inode gets.
pub const EXTRA_ISIZE: u16 = 36;
/// Slots of inline xattrs, if the volume does not let the inode choose.
pub const DEFAULT_INLINE_XATTR_SLOTS: u16 = 50;
/// The most slots of inline xattrs: something must remain for data.
pub const MAX_INLINE_XATTR_SLOTS: u16 = 903;
/// The fewest slots of inline xattrs: those of the header.
pub const MIN_INLINE_XATTR_SLOTS: u16 = 6;
/// Deepest directory.
pub const MAX_DIR_DEPTH: u32 = 63;

const INODE_CHECKSUM_OFFSET: usize = 0x170;

bitflags! {
    /// `i_inline`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Inline: u8 {
        /// Has an inline xattr area.
        const XATTR = 0x01;
        /// The contents are in the inode.
        const DATA = 0x02;
        /// Directory entries are in the inode.
        const DENTRY = 0x04;
        /// The inline data is not just zeroes.
        const DATA_EXIST = 0x08;
        /// Obsolete: `.` and `..` were missing.
        const DOTS = 0x10;
        /// Has extra attributes.
        const EXTRA_ATTR = 0x20;
        /// Blocks must not be moved.
        const PIN_FILE = 0x40;
        /// Space saved by compression was given back.
        const COMPRESS_RELEASED = 0x80;
    }
}

bitflags! {
    /// `i_advise`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Advise: u8 {
        /// Rarely changes.
        const COLD = 0x01;
        /// `i_pino` cannot be trusted.
        const LOST_PINO = 0x02;
        /// Encrypted.
        const ENCRYPT = 0x04;
        /// Name is encrypted.
        const ENC_NAME = 0x08;
        /// Blocks beyond the size were preallocated.
        const KEEP_SIZE = 0x10;
        /// Often changes.
        const HOT = 0x20;
        /// fs-verity.
        const VERITY = 0x40;
        /// A truncation beyond the size is pending.
        const TRUNC = 0x80;
    }
}

bitflags! {
    /// `i_flags`, the `FS_*_FL` of `linux/fs.h`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct FileFlags: u32 {
        /// Compressed.
        const COMPR = 0x4;
        /// Synchronous updates.
        const SYNC = 0x8;
        /// May not change.
        const IMMUTABLE = 0x10;
        /// May only grow at its end.
        const APPEND = 0x20;
        /// dump(8) skips it.
        const NODUMP = 0x40;
        /// Access time is not kept.
        const NOATIME = 0x80;
        /// It must not be compressed.
        const NOCOMP = 0x400;
        /// Hash-indexed directory; set on every new one.
        const INDEX = 0x1000;
        /// Directory changes are synchronous.
        const DIRSYNC = 0x1_0000;
        /// New files inherit the project.
        const PROJINHERIT = 0x2000_0000;
        /// Directory folds case.
        const CASEFOLD = 0x4000_0000;
        const _ = !0;
    }
}

/// `struct f2fs_extent`, 12 bytes: the file's largest run of blocks.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawExtent {
    /// First block of the file.
    pub fofs: U32,
    /// Where it is.
    pub blk: U32,
    /// Length; 0 = no extent.
    pub len: U32,
}

/// `struct f2fs_inode`, 4072 bytes.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawInode {
    /// Type and permissions.
    pub mode: U16,
    /// [`Advise`].
    pub advise: u8,
    /// [`Inline`].
    pub inline: u8,
    /// Owner.
    pub uid: U32,
    /// Group.
    pub gid: U32,
    /// Hard links.
    pub links: U32,
    /// Bytes.
    pub size: U64,
    /// Blocks: this inode, its other nodes, and its data, written or reserved.
    pub blocks: U64,
    /// Access time, seconds.
    pub atime: U64,
    /// Change time, seconds.
    pub ctime: U64,
    /// Modification time, seconds.
    pub mtime: U64,
    /// Nanoseconds.
    pub atime_nsec: U32,
    /// Nanoseconds.
    pub ctime_nsec: U32,
    /// Nanoseconds.
    pub mtime_nsec: U32,
    /// Tells apart two inodes that had the same number one after the other.
    pub generation: U32,
    /// In a directory, the levels in use. In a regular file, the low half counts failed moves of a
    /// pinned file.
    pub current_depth: U32,
    /// Node of extended attributes, or 0.
    pub xattr_nid: U32,
    /// [`FileFlags`].
    pub flags: U32,
    /// Directory it was last linked in.
    pub pino: U32,
    /// Bytes of `name`.
    pub namelen: U32,
    /// Name it was last linked under.
    pub name: [u8; NAME_MAX],
    /// In a directory, the logarithm of the number of buckets at level 0.
    pub dir_level: u8,
    /// Largest extent.
    pub ext: RawExtent,
    /// Address slots, shared as [`InodeLayout`] says.
    pub addr: [U32; ADDRS_PER_INODE as usize],
    /// Two direct, two indirect, one double-indirect node.
    pub nid: [U32; 5],
}

const _: () = {
    assert!(size_of::<RawInode>() == super::node::FOOTER_OFFSET);
    assert!(std::mem::offset_of!(RawInode, xattr_nid) == 0x4c);
    assert!(std::mem::offset_of!(RawInode, dir_level) == 0x15b);
    assert!(std::mem::offset_of!(RawInode, addr) == ADDR_OFFSET);
    assert!(std::mem::offset_of!(RawInode, nid) == 0xfd4);
};

/// Extra attributes: 36 bytes over the first address slots, of which only the first `extra_isize`
/// count.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawExtraAttr {
    /// Bytes of extra attributes.
    pub extra_isize: U16,
    /// Address slots of inline xattrs, if the volume lets the inode choose.
    pub inline_xattr_size: U16,
    /// Project.
    pub projid: U32,
    /// Checksum of the inode.
    pub inode_checksum: U32,
    /// Creation time, seconds.
    pub crtime: U64,
    /// Nanoseconds.
    pub crtime_nsec: U32,
    /// Compressed blocks.
    pub compr_blocks: U64,
    /// Compression algorithm.
    pub compress_algorithm: u8,
    /// Log of the cluster size.
    pub log_cluster_size: u8,
    /// Compression flags.
    pub compress_flag: U16,
}
const _: () = assert!(size_of::<RawExtraAttr>() == EXTRA_ISIZE as usize);

/// An inode's node block, 4096 bytes.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawInodeBlock {
    /// The inode.
    pub i: RawInode,
    /// Footer.
    pub footer: RawNodeFooter,
}
block_view!(RawInodeBlock);

/// What the address slots of one inode hold. All numbers are in slots of four bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InodeLayout {
    extra: u16,
    xattr: u16,
    /// Blocks in a cluster, for a compressed file; else 0.
    cluster: u16,
}

impl InodeLayout {
    /// The layout of a new inode: `extra_isize` bytes in front, `xattr` slots at the end.
    pub fn new(extra_isize: u16, xattr: u16) -> Self {
        Self { extra: extra_isize / 4, xattr, cluster: 0 }
    }

    /// Block address slots. In a compressed file, only whole clusters count.
    pub fn addrs(&self) -> u32 {
        self.whole_clusters(ADDRS_PER_INODE - u32::from(self.extra) - u32::from(self.xattr))
    }

    /// Block address slots of the inode and of each direct node.
    pub fn addr_counts(&self) -> AddrCounts {
        AddrCounts { inode: self.addrs(), node: self.whole_clusters(ADDRS_PER_BLOCK) }
    }

    fn whole_clusters(&self, addrs: u32) -> u32 {
        addrs - addrs % u32::from(self.cluster.max(1))
    }

    /// Blocks in a cluster of a compressed file; `None` for every other file.
    pub fn cluster(&self) -> Option<u16> {
        (self.cluster > 0).then_some(self.cluster)
    }

    /// Position in [`RawInode::addr`] of block address `slot`.
    pub fn slot(&self, slot: usize) -> usize {
        usize::from(self.extra) + slot
    }

    /// Bytes of the node block that hold addresses.
    pub fn addr_range(&self) -> Range<usize> {
        ADDR_OFFSET + 4 * usize::from(self.extra)..self.xattr_range().start
    }

    /// Bytes of the node block that hold inline data or entries. The slot before them stays 0.
    pub fn inline_range(&self) -> Range<usize> {
        let start = ADDR_OFFSET + 4 * (usize::from(self.extra) + 1);
        start..self.xattr_range().start
    }

    /// Most bytes of inline data.
    pub fn inline_capacity(&self) -> usize {
        self.inline_range().len()
    }

    /// Bytes of the node block that hold inline xattrs.
    pub fn xattr_range(&self) -> Range<usize> {
        let end = ADDR_OFFSET + 4 * ADDRS_PER_INODE as usize;
        end - 4 * usize::from(self.xattr)..end
    }

    /// Shape of inline directory entries.
    pub fn inline_dentries(&self) -> DentryGeometry {
        DentryGeometry::inline(self.inline_capacity())
    }
}

impl RawInode {
    /// [`Inline`] bits.
    pub fn inline(&self) -> Inline {
        Inline::from_bits_retain(self.inline)
    }

    /// Stores [`Inline`] bits.
    pub fn set_inline(&mut self, inline: Inline) {
        self.inline = inline.bits();
    }

    /// [`Advise`] bits.
    pub fn advise(&self) -> Advise {
        Advise::from_bits_retain(self.advise)
    }

    /// Stores [`Advise`] bits.
    pub fn set_advise(&mut self, advise: Advise) {
        self.advise = advise.bits();
    }

    /// [`FileFlags`].
    pub fn file_flags(&self) -> FileFlags {
        FileFlags::from_bits_retain(self.flags.get())
    }

    /// Type of file, if the mode names one.
    pub fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(self.mode.get().into())
    }

    /// The name under which it was last linked, cut at the field's end.
    pub fn name(&self) -> &[u8] {
        &self.name[..(self.namelen.get() as usize).min(NAME_MAX)]
    }

    /// The rest of the name's field, after the name.
    pub(super) fn behind_name(&self) -> &[u8] {
        &self.name[self.name().len()..]
    }

    /// As [`RawInode::behind_name`], to change.
    pub(super) fn behind_name_mut(&mut self) -> &mut [u8] {
        let len = self.name().len();
        &mut self.name[len..]
    }

    /// Stores directory and name of the last link. A longer name would be cut, but there is none.
    pub fn set_name(&mut self, pino: Nid, name: &[u8]) {
        let n = name.len().min(NAME_MAX);
        self.name = [0; NAME_MAX];
        self.name[..n].copy_from_slice(&name[..n]);
        self.namelen.set(n as u32);
        self.pino.set(pino);
    }

    /// The extra attributes, valid in their first `extra_isize` bytes, if the inode has them.
    pub fn extra(&self) -> Option<&RawExtraAttr> {
        self.inline().contains(Inline::EXTRA_ATTR).then(|| self.extra_bytes())
    }

    /// The extra attributes, to change, if the inode has them.
    pub fn extra_mut(&mut self) -> Option<&mut RawExtraAttr> {
        let has = self.inline().contains(Inline::EXTRA_ATTR);
        let (slots, _) = self.addr.split_first_chunk_mut::<9>().expect("923 slots hold 9");
        has.then(|| zerocopy::transmute_mut!(slots))
    }

    /// The bytes where extra attributes would be, whether the inode has them or not.
    pub fn extra_always(&self) -> &RawExtraAttr {
        self.extra_bytes()
    }

    fn extra_bytes(&self) -> &RawExtraAttr {
        let (slots, _) = self.addr.split_first_chunk::<9>().expect("923 slots hold 9");
        zerocopy::transmute_ref!(slots)
    }

    /// Whether the first `end` bytes of extra attributes are there.
    fn extra_fits(&self, end: u16) -> bool {
        self.extra().is_some_and(|extra| extra.extra_isize.get() >= end)
    }

    /// Creation time, if kept: seconds and nanoseconds.
    pub fn crtime(&self) -> Option<(u64, u32)> {
        let extra = self.extra().filter(|_| self.extra_fits(24))?;
        Some((extra.crtime.get(), extra.crtime_nsec.get()))
    }

    /// Project, if kept.
    pub fn projid(&self) -> Option<u32> {
        self.extra().filter(|_| self.extra_fits(8)).map(|extra| extra.projid.get())
    }

    /// Device number of a device node, as Linux's `makedev` encodes it.
    pub fn rdev(&self, layout: &InodeLayout) -> u64 {
        let slot = |i| self.addr.get(layout.slot(i)).map_or(0, |a| a.get());
        let (major, minor) = match slot(0) {
            0 => {
                let new = slot(1);
                ((new & 0xf_ff00) >> 8, (new & 0xff) | ((new >> 12) & 0xf_ff00))
            }
            old => ((old >> 8) & 0xff, old & 0xff),
        };
        let (major, minor) = (u64::from(major), u64::from(minor));
        (minor & 0xff) | (major & 0xfff) << 8 | (minor & !0xff) << 12 | (major & !0xfff) << 32
    }

    /// Stores a device number given as Linux's `makedev` encodes it.
    pub fn set_rdev(&mut self, layout: &InodeLayout, rdev: u64) {
        let major = ((rdev >> 8) & 0xfff | (rdev >> 32) & !0xfff) as u32;
        let minor = (rdev & 0xff | (rdev >> 12) & !0xff) as u32;
        let (old, new) = if major < 256 && minor < 256 {
            (major << 8 | minor, 0)
        } else {
            (0, (minor & 0xff) | major << 8 | (minor & !0xff) << 12)
        };
        self.addr[layout.slot(0)].set(old);
        self.addr[layout.slot(1)].set(new);
    }

    /// Slots of inline xattrs, not checked yet.
    fn inline_xattr_slots(&self, features: Features) -> u16 {
        if features.contains(Features::FLEXIBLE_INLINE_XATTR) {
            return self.extra_bytes().inline_xattr_size.get();
        }
        let has = self.inline().intersects(Inline::XATTR | Inline::DENTRY);
        if has { DEFAULT_INLINE_XATTR_SLOTS } else { 0 }
    }
}

impl RawInodeBlock {
    /// Whether this inode carries a checksum.
    pub fn has_checksum(&self, sb: &Superblock) -> bool {
        sb.features.contains(Features::INODE_CHKSUM) && self.i.extra_fits(12)
    }

    /// The checksum this inode should carry.
    pub fn compute_checksum(&self, sb: &Superblock) -> u32 {
        let bytes = self.as_bytes();
        let seed = crc32(sb.inode_chksum_seed, self.footer.ino.as_bytes());
        let seed = crc32(seed, self.i.generation.as_bytes());
        let seed = crc32(seed, &bytes[..INODE_CHECKSUM_OFFSET]);
        let seed = crc32(seed, &[0; 4]);
        crc32(seed, &bytes[INODE_CHECKSUM_OFFSET + 4..])
    }

    /// Stores the checksum, if the inode has one. This is the last step before the block is
    /// written.
    pub fn seal(&mut self, sb: &Superblock) {
        if self.has_checksum(sb) {
            let checksum = self.compute_checksum(sb);
            if let Some(extra) = self.i.extra_mut() {
                extra.inode_checksum.set(checksum);
            }
        }
    }
}

/// The bytes of `range` in a node block. The ranges of [`InodeLayout`] always fit.
pub fn bytes_of(block: &[u8; BLOCK_SIZE], range: Range<usize>) -> &[u8] {
    block.get(range).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_match_the_kernel() {
        let default = InodeLayout::new(0, 50);
        assert_eq!((default.addrs(), default.inline_capacity()), (873, 3488));
        let extra = InodeLayout::new(36, 50);
        assert_eq!((extra.addrs(), extra.inline_capacity()), (864, 3452));
        assert_eq!(extra.inline_range().start, ADDR_OFFSET + 40);
        assert_eq!(extra.xattr_range(), 0xfd4 - 200..0xfd4);
    }

    #[test]
    fn device_numbers_round_trip_in_both_forms() {
        let layout = InodeLayout::new(36, 50);
        let mut block = [0; BLOCK_SIZE];
        for (major, minor) in [(1_u64, 3_u64), (8, 300), (4000, 0xf_ffff)] {
            let rdev = minor & 0xff | major << 8 | (minor & !0xff) << 12;
            let inode = &mut RawInodeBlock::of_mut(&mut block).i;
            inode.set_rdev(&layout, rdev);
            assert_eq!(inode.rdev(&layout), rdev, "{major}:{minor}");
        }
    }
}
