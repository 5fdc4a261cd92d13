//! Free data blocks. Memory only: what is free is what no inode points to.
//!
//! The data blocks are divided among the cores. A call takes from its core's part, and from the
//! others' when that has too little; blocks go back to the part they came from. The caller frees
//! blocks after the change that lets go of them is durable, and before it unlocks the inode.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use cores::{Mutex, Rank, Stage, slot};

use crate::ondisk::extent::LENGTH_MAX;

/// Parts are no smaller than this, so that few blocks are not scattered.
const PART_MIN: u64 = 64;

/// The free blocks of a volume.
pub(crate) struct Space {
    /// Where each part begins, in order.
    starts: Box<[u64]>,
    end: u64,
    parts: Box<[Part]>,
    free: AtomicU64,
    total: u64,
    /// The last free blocks, which only what frees something may take.
    reserve: u64,
    /// Calls take from the first of so many parts first, by their core.
    near: usize,
}

/// Aligned so that cores do not share lines.
#[repr(align(128))]
struct Part {
    /// Free runs by their first block; none touches another. Protects this part only.
    runs: Mutex<BTreeMap<u64, u64>>,
}

/// A run of blocks.
pub(crate) type BlockRun = (u64, u64);

/// Blocks taken by a call that has not committed yet. They go back when it is dropped.
pub(crate) struct Taken<'a> {
    space: &'a Space,
    runs: Vec<BlockRun>,
}

impl Taken<'_> {
    /// The change that points to them is about to be durable.
    pub(crate) fn keep(mut self) -> Vec<BlockRun> {
        std::mem::take(&mut self.runs)
    }

    pub(crate) fn runs(&self) -> &[BlockRun] {
        &self.runs
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.runs.iter().map(|run| run.1).sum()
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for &(start, len) in &self.runs {
            self.space.give(start, len);
        }
    }
}

impl Space {
    /// All of `data` but the `used` runs, which are sorted and do not overlap. Each of the nodes,
    /// which end at these blocks, is divided among its share of the cores.
    pub(crate) fn new(
        data: Range<u64>,
        cores: u32,
        nodes: &[u64],
        used: &[BlockRun],
        reserve: u64,
    ) -> Self {
        let total = data.end - data.start;
        let parts = (total / PART_MIN).clamp(1, u64::from(cores));
        let each = (parts / nodes.len().max(1) as u64).max(1);
        let mut starts = Vec::new();
        let mut start = data.start;
        let ends = nodes.iter().copied().filter(|&end| end < data.end).chain([data.end]);
        for end in ends.filter(|&end| end > data.start) {
            let len = (end - start).div_ceil(each).max(1);
            starts.extend((start..end).step_by(len as usize));
            start = end;
        }
        let part = |(n, _): (usize, &u64)| {
            let runs = Mutex::ranked(Rank::Space, "pmfs space", BTreeMap::new());
            Part { runs: runs.keyed(n as u64) }
        };
        let parts: Box<[Part]> = starts.iter().enumerate().map(part).collect();
        let (near, free) = (parts.len(), AtomicU64::new(0));
        let starts = starts.into();
        let space = Self { starts, end: data.end, parts, free, total, reserve, near };
        let mut at = data.start;
        for &(start, len) in used {
            space.give(at, start.saturating_sub(at));
            at = start + len;
        }
        space.give(at, data.end.saturating_sub(at));
        space
    }

    /// Lets calls take from blocks before `end` first, if there is an end.
    pub(crate) fn within(mut self, end: Option<u64>) -> Self {
        if let Some(end) = end {
            self.near = self.starts.partition_point(|&start| start < end).max(1);
        }
        self
    }

    pub(crate) fn free(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn reserve(&self) -> u64 {
        self.reserve
    }

    /// As [`Space::take`], from the reserve as well.
    pub(crate) fn take_urgent(&self, want: u64) -> Taken<'_> {
        self.take_any(want, None)
    }

