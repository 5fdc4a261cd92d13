//! What is cached of inodes, in shards with a lock each.
//!
//! All that is cached of an inode is in one shard, so one lock protects it, and operations on
//! inodes in different shards do not contend. Two cores that contend for a lock are many times
//! slower than with a lock each. So there are many shards where there are many cores, made as
//! inodes come into use.

use std::sync::OnceLock;

use cores::{PerCoreReadGuard, PerCoreRwLock, PerCoreWriteGuard, Rank};
use smallvec::SmallVec;

use crate::Ino;

const SHARDS_MAX: usize = 1 << 16;

/// How many shards to have on a machine of so many cores, at least `least`: if each core works on a
/// file anywhere, the chance that two of them share a shard is an eighth.
fn shards_for(cores: usize, least: usize) -> usize {
    cores.saturating_mul(cores).saturating_mul(4).clamp(least, SHARDS_MAX).next_power_of_two()
}

/// Which of `count` shards, a power of two, has inode or block `number`. Neighbours are in
/// different ones, so files made one after the other share none; and so are most numbers that are
/// thousands apart, as the first inodes and the tables of ext4's groups are.
#[inline]
pub fn shard_of(number: u64, count: usize) -> usize {
    (number ^ number >> 10 ^ number >> 15 ^ number >> 17) as usize & count.wrapping_sub(1)
}

/// Neighbours among the shards, made together.
type Bank<S> = Box<[PerCoreRwLock<S>]>;

/// All shards of a volume. `S` is what one of them holds.
pub struct Shards<S> {
    /// All there are where cores are few: no look-up goes on from here then.
    first: Bank<S>,
    more: Box<[OnceLock<Bank<S>>]>,
    /// How many there may be, a power of two.
    count: usize,
    /// Makes the bank whose first shard has this index.
    make: Box<dyn Fn(usize) -> Bank<S> + Send + Sync>,
}

impl<S: 'static> Shards<S> {
    /// Shards made by `make`, at least `least`, a power of two. `name` is the locks' name in
    /// reports.
    pub fn new(
        rank: Rank,
        name: &'static str,
        least: usize,
        make: impl Fn() -> S + Send + Sync + 'static,
    ) -> Self {
        let shard = move |index| PerCoreRwLock::ranked(rank, name, make()).keyed(index as u64);
        let make = move |first| (first..first + least).map(&shard).collect();
        let count = shards_for(cores::core_count(), least);
        let more = (1..count / least).map(|_| OnceLock::new()).collect();
        Self { first: make(0), more, count, make: Box::new(make) }
    }
}

impl<S> Shards<S> {
    /// How many there are, a power of two.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Index of the shard that has inode `ino`.
    #[inline]
    pub fn index(&self, ino: Ino) -> usize {
        shard_of(ino, self.count())
    }

    /// The shard at `index`, which is below their count.
    #[inline]
    fn shard(&self, index: usize) -> &PerCoreRwLock<S> {
        self.first.get(index).unwrap_or_else(|| self.later(index))
    }

    /// As [`Shards::shard`], past the first bank. Out of line, so that the path of machines with
    /// few cores is a handful of instructions in each caller.
    #[cold]
    fn later(&self, index: usize) -> &PerCoreRwLock<S> {
        let len = self.first.len();
        let bank = index / len;
        &self.more[bank - 1].get_or_init(|| (self.make)(bank * len))[index % len]
    }

    /// The shard at `index`, if it has been made.
    fn made(&self, index: usize) -> Option<&PerCoreRwLock<S>> {
        let len = self.first.len();
        match index / len {
            0 => self.first.get(index),
            bank => self.more.get(bank - 1)?.get()?.get(index % len),
        }
    }

