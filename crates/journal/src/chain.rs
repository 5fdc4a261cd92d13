//! Order-preserving transaction chains (Z-Journal, 2.2).
//!
//! Areas commit on their own, and yet a block may be changed in transactions of several of them.
//! So a transaction *names* others by marks `(area, number)`, and is *valid* only if all of those
//! are committed and valid. An area's own order is kept without marks, as in a single log: its
//! transactions are valid up to some point and not behind it. One mark an area is therefore enough,
//! for the newest transaction named there.
//!
//! The first change of a block in transaction T meets the transaction U of another area that had
//! it before:
//! - U is still running: both name one another, and the block stays with U. Either both are valid
//!   or neither, so U's image may hold half an operation of T. Where they have a partner in common
//!   that holds already, so of many cores that share blocks not each names each.
//! - U is closed or committed: its image is frozen, T takes the block, and T names U.

use cores::{Mutex, Rank};
use smallvec::SmallVec;

use crate::ondisk::header::Tid;
use crate::transaction::Id;

/// Of each area at most one transaction, the newest that counts; in the order of areas.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frontier(SmallVec<[Id; 4]>);

impl Frontier {
    /// Includes `id` and those before it in its area. Whether it was not included yet.
    pub(crate) fn add(&mut self, id: Id) -> bool {
        match self.0.binary_search_by_key(&id.area, |own| own.area) {
            Ok(place) if self.0[place].tid.reaches(id.tid) => return false,
            Ok(place) => self.0[place] = id,
            Err(place) => self.0.insert(place, id),
        }
        true
    }

    /// Includes all that `other` includes.
    pub(crate) fn extend(&mut self, other: &Self) {
        for id in other.iter() {
            self.add(id);
        }
    }

    /// Whether just this transaction is the newest of its area.
    pub(crate) fn has(&self, id: Id) -> bool {
        self.0.binary_search_by_key(&id.area, |own| own.area).is_ok_and(|at| self.0[at] == id)
    }

    /// The newest of an area.
    pub(crate) fn of(&self, area: u16) -> Option<Tid> {
        self.0.iter().find(|id| id.area == area).map(|id| id.tid)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Id> + '_ {
        self.0.iter().copied()
    }

    pub(crate) fn as_slice(&self) -> &[Id] {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Id> for Frontier {
    fn from_iter<T: IntoIterator<Item = Id>>(ids: T) -> Self {
        let mut all = Self::default();
        for id in ids {
            all.add(id);
        }
        all
    }
}

/// Whom a transaction names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    /// All that must be valid for it to be, but for those that these name.
    pub(crate) named: Frontier,
    /// Its *partners*, as far as it knows: those that name it too, and theirs. All are valid or
    /// none is, so a block of any of them needs no further mark.
    pub(crate) partners: Frontier,
}

impl Marks {
    /// `id` is named, and names this transaction. Its partners are `theirs`.
    pub(crate) fn add_partner(&mut self, id: Id, theirs: &Frontier) {
        self.named.add(id);
        self.partners.add(id);
        self.partners.extend(theirs);
    }
}

/// The greatest fixpoint: which committed transactions are valid. Of each area, `last` is its last
/// committed transaction when this is called, and its last valid one when it returns. `committed`
/// are those that are not known to be valid, with their marks.
///
/// Every step takes one mark and none comes back, so what a drive says cannot make it run for long.
pub(crate) fn keep_valid<'a>(
    last: &mut [Tid],
    committed: impl Iterator<Item = (Id, &'a [Id])> + Clone,
) {
    let first = last.to_vec();
    // Of each area: the transactions named there, oldest first, and by whom.
    let mut named: Vec<Vec<(i32, Id)>> = vec![Vec::new(); last.len()];
    let mut work: Vec<usize> = (0..last.len()).collect();
    let lower = |last: &mut [Tid], work: &mut Vec<usize>, id: Id| {
        let area = usize::from(id.area);
        if last[area].reaches(id.tid) {
            last[area] = id.tid.previous();
            work.push(area);
        }
    };
    for (id, marks) in committed {
        for mark in marks {
            match named.get_mut(usize::from(mark.area)) {
                Some(of) => of.push((mark.tid.since(first[usize::from(mark.area)]), id)),
                // No such area: that transaction never comes.
                None => lower(last, &mut work, id),
            }
        }
    }
    named.iter_mut().for_each(|of| of.sort_unstable_by_key(|(since, _)| *since));
    while let Some(area) = work.pop() {
        let end = last[area].since(first[area]);
        while let Some((_, id)) = named[area].pop_if(|(since, _)| *since > end) {
            lower(last, &mut work, id);
        }
    }
}

/// What a journal knows of its transactions' validity.
pub(crate) struct Chain {
    /// Taken within any lock of an area, and nothing within it.
    state: Mutex<State>,
}

struct State {
    /// The last valid transaction of each area.
    valid: Vec<Tid>,
    /// Committed transactions that are not valid; of each area, oldest first.
    pending: Vec<(Id, Frontier)>,
}

impl Chain {
    /// For areas whose next transactions have these numbers.
    pub(crate) fn new(next: impl Iterator<Item = Tid>) -> Self {
        let state = State { valid: next.map(Tid::previous).collect(), pending: Vec::new() };
        Self { state: Mutex::ranked(Rank::Chain, "journal chain", state) }
    }

