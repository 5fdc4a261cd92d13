//! Blocks of a volume that are smaller than a drive's: several of them, *slices*, share one.
//!
//! A drive block is written whole. Its other slices are written with the contents last submitted
//! for them, never with newer cached ones: metadata that waits for its commit is not written before
//! it. So a slice that is written can only take along writes that were submitted before it, which a
//! drive may do anyway. A power cut that tears a drive block leaves each sector of the other slices
//! as it was, since old and new are the same there.
//!
//! One write of a drive block is in flight at a time: a drive may finish two in either order, and
//! each would bring back an old neighbour of the other.

use std::ops::Range;

use cores::{Mutex, Rank};
use drive::{BLOCK_SIZE, Block, Blocks, Lba};
use smallvec::SmallVec;

use crate::{Io, IoError};

/// How slices lie in drive blocks.
pub(crate) struct Slices {
    size: usize,
    /// From the question what the neighbours hold until the write is submitted.
    pub(crate) writing: Mutex<()>,
}

impl Slices {
    /// Slices of `size` bytes. `None` if these are whole drive blocks.
    pub(crate) fn of(size: u32) -> Option<Self> {
        let size = size as usize;
        assert!((512..=BLOCK_SIZE).contains(&size) && size.is_power_of_two(), "slices of {size}");
        let writing = || Mutex::ranked(Rank::Slices, "slices on their way", ());
        (size < BLOCK_SIZE).then(|| Self { size, writing: writing() })
    }

    /// Bytes of a slice.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Slices in a drive block.
    pub(crate) fn each(&self) -> u64 {
        (BLOCK_SIZE / self.size) as u64
    }

    /// The drive blocks that have these slices.
    pub(crate) fn around(&self, slices: &Range<u64>) -> Range<Lba> {
        slices.start / self.each()..slices.end.div_ceil(self.each())
    }

    /// The drive blocks that have no others.
    pub(crate) fn within(&self, slices: &Range<u64>) -> Range<Lba> {
        slices.start.div_ceil(self.each())..slices.end / self.each()
    }

    /// The bytes of `slice` in its drive block.
    fn bytes(&self, slice: u64) -> Range<usize> {
        let from = (slice % self.each()) as usize * self.size;
        from..from + self.size
    }

    /// Takes `slices` out of the drive blocks around them.
    pub(crate) fn cut(&self, slices: Range<u64>, blocks: &[Block]) -> Blocks {
        let first = slices.start / self.each();
        let cut = |slice: u64| {
            let block = &blocks[(slice / self.each() - first) as usize];
            Block::from_prefix(&block[self.bytes(slice)])
        };
        slices.map(cut).collect()
    }

    /// The drive blocks around the slices in `data`, the first of which is `start`. The caller
    /// keeps others from writing to them, and nothing of them is in flight.
    pub(crate) fn compose(&self, io: &Io, start: u64, data: &[Block]) -> Result<Blocks, IoError> {
        let slices = start..start + data.len() as u64;
        let (around, within) = (self.around(&slices), self.within(&slices));
        let mut whole: SmallVec<[Block; 4]> = SmallVec::new();
        for lba in around.clone() {
            let is_covered = within.contains(&lba);
            whole.push(if is_covered { Block::unspecified() } else { io.read_whole(lba)? });
        }
        for (slice, block) in slices.zip(data) {
            let into = &mut whole[(slice / self.each() - around.start) as usize];
            into.make_mut()[self.bytes(slice)].copy_from_slice(&block[..self.size]);
        }
        Ok(whole)
    }
}
