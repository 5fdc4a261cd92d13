//! Which blocks of a volume in the making are taken: ranges in order, never adjacent, because a
//! bitmap of a large volume has more bits than memory.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::ondisk::FsBlock;

/// The blocks of a volume that are taken.
#[derive(Clone, Debug, Default)]
pub(super) struct Space {
    /// First block of each range, and the one behind it.
    taken: BTreeMap<FsBlock, FsBlock>,
    /// Blocks of the volume.
    end: FsBlock,
}

impl Space {
    /// A volume of `end` blocks, all of them free.
    pub(super) fn new(end: FsBlock) -> Self {
        Self { taken: BTreeMap::new(), end }
    }

    /// Takes `blocks`, which are free.
    pub(super) fn take(&mut self, blocks: Range<FsBlock>) {
        if blocks.is_empty() {
            return;
        }
        let (mut start, mut end) = (blocks.start, blocks.end);
        if let Some((before, to)) = self.before(start).filter(|(_, to)| *to >= start) {
            (start, end) = (before, end.max(to));
        }
        if let Some(to) = self.taken.remove(&blocks.end) {
            end = to;
        }
        self.taken.insert(start, end);
    }

    /// The last range that begins at or before `at`.
    fn before(&self, at: FsBlock) -> Option<(FsBlock, FsBlock)> {
        self.taken.range(..=at).next_back().map(|(start, end)| (*start, *end))
    }

    /// The first free block at or behind `from`, and the end of its run.
    fn next_run(&self, from: FsBlock) -> Option<Range<FsBlock>> {
        let start = self.before(from).map_or(from, |(_, end)| end.max(from));
        let end = self.taken.range(start..).next().map_or(self.end, |(start, _)| *start);
        (start < end).then_some(start..end)
    }

    /// Whether `len` blocks from `start` are free and on the volume.
    pub(super) fn is_free(&self, start: FsBlock, len: u64) -> bool {
        self.next_run(start).is_some_and(|run| run.start == start && run.end - start >= len)
    }

    /// Where the first `len` free blocks in a row begin that begin in `range`.
    pub(super) fn find(&self, range: Range<FsBlock>, len: u64) -> Option<FsBlock> {
        let mut at = range.start;
        while let Some(run) = self.next_run(at).filter(|run| run.start < range.end) {
            if run.end - run.start >= len {
                return Some(run.start);
            }
            at = run.end;
        }
        None
    }

    /// The first free blocks at or behind `goal`, or else from the start of the volume: up to `len`
    /// of them in a row.
    pub(super) fn near(&self, goal: FsBlock, len: u64) -> Option<Range<FsBlock>> {
        let run = self.next_run(goal).or_else(|| self.next_run(0))?;
        Some(run.start..run.end.min(run.start + len))
    }

    /// The parts of `range` that are taken.
    pub(super) fn taken_in(&self, range: Range<FsBlock>) -> impl Iterator<Item = Range<FsBlock>> {
        let first = self.before(range.start).map_or(range.start, |(start, _)| start);
        let parts = self.taken.range(first..range.end);
        parts.filter_map(move |(start, end)| {
            let part = (*start).max(range.start)..(*end).min(range.end);
            (!part.is_empty()).then_some(part)
        })
    }

    /// How many blocks of `range` are free.
    pub(super) fn free_in(&self, range: Range<FsBlock>) -> u64 {
        let taken: u64 = self.taken_in(range.clone()).map(|part| part.end - part.start).sum();
        range.end - range.start - taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_and_found() {
        let mut space = Space::new(100);
        space.take(10..20);
        space.take(30..40);
        space.take(20..30);
        space.take(0..2);
        assert_eq!(space.taken.iter().collect::<Vec<_>>(), [(&0, &2), (&10, &40)]);
        assert_eq!(space.find(0..100, 9), Some(40));
        assert_eq!((space.find(0..40, 9), space.find(5..40, 4)), (None, Some(5)));
        assert_eq!((space.near(15, 5), space.near(0, 50)), (Some(40..45), Some(2..10)));
        assert_eq!(space.free_in(5..45), 10);
        assert!(space.is_free(40, 60) && !space.is_free(40, 61) && !space.is_free(39, 1));
        space.take(40..100);
        assert_eq!(space.near(90, 3), Some(2..5), "from the start again");
        space.take(2..10);
        assert_eq!((space.near(0, 1), space.free_in(0..100)), (None, 0));
    }
}
