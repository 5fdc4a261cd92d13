//! Metadata held back until the commit that makes it valid.

use std::collections::BTreeMap;

use drive::{Block, Lba};
use queue::{Io, WriteSet};

/// Metadata blocks changed since the last commit. Nothing but a commit writes them, so a cut can
/// only see all of them or none.
#[derive(Default)]
pub struct Buffers(BTreeMap<Lba, Block>);

impl Buffers {
    /// A block, as the next commit will have it, if it has changed.
    pub fn get(&self, lba: Lba) -> Option<&Block> {
        self.0.get(&lba)
    }

    /// Changes a block for the next commit.
    pub fn put(&mut self, lba: Lba, block: Block) {
        self.0.insert(lba, block);
    }

    /// A block that has changed, to change it further.
    pub fn get_mut(&mut self, lba: Lba) -> Option<&mut Block> {
        self.0.get_mut(&lba)
    }

    /// Submits all of them, in the order of the drive. They stay here, to be read, until
    /// [`Buffers::forget`]: a commit that fails leaves the drive with half of it.
    pub fn submit(&self, io: &mut Io, set: &mut WriteSet) {
        for (lba, block) in &self.0 {
            set.push(io, *lba, block.clone());
        }
        set.submit(io);
    }

    /// The commit that wrote them is durable.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}
