//! The thesis's consistency test (section 6.2): fill a file with a pattern, then overwrite random
//! 4 KiB blocks with the *same* pattern and fsync each. Whenever the power goes, the file must read
//! as the pattern; any other byte is a failure.

use drive::{BLOCK_SIZE, Block};

use super::Workload;
use super::content::{Rng, pattern};
use crate::Result;
use crate::workload::recorder::Recorder;

/// What [`Pattern::sync_every`] is unless told.
const SYNC_EVERY: u64 = 100;

/// Parameters of the test.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    /// Size of the file in 4 KiB blocks.
    pub blocks: u64,
    /// Overwrites, each followed by an fsync.
    pub overwrites: u64,
    /// A `sync` comes before the last of every this many overwrites; 0 means never. A running
    /// system writes checkpoints now and then, and recovery has to go through all nodes since the
    /// last.
    pub sync_every: u64,
}

impl Pattern {
    /// As many overwrites as cuts, of a 4 MiB file: more than one direct node.
    pub fn for_cuts(cuts: usize) -> Self {
        Self::sized(1024, (cuts as u64).clamp(100, 10_000))
    }

    /// This many overwrites of a file of this many blocks.
    pub const fn sized(blocks: u64, overwrites: u64) -> Self {
        Self { blocks, overwrites, sync_every: SYNC_EVERY }
    }
}

impl Workload for Pattern {
    fn name(&self) -> &str {
        "pattern"
    }

    fn footprint(&self) -> u64 {
        (self.blocks + 2 * self.overwrites) * BLOCK_SIZE as u64
    }

    fn run(&self, fs: &Recorder, seed: u64, started: &mut dyn FnMut()) -> Result<()> {
        let pages: Vec<Block> = (0..self.blocks).map(|i| pattern(seed, i)).collect();
        let file = fs.create(fs.root(), b"pattern", 0o644)?;
        for (i, page) in pages.iter().enumerate() {
            fs.write_block(file, i as u64, page)?;
        }
        fs.fsync(file)?;
        fs.sync()?;
        started();
        let mut rng = Rng::new(seed, 1);
        for i in 0..self.overwrites {
            if self.sync_every > 0 && i % self.sync_every == self.sync_every - 1 {
                fs.sync()?;
            }
            let index = rng.below(self.blocks);
            fs.write_block(file, index, &pages[index as usize])?;
            fs.fsync(file)?;
        }
        Ok(())
    }
}
