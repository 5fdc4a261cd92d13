//! What memory holds of inodes, in shards with a lock each.
//!
//! All that memory has of an inode is in one shard, so one lock protects it, and operations on
//! inodes in different shards do not contend.

use cores::{PerCoreReadGuard, PerCoreRwLock, PerCoreWriteGuard, Rank};
use smallvec::SmallVec;

use crate::Ino;

const SHARDS: usize = 256;

/// Which of `count` shards, a power of two up to 256, has inode or block `number`. Neighbours are
/// in different ones, so files made one after the other share none; and so are most numbers that
/// are thousands apart, as the first inodes and the tables of ext4's groups are.
#[inline]
pub fn shard_of(number: u64, count: usize) -> usize {
    (number ^ number >> 10 ^ number >> 15 ^ number >> 17) as usize % count
}

/// All shards of a volume. `S` is what one of them holds.
pub struct Shards<S>(Box<[PerCoreRwLock<S>]>);

impl<S> Shards<S> {
    /// Shards made by `make`, which gets the index of each. `name` is the locks' name in reports.
    pub fn new(rank: Rank, name: &'static str, mut make: impl FnMut(u64) -> S) -> Self {
        let shard = |index| PerCoreRwLock::ranked(rank, name, make(index)).keyed(index);
        Self((0..SHARDS as u64).map(shard).collect())
    }

    /// How many there are.
    pub const COUNT: usize = SHARDS;

    /// Index of the shard that has inode `ino`.
    #[inline]
    pub fn index(ino: Ino) -> usize {
        shard_of(ino, SHARDS)
    }

    /// The shard of inode `ino`, locked shared.
    #[inline]
    pub fn look(&self, ino: Ino) -> PerCoreReadGuard<'_, S> {
        self.0[Self::index(ino)].read()
    }

    /// The shard of inode `ino`, locked exclusively.
    #[inline]
    pub fn own(&self, ino: Ino) -> PerCoreWriteGuard<'_, S> {
        self.0[Self::index(ino)].write()
    }

    /// The shards of `inos`, locked exclusively in the order of their indices, each once. `None`
    /// for no inode.
    #[inline]
    pub fn own_all<const N: usize>(&self, inos: [Ino; N]) -> Option<OwnedShards<'_, S>> {
        self.own_indices(&mut inos.map(Self::index))
    }

    /// As [`Shards::own_all`], for a list whose length is not known beforehand.
    pub fn own_list(&self, inos: &[Ino]) -> Option<OwnedShards<'_, S>> {
        let mut indices: SmallVec<[usize; 4]> = inos.iter().copied().map(Self::index).collect();
        self.own_indices(&mut indices)
    }

    #[inline]
    fn own_indices(&self, indices: &mut [usize]) -> Option<OwnedShards<'_, S>> {
        indices.sort_unstable();
        let (&mut first, rest) = indices.split_first_mut()?;
        let shard = self.0[first].write();
        let mut others = SmallVec::new();
        let mut last = first;
        for &mut index in rest {
            if index != last {
                others.push((index, self.0[index].write()));
                last = index;
            }
        }
        Some(OwnedShards { index: first, shard, others })
    }

    /// The shard at `index`, locked shared.
    pub fn at(&self, index: usize) -> PerCoreReadGuard<'_, S> {
        self.0[index % SHARDS].read()
    }

    /// The shard at `index`, locked exclusively.
    pub fn own_at(&self, index: usize) -> PerCoreWriteGuard<'_, S> {
        self.0[index % SHARDS].write()
    }

    /// The shard of inode `ino`, for the volume's only user.
    #[inline]
    pub fn of(&mut self, ino: Ino) -> &mut S {
        self.0[Self::index(ino)].get_mut()
    }

    /// The shard at `index`, for the volume's only user.
    #[inline]
    pub fn at_mut(&mut self, index: usize) -> &mut S {
        self.0[index % SHARDS].get_mut()
    }

    /// All shards, for the volume's only user.
    pub fn all(&mut self) -> impl Iterator<Item = &mut S> {
        self.0.iter_mut().map(PerCoreRwLock::get_mut)
    }
}

/// The shards of one inode or of a few, locked exclusively. Most often there is one.
pub struct OwnedShards<'a, S> {
    index: usize,
    shard: PerCoreWriteGuard<'a, S>,
    /// Those of other inodes, by index.
    others: SmallVec<[(usize, PerCoreWriteGuard<'a, S>); 1]>,
}

impl<S> OwnedShards<'_, S> {
    /// The shard of inode `ino`; `None` if it is not among these.
    #[inline]
    pub fn get(&self, ino: Ino) -> Option<&S> {
        let wanted = Shards::<S>::index(ino);
        if self.index == wanted {
            return Some(&self.shard);
        }
        let mut others = self.others.iter();
        others.find(|(index, _)| *index == wanted).map(|(_, shard)| &**shard)
    }

    /// As [`OwnedShards::get`], to be changed.
    #[inline]
    pub fn get_mut(&mut self, ino: Ino) -> Option<&mut S> {
        let wanted = Shards::<S>::index(ino);
        if self.index == wanted {
            return Some(&mut self.shard);
        }
        let mut others = self.others.iter_mut();
        others.find(|(index, _)| *index == wanted).map(|(_, shard)| &mut **shard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_and_first_inodes_of_groups_are_apart() {
        let most = |numbers: &mut dyn Iterator<Item = u64>| {
            let mut uses = [0; SHARDS];
            numbers.for_each(|number| uses[shard_of(number, SHARDS)] += 1);
            uses.into_iter().max()
        };
        assert_eq!(most(&mut (5120..5120 + SHARDS as u64)), Some(1));
        for per_group in [8192, 4096, 2048, 1984] {
            assert_eq!(most(&mut (0..80).map(|group| group * per_group + 2)), Some(1));
        }
    }

    #[test]
    fn several_shards_are_locked_once_each_and_found_by_inode() {
        let shards = Shards::new(Rank::Inode, "test", |index| index);
        // Up to 1,023 a number's own low bits decide.
        let same = SHARDS as u64;
        let mut owned = shards.own_all([5, 3, 5 + same]).unwrap();
        assert_eq!(owned.get(3 + same), Some(&3));
        *owned.get_mut(5).unwrap() = 50;
        assert_eq!((owned.get(5 + same), owned.get(4)), (Some(&50), None));
        drop(owned);
        assert_eq!(*shards.look(5), 50);
        assert_eq!(*shards.look(4), 4);
        assert!(shards.own_all([]).is_none());
    }
}
