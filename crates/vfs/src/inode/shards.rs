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
pub struct Shards<S> {
    shards: Box<[PerCoreRwLock<S>]>,
    groups: Option<Groups>,
}

/// The groups that a file system's inodes are in. One that spreads directories over them, each
/// with its files, uses the first inodes of many groups.
#[derive(Clone, Copy, Debug)]
pub struct Groups {
    /// Inodes of a group; the first inode of all is 1.
    pub inodes: u32,
    /// How many groups there are.
    pub count: u32,
}

impl Groups {
    /// The shard of inode `ino`. The first few of all groups are in different shards, and so are
    /// most of 256 neighbours.
    #[inline]
    fn shard_of(self, ino: Ino) -> usize {
        let number = (ino as u32).wrapping_sub(1);
        let (group, index) = (number / self.inodes.max(1), number % self.inodes.max(1));
        // A power of two times the index says nothing in its low digits, so all digits are added.
        let place = u64::from(index) * u64::from(self.count) + u64::from(group);
        let folded = place + (place >> 8) + (place >> 16) + (place >> 24);
        let odd = u64::from(index) * u64::from(self.count | 1) + u64::from(group);
        (if self.count.is_power_of_two() { folded } else { odd }) as usize % SHARDS
    }
}

/// The shard of inode `ino` on a volume with these groups.
#[inline]
fn index_among(groups: Option<Groups>, ino: Ino) -> usize {
    groups.map_or_else(|| shard_of(ino, SHARDS), |groups| groups.shard_of(ino))
}

impl<S> Shards<S> {
    /// Shards made by `make`, which gets the index of each. `name` is the locks' name in reports.
    pub fn new(rank: Rank, name: &'static str, mut make: impl FnMut(u64) -> S) -> Self {
        let shard = |index| PerCoreRwLock::ranked(rank, name, make(index)).keyed(index);
        Self { shards: (0..SHARDS as u64).map(shard).collect(), groups: None }
    }

    /// The same for inodes in groups.
    pub fn in_groups(self, groups: Groups) -> Self {
        Self { groups: Some(groups), ..self }
    }

    /// How many there are.
    pub const COUNT: usize = SHARDS;

    /// Index of the shard that has inode `ino`, if there are no groups.
    #[inline]
    pub fn index(ino: Ino) -> usize {
        shard_of(ino, SHARDS)
    }

    /// The shard of inode `ino`, locked shared.
    #[inline]
    pub fn look(&self, ino: Ino) -> PerCoreReadGuard<'_, S> {
        self.shards[index_among(self.groups, ino)].read()
    }

    /// The shard of inode `ino`, locked exclusively.
    #[inline]
    pub fn own(&self, ino: Ino) -> PerCoreWriteGuard<'_, S> {
        self.shards[index_among(self.groups, ino)].write()
    }

    /// The shards of `inos`, locked exclusively in the order of their indices, each once. `None`
    /// for no inode.
    #[inline]
    pub fn own_all<const N: usize>(&self, inos: [Ino; N]) -> Option<OwnedShards<'_, S>> {
        self.own_indices(&mut inos.map(|ino| index_among(self.groups, ino)))
    }

    /// As [`Shards::own_all`], for a list whose length is not known beforehand.
    pub fn own_list(&self, inos: &[Ino]) -> Option<OwnedShards<'_, S>> {
        let mut indices: SmallVec<[usize; 4]> =
            inos.iter().map(|ino| index_among(self.groups, *ino)).collect();
        self.own_indices(&mut indices)
    }

    #[inline]
    fn own_indices(&self, indices: &mut [usize]) -> Option<OwnedShards<'_, S>> {
        indices.sort_unstable();
        let (&mut first, rest) = indices.split_first_mut()?;
        let shard = self.shards[first].write();
        let mut others = SmallVec::new();
        let mut last = first;
        for &mut index in rest {
            if index != last {
                others.push((index, self.shards[index].write()));
                last = index;
            }
        }
        Some(OwnedShards { groups: self.groups, index: first, shard, others })
    }

    /// The shard at `index`, locked shared.
    pub fn at(&self, index: usize) -> PerCoreReadGuard<'_, S> {
        self.shards[index % SHARDS].read()
    }

    /// The shard at `index`, locked exclusively.
    pub fn own_at(&self, index: usize) -> PerCoreWriteGuard<'_, S> {
        self.shards[index % SHARDS].write()
    }

    /// The shard of inode `ino`, for the volume's only user.
    #[inline]
    pub fn of(&mut self, ino: Ino) -> &mut S {
        self.shards[index_among(self.groups, ino)].get_mut()
    }

    /// The shard at `index`, for the volume's only user.
    #[inline]
    pub fn at_mut(&mut self, index: usize) -> &mut S {
        self.shards[index % SHARDS].get_mut()
    }

    /// All shards, for the volume's only user.
    pub fn all(&mut self) -> impl Iterator<Item = &mut S> {
        self.shards.iter_mut().map(PerCoreRwLock::get_mut)
    }
}

/// The shards of one inode or of a few, locked exclusively. Most often there is one.
pub struct OwnedShards<'a, S> {
    groups: Option<Groups>,
    index: usize,
    shard: PerCoreWriteGuard<'a, S>,
    /// Those of other inodes, by index.
    others: SmallVec<[(usize, PerCoreWriteGuard<'a, S>); 1]>,
}

impl<S> OwnedShards<'_, S> {
    /// The shard of inode `ino`; `None` if it is not among these.
    #[inline]
    pub fn get(&self, ino: Ino) -> Option<&S> {
        let wanted = index_among(self.groups, ino);
        if self.index == wanted {
            return Some(&self.shard);
        }
        let mut others = self.others.iter();
        others.find(|(index, _)| *index == wanted).map(|(_, shard)| &**shard)
    }

    /// As [`OwnedShards::get`], to be changed.
    #[inline]
    pub fn get_mut(&mut self, ino: Ino) -> Option<&mut S> {
        let wanted = index_among(self.groups, ino);
        if self.index == wanted {
            return Some(&mut self.shard);
        }
        let mut others = self.others.iter_mut();
        others.find(|(index, _)| *index == wanted).map(|(_, shard)| &mut **shard)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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

    /// The files of 120 cores, each in a directory of its own, share no shard, however many groups
    /// the directories are spread over; nor do most neighbours.
    #[test]
    fn files_of_many_directories_share_no_shard() {
        for count in [1, 2, 3, 8, 16, 17, 64, 100, 128, 500, 1000, 4096] {
            let groups = Groups { inodes: 8192, count };
            let distinct = |inos: &mut dyn Iterator<Item = u64>| {
                inos.map(|ino| groups.shard_of(ino)).collect::<BTreeSet<_>>().len()
            };
            // A directory and its file, one pair after the other, in each group in turn.
            let file = |core: u64| {
                let (group, place) = (core % u64::from(count), core / u64::from(count));
                group * 8192 + 12 + 2 * place
            };
            assert_eq!(distinct(&mut (0..120).map(file)), 120, "{count} groups");
            assert!(distinct(&mut (5000..5256)) > 250, "{count} groups");
        }
    }
}
