//! Version consistency: a file spread over many nodes, all rewritten before each fsync. A file with
//! one block new and another old shows that an fsync was torn.
//!
//! One block in each direct node, so that an fsync writes as many nodes as blocks: more than the
//! drive programs at once, and sometimes across the end of a zone.

use drive::BLOCK_SIZE;

use super::Workload;
use super::content::Rng;
use crate::Result;
use crate::workload::recorder::Recorder;

/// Blocks of a file from one direct node to the next.
const STRIDE: u64 = 1018;

/// Parameters.
#[derive(Clone, Copy, Debug)]
pub struct Versions {
    /// Direct nodes, and blocks written before each fsync.
    pub nodes: u64,
    /// How many fsyncs.
    pub fsyncs: u64,
}

impl Versions {
    /// Nodes for more than one NAND program of 48 blocks.
    pub fn for_cuts(cuts: usize) -> Self {
        Self { nodes: 60, fsyncs: (cuts as u64 / 5).clamp(20, 400) }
    }
}

impl Workload for Versions {
    fn name(&self) -> &str {
        "versions"
    }

    fn footprint(&self) -> u64 {
        (self.fsyncs + 2) * 2 * (self.nodes + 1) * BLOCK_SIZE as u64
    }

    fn run(&self, fs: &Recorder, seed: u64, started: &mut dyn FnMut()) -> Result<()> {
        let mut rng = Rng::new(seed, 7);
        let file = fs.create(fs.root(), b"versions", 0o644)?;
        let mut write_all = || -> Result<()> {
            // Beyond the addresses in the inode.
            (1..=self.nodes).try_for_each(|node| {
                fs.write(file, node * STRIDE * BLOCK_SIZE as u64, &rng.bytes(BLOCK_SIZE))
            })
        };
        write_all()?;
        fs.sync()?;
        started();
        for _ in 0..self.fsyncs {
            write_all()?;
            fs.fsync(file)?;
        }
        Ok(())
    }
}