    /// The shard of inode `ino`, locked shared.
    #[inline]
    pub fn look(&self, ino: Ino) -> PerCoreReadGuard<'_, S> {
        self.shard(self.index(ino)).read()
    }

    /// The shard of inode `ino`, locked exclusively.
    #[inline]
    pub fn own(&self, ino: Ino) -> PerCoreWriteGuard<'_, S> {
        self.shard(self.index(ino)).write()
    }

    /// The shards of `inos`, locked exclusively in the order of their indices, each once. `None`
    /// for no inode.
    #[inline]
    pub fn own_all<const N: usize>(&self, inos: [Ino; N]) -> Option<OwnedShards<'_, S>> {
        self.own_indices(&mut inos.map(|ino| self.index(ino)))
    }

    /// As [`Shards::own_all`], for a list whose length is not known beforehand.
    pub fn own_list(&self, inos: &[Ino]) -> Option<OwnedShards<'_, S>> {
        let mut indices: SmallVec<[usize; 4]> = inos.iter().map(|ino| self.index(*ino)).collect();
        self.own_indices(&mut indices)
    }

    /// Adds the shard of `ino` to those that are locked, if it is free. Needs no lock order, since
    /// it does not wait.
    pub fn try_own<'a>(&'a self, owned: &mut OwnedShards<'a, S>, ino: Ino) -> bool {
        let index = self.index(ino);
        let shard = self.shard(index).try_write();
        let is_free = shard.is_some();
        owned.others.extend(shard.map(|shard| (index, shard)));
        is_free
    }

    #[inline]
    fn own_indices(&self, indices: &mut [usize]) -> Option<OwnedShards<'_, S>> {
        indices.sort_unstable();
        let (&mut first, rest) = indices.split_first_mut()?;
        let shard = self.shard(first).write();
        let mut others = SmallVec::new();
        let mut last = first;
        for &mut index in rest {
            if index != last {
                others.push((index, self.shard(index).write()));
                last = index;
            }
        }
        Some(OwnedShards { count: self.count(), index: first, shard, others })
    }

    /// The shard at `index`, locked shared; `None` if no inode near there was ever used.
    pub fn at(&self, index: usize) -> Option<PerCoreReadGuard<'_, S>> {
        Some(self.made(index)?.read())
    }

    /// As [`Shards::at`], locked exclusively.
    pub fn own_at(&self, index: usize) -> Option<PerCoreWriteGuard<'_, S>> {
        Some(self.made(index)?.write())
    }

    /// The shard of inode `ino`, for the volume's only user.
    #[inline]
    pub fn of(&mut self, ino: Ino) -> &mut S {
        let index = self.index(ino);
        if index < self.first.len() { self.first[index].get_mut() } else { self.later_mut(index) }
    }

    /// As [`Shards::later`], for the volume's only user.
    #[cold]
    fn later_mut(&mut self, index: usize) -> &mut S {
        self.later(index);
        let len = self.first.len();
        let bank = self.more[index / len - 1].get_mut();
        bank.expect("it has just been made")[index % len].get_mut()
    }

    /// As [`Shards::at`], for the volume's only user.
    #[inline]
    pub fn at_mut(&mut self, index: usize) -> Option<&mut S> {
        let len = self.first.len();
        let shard = match index / len {
            0 => self.first.get_mut(index),
            bank => self.more.get_mut(bank - 1)?.get_mut()?.get_mut(index % len),
        };
        shard.map(PerCoreRwLock::get_mut)
    }

    /// All shards that have been made, for the volume's only user.
    pub fn all(&mut self) -> impl Iterator<Item = &mut S> {
        let more = self.more.iter_mut().filter_map(OnceLock::get_mut);
        let banks = std::iter::once(&mut self.first).chain(more);
        banks.flat_map(|bank| bank.iter_mut()).map(PerCoreRwLock::get_mut)
    }
}

