//! Which clusters are claimed: by the volume's own structures, and by inodes.

use rustc_hash::FxHashMap;

use crate::ondisk::bitmap;
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{FsBlock, Group};

/// Claimed clusters, as bitmaps of the groups that have any.
pub(super) struct Claims {
    groups: FxHashMap<Group, Claimed>,
    /// Bytes of a group's bitmap.
    bytes: usize,
}

struct Claimed {
    bits: Box<[u8]>,
    /// Some of them by an inode.
    by_inode: bool,
}

/// The blocks that one inode has claimed.
#[derive(Default)]
pub(super) struct Owner {
    /// Clusters.
    pub(super) clusters: u64,
    /// The last cluster, of which several extents of a file may have parts.
    pub(super) last: Option<(Group, u32)>,
}

impl Claims {
    pub(super) fn new(sb: &Superblock) -> Self {
        Self { groups: FxHashMap::default(), bytes: sb.block_size as usize }
    }

    fn of(&mut self, group: Group) -> &mut Claimed {
        let bytes = self.bytes;
        let empty = || Claimed { bits: vec![0; bytes].into(), by_inode: false };
        self.groups.entry(group).or_insert_with(empty)
    }

    /// Claims a cluster for the volume itself. False if it is claimed already.
    pub(super) fn volume(&mut self, sb: &Superblock, block: FsBlock) -> bool {
        let claimed = self.of(sb.group_of(block));
        let bit = sb.cluster_of(block);
        let is_new = !bitmap::test(&claimed.bits, bit);
        bitmap::set(&mut claimed.bits, bit);
        is_new
    }

    /// Claims the clusters of `count` blocks from `start`, which are on the volume, for an inode.
    /// Returns the first block that is claimed already.
    pub(super) fn inode(
        &mut self,
        sb: &Superblock,
        owner: &mut Owner,
        start: FsBlock,
        count: u64,
    ) -> Option<FsBlock> {
        let mut twice = None;
        for block in start..start + count {
            let at = (sb.group_of(block), sb.cluster_of(block));
            if owner.last == Some(at) && sb.cluster_ratio > 1 {
                continue;
            }
            owner.last = Some(at);
            owner.clusters += 1;
            let claimed = self.of(at.0);
            claimed.by_inode = true;
            if bitmap::test(&claimed.bits, at.1) {
                twice = twice.or(Some(block));
            }
            bitmap::set(&mut claimed.bits, at.1);
        }
        twice
    }

    /// The bitmap of a group, and whether inodes have any of it.
    pub(super) fn group(&mut self, group: Group) -> (&[u8], bool) {
        let claimed = self.of(group);
        (&claimed.bits, claimed.by_inode)
    }
}
