//! An inode in memory.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use vfs::{Attr, FileKind, PageCache, Timespec};

use crate::error::{Error, Result};
use crate::fsync::eligible::Recent;
use crate::fsync::vouched::Vouched;
use crate::inode::names::Names;
use crate::mount::want::{Step, Want};
use crate::ondisk::extent::Node;
use crate::ondisk::inode::{self, Flags, RawInode};
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{FsBlock, Ino};

use vfs::op::Stop;

/// Byte of `i_dtime`, which the list of orphans uses, in an inode.
const DTIME_AT: usize = 0x14;

/// What memory has of the inodes that share a lock.
pub(crate) struct Shard {
    pub(crate) inodes: FxHashMap<Ino, Cached>,
    pub(crate) pages: PageCache,
    pub(crate) names: Names,
    /// Inodes whose memory is newer than the running transaction has it.
    pub(crate) changed: FxHashSet<Ino>,
    /// Look for inodes to evict at this many.
    pub(super) weed_at: usize,
    /// Where the counts of overwrites go on for inodes that come into memory: an evicted one may
    /// come back before a read ends that began when it had its last count.
    pub(super) overwrites: u64,
}

/// An inode, and what concerns only its use.
pub(crate) struct Cached {
    pub(crate) inode: Inode,
    /// Dirty pages that have been promised a block.
    pub(crate) promised: u64,
    /// It was cut to nothing: the next close writes back what came then (`auto_da_alloc`).
    pub(crate) cut: bool,
    /// Counts writes to blocks that it has: what was read before one of them may be old.
    pub(crate) overwrites: u64,
    /// The transaction that last changed it.
    pub(crate) id: Option<journal::Id>,
    /// The transaction that last changed more of it than times: all that an `fdatasync` has to wait
    /// for. The kernel counts sizes and maps only (`i_datasync_tid`).
    pub(crate) data_id: Option<journal::Id>,
    /// Its blocks are being moved: writes wait for the file's turn.
    pub(crate) still: bool,
    pub(crate) recent: Recent,
    pub(crate) vouched: Vouched,
}

/// An inode's fields, and the extended attributes behind them.
#[derive(Clone)]
pub(crate) struct Inode {
    pub(crate) ino: Ino,
    /// The block of the inode table that has it.
    pub(crate) at: FsBlock,
    /// `size()` of it is `i_disksize`: how far contents are on the drive.
    pub(crate) raw: RawInode,
    /// Bytes behind the fields, up to `s_inode_size`.
    pub(crate) rest: Arc<[u8]>,
    /// `i_size`: how far contents are, in memory too.
    pub(crate) size: u64,
    /// Seed of the checksums of its structures.
    pub(crate) seed: Option<u32>,
}

impl Cached {
    fn new(inode: Inode, id: Option<journal::Id>, overwrites: u64) -> Self {
        Self {
            inode,
            promised: 0,
            cut: false,
            overwrites,
            id,
            data_id: id,
            still: false,
            recent: Recent::default(),
            vouched: Vouched::default(),
        }
    }
}

impl Shard {
    /// An empty one.
    pub(crate) fn new(pages: PageCache, names: Names) -> Self {
        Self {
            inodes: FxHashMap::default(),
            pages,
            names,
            changed: FxHashSet::default(),
            weed_at: 0,
            overwrites: 0,
        }
    }

    /// Brings an inode into memory, which was last changed in transaction `id`.
    pub(crate) fn insert(&mut self, ino: Ino, inode: Inode, id: Option<journal::Id>) {
        self.inodes.insert(ino, Cached::new(inode, id, self.overwrites));
    }

    /// Inode `ino`, if it is in memory.
    pub(crate) fn inode(&self, ino: Ino) -> Step<&Cached> {
        self.inodes.get(&ino).ok_or(Stop::Want(Want::Inode(ino)))
    }

    /// As [`Shard::inode`], to be changed.
    pub(crate) fn inode_mut(&mut self, ino: Ino) -> Step<&mut Cached> {
        self.inodes.get_mut(&ino).ok_or(Stop::Want(Want::Inode(ino)))
    }
}

impl Inode {
    /// The inode in `bytes`, which are `s_inode_size` long and were read from block `at`.
    pub(crate) fn parse(sb: &Superblock, ino: Ino, bytes: &[u8], at: FsBlock) -> Result<Self> {
        let raw = RawInode::read(bytes, at)?;
        if let Some(seed) = sb.checksums.inode_seed(ino, raw.generation.get()) {
            inode::verify(bytes, seed, ino, at)?;
        }
        Self::unverified(sb, ino, bytes, at)
    }

