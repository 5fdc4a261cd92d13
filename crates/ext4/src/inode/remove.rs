//! Removing extents (`ext4_ext_remove_space`), from the end of the range to its start, so that what
//! is left is a file that a truncation has not yet finished.

use crate::blocks::Kind;
use crate::inode::cached::Inode;
use crate::inode::insert::Slots;
use crate::mount::draft::Draft;
use crate::mount::engine::Engine;
use crate::mount::want::Step;
use crate::ondisk::extent::{Extent, LEN_MAX, emit_leaf};
use crate::ondisk::{FsBlock, Ino};

use std::ops::Range;

/// Extents that one transaction frees, at most.
const EXTENTS_MAX: u32 = 24;

impl Engine {
    /// How many extents of a file one transaction may free: each may change the bitmaps and
    /// descriptors of all groups that it lies in, besides blocks of the tree.
    pub(crate) fn freed_extents_max(&self) -> u32 {
        let groups = u32::from(LEN_MAX) / self.sb.blocks_per_group + 1;
        (self.journal.credits_max() / (2 * groups + 2)).clamp(1, EXTENTS_MAX)
    }
}

/// How far a removal may go in one transaction.
struct Removal {
    /// Blocks of the file.
    range: Range<u64>,
    /// Extents that may still be freed.
    budget: u32,
    /// Blocks in the journal that may still be freed: each of them is revoked.
    revokes: usize,
    /// The blocks stay allocated: they are mapped anew.
    keeps: bool,
    /// Up to where of the range it has not come, once the budget is used up.
    rest: Option<u64>,
    /// What is left of extents that reached beyond the range's end.
    behind: Vec<Extent>,
}

/// A node after a removal.
struct Rest {
    slots: Slots,
    /// Nothing of the range is left in it.
    done: bool,
}

impl Draft<'_, '_> {
    /// Frees the blocks of file `ino` in `range` from its end on, but no more than `budget` extents
    /// of it. `None` if all are free, or the block from which on they are.
    pub(crate) fn remove_extents(
        &mut self,
        ino: Ino,
        range: Range<u64>,
        budget: u32,
    ) -> Step<Option<u64>> {
        let (revokes, rest, behind) = (self.volume().revokes_max(), None, Vec::new());
        let removal = Removal { range, budget, revokes, keeps: false, rest, behind };
        self.remove(ino, removal)
    }

    /// Removes `range` of file `ino` from its map. The blocks stay allocated and counted.
    pub(crate) fn unmap(&mut self, ino: Ino, range: Range<u64>) -> Step<()> {
        let (budget, rest, behind) = (u32::MAX, None, Vec::new());
        let removal = Removal { range, budget, revokes: 0, keeps: true, rest, behind };
        self.remove(ino, removal).map(drop)
    }

    fn remove(&mut self, ino: Ino, mut removal: Removal) -> Step<Option<u64>> {
        let Inode { at, raw, .. } = self.inode(ino)?;
        let (at, mut bytes) = (*at, raw.block);
        let Rest { slots, .. } = self.remove_below(ino, &bytes.clone(), None, at, &mut removal)?;
        match slots.len() {
            0 => emit_leaf(&mut bytes, &[]),
            _ => slots.emit(&mut bytes),
        }
        self.put_root(ino, bytes)?;
        let left = removal.rest;
        for extent in removal.behind {
            self.insert_extent(ino, extent)?;
        }
        Ok(left)
    }

