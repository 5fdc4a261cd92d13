//! Locks of parts of a file, so that several cores change one inode at once: they share the inode's
//! own lock, and each locks the parts that it changes (range locks: SAC 2021 for F2FS, MASCOTS 2020
//! for NOVA).
//!
//! What is changed in a part is kept apart from the inode, under the part's lock, until the inode
//! is locked exclusively and the change is moved into it ([`Ranges::settle`]). So the exclusive
//! holder needs none of these locks and finds the whole inode in its own place.

use std::sync::atomic::{AtomicBool, Ordering};

use cores::{Rank, RwLock, RwLockReadGuard, RwLockWriteGuard};
use smallvec::SmallVec;

/// Parts locked together. Most often one.
pub type Locked<G> = SmallVec<[G; 1]>;

/// A lock for each part of a file, or of the files that share a lock. `T` is what was changed in a
/// part since it was settled.
///
/// ```
/// use vfs::Ranges;
///
/// let mut ranges: Ranges<Vec<u64>> = Ranges::new("pages", 4);
/// for part in &mut ranges.write(1..3).unwrap() {
///     part.push(7);
/// }
/// ranges.note_change();
/// let changed: Vec<_> = ranges.settle().unwrap().map(std::mem::take).collect();
/// assert_eq!(changed, [vec![], vec![7], vec![7], vec![]]);
/// assert!(ranges.settle().is_none());
/// ```
pub struct Ranges<T> {
    /// Each protects what was changed in its part. Several are taken in the order of their
    /// numbers, below the inode's lock.
    parts: Vec<RwLock<T>>,
    /// Something was changed since all of it was settled.
    is_changed: AtomicBool,
    name: &'static str,
}

impl<T: Default> Ranges<T> {
    /// Locks for `count` parts, with the name that reports call them by.
    pub fn new(name: &'static str, count: usize) -> Self {
        let mut ranges = Self { parts: Vec::new(), is_changed: AtomicBool::new(false), name };
        ranges.fit(count);
        ranges
    }

    /// Makes it `count` parts. Those at the end come or go.
    pub fn fit(&mut self, count: usize) {
        self.parts.truncate(count);
        for number in self.parts.len()..count {
            let part = RwLock::ranked(Rank::Range, self.name, T::default());
            self.parts.push(part.keyed(number as u64));
        }
    }
}

impl<T> Ranges<T> {
    /// Locks parts, whose numbers ascend, exclusively. `None` if there is no such part.
    pub fn write(
        &self,
        numbers: impl IntoIterator<Item = usize>,
    ) -> Option<Locked<RwLockWriteGuard<'_, T>>> {
        numbers.into_iter().map(|number| self.parts.get(number).map(RwLock::write)).collect()
    }

    /// Locks parts, whose numbers ascend, shared. Nothing was changed in those that are not there.
    pub fn read(&self, numbers: impl IntoIterator<Item = usize>) -> Locked<RwLockReadGuard<'_, T>> {
        numbers.into_iter().filter_map(|number| self.parts.get(number)).map(RwLock::read).collect()
    }

    /// Every part, locked shared one after the other.
    pub fn each(&self) -> impl Iterator<Item = RwLockReadGuard<'_, T>> {
        self.parts.iter().map(RwLock::read)
    }

    /// Notes that a part was changed. The caller holds its lock.
    pub fn note_change(&self) {
        // Most often it is set: others need not lose their copy of the cache line.
        if !self.is_changed() {
            self.is_changed.store(true, Ordering::Release);
        }
    }

    /// Whether a part was changed since all were settled.
    pub fn is_changed(&self) -> bool {
        self.is_changed.load(Ordering::Acquire)
    }

    /// Every part, for the exclusive holder to take out what was changed; `None` if nothing was.
    pub fn settle(&mut self) -> Option<impl Iterator<Item = &mut T>> {
        std::mem::take(self.is_changed.get_mut()).then(|| self.all())
    }

    /// Every part, for the exclusive holder.
    pub fn all(&mut self) -> impl Iterator<Item = &mut T> {
        self.parts.iter_mut().map(RwLock::get_mut)
    }
}