    /// As [`Inode::parse`], whatever its checksum.
    pub(crate) fn unverified(sb: &Superblock, ino: Ino, bytes: &[u8], at: FsBlock) -> Result<Self> {
        let raw = RawInode::read(bytes, at)?;
        if raw.kind().is_none() {
            let found = format!("{:#o} in inode {ino}", raw.mode.get());
            return Err(Error::corrupt("inode.i_mode", at, found, "a type of file"));
        }
        let seed = sb.checksums.inode_seed(ino, raw.generation.get());
        let rest = bytes[inode::fields_len(bytes, at)?.min(bytes.len())..].into();
        Ok(Self { ino, at, size: raw.size(), raw, rest, seed })
    }

    /// Writes the inode into its `slot` of the table, which is `s_inode_size` long. What the list
    /// of orphans keeps there stays, unless `dtime` replaces it.
    pub(crate) fn emit(&self, slot: &mut [u8], dtime: Option<u32>) {
        let kept = slot[DTIME_AT..DTIME_AT + 4].to_vec();
        self.raw.emit(slot);
        let at = slot.len() - self.rest.len();
        slot[at..].copy_from_slice(&self.rest);
        slot[DTIME_AT..DTIME_AT + 4].copy_from_slice(&kept);
        set_dtime(slot, self.seed, dtime);
    }

    /// `i_flags`.
    pub(crate) fn flags(&self) -> Flags {
        self.raw.flags()
    }

    /// Type of file; checked when it was read.
    pub(crate) fn kind(&self) -> FileKind {
        self.raw.kind().unwrap_or(FileKind::Regular)
    }

    /// Links.
    pub(crate) fn links(&self) -> u32 {
        self.raw.links_count.get().into()
    }

    /// Whether its contents are found by an extent tree.
    pub(crate) fn has_extents(&self) -> bool {
        self.flags().contains(Flags::EXTENTS)
    }

    /// Whether its extents do not fit `i_block`.
    pub(crate) fn has_deep_tree(&self) -> bool {
        let root = Node::parse(&self.raw.block, None, self.at);
        self.has_extents() && root.is_ok_and(|root| root.depth > 0)
    }

    /// Whether its blocks are found by numbers in `i_block`.
    pub(crate) fn has_indirect(&self, sb: &Superblock) -> bool {
        let is_mapped = match self.kind() {
            FileKind::Regular | FileKind::Directory => true,
            FileKind::Symlink => !self.is_fast_symlink(sb),
            _ => false,
        };
        let has_other = self.flags().intersects(Flags::EXTENTS | Flags::INLINE_DATA);
        is_mapped && !has_other && self.raw.block.iter().any(|byte| *byte != 0)
    }

    /// Whether a symlink's target is in `i_block` (`ext4_inode_is_fast_symlink`): then it has no
    /// blocks of its own.
    pub(crate) fn is_fast_symlink(&self, sb: &Superblock) -> bool {
        let cluster = u64::from(sb.block_size / 512) * u64::from(sb.cluster_ratio);
        let for_attributes = if self.raw.file_acl() == 0 { 0 } else { cluster };
        self.kind() == FileKind::Symlink
            && self.size < inode::I_BLOCK_SIZE as u64
            && self.raw.sectors(sb.block_size) == for_attributes
            && !self.flags().intersects(Flags::INLINE_DATA | Flags::EXTENTS)
    }

    /// Something about this inode that no ext4 writes.
    #[cold]
    pub(crate) fn corrupt(
        &self,
        structure: &'static str,
        found: impl std::fmt::Display,
        allowed: impl ToString,
    ) -> Error {
        Error::corrupt(structure, self.at, format!("{found} in inode {}", self.ino), allowed)
    }

    /// Adds blocks of the file system to `i_blocks`.
    pub(crate) fn add_blocks(&mut self, blocks: i64, block_size: u32) {
        let sectors = self.raw.sectors(block_size);
        let delta = blocks * i64::from(block_size / 512);
        self.raw.set_sectors(sectors.saturating_add_signed(delta), block_size);
    }

    /// Sets the times of a change of contents.
    pub(crate) fn touch(&mut self, now: Timespec) {
        self.raw.set_mtime(now);
        self.raw.set_ctime(now);
    }

    /// Its attributes. Dirty pages without a block count as if they had one.
    pub(crate) fn attr(&self, promised: u64, block_size: u32) -> Attr {
        let attr = self.raw.attr(self.ino, self.kind(), block_size);
        let blocks = attr.blocks + promised * u64::from(block_size / 512);
        Attr { size: self.size, blocks, ..attr }
    }
}

/// Sets `i_dtime` in an inode's slot of the table, if it changes, and the checksum in any case.
pub(crate) fn set_dtime(slot: &mut [u8], seed: Option<u32>, dtime: Option<u32>) {
    if let Some(dtime) = dtime {
        slot[DTIME_AT..DTIME_AT + 4].copy_from_slice(&dtime.to_le_bytes());
    }
    if let Some(seed) = seed {
        inode::seal(slot, seed);
    }
}