/// The shards of one inode or of a few, locked exclusively. Most often there is one.
pub struct OwnedShards<'a, S> {
    /// How many the volume has.
    count: usize,
    index: usize,
    shard: PerCoreWriteGuard<'a, S>,
    /// Those of other inodes, by index.
    others: SmallVec<[(usize, PerCoreWriteGuard<'a, S>); 1]>,
}

impl<S> OwnedShards<'_, S> {
    /// The shard of inode `ino`; `None` if it is not among these.
    #[inline]
    pub fn get(&self, ino: Ino) -> Option<&S> {
        let wanted = shard_of(ino, self.count);
        if self.index == wanted {
            return Some(&self.shard);
        }
        let mut others = self.others.iter();
        others.find(|(index, _)| *index == wanted).map(|(_, shard)| &**shard)
    }

    /// As [`OwnedShards::get`], to be changed.
    #[inline]
    pub fn get_mut(&mut self, ino: Ino) -> Option<&mut S> {
        let wanted = shard_of(ino, self.count);
        if self.index == wanted {
            return Some(&mut self.shard);
        }
        let mut others = self.others.iter_mut();
        others.find(|(index, _)| *index == wanted).map(|(_, shard)| &mut **shard)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const BANK: usize = 256;

    fn numbered() -> Shards<usize> {
        let made = AtomicUsize::new(0);
        Shards::new(Rank::Inode, "test", BANK, move || made.fetch_add(1, Ordering::Relaxed))
    }

    #[test]
    fn neighbours_and_first_inodes_of_groups_are_apart() {
        let most = |count, numbers: &mut dyn Iterator<Item = u64>| {
            let mut uses = vec![0; count];
            numbers.for_each(|number| uses[shard_of(number, count)] += 1);
            uses.into_iter().max()
        };
        for (count, groups) in
            [(BANK, 80), (shards_for(80, BANK), 80), (shards_for(120, BANK), 120)]
        {
            assert_eq!(most(count, &mut (5120..5120 + BANK as u64)), Some(1));
            for per_group in [8192, 4096, 2048, 1984] {
                let first = &mut (0..groups).map(|group| group * per_group + 2);
                assert_eq!(most(count, first), Some(1));
            }
        }
        // Where there are many cores, all inodes of a volume of 1 GiB are apart.
        assert_eq!(most(shards_for(120, BANK), &mut (0..8 * 8192)), Some(1));
    }

    #[test]
    fn several_shards_are_locked_once_each_and_found_by_inode() {
        let shards = numbered();
        let same = |ino| (ino + 1..).find(|&other| shards.index(other) == shards.index(ino));
        let (same_as_3, same_as_5) = (same(3).unwrap(), same(5).unwrap());
        let mut owned = shards.own_all([5, 3, same_as_5]).unwrap();
        let third = owned.get(same_as_3).copied();
        *owned.get_mut(5).unwrap() = 50;
        assert_eq!((owned.get(same_as_5), owned.get(4)), (Some(&50), None));
        let held = shards.look(6);
        assert!(shards.try_own(&mut owned, 2), "nobody has it");
        assert!(!shards.try_own(&mut owned, 6) && !shards.try_own(&mut owned, 5));
        assert!(owned.get(2).is_some() && owned.get(6).is_none());
        drop((held, owned));
        assert_eq!(*shards.look(5), 50);
        assert_eq!(Some(*shards.look(3)), third);
        assert!(shards.own_all([]).is_none());
    }

    #[test]
    fn shards_are_as_many_as_the_machine_needs_and_made_when_used() {
        let on = |machine: &str| {
            let profile = cores::Profile::named(machine).unwrap();
            let count = || {
                let mut shards = numbered();
                assert!((BANK..shards.count()).all(|index| shards.at(index).is_none()));
                let last = (0..).find(|&ino| shards.index(ino) == shards.count() - 1).unwrap();
                *shards.of(last) = 7;
                assert_eq!(*shards.look(last), 7);
                let made = shards.count().min(2 * BANK);
                assert_eq!(shards.all().count(), made);
                let there = (0..shards.count()).filter(|&index| shards.own_at(index).is_some());
                assert_eq!(there.count(), made);
                shards.count()
            };
            cores::Machine::simulated(&profile, 1).run(count).unwrap()
        };
        assert_eq!(["e7-8870v2-120", "gold-6138-80", "i5-6500"].map(on), [65536, 32768, 256]);
    }
}
