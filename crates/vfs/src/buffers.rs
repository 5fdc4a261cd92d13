//! Metadata kept in memory until the commit that makes it valid.

use std::collections::BTreeMap;

use drive::{Block, Lba};
use queue::{Io, WriteSet};

/// Metadata blocks changed since the last commit. Only a commit writes them, so after a power cut
/// either all of them are there or none.
#[derive(Default)]
pub struct Buffers(BTreeMap<Lba, Block>);

impl Buffers {
    /// A block as the next commit will write it, if it has changed.
    pub fn get(&self, lba: Lba) -> Option<&Block> {
        self.0.get(&lba)
    }

    /// How many blocks have changed.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none has changed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Changes a block for the next commit.
    pub fn put(&mut self, lba: Lba, block: Block) {
        self.0.insert(lba, block);
    }

    /// A block that has changed, to change it further.
    pub fn get_mut(&mut self, lba: Lba) -> Option<&mut Block> {
        self.0.get_mut(&lba)
    }

    /// Submits all blocks, in the order of their addresses. They stay readable here until
    /// [`Buffers::forget`], since a commit that fails leaves only some of them on the drive.
    pub fn submit(&self, io: &Io, set: &mut WriteSet) {
        for (lba, block) in &self.0 {
            set.push(io, *lba, block.clone());
        }
        set.submit(io);
    }

    /// To be called when the commit that wrote them is durable.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}