    /// Whether all of these are durable, whatever happens to others.
    pub(crate) fn are_valid(&self, of: &Frontier) -> bool {
        let state = self.state.lock();
        of.iter().all(|id| state.is_valid(id))
    }

    /// Adds to `wanted` those of `named` that are not valid. Whether it lacked any.
    pub(crate) fn want(&self, wanted: &mut Frontier, named: &Frontier) -> bool {
        let state = self.state.lock();
        let more = named.iter().filter(|id| !state.is_valid(*id));
        more.filter(|id| wanted.add(*id)).count() > 0
    }

    /// Adds to `wanted` what those of its transactions name that are committed and not valid.
    pub(crate) fn close(&self, wanted: &mut Frontier) {
        let state = self.state.lock();
        let mut grows = !state.pending.is_empty();
        while std::mem::take(&mut grows) {
            for (id, named) in &state.pending {
                if wanted.iter().any(|want| want.area == id.area && want.tid.reaches(id.tid)) {
                    let more = named.iter().filter(|id| !state.is_valid(*id));
                    more.for_each(|id| grows |= wanted.add(id));
                }
            }
        }
    }

    /// These have been committed, each next in its area. Returns all that are valid now and were
    /// not before; of each area, oldest first.
    pub(crate) fn committed(&self, new: impl Iterator<Item = (Id, Frontier)>) -> Vec<Id> {
        let mut state = self.state.lock();
        let State { valid, pending } = &mut *state;
        pending.extend(new);
        let mut last = valid.clone();
        for (id, _) in &*pending {
            last[usize::from(id.area)] = id.tid;
        }
        keep_valid(&mut last, pending.iter().map(|(id, named)| (*id, named.as_slice())));
        *valid = last;
        let is_valid = |id: &Id| valid[usize::from(id.area)].reaches(id.tid);
        let settled = pending.iter().map(|(id, _)| *id).filter(is_valid).collect();
        pending.retain(|(id, _)| !is_valid(id));
        settled
    }
}

impl State {
    fn is_valid(&self, id: Id) -> bool {
        self.valid.get(usize::from(id.area)).is_some_and(|valid| valid.reaches(id.tid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(area: u16, tid: u32) -> Id {
        Id { area, tid: Tid(tid) }
    }

    fn frontier(ids: &[(u16, u32)]) -> Frontier {
        ids.iter().map(|(area, tid)| id(*area, *tid)).collect()
    }

    #[test]
    fn partners_become_valid_together() {
        let chain = Chain::new([Tid(5), Tid(7)].into_iter());
        let first = [(id(0, 5), frontier(&[(1, 7)]))];
        assert_eq!(chain.committed(first.into_iter()), []);
        let mut wanted = frontier(&[(0, 5)]);
        chain.close(&mut wanted);
        assert_eq!(wanted.as_slice(), [id(0, 5), id(1, 7)]);
        let other = [(id(1, 7), frontier(&[(0, 5)]))];
        assert_eq!(chain.committed(other.into_iter()), [id(0, 5), id(1, 7)]);
        assert!(chain.are_valid(&frontier(&[(0, 5)])) && !chain.are_valid(&frontier(&[(0, 6)])));
        let mut wanted = frontier(&[(0, 6)]);
        assert!(!chain.want(&mut wanted, &frontier(&[(0, 5), (0, 6), (1, 7)])));
        assert!(chain.want(&mut wanted, &frontier(&[(0, 5), (1, 8)])));
        assert_eq!(wanted.as_slice(), [id(0, 6), id(1, 8)]);
    }

    /// Figure 1 of the paper: (1,7) follows (2,2), and stands or falls with (0,4).
    #[test]
    fn the_papers_figure() {
        let last = [Tid(4), Tid(7), Tid(2)];
        let marks = [(id(0, 4), vec![id(1, 7)]), (id(1, 7), vec![id(0, 4), id(2, 2)])];
        let judge = |mut last: [Tid; 3]| {
            keep_valid(&mut last, marks.iter().map(|(id, marks)| (*id, &marks[..])));
            last
        };
        assert_eq!(judge(last), last);
        let lost = [Tid(4), Tid(7), Tid(1)];
        assert_eq!(judge(lost), [Tid(3), Tid(6), Tid(1)], "without (2,2) neither counts");
    }

    #[test]
    fn what_falls_takes_the_rest_of_its_area_along() {
        let mut last = [Tid(2), Tid(u32::MAX.wrapping_add(2))];
        let marks: Vec<(Id, Vec<Id>)> = vec![
            (id(0, 1), vec![id(3, 1)]),
            (id(0, 2), vec![]),
            (id(1, u32::MAX), vec![]),
            (id(1, 0), vec![id(0, 2)]),
            (id(1, 1), vec![]),
        ];
        keep_valid(&mut last, marks.iter().map(|(id, marks)| (*id, &marks[..])));
        assert_eq!(last, [Tid(0), Tid(u32::MAX)]);
    }
}
