//! A volume that is looked at and never changes: of any feature set that can be read, with blocks
//! of any size up to the drive's.
//!
//! Read-only mounts, the check, and `dump` use it. There is no lock of the whole: inodes and blocks
//! are in shards with a lock each, and nothing is read from the drive under one of them.

mod blocks;
mod contents;
mod inode;
mod kept;
mod load;
mod mounted;
mod names;
mod walk;

use std::sync::Arc;

use cores::Rank;
use queue::BlockQueue;

use crate::blocks::{Blocks as _, Kind};
use crate::error::Result;
use crate::inode::cached::Inode;
use crate::ondisk::group::RawGroupDesc;
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{FsBlock, Group};
use blocks::Blocks;
use kept::Kept;
pub(crate) use load::{check_fits, open, superblock, valid_superblock};
pub(crate) use mounted::Mounted;

/// Metadata kept in memory, in bytes.
pub(crate) const CACHE: u64 = 32 << 20;

/// What an inode takes in memory, about.
const INODE_BYTES: u64 = 1024;

/// A volume.
pub(crate) struct Reader {
    /// The superblock as it was when the volume was opened.
    pub(crate) sb: Superblock,
    /// Metadata blocks.
    blocks: Blocks,
    inodes: Kept<Arc<Inode>>,
    /// Use descriptors with wrong checksums, which the caller has reported already.
    lenient: bool,
}

impl Reader {
    /// The volume of `sb` on the drive of `queue`. Up to `cache` bytes of metadata stay in memory.
    pub(crate) fn new(sb: Superblock, queue: Arc<BlockQueue>, cache: u64) -> Self {
        let blocks = Blocks::new(queue, sb.block_size, cache);
        let inodes = Kept::new(Rank::Inode, "ext4 inodes", cache, INODE_BYTES);
        Self { inodes, blocks, sb, lenient: false }
    }

    /// The same volume for a check, which notes wrong descriptors and goes on.
    pub(crate) fn lenient(self) -> Self {
        Self { lenient: true, ..self }
    }

    /// The descriptor of `group`, as it is, and the block it is in.
    pub(crate) fn raw_group(&self, group: Group) -> Result<(RawGroupDesc, FsBlock)> {
        let (at, byte) = self.sb.desc_place(group);
        let block = self.block(at, Kind::Table)?;
        Ok((RawGroupDesc::read(&block[byte..], self.sb.desc_size), at))
    }

    /// Free blocks and inodes, as the descriptors count them.
    pub(crate) fn free(&self) -> Result<(u64, u32)> {
        let (mut clusters, mut inodes) = (0, 0_u32);
        for group in 0..self.sb.groups {
            let (raw, _) = self.raw_group(group)?;
            clusters += u64::from(raw.free_clusters());
            inodes = inodes.saturating_add(raw.free_inodes());
        }
        Ok((clusters * u64::from(self.sb.cluster_ratio), inodes))
    }

    /// The descriptor of `group`, with its checksum verified and its inode table on the volume.
    pub(crate) fn group(&self, group: Group) -> Result<RawGroupDesc> {
        let (raw, at) = self.raw_group(group)?;
        if !self.lenient {
            raw.verify(self.sb.checksums, group, self.sb.desc_size, at)?;
        }
        let table = u64::from(self.sb.table_blocks());
        self.sb.check_blocks(raw.inode_table(), table, "group_desc.bg_inode_table", at)?;
        Ok(raw)
    }
}