    /// Up to `want` blocks, in as few runs as possible; fewer only if no more are free. The run
    /// at `goal` comes first, if it is free.
    pub(crate) fn take(&self, want: u64, goal: Option<u64>) -> Taken<'_> {
        self.take_any(want.min(self.free().saturating_sub(self.reserve)), goal)
    }

    fn take_any(&self, want: u64, goal: Option<u64>) -> Taken<'_> {
        cores::charge(Stage::AllocBlock);
        let mut taken = Taken { space: self, runs: Vec::new() };
        let mut left = want;
        let own = slot() % self.near;
        let goal_part = goal.and_then(|goal| self.part_of(goal));
        if let (Some(part), Some(goal)) = (goal_part, goal) {
            left -= self.take_at(part, goal, left, &mut taken.runs);
        }
        for number in (own..self.parts.len()).chain(0..own) {
            while left > 0 {
                match self.take_from(number, left, &mut taken.runs) {
                    0 => break,
                    got => left -= got,
                }
            }
        }
        taken
    }

    /// One run of exactly `want` blocks, if there is one.
    pub(crate) fn take_run(&self, want: u64) -> Option<Taken<'_>> {
        cores::charge(Stage::AllocBlock);
        if self.free() < want + self.reserve {
            return None;
        }
        let own = slot() % self.near;
        for number in (own..self.parts.len()).chain(0..own) {
            let mut runs = self.parts[number].runs.lock();
            let fitting = runs.iter().find(|(_, len)| **len >= want).map(|(start, _)| *start);
            if let Some(start) = fitting {
                self.cut(&mut runs, start, start, want);
                return Some(Taken { space: self, runs: vec![(start, want)] });
            }
        }
        None
    }

    /// Gives blocks back. Nothing durable points to them.
    pub(crate) fn give(&self, start: u64, len: u64) {
        let (mut at, end) = (start, start + len);
        while at < end {
            let Some(number) = self.part_of(at) else { return };
            let part_end = self.starts.get(number + 1).copied().unwrap_or(self.end);
            let len = end.min(part_end) - at;
            let mut runs = self.parts[number].runs.lock();
            let (mut first, mut whole) = (at, len);
            if let Some((&before, &before_len)) = runs.range(..at).next_back()
                && before + before_len == at
            {
                (first, whole) = (before, before_len + whole);
            }
            if let Some(behind) = runs.remove(&(at + len)) {
                whole += behind;
            }
            runs.insert(first, whole);
            self.free.fetch_add(len, Ordering::Relaxed);
            at += len;
        }
    }

    /// Gives back the blocks of `old` that are not in `new`. Runs of one list do not overlap.
    pub(crate) fn give_difference(&self, mut old: Vec<BlockRun>, mut new: Vec<BlockRun>) {
        old.sort_unstable();
        new.sort_unstable();
        let mut kept = new.into_iter().peekable();
        for (start, len) in old {
            let (mut at, end) = (start, start + len);
            while at < end {
                match kept.peek().copied() {
                    Some((first, count)) if first + count <= at => {
                        kept.next();
                    }
                    Some((first, _)) if first >= end => break,
                    Some((first, count)) => {
                        self.give(at, first.saturating_sub(at));
                        at = first + count;
                    }
                    None => break,
                }
            }
            self.give(at, end.saturating_sub(at));
        }
    }

    fn part_of(&self, block: u64) -> Option<usize> {
        let number = self.starts.partition_point(|&start| start <= block).checked_sub(1)?;
        (block < self.end).then_some(number)
    }

    /// Takes from the run that begins at or contains `goal`.
    fn take_at(&self, part: usize, goal: u64, want: u64, to: &mut Vec<BlockRun>) -> u64 {
        let mut runs = self.parts[part].runs.lock();
        let Some((&start, &len)) = runs.range(..=goal).next_back() else { return 0 };
        if goal >= start + len {
            return 0;
        }
        let got = want.min(start + len - goal).min(LENGTH_MAX);
        self.cut(&mut runs, start, goal, got);
        to.push((goal, got));
        got
    }

    /// Takes from the first run that is long enough, or else from the longest.
    fn take_from(&self, part: usize, want: u64, to: &mut Vec<BlockRun>) -> u64 {
        let mut runs = self.parts[part].runs.lock();
        let fitting = runs.iter().find(|(_, len)| **len >= want);
        let chosen = fitting.or_else(|| runs.iter().max_by_key(|(_, len)| **len));
        let Some((&start, &len)) = chosen else { return 0 };
        let got = want.min(len).min(LENGTH_MAX);
        self.cut(&mut runs, start, start, got);
        to.push((start, got));
        got
    }

    /// Cuts `len` blocks at `from` out of the run that begins at `start`.
    fn cut(&self, runs: &mut BTreeMap<u64, u64>, start: u64, from: u64, len: u64) {
        let Some(whole) = runs.remove(&start) else { return };
        if from > start {
            runs.insert(start, from - start);
        }
        if from + len < start + whole {
            runs.insert(from + len, start + whole - from - len);
        }
        self.free.fetch_sub(len, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_comes_back() {
        let space = Space::new(10..1010, 4, &[1010], &[(20, 5), (30, 10)], 0);
        assert_eq!(space.free(), 985);
        let all = space.take(5000, None);
        assert_eq!((all.blocks(), space.free()), (985, 0));
        assert!(all.runs().iter().all(|&(start, len)| {
            start + len <= 20 || start >= 25 && start + len <= 30 || start >= 40
        }));
        assert!(space.take(1, None).runs().is_empty());
        drop(all);
        assert_eq!(space.free(), 985);
        let runs = space.take(3, Some(25)).keep();
        assert_eq!(runs, [(25, 3)], "at the goal");
        space.give(25, 3);
        assert_eq!(space.take_run(200).expect("within a part").blocks(), 200);
        assert!(space.take_run(400).is_none(), "parts have 250 blocks");
    }

    #[test]
    fn nodes_are_divided_among_their_cores() {
        let space = Space::new(100..1000, 8, &[500, 1000], &[], 0);
        assert_eq!(*space.starts, [100, 200, 300, 400, 500, 625, 750, 875]);
        let part = |block| space.part_of(block);
        assert_eq!([part(99), part(100), part(499), part(500)], [None, Some(0), Some(3), Some(4)]);
        assert_eq!([part(999), part(1000)], [Some(7), None]);
        assert_eq!(space.within(Some(500)).near, 4);
    }

    #[test]
    fn only_what_is_not_kept_is_given_back() {
        let space = Space::new(0..100, 1, &[100], &[(0, 100)], 0);
        space.give_difference(vec![(10, 10), (30, 5)], vec![(12, 3), (31, 2), (18, 2), (80, 9)]);
        let next = || space.take_run(1).map(|run| run.keep()[0].0);
        let free: Vec<_> = std::iter::from_fn(next).collect();
        assert_eq!(free, [10, 11, 15, 16, 17, 30, 33, 34]);
    }
}
