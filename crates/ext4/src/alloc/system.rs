//! The blocks of the volume's own structures, which no file has (`ext4_setup_system_zone`). A map
//! that is corrupt may name one, and it must not be freed with the file.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::ondisk::FsBlock;
use crate::ondisk::group::RawGroupDesc;
use crate::ondisk::superblock::Superblock;

/// Superblocks, descriptors, bitmaps and tables of inodes: sorted, with gaps between them.
pub(crate) struct SystemBlocks(Box<[Range<FsBlock>]>);

impl SystemBlocks {
    /// Those of a volume whose groups have these descriptors. Fails if two of them name the same
    /// block.
    pub(super) fn new<'a>(
        sb: &Superblock,
        descs: impl Iterator<Item = &'a RawGroupDesc>,
    ) -> Result<Self> {
        let table_blocks = u64::from(sb.table_blocks());
        let of_group = |desc: &RawGroupDesc| {
            let single = [desc.block_bitmap(), desc.inode_bitmap()].map(|at| at..at + 1);
            let table = desc.inode_table()..desc.inode_table() + table_blocks;
            single.into_iter().chain([table])
        };
        let mut all: Vec<Range<FsBlock>> = descs.flat_map(of_group).collect();
        all.sort_unstable_by_key(|blocks| blocks.start);
        if let Some(pair) = all.windows(2).find(|pair| pair[1].start < pair[0].end) {
            let at = pair[1].start;
            return Err(Error::corrupt("group_desc", at, "twice", "a block of its own"));
        }
        let base = (0..sb.groups).map(|group| {
            let start = sb.group_start(group);
            start..start + u64::from(sb.base_meta_blocks(group))
        });
        all.extend(base.filter(|blocks| !blocks.is_empty()));
        all.sort_unstable_by_key(|blocks| blocks.start);
        all.dedup_by(|next, last| {
            let touches = next.start <= last.end;
            if touches {
                last.end = last.end.max(next.end);
            }
            touches
        });
        Ok(Self(all.into()))
    }

    /// Whether any of these is one.
    pub(crate) fn meet(&self, blocks: &Range<FsBlock>) -> bool {
        let at = self.0.partition_point(|own| own.end <= blocks.start);
        self.0.get(at).is_some_and(|own| own.start < blocks.end)
    }
}
