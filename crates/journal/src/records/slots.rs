//! The blocks of one area of records: a ring of records, each in one piece.

use std::collections::VecDeque;

use crate::chain::Frontier;

/// Which blocks have records that may count.
#[derive(Debug)]
pub(super) struct Slots {
    blocks: u32,
    /// Oldest first; a record does not wrap around.
    taken: VecDeque<Taken>,
}

#[derive(Debug)]
struct Taken {
    at: u32,
    blocks: u32,
    /// The transactions that it is of.
    of: Frontier,
    /// It is being written.
    is_busy: bool,
}

impl Slots {
    /// An area of `blocks` blocks.
    pub(super) fn new(blocks: u32) -> Self {
        Self { blocks, taken: VecDeque::new() }
    }

    /// Takes `blocks` for a record of transactions `of`, which is being written until
    /// [`Slots::release`]. A record whose transactions have all become valid is free.
    pub(super) fn reserve(
        &mut self,
        blocks: u32,
        of: Frontier,
        are_valid: impl Fn(&Frontier) -> bool,
    ) -> Option<u32> {
        while self.taken.front().is_some_and(|old| !old.is_busy && are_valid(&old.of)) {
            self.taken.pop_front();
        }
        let at = self.gap(blocks)?;
        self.taken.push_back(Taken { at, blocks, of, is_busy: true });
        Some(at)
    }

    /// The transactions of the oldest record; none if there is none.
    pub(super) fn oldest(&self) -> Frontier {
        self.taken.front().map_or_else(Frontier::default, |oldest| oldest.of.clone())
    }

    fn gap(&self, blocks: u32) -> Option<u32> {
        let (Some(oldest), Some(newest)) = (self.taken.front(), self.taken.back()) else {
            return (blocks <= self.blocks).then_some(0);
        };
        let head = newest.at + newest.blocks;
        if newest.at < oldest.at {
            return (head + blocks <= oldest.at).then_some(head);
        }
        if head + blocks <= self.blocks {
            return Some(head);
        }
        (blocks <= oldest.at).then_some(0)
    }

    /// The record at `at` is written, or never will be.
    pub(super) fn release(&mut self, at: u32) {
        if let Some(slot) = self.taken.iter_mut().find(|slot| slot.at == at) {
            slot.is_busy = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tid;
    use crate::transaction::Id;

    /// Takes blocks for a record of transaction `tid`, with all up to `committed` valid.
    fn reserve(slots: &mut Slots, blocks: u32, tid: u32, committed: u32) -> Option<u32> {
        let of = [Id { area: 0, tid: Tid(tid) }].into_iter().collect();
        slots.reserve(blocks, of, |of| of.iter().all(|id| Tid(committed).reaches(id.tid)))
    }

    #[test]
    fn blocks_are_used_again_when_their_transaction_is_committed() {
        let mut slots = Slots::new(10);
        let (none, one, two) = (0, 1, 2);
        assert_eq!(reserve(&mut slots, 11, one, none), None);
        assert_eq!(reserve(&mut slots, 4, one, none), Some(0));
        assert_eq!(reserve(&mut slots, 3, one, none), Some(4));
        slots.release(0);
        assert_eq!(reserve(&mut slots, 4, one, none), None, "nothing is committed");
        assert_eq!(reserve(&mut slots, 4, two, one), Some(0), "the second one is being written");
        assert_eq!(reserve(&mut slots, 1, two, one), None);
        slots.release(4);
        assert_eq!(reserve(&mut slots, 6, two, one), Some(4));
        assert_eq!(reserve(&mut slots, 1, two, one), None);
        slots.release(4);
        assert_eq!(reserve(&mut slots, 1, two, two), None, "the oldest is being written");
        slots.release(0);
        assert_eq!(reserve(&mut slots, 10, two, two), Some(0));
    }
}
