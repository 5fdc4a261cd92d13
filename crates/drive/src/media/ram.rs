//! Sparse memory: a copy-on-write tree of blocks whose clone is a snapshot.
//!
//! Three levels: a root of branches, [`BRANCH`] leaves to a branch, [`LEAF`] blocks to a leaf.
//! Each level is shared between snapshots until one of them writes below it; a write after a
//! snapshot copies one path, a few kilobytes of pointers, and no block.

use std::sync::Arc;

use crate::watch::Watch;
use crate::{BLOCK_SIZE, Block, Lba};

const LEAF: usize = 64;
const BRANCH: usize = 256;
const LEAF_BLOCKS: u64 = LEAF as u64;
const BRANCH_BLOCKS: u64 = (LEAF * BRANCH) as u64;

type Leaf = [Option<Block>; LEAF];
type Branch = [Option<Arc<Leaf>>; BRANCH];

/// Blocks in memory. Cloning takes a snapshot in constant time.
#[derive(Clone, Default)]
pub struct RamMedia {
    root: Arc<Vec<Option<Arc<Branch>>>>,
    /// Notes which blocks are read, of these media and of all snapshots of them.
    watch: Option<Arc<Watch>>,
}

impl RamMedia {
    /// Nothing but zeroes.
    pub fn new() -> Self {
        Self::default()
    }

    /// The block at `lba`, shared, not copied.
    pub fn read(&self, lba: Lba) -> Block {
        self.get(lba).cloned().unwrap_or_else(Block::zeroed)
    }

    /// From now on `watch` is told which blocks are read.
    pub(crate) fn watch(&mut self, watch: Arc<Watch>) {
        self.watch = Some(watch);
    }

    /// The block at `lba`, if it was written after it was last discarded.
    pub(crate) fn get(&self, lba: Lba) -> Option<&Block> {
        if let Some(watch) = &self.watch {
            watch.note(lba..lba + 1);
        }
        let (root, branch, leaf) = path(lba);
        self.root.get(root)?.as_ref()?[branch].as_ref()?[leaf].as_ref()
    }

    /// Stores `block` at `lba`, shared, not copied.
    pub fn write(&mut self, lba: Lba, block: Block) {
        if let Some(before) = self.place(lba).replace(block) {
            before.retire();
        }
    }

    /// The bytes at `lba`, for a change. Copied first if a snapshot shares them.
    pub(crate) fn change(&mut self, lba: Lba) -> &mut [u8; BLOCK_SIZE] {
        self.place(lba).get_or_insert_with(Block::zeroed).make_mut()
    }

    /// Where the block at `lba` belongs, on a path that no snapshot shares.
    fn place(&mut self, lba: Lba) -> &mut Option<Block> {
        let (root, branch, leaf) = path(lba);
        let roots = Arc::make_mut(&mut self.root);
        if root >= roots.len() {
            roots.resize(root + 1, None);
        }
        let branches = roots[root].get_or_insert_with(|| Arc::new([const { None }; BRANCH]));
        let leaves =
            Arc::make_mut(branches)[branch].get_or_insert_with(|| Arc::new([const { None }; LEAF]));
        &mut Arc::make_mut(leaves)[leaf]
    }

    /// Makes the range read as zeroes. Whole leaves and branches are dropped at once.
    pub fn discard(&mut self, lba: Lba, blocks: u64) {
        let end = lba.saturating_add(blocks).min(self.root.len() as u64 * BRANCH_BLOCKS);
        let mut at = lba;
        while at < end {
            let (root, branch, _) = path(at);
            let whole = |unit: u64| at.is_multiple_of(unit) && end - at >= unit;
            let Some(branches) = &self.root[root] else {
                at = (at / BRANCH_BLOCKS + 1) * BRANCH_BLOCKS;
                continue;
            };
            if whole(BRANCH_BLOCKS) {
                Arc::make_mut(&mut self.root)[root] = None;
                at += BRANCH_BLOCKS;
                continue;
            }
            let leaf_end = (at / LEAF_BLOCKS + 1) * LEAF_BLOCKS;
            if branches[branch].is_some() {
                let whole = whole(LEAF_BLOCKS);
                self.clear(at, leaf_end.min(end), whole);
            }
            at = leaf_end;
        }
    }

