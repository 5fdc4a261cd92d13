//! Writes of which a part reaches the drive, and then the process dies: LazyFS's `torn-op`, a write
//! in parts, and `torn-seq`, some writes of several that no fsync came between.

use std::collections::BTreeSet;
use std::ops::Range;

use super::faults::FaultError;

/// How a write is divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parts {
    /// Into this many of the same length. What is left over goes with the last part that persists.
    Equal(usize),
    /// Into parts of these lengths, which together must be the write's.
    Bytes(Vec<usize>),
}

/// One write of a file, counted from 1, of which some parts persist.
#[derive(Debug)]
pub struct TornOp {
    file: Vec<u8>,
    occurrence: u64,
    parts: Parts,
    /// Which parts, counted from 1.
    persist: Vec<usize>,
    /// Writes that have begun.
    begun: u64,
}

/// Some of the writes of a file that no fsync came between. Writes are counted from 1 after each
/// fsync; a group begins with the second.
#[derive(Debug)]
pub struct TornSeq {
    file: Vec<u8>,
    /// Which group, counted from 1.
    occurrence: u64,
    /// Which writes of it.
    persist: BTreeSet<u64>,
    /// Writes since the last fsync.
    writes: u64,
    groups: u64,
    kept: Vec<Piece>,
}

/// The most bytes that are kept of a group's writes.
const KEPT_MAX: usize = 64 << 20;

/// Bytes that persist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) data: Vec<u8>,
}

/// What a fault makes of a write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Tear {
    /// The process dies after these persist.
    Of(Vec<Piece>),
    /// The fault does not fit the write, for this reason, and will not come.
    Unfit(&'static str),
}

impl TornOp {
    /// Of the `occurrence`-th write of `file`, these parts persist.
    ///
    /// # Errors
    ///
    /// There is no such occurrence, or are no such parts.
    pub fn new(
        file: Vec<u8>,
        occurrence: u64,
        parts: Parts,
        persist: Vec<usize>,
    ) -> Result<Self, FaultError> {
        let count = match &parts {
            Parts::Equal(count) => *count,
            Parts::Bytes(lengths) if lengths.contains(&0) => 0,
            Parts::Bytes(lengths) => lengths.len(),
        };
        if occurrence == 0 {
            return Err(FaultError::Occurrence);
        }
        if count == 0 {
            return Err(FaultError::Parts);
        }
        if persist.is_empty() || persist.iter().any(|part| !(1..=count).contains(part)) {
            return Err(FaultError::PersistParts);
        }
        Ok(Self { file, occurrence, parts, persist, begun: 0 })
    }

    /// Which bytes persist of a write of `len` bytes.
    fn ranges(&self, len: usize) -> Option<Vec<Range<usize>>> {
        match &self.parts {
            Parts::Bytes(lengths) => {
                let sum = lengths.iter().try_fold(0_usize, |sum, part| sum.checked_add(*part));
                let start = |part: usize| lengths[..part - 1].iter().sum::<usize>();
                let range = |part: &usize| start(*part)..start(*part) + lengths[part - 1];
                (sum == Some(len)).then(|| self.persist.iter().map(range).collect())
            }
            Parts::Equal(count) => {
                let (each, rest) = (len / count, len % count);
                let last = self.persist.len() - 1;
                let range = |(at, part): (usize, &usize)| {
                    let more = if at == last { rest } else { 0 };
                    (part - 1) * each..part * each + more
                };
                Some(self.persist.iter().enumerate().map(range).collect())
            }
        }
    }

    fn meet(&mut self, offset: u64, data: &[u8]) -> Option<Tear> {
        self.begun += 1;
        if self.begun != self.occurrence {
            return None;
        }
        let Some(ranges) = self.ranges(data.len()) else {
            return Some(Tear::Unfit("the sum of parts is different than the size of the write"));
        };
        let piece = |range: Range<usize>| Piece {
            offset: offset.saturating_add(range.start as u64),
            data: data[range].to_vec(),
        };
        Some(Tear::Of(ranges.into_iter().map(piece).collect()))
    }
}

impl TornSeq {
    /// Of the `occurrence`-th group of writes of `file`, these persist.
    ///
    /// # Errors
    ///
    /// There is no such occurrence, or are no such writes.
    pub fn new(file: Vec<u8>, occurrence: u64, persist: Vec<u64>) -> Result<Self, FaultError> {
        let persist = BTreeSet::from_iter(persist);
        if occurrence == 0 {
            return Err(FaultError::Occurrence);
        }
        if persist.first().is_none_or(|first| *first == 0) {
            return Err(FaultError::PersistWrites);
        }
        Ok(Self { file, occurrence, persist, writes: 0, groups: 0, kept: Vec::new() })
    }

    fn meet(&mut self, offset: u64, data: &[u8]) -> Option<Tear> {
        self.writes += 1;
        self.groups += u64::from(self.writes == 2);
        // The first write of a group is only known to be one when the second comes.
        let may_count = self.groups + u64::from(self.writes == 1) == self.occurrence;
        if may_count && self.persist.contains(&self.writes) {
            let kept = self.kept.iter().map(|piece| piece.data.len()).sum::<usize>();
            if kept.saturating_add(data.len()) > KEPT_MAX {
                self.occurrence = 0;
                self.kept.clear();
                return Some(Tear::Unfit("the writes to persist take too much memory"));
            }
            self.kept.push(Piece { offset, data: data.to_vec() });
        }
        let last = self.persist.last().copied().unwrap_or(0).max(2);
        let is_due = self.groups == self.occurrence && self.writes == last;
        is_due.then(|| Tear::Of(std::mem::take(&mut self.kept)))
    }

