//! Which undecided parts of a medium are read after a cut: what nobody reads makes no difference.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use cores::Mutex;

/// Parts of a medium, numbered, and those of them that were read.
pub(crate) struct Watch {
    /// Addresses, in whatever unit the medium has, and the part to which they belong. A part may
    /// have several ranges, and an address several parts.
    ranges: Vec<(Range<u64>, usize)>,
    read: Mutex<BTreeSet<usize>>,
}

impl Watch {
    pub(crate) fn new(ranges: impl IntoIterator<Item = (Range<u64>, usize)>) -> Self {
        let mut merged: Vec<(Range<u64>, usize)> = Vec::new();
        for (range, part) in ranges {
            match merged.last_mut() {
                Some((last, of)) if *of == part && last.end == range.start => last.end = range.end,
                _ => merged.push((range, part)),
            }
        }
        let read = Mutex::instrument("parts of a medium that were read", BTreeSet::new());
        Self { ranges: merged, read }
    }

    /// These addresses are read.
    pub(crate) fn note(&self, addresses: Range<u64>) {
        let meets = |range: &Range<u64>| range.start < addresses.end && addresses.start < range.end;
        let parts = self.ranges.iter().filter(|(range, _)| meets(range)).map(|(_, part)| part);
        self.read.lock().extend(parts);
    }

    /// The parts that were read so far.
    pub(crate) fn read(&self) -> BTreeSet<usize> {
        self.read.lock().clone()
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}
