//! What no fsync has covered yet: bytes of files, and names.

use std::collections::BTreeMap;
use std::ops::Range;

use vfs::Ino;

/// A file with changes that no fsync has covered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsyncedFile {
    /// Its inode.
    pub ino: Ino,
    /// Its names that are known.
    pub paths: Vec<Vec<u8>>,
    /// Which bytes were written; none if only attributes changed.
    pub ranges: Vec<Range<u64>>,
}

/// A change of a name that no fsync has covered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameChange {
    /// The name with its directory.
    pub path: Vec<u8>,
    /// It is new; otherwise it was removed.
    pub added: bool,
}

/// Ranges of a file are kept apart up to this many; beyond, gaps between them count as written.
const RANGES_MAX: usize = 4096;

/// The bytes of one file.
#[derive(Debug, Default)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    pub(super) fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        // Those that overlap or touch it, from the last one on.
        while let Some((&from, &to)) = self.0.range(..=end).next_back() {
            if to < start {
                break;
            }
            (start, end) = (start.min(from), end.max(to));
            self.0.remove(&from);
        }
        self.0.insert(start, end);
        if self.0.len() > RANGES_MAX
            && let (Some((&first, _)), Some((_, &last))) =
                (self.0.first_key_value(), self.0.last_key_value())
        {
            self.0 = BTreeMap::from([(first, last)]);
        }
    }

    pub(super) fn list(&self) -> Vec<Range<u64>> {
        self.0.iter().map(|(start, end)| *start..*end).collect()
    }

    pub(super) fn merge(&mut self, other: Self) {
        other.0.into_iter().for_each(|(start, end)| self.add(start..end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(all: &[(u64, u64)]) -> Ranges {
        let mut ranges = Ranges::default();
        all.iter().for_each(|(start, end)| ranges.add(*start..*end));
        ranges
    }

    fn list(ranges: &Ranges) -> Vec<(u64, u64)> {
        ranges.list().iter().map(|range| (range.start, range.end)).collect()
    }

    #[test]
    fn ranges_that_touch_are_one() {
        let joined = |all: &[(u64, u64)]| list(&ranges(all));
        assert_eq!(joined(&[]), []);
        assert_eq!(joined(&[(5, 5)]), []);
        assert_eq!(joined(&[(0, 2), (4, 6), (8, 9)]), [(0, 2), (4, 6), (8, 9)]);
        assert_eq!(joined(&[(4, 6), (0, 2), (2, 4)]), [(0, 6)]);
        assert_eq!(joined(&[(0, 2), (4, 6), (8, 9), (1, 9)]), [(0, 9)]);
        assert_eq!(joined(&[(0, 10), (2, 3)]), [(0, 10)]);
        let mut merged = ranges(&[(0, 1), (7, 8)]);
        merged.merge(ranges(&[(1, 2), (9, 10)]));
        assert_eq!(list(&merged), [(0, 2), (7, 8), (9, 10)]);
    }

    #[test]
    fn many_ranges_take_bounded_memory() {
        let most = RANGES_MAX as u64;
        let many: Vec<_> = (0..=most).map(|n| (n * 10, n * 10 + 1)).collect();
        assert_eq!(list(&ranges(&many)), [(0, most * 10 + 1)]);
    }
}
