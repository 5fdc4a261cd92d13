//! Overwrites of random size at random, unaligned places, each with bytes never written before, and
//! an fsync after each: tells old from new and new from garbage.

use super::Workload;
use super::content::Rng;
use crate::Result;
use crate::workload::recorder::Recorder;

/// Parameters.
#[derive(Clone, Copy, Debug)]
pub struct RandomOverwrite {
    /// Size of the file in bytes.
    pub size: u64,
    /// Longest overwrite in bytes.
    pub longest: u64,
    /// How many.
    pub overwrites: u64,
}

impl RandomOverwrite {
    /// As many overwrites of up to 64 KiB as cuts.
    pub fn for_cuts(cuts: usize) -> Self {
        let overwrites = (cuts as u64).clamp(50, 2_000);
        Self { size: 8 << 20, longest: 64 << 10, overwrites }
    }
}

impl Workload for RandomOverwrite {
    fn name(&self) -> &str {
        "random-overwrite"
    }

    fn footprint(&self) -> u64 {
        self.size + self.overwrites * (self.longest + 16384)
    }

    fn run(&self, fs: &Recorder, seed: u64, started: &mut dyn FnMut()) -> Result<()> {
        let mut rng = Rng::new(seed, 2);
        let file = fs.create(fs.root(), b"versions", 0o644)?;
        for at in (0..self.size).step_by(128 << 10) {
            let len = (self.size - at).min(128 << 10) as usize;
            fs.write(file, at, &rng.bytes(len))?;
        }
        fs.fsync(file)?;
        fs.sync()?;
        started();
        for _ in 0..self.overwrites {
            let len = rng.within(1, self.longest.min(self.size));
            let at = rng.below(self.size - len + 1);
            fs.write(file, at, &rng.bytes(len as usize))?;
            fs.fsync(file)?;
        }
        Ok(())
    }
}