    fn fsynced(&mut self) {
        self.writes = 0;
        self.kept.clear();
    }
}

/// A fault that tears writes.
#[derive(Debug)]
pub enum Torn {
    /// See [`TornOp`].
    Op(TornOp),
    /// See [`TornSeq`].
    Seq(TornSeq),
}

impl Torn {
    pub(super) fn file(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Op(op) => &mut op.file,
            Self::Seq(seq) => &mut seq.file,
        }
    }

    /// The file is written. Returns what the fault makes of that.
    pub(super) fn meet(&mut self, offset: u64, data: &[u8]) -> Option<Tear> {
        match self {
            Self::Op(op) => op.meet(offset, data),
            Self::Seq(seq) => seq.meet(offset, data),
        }
    }

    /// The file is fsynced.
    pub(super) fn fsynced(&mut self) {
        if let Self::Seq(seq) = self {
            seq.fsynced();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn torn(parts: Parts, persist: &[usize], data: &[u8]) -> Tear {
        let mut op = TornOp::new(b"f".to_vec(), 2, parts, persist.to_vec()).unwrap();
        assert_eq!(op.meet(0, b"first"), None);
        let tear = op.meet(100, data).unwrap();
        assert_eq!(op.meet(0, data), None);
        tear
    }

    fn pieces(all: &[(u64, &[u8])]) -> Tear {
        let piece = |(offset, data): &(u64, &[u8])| Piece { offset: *offset, data: data.to_vec() };
        Tear::Of(all.iter().map(piece).collect())
    }

    #[test]
    fn a_write_persists_in_parts() {
        let whole = torn(Parts::Equal(3), &[1, 3], b"aabbcc");
        assert_eq!(whole, pieces(&[(100, b"aa"), (104, b"cc")]));
        let rest = torn(Parts::Equal(3), &[1, 3], b"aabbccd");
        assert_eq!(rest, pieces(&[(100, b"aa"), (104, b"ccd")]));
        let rest = torn(Parts::Equal(2), &[1], b"aabbc");
        assert_eq!(rest, pieces(&[(100, b"aab")]));
        let short = torn(Parts::Equal(9), &[9], b"a");
        assert_eq!(short, pieces(&[(100, b"a")]));
        let bytes = torn(Parts::Bytes(vec![1, 3, 2]), &[1, 3], b"abbbcc");
        assert_eq!(bytes, pieces(&[(100, b"a"), (104, b"cc")]));
        let unfit = torn(Parts::Bytes(vec![1, usize::MAX, 2]), &[1], b"abbbcc");
        assert!(matches!(unfit, Tear::Unfit(_)));
    }

    #[test]
    fn parts_that_there_are_not_are_refused() {
        let new = |occurrence, parts, persist: &[usize]| {
            TornOp::new(b"f".to_vec(), occurrence, parts, persist.to_vec()).err()
        };
        assert_eq!(new(0, Parts::Equal(2), &[1]), Some(FaultError::Occurrence));
        assert_eq!(new(1, Parts::Equal(0), &[1]), Some(FaultError::Parts));
        assert_eq!(new(1, Parts::Bytes(vec![1, 0]), &[1]), Some(FaultError::Parts));
        for wrong in [&[][..], &[0], &[3], &[1, 3]] {
            assert_eq!(new(1, Parts::Equal(2), wrong), Some(FaultError::PersistParts));
        }
        assert_eq!(new(1, Parts::Bytes(vec![1, 2]), &[2]), None);
        let seq = |occurrence, persist: &[u64]| {
            TornSeq::new(b"f".to_vec(), occurrence, persist.to_vec()).err()
        };
        assert_eq!(seq(0, &[1]), Some(FaultError::Occurrence));
        assert_eq!(seq(1, &[]), Some(FaultError::PersistWrites));
        assert_eq!(seq(1, &[0, 1]), Some(FaultError::PersistWrites));
    }

    /// Groups by the writes that are done in each; what persists of which write.
    fn sequence(occurrence: u64, persist: &[u64], groups: &[u64]) -> Option<(usize, u64, Tear)> {
        let mut seq = TornSeq::new(b"f".to_vec(), occurrence, persist.to_vec()).unwrap();
        for (group, writes) in groups.iter().enumerate() {
            for write in 1..=*writes {
                if let Some(tear) = seq.meet(write, &[group as u8]) {
                    return Some((group, write, tear));
                }
            }
            seq.fsynced();
        }
        None
    }

    #[test]
    fn writes_of_a_group_persist() {
        let third = sequence(2, &[4, 1], &[4, 1, 3, 4, 4]);
        // The second group with two writes has only three. So it never comes.
        assert_eq!(third, None);
        let second = sequence(2, &[4, 1], &[2, 1, 5]);
        assert_eq!(second, Some((2, 4, pieces(&[(1, &[2]), (4, &[2])]))));
        let first = sequence(1, &[2], &[1, 1, 2]);
        assert_eq!(first, Some((2, 2, pieces(&[(2, &[2])]))));
        // Known only at the second write.
        let only = sequence(1, &[1], &[1, 3]);
        assert_eq!(only, Some((1, 2, pieces(&[(1, &[1])]))));
    }
}
