//! Pending discards: runs of free blocks, by address and by length
//! (`struct discard_cmd_control`), and what was discarded.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::ondisk::sit::MAP_SIZE;
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{BLOCKS_PER_SEGMENT, BlockAddr, SegNo, bits};

/// Runs as long as this or longer are alike (`MAX_PLIST_NUM`).
const LONG: u32 = BLOCKS_PER_SEGMENT;
/// The most blocks of one discard: a log may have to wait for them.
const RUN_MAX: u32 = 64 * BLOCKS_PER_SEGMENT;

/// Blocks that are valid neither now nor in the last checkpoint, and are not discarded yet.
#[derive(Default)]
pub(crate) struct Pending {
    /// Lengths of the runs by their first blocks. Runs neither overlap nor touch.
    runs: BTreeMap<BlockAddr, u32>,
    /// The same, longest first: `LONG` less the length, and the first block.
    by_length: BTreeSet<(u32, BlockAddr)>,
    /// Blocks that were discarded and not written since, by segment; empty if the drive takes no
    /// discards.
    told: Vec<[u8; MAP_SIZE]>,
    /// Injected: what a log takes stays here.
    stale: bool,
}

fn rank(len: u32) -> u32 {
    LONG - len.min(LONG)
}

impl Pending {
    /// For a drive that takes discards, of a volume of `segments` segments.
    pub(crate) fn new(segments: u32, stale: bool) -> Self {
        Self { told: vec![[0; MAP_SIZE]; segments as usize], stale, ..Self::default() }
    }

    /// A log takes these blocks.
    pub(crate) fn taken(&mut self, blocks: Range<BlockAddr>) {
        if !self.stale {
            self.remove(blocks);
        }
    }

    /// How many runs there are.
    pub(crate) fn count(&self) -> usize {
        self.runs.len()
    }

    /// Whether a block is in one of them that must not be.
    pub(crate) fn would_lose(&self, addr: BlockAddr) -> bool {
        if self.stale {
            return false;
        }
        let run = self.runs.range(..=addr).next_back();
        run.is_some_and(|(start, len)| start + len > addr)
    }

    /// Whether there is a run of at least `least` blocks.
    pub(crate) fn has(&self, least: u32) -> bool {
        self.by_length.first().is_some_and(|(short, _)| LONG - short >= least.min(LONG))
    }

    fn insert(&mut self, start: BlockAddr, len: u32) {
        self.runs.insert(start, len);
        self.by_length.insert((rank(len), start));
    }

    fn drop_run(&mut self, start: BlockAddr, len: u32) {
        self.runs.remove(&start);
        self.by_length.remove(&(rank(len), start));
    }

    /// The runs that touch `blocks`, or, with `overlap`, have some of them.
    fn near(&self, blocks: &Range<BlockAddr>, overlap: bool) -> Vec<(BlockAddr, u32)> {
        let slack = u32::from(!overlap);
        let before = self.runs.range(..blocks.start).next_back();
        let before = before.filter(|(start, len)| *start + *len + slack > blocks.start);
        let within = self.runs.range(blocks.start..blocks.end.saturating_add(slack));
        before.into_iter().chain(within).map(|(start, len)| (*start, *len)).collect()
    }

    /// Adds blocks, and joins them with the runs that they touch.
    pub(crate) fn add(&mut self, blocks: Range<BlockAddr>) {
        let (mut start, mut end) = (blocks.start, blocks.end);
        for (near, len) in self.near(&blocks, false) {
            self.drop_run(near, len);
            start = start.min(near);
            end = end.max(near + len);
        }
        if start < end {
            self.insert(start, end - start);
        }
    }

    /// Takes blocks out that are about to be written.
    pub(crate) fn remove(&mut self, blocks: Range<BlockAddr>) {
        if blocks.is_empty() {
            return;
        }
        for (start, len) in self.near(&blocks, true) {
            self.drop_run(start, len);
            let end = start + len;
            if start < blocks.start {
                self.insert(start, blocks.start - start);
            }
            if end > blocks.end {
                self.insert(blocks.end, end - blocks.end);
            }
        }
    }

    /// Takes out up to `most` runs of at least `least` blocks that `may` be taken, longest first.
    pub(crate) fn take(
        &mut self,
        least: u32,
        most: usize,
        may: impl Fn(&Range<BlockAddr>) -> bool,
    ) -> Vec<Range<BlockAddr>> {
        let long_enough = self.by_length.range(..=(rank(least), BlockAddr::MAX));
        let runs = long_enough.map(|(_, start)| {
            let len = self.runs.get(start).copied().unwrap_or_default();
            *start..*start + len.min(RUN_MAX)
        });
        let runs: Vec<_> = runs.filter(may).take(most).collect();
        runs.iter().for_each(|run| self.remove(run.clone()));
        runs
    }

    /// The block at `offset` of `segno` is written.
    pub(crate) fn written(&mut self, segno: SegNo, offset: usize) {
        if let Some(told) = self.told.get_mut(segno as usize) {
            bits::msb::clear(told, offset);
        }
    }

    /// `blocks` were discarded.
    pub(crate) fn set_told(&mut self, sb: &Superblock, blocks: Range<BlockAddr>) {
        for (segno, offset) in blocks.filter_map(|addr| sb.locate(addr)) {
            if let Some(told) = self.told.get_mut(segno as usize) {
                bits::msb::set(told, offset);
            }
        }
    }

    /// Whether a block was discarded and not written since.
    pub(crate) fn is_told(&self, segno: SegNo, offset: usize) -> bool {
        self.told.get(segno as usize).is_some_and(|told| bits::msb::test(told, offset))
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    /// Whatever is added and taken out, there is what a set of blocks would have, in the fewest
    /// runs.
    #[test]
    fn runs_are_what_a_set_of_blocks_would_be() {
        const BLOCKS: u32 = 300;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let (mut pending, mut model) = (Pending::default(), BTreeSet::new());
        for _ in 0..3000 {
            let start = rng.random_range(0..BLOCKS);
            let run = start..start + rng.random_range(0..20);
            match rng.random_range(0..3) {
                0 => {
                    pending.add(run.clone());
                    model.extend(run);
                }
                1 => {
                    pending.remove(run.clone());
                    model.retain(|block| !run.contains(block));
                }
                _ => {
                    let least = rng.random_range(1..12);
                    let most = rng.random_range(0..3);
                    for taken in pending.take(least, most, |run| !run.contains(&150)) {
                        assert!(taken.len() >= least as usize && !taken.contains(&150));
                        assert!(taken.clone().all(|block| model.remove(&block)));
                    }
                }
            }
            let blocks = pending.runs.iter().flat_map(|(start, len)| *start..start + len);
            assert!(blocks.eq(model.iter().copied()));
            let ends = pending.runs.iter().map(|(start, len)| start + len);
            assert!(ends.zip(pending.runs.keys().skip(1)).all(|(end, next)| end < *next));
            let lengths = pending.runs.iter().map(|(start, len)| (rank(*len), *start));
            assert_eq!(lengths.collect::<BTreeSet<_>>(), pending.by_length);
        }
    }
}
