//! Inserting extents (`ext4_ext_insert_extent`): merged with a neighbour where possible; a full
//! node is split, and a full root becomes a level deeper.

use crate::blocks::Kind;
use crate::error::{Error, Result};
use crate::inode::cached::Inode;
use crate::mount::draft::Draft;
use crate::mount::want::Step;
use crate::ondisk::extent::{
    self, DEPTH_MAX, Extent, Index, LEN_MAX, Node, capacity, emit_inner, emit_leaf,
};
use crate::ondisk::{FsBlock, Ino};

/// A node's slots.
pub(super) enum Slots {
    Leaf(Vec<Extent>),
    Inner(u16, Vec<Index>),
}

impl Slots {
    pub(super) fn parse(bytes: &[u8], depth: Option<u16>, at: FsBlock) -> Result<Self> {
        let node = Node::parse(bytes, depth, at)?;
        Ok(match node.depth {
            0 => Self::Leaf(node.extents().collect()),
            depth => Self::Inner(depth, node.indexes().collect()),
        })
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Leaf(extents) => extents.len(),
            Self::Inner(_, indexes) => indexes.len(),
        }
    }

    /// The first block of the file below it.
    pub(super) fn first(&self) -> u32 {
        match self {
            Self::Leaf(extents) => extents.first().map_or(0, |extent| extent.block),
            Self::Inner(_, indexes) => indexes.first().map_or(0, |index| index.block),
        }
    }

    fn split_off(&mut self, at: usize) -> Self {
        match self {
            Self::Leaf(extents) => Self::Leaf(extents.split_off(at)),
            Self::Inner(depth, indexes) => Self::Inner(*depth, indexes.split_off(at)),
        }
    }

    pub(super) fn emit(&self, bytes: &mut [u8]) {
        match self {
            Self::Leaf(extents) => emit_leaf(bytes, extents),
            Self::Inner(depth, indexes) => emit_inner(bytes, *depth, indexes),
        }
    }
}

impl Draft<'_, '_> {
    /// Maps a hole of file `ino`.
    pub(crate) fn insert_extent(&mut self, ino: Ino, new: Extent) -> Step<()> {
        self.note_range(ino, new.block.into()..new.end());
        let Inode { at, raw, .. } = self.inode(ino)?;
        let (at, mut bytes) = (*at, raw.block);
        let (mut slots, _) = self.insert_below(ino, &bytes.clone(), None, at, new)?;
        if slots.len() > usize::from(capacity(&bytes)) {
            let depth = match &slots {
                Slots::Leaf(_) => 1,
                Slots::Inner(depth, _) => depth + 1,
            };
            if depth > DEPTH_MAX {
                return Err(Error::corrupt("extent_header.eh_depth", at, depth, "5").into());
            }
            // The root's slots move to a block of their own, which has room for all of them.
            let child = self.write_node(ino, None, &slots)?;
            slots = Slots::Inner(depth, vec![Index { block: slots.first(), child }]);
        }
        slots.emit(&mut bytes);
        self.put_root(ino, bytes)
    }

    /// The slots of the node in `bytes` with the extent in it or below it: perhaps more than fit.
    /// And whether the new slot is the last one: appending fills nodes.
    fn insert_below(
        &mut self,
        ino: Ino,
        bytes: &[u8],
        depth: Option<u16>,
        at: FsBlock,
        new: Extent,
    ) -> Step<(Slots, bool)> {
        match Slots::parse(bytes, depth, at)? {
            Slots::Leaf(mut extents) => {
                let place = extents.partition_point(|extent| extent.block < new.block);
                let is_last = place == extents.len();
                put(&mut extents, place, new);
                Ok((Slots::Leaf(extents), is_last))
            }
            Slots::Inner(depth, mut indexes) => {
                let place = indexes.partition_point(|index| index.block <= new.block);
                let slot = place.saturating_sub(1);
                let child = indexes[slot].child;
                let kind = Kind::Extents(self.inode(ino)?.seed);
                let (block, sb) = (self.block_of(child, kind)?, &self.volume().sb);
                let (mut slots, is_last) =
                    self.insert_below(ino, sb.bytes(&block), Some(depth - 1), child, new)?;
                let room = usize::from(capacity(sb.bytes(&block)));
                let is_last = is_last && slot + 1 == indexes.len();
                if slots.len() > room {
                    let half = if is_last { slots.len() - 1 } else { slots.len() / 2 };
                    let right = slots.split_off(half);
                    let child = self.write_node(ino, None, &right)?;
                    indexes.insert(slot + 1, Index { block: right.first(), child });
                }
                indexes[slot].block = slots.first();
                self.write_node(ino, Some(child), &slots)?;
                Ok((Slots::Inner(depth, indexes), is_last))
            }
        }
    }

    /// Writes a node of the tree to its block, or to a new one.
    pub(super) fn write_node(
        &mut self,
        ino: Ino,
        at: Option<FsBlock>,
        slots: &Slots,
    ) -> Step<FsBlock> {
        let seed = self.inode(ino)?.seed;
        let at = match at {
            Some(at) => at,
            None => self.new_meta_block(ino)?,
        };
        let mut block = drive::Block::zeroed();
        let bytes = self.volume().sb.bytes_mut(&mut block);
        slots.emit(bytes);
        if let Some(seed) = seed {
            extent::seal(bytes, seed);
        }
        self.put(at, block);
        Ok(at)
    }
}

/// Puts `new` at `place`, or makes a neighbour longer.
fn put(extents: &mut Vec<Extent>, place: usize, new: Extent) {
    let mut new = new;
    if let Some(after) = extents.get(place).copied()
        && let Some(joined) = join(new, after)
    {
        new = joined;
        extents.remove(place);
    }
    if let Some(before) = place.checked_sub(1).and_then(|before| extents.get(before)).copied()
        && let Some(joined) = join(before, new)
    {
        extents[place - 1] = joined;
        return;
    }
    extents.insert(place, new);
}

/// Both as one extent (`ext4_can_extents_be_merged`).
fn join(a: Extent, b: Extent) -> Option<Extent> {
    let max = u32::from(LEN_MAX) - u32::from(a.unwritten);
    let follows = a.end() == u64::from(b.block)
        && a.start + u64::from(a.len) == b.start
        && a.unwritten == b.unwritten
        && a.len + b.len <= max;
    follows.then_some(Extent { len: a.len + b.len, ..a })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(block: u32, len: u32, start: u64) -> Extent {
        Extent { block, len, start, unwritten: false }
    }

    #[test]
    fn neighbours_become_one() {
        let mut extents = vec![extent(0, 4, 100), extent(8, 4, 108)];
        put(&mut extents, 1, extent(4, 4, 104));
        assert_eq!(extents, [extent(0, 12, 100)]);
        put(&mut extents, 1, extent(12, 4, 200));
        put(&mut extents, 2, Extent { unwritten: true, ..extent(16, 4, 204) });
        assert_eq!(extents.len(), 3);
        let long = extent(0, 32_768, 0);
        assert_eq!(join(long, extent(32_768, 1, 32_768)), None);
    }
}