    fn remove_below(
        &mut self,
        ino: Ino,
        bytes: &[u8],
        depth: Option<u16>,
        at: FsBlock,
        removal: &mut Removal,
    ) -> Step<Rest> {
        let (depth, mut indexes) = match Slots::parse(bytes, depth, at)? {
            Slots::Leaf(extents) => return self.remove_in_leaf(ino, extents, removal),
            Slots::Inner(depth, indexes) => (depth, indexes),
        };
        let (mut slot, mut done) = (indexes.len(), true);
        while slot > 0 && done {
            slot -= 1;
            let index = indexes[slot];
            let next = indexes.get(slot + 1).map_or(1 << 32, |next| u64::from(next.block));
            if u64::from(index.block) >= removal.range.end {
                continue;
            }
            if next <= removal.range.start {
                break;
            }
            let kind = Kind::Extents(self.inode(ino)?.seed);
            let child = self.block_of(index.child, kind)?;
            let bytes = self.volume().sb.bytes(&child);
            let below = self.remove_below(ino, bytes, Some(depth - 1), index.child, removal)?;
            done = below.done;
            if below.slots.len() > 0 {
                indexes[slot].block = below.slots.first();
                self.write_node(ino, Some(index.child), &below.slots)?;
            } else {
                indexes.remove(slot);
                self.free_meta_block(ino, index.child)?;
            }
        }
        Ok(Rest { slots: Slots::Inner(depth, indexes), done })
    }

    fn remove_in_leaf(
        &mut self,
        ino: Ino,
        mut extents: Vec<Extent>,
        removal: &mut Removal,
    ) -> Step<Rest> {
        let (mut slot, mut done) = (extents.len(), true);
        while slot > 0 {
            slot -= 1;
            let old = extents[slot];
            let all = removal.range.start.max(old.block.into())..removal.range.end.min(old.end());
            if all.is_empty() {
                continue;
            }
            if removal.budget == 0 {
                removal.rest = Some(all.end);
                done = false;
                break;
            }
            removal.budget -= 1;
            let mut cut = all.clone();
            if !removal.keeps {
                cut.start = self.free_in(ino, old, all.clone(), &mut removal.revokes)?;
            }
            if cut.start > all.start {
                removal.rest = Some(cut.start);
                done = false;
                if cut.is_empty() {
                    break;
                }
            }
            self.note_range(ino, cut.clone());
            let (head, tail) = around(old, &cut);
            match head {
                Some(head) => {
                    extents[slot] = head;
                    removal.behind.extend(tail);
                }
                None => match tail {
                    Some(tail) => extents[slot] = tail,
                    None => drop(extents.remove(slot)),
                },
            }
            if !done {
                break;
            }
        }
        Ok(Rest { slots: Slots::Leaf(extents), done })
    }

    /// Frees what `extent` has of blocks `range` of the file, from the end on, as far as what the
    /// journal has of it can be revoked. Returns the block from which on they are free.
    fn free_in(
        &mut self,
        ino: Ino,
        extent: Extent,
        range: Range<u64>,
        revokes: &mut usize,
    ) -> Step<u64> {
        let home = |block: u64| extent.start + (block - u64::from(extent.block));
        let mut from = range.start;
        let mut logged = self.in_journal(ino, home(range.start)..home(range.end))?;
        if let Some(excess) = logged.len().checked_sub(*revokes).filter(|excess| *excess > 0) {
            // The block behind the last one that has to wait.
            from += logged[excess - 1] + 1 - home(range.start);
            logged.drain(..excess);
        }
        *revokes -= logged.len();
        if from < range.end {
            self.free_data(ino, home(from), (range.end - from) as u32)?;
            self.changes.revoked.extend(logged);
        }
        Ok(from)
    }
}

/// What is left of `old` in front of `cut` and behind it.
fn around(old: Extent, cut: &Range<u64>) -> (Option<Extent>, Option<Extent>) {
    let front = (cut.start - u64::from(old.block)) as u32;
    let behind = (old.end() - cut.end) as u32;
    let head = Extent { len: front, ..old };
    let skipped = old.len - behind;
    let tail = Extent {
        block: old.block + skipped,
        len: behind,
        start: old.start + u64::from(skipped),
        unwritten: old.unwritten,
    };
    ((front > 0).then_some(head), (behind > 0).then_some(tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_an_extent() {
        let old = Extent { block: 10, len: 10, start: 100, unwritten: true };
        assert_eq!(around(old, &(10..20)), (None, None));
        let (head, tail) = around(old, &(13..15));
        assert_eq!(head, Some(Extent { len: 3, ..old }));
        assert_eq!(tail, Some(Extent { block: 15, len: 5, start: 105, unwritten: true }));
    }
}
