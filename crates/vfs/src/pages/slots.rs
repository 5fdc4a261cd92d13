//! Where chunks of one file's pages are, by number.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Slots of chunks. Most files have one chunk, and most fsyncs find one with dirty pages: it is
/// kept in place, so that nothing is allocated and freed for it.
#[derive(Debug)]
pub(super) enum Slots {
    /// The number and the slot of the only chunk, if there is one.
    Few(Option<(u64, u32)>),
    Many(BTreeMap<u64, u32>),
}

impl Default for Slots {
    fn default() -> Self {
        Self::Few(None)
    }
}

impl Slots {
    pub(super) fn get(&self, number: u64) -> Option<u32> {
        match self {
            Self::Few(only) => only.filter(|only| only.0 == number).map(|only| only.1),
            Self::Many(all) => all.get(&number).copied(),
        }
    }

    pub(super) fn insert(&mut self, number: u64, slot: u32) {
        match self {
            Self::Few(only) => match only {
                Some(there) if there.0 != number => {
                    *self = Self::Many([*there, (number, slot)].into());
                }
                _ => *only = Some((number, slot)),
            },
            Self::Many(all) => {
                all.insert(number, slot);
            }
        }
    }

    pub(super) fn remove(&mut self, number: u64) {
        match self {
            Self::Few(only) => *only = only.filter(|only| only.0 != number),
            Self::Many(all) => {
                all.remove(&number);
                if all.is_empty() {
                    *self = Self::default();
                }
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Few(None))
    }

    /// The chunks with these numbers and their slots, ascending.
    pub(super) fn range(
        &self,
        numbers: RangeInclusive<u64>,
    ) -> impl DoubleEndedIterator<Item = (u64, u32)> + '_ {
        let (only, all) = match self {
            Self::Few(only) => (only.filter(|only| numbers.contains(&only.0)), None),
            Self::Many(all) => (None, Some(all.range(numbers))),
        };
        only.into_iter().chain(all.into_iter().flatten().map(|(&number, &slot)| (number, slot)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// As the tree alone has it.
        #[test]
        fn one_chunk_or_many_are_found_alike(
            changes in proptest::collection::vec((0u64..6, any::<bool>()), 0..40),
            from in 0u64..6,
            to in 0u64..6,
        ) {
            let (mut slots, mut model) = (Slots::default(), BTreeMap::new());
            for (at, (number, adds)) in (0..).zip(changes) {
                if adds {
                    slots.insert(number, at);
                    model.insert(number, at);
                } else {
                    slots.remove(number);
                    model.remove(&number);
                }
                prop_assert_eq!(slots.is_empty(), model.is_empty());
                prop_assert_eq!(slots.get(from), model.get(&from).copied());
                let (low, high) = (from.min(to), from.max(to));
                let found: Vec<_> = slots.range(low..=high).collect();
                let wanted: Vec<_> = model.range(low..=high).map(|(&n, &s)| (n, s)).collect();
                prop_assert_eq!(found, wanted);
            }
        }
    }
}
