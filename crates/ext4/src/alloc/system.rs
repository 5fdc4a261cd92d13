//! The blocks of the volume's own structures, which no file has (`ext4_setup_system_zone`). A map
//! that is corrupt may name one, and it must not be freed with the file.

use std::ops::Range;

use crate::error::Result;
use crate::ondisk::group::RawGroupDesc;
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{FsBlock, ensure};

/// Superblocks, descriptors, bitmaps and tables of inodes: sorted, with gaps between them.
pub(crate) struct SystemBlocks(Box<[Range<FsBlock>]>);

impl SystemBlocks {
    /// Those of a volume whose groups have these descriptors. Fails if two of them name the same
    /// block.
    pub(super) fn new(sb: &Superblock, descs: &[RawGroupDesc]) -> Result<Self> {
        let parts = descs.iter().flat_map(|desc| sb.parts_of(desc));
        let mut all: Vec<_> = parts.map(|(start, count)| start..start + count).collect();
        all.sort_unstable_by_key(|blocks| blocks.start);
        for pair in all.windows(2) {
            let (at, allowed) = (pair[1].start, "a block of its own");
            ensure(at >= pair[0].end, "group_desc", at, "twice", allowed)?;
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