    /// Clears `from..to`, which lie in one existing leaf; drops the leaf if that is all of it.
    fn clear(&mut self, from: Lba, to: Lba, whole: bool) {
        let (root, branch, first) = path(from);
        let Some(branches) = &mut Arc::make_mut(&mut self.root)[root] else { return };
        let place = &mut Arc::make_mut(branches)[branch];
        if whole {
            *place = None;
        } else if let Some(leaf) = place {
            let count = usize::try_from(to - from).unwrap_or(0);
            Arc::make_mut(leaf)[first..first + count].fill(None);
        }
    }

    /// Whether both are the same snapshot, so that nothing was written to either since one was
    /// cloned from the other.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.root, &other.root)
    }

    /// Calls `see` with every block held, in the order of addresses, until it fails.
    pub(super) fn each<E>(
        &self,
        mut see: impl FnMut(Lba, &Block) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Some(watch) = &self.watch {
            watch.note(0..Lba::MAX);
        }
        for (branch_start, branch) in (0..).step_by(LEAF * BRANCH).zip(self.root.iter()) {
            let leaves = branch.iter().flat_map(|leaves| leaves.iter());
            for (start, leaf) in (branch_start..).step_by(LEAF).zip(leaves) {
                for (lba, block) in (start..).zip(leaf.iter().flat_map(|leaf| leaf.iter())) {
                    if let Some(block) = block {
                        see(lba, block)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// How many blocks are held, by walking all of them.
    pub fn blocks_held(&self) -> u64 {
        let leaves = self.root.iter().flatten().flat_map(|branch| branch.iter().flatten());
        leaves.map(|leaf| leaf.iter().flatten().count() as u64).sum()
    }
}

impl std::fmt::Debug for RamMedia {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RamMedia").field("blocks", &self.blocks_held()).finish()
    }
}

fn path(lba: Lba) -> (usize, usize, usize) {
    let root = usize::try_from(lba / BRANCH_BLOCKS).unwrap_or(usize::MAX);
    let branch = (lba / LEAF_BLOCKS) as usize % BRANCH;
    (root, branch, lba as usize % LEAF)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn block(n: u8) -> Block {
        Block::from_prefix(&[n])
    }

    proptest! {
        /// Against a map, with snapshots taken on the way that must not change any more.
        #[test]
        fn agrees_with_a_map(ops in prop::collection::vec(
            (0u8..4, 0u64..3 * BRANCH_BLOCKS, 1u64..2 * BRANCH_BLOCKS, any::<u8>()), 1..80)
        ) {
            let (mut media, mut model) = (RamMedia::new(), BTreeMap::new());
            let mut snapshots = Vec::new();
            for (op, lba, len, n) in ops {
                match op {
                    0 => {
                        media.discard(lba, len);
                        model.retain(|at, _| !(lba..lba + len).contains(at));
                    }
                    1 => snapshots.push((media.clone(), model.clone())),
                    _ => {
                        media.write(lba, block(n));
                        model.insert(lba, n);
                    }
                }
            }
            snapshots.push((media, model));
            for (media, model) in snapshots {
                prop_assert_eq!(media.blocks_held(), model.len() as u64);
                for (lba, n) in model {
                    prop_assert_eq!(media.read(lba), block(n));
                }
            }
        }
    }

    #[test]
    fn reading_shares_the_page() {
        let mut media = RamMedia::new();
        let page = block(7);
        media.write(1 << 30, page.clone());
        assert!(media.read(1 << 30).same_page(&page));
        assert!(media.read(3).same_page(&Block::zeroed()));
    }
}
