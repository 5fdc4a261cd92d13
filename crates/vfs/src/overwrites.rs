//! Overwrites of cached pages by several cores at once, which share the lock of a [`PageCache`].
//!
//! Each overwrite locks the pages of its range, and stores the new pages apart from the cache.
//! Readers look there first. So the cache itself does not change under a shared lock, and nothing
//! in it needs a lock of its own. The cache's exclusive holder moves the pages into it before
//! anything else ([`Overwrites::settle`]).
//!
//! Pages are spread over [`PARTS`] locks. An overwrite holds all of its own from before its first
//! page is in place until its last one is, and so does a read. So a read sees all of an overwrite
//! or nothing of it, as under the inode's lock.
//!
//! The pages are dirty for the cache's [`Budget`](crate::Budget) at once. Until they are moved, the
//! old ones take memory as well: at most as much as may be dirty, half of the limit.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use cores::{Residence, RwLockReadGuard, RwLockWriteGuard};
use drive::{BLOCK_SIZE, Block};
use smallvec::SmallVec;

use crate::file::{Page, Write, charge, fill};
use crate::inode::shard_of;
use crate::ranges::{Locked, Ranges};
use crate::{Ino, PageCache, Timespec};

/// How many locks the pages are spread over: one for each bit of a [`Parts`].
const PARTS: usize = 128;

/// A set of parts.
#[derive(Clone, Copy)]
struct Parts(u128);

impl Parts {
    /// Those that have `pages`. Neighbours are in different ones, and so are most pages that are
    /// thousands apart.
    fn of(pages: Range<u64>) -> Self {
        // More pages than parts are in all of them.
        match pages.end.saturating_sub(pages.start) {
            len if len >= 2 * PARTS as u64 => Self(u128::MAX),
            _ => Self(pages.fold(0, |parts, page| parts | 1 << shard_of(page, PARTS))),
        }
    }

    /// Their numbers, ascending.
    fn numbers(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let number = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(number)
        })
    }

    /// Where among them the one is that has `page`, which is in one of them.
    fn position(self, page: u64) -> usize {
        let lower = (1 << shard_of(page, PARTS)) - 1;
        (self.0 & lower).count_ones() as usize
    }
}

/// What was overwritten of a part.
#[derive(Default)]
struct Part {
    /// The new pages, by file and index.
    pages: BTreeMap<(Ino, u64), Block>,
    /// When each file was overwritten last.
    times: SmallVec<[(Ino, Timespec); 1]>,
    /// Blocks promised to overwrites, see [`Overwrites::write`].
    purse: u64,
}

/// Pages of files that were overwritten under a shared lock of their cache.
pub struct Overwrites {
    parts: Ranges<Part>,
    /// Locks each page for itself, not the range.
    by_page: bool,
}

/// The bytes of an overwrite, at this time.
pub struct Overwrite<'w, 'd> {
    /// The file.
    pub ino: Ino,
    /// What is written; taken if it was.
    pub write: &'w mut Option<Write<'d>>,
    /// Of the change.
    pub time: Timespec,
}

impl Overwrites {
    /// None yet. `name` is the locks' name in reports.
    pub fn new(name: &'static str) -> Self {
        Self { parts: Ranges::new(name, PARTS), by_page: false }
    }

    /// A deliberate fault, for campaigns that must notice: overwrites do not lock their range, but
    /// one page after the other.
    pub fn without_range_lock(self) -> Self {
        Self { by_page: true, ..self }
    }

    /// Whether there are any.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.parts.is_changed()
    }

    /// Whether page `index` of a file is among them.
    pub fn has(&self, ino: Ino, index: u64) -> bool {
        self.is_pending()
            && self.read_parts(Parts::of(index..index + 1))[0].pages.contains_key(&(ino, index))
    }

    /// When a file was overwritten last, if it was.
    pub fn last(&self, ino: Ino) -> Option<Timespec> {
        if !self.is_pending() {
            return None;
        }
        let times = self
            .parts
            .each()
            .flat_map(|part| part.times.iter().find(|(of, _)| *of == ino).map(|(_, time)| *time));
        times.max_by_key(|time| (time.secs, time.nanos))
    }

    fn read_parts(&self, parts: Parts) -> Locked<RwLockReadGuard<'_, Part>> {
        self.parts.read(parts.numbers())
    }

    fn write_parts(&self, parts: Parts) -> Locked<RwLockWriteGuard<'_, Part>> {
        self.parts.write(parts.numbers()).unwrap_or_default()
    }

    /// Overwrites pages that `cache` has. False, and nothing has changed, if `pay` refuses: it
    /// takes what this makes dirty from blocks promised earlier.
    pub fn write(
        &self,
        cache: &PageCache,
        overwrite: Overwrite<'_, '_>,
        pay: impl FnOnce(&mut u64) -> bool,
    ) -> bool {
        let Overwrite { ino, write, time } = overwrite;
        let Some(pages) = write.as_ref().map(Write::range) else { return false };
        let parts = Parts::of(pages);
        let mut held = self.write_parts(parts);
        if !held.first_mut().is_some_and(|part| pay(&mut part.purse)) {
            return false;
        }
        let Some(write) = write.take() else { return false };
        if self.by_page {
            drop(held);
            for (piece, page) in write.pages() {
                let parts = Parts::of(piece.page..piece.page + 1);
                put(cache, ino, (piece, page), &mut self.write_parts(parts)[0], time);
            }
        } else {
            for (piece, page) in write.pages() {
                let part = &mut held[parts.position(piece.page)];
                put(cache, ino, (piece, page), part, time);
            }
        }
        self.parts.note_change();
        true
    }

    /// Fills `buf`, which ends within the file, up to the first page that is neither here nor in
    /// `cache`. Returns how much that is.
    pub fn read(&self, cache: &PageCache, ino: Ino, offset: u64, buf: &mut [u8]) -> usize {
        let end = offset + buf.len() as u64;
        let parts = Parts::of(offset / BLOCK_SIZE as u64..end.div_ceil(BLOCK_SIZE as u64));
        let held = self.read_parts(parts);
        fill(cache, ino, offset, buf, |index| {
            let new = held[parts.position(index)].pages.get(&(ino, index));
            new.or_else(|| cache.touch(ino, index))
        })
    }

    /// Moves all of them into `cache`, for its exclusive holder, and tells `wrote` for each file
    /// when that was.
    #[cold]
    pub fn settle(&mut self, cache: &mut PageCache, mut wrote: impl FnMut(Ino, Timespec)) {
        let Some(parts) = self.parts.settle() else { return };
        let mut times = BTreeMap::new();
        for part in parts {
            for ((ino, index), page) in std::mem::take(&mut part.pages) {
                let was_dirty = cache.is_dirty(ino, index);
                cache.insert_dirty(ino, index, page);
                if !was_dirty {
                    // It counted already.
                    cache.budget().remove_dirty(1);
                }
            }
            for (ino, time) in part.times.drain(..) {
                let last = times.entry(ino).or_insert(time);
                *last = if is_later(time, *last) { time } else { *last };
            }
        }
        times.into_iter().for_each(|(ino, time)| wrote(ino, time));
    }

    /// Takes back what was promised.
    pub fn empty_purses(&mut self) {
        self.parts.all().for_each(|part| part.purse = 0);
    }
}

fn is_later(time: Timespec, other: Timespec) -> bool {
    (time.secs, time.nanos) > (other.secs, other.nanos)
}

/// Puts one page of an overwrite in place.
fn put(
    cache: &PageCache,
    ino: Ino,
    (piece, page): (crate::Piece, Page<'_>),
    part: &mut Part,
    time: Timespec,
) {
    let index = piece.page;
    let new = match (page, part.pages.entry((ino, index))) {
        (Page::Whole(page), Entry::Occupied(mut old)) => {
            old.insert(page);
            false
        }
        (Page::Whole(page), Entry::Vacant(none)) => {
            none.insert(page);
            true
        }
        (Page::Part(bytes), Entry::Occupied(mut old)) => {
            old.get_mut().make_mut()[piece.within].copy_from_slice(bytes);
            false
        }
        (Page::Part(bytes), Entry::Vacant(none)) => {
            let mut page = cache.peek(ino, index).cloned().unwrap_or_else(Block::zeroed);
            page.make_mut()[piece.within].copy_from_slice(bytes);
            none.insert(page);
            true
        }
    };
    if new && !cache.is_dirty(ino, index) {
        cache.budget().add_dirty();
    }
    match part.times.iter_mut().find(|(of, _)| *of == ino) {
        Some((_, last)) if is_later(time, *last) => *last = time,
        Some(_) => {}
        None => part.times.push((ino, time)),
    }
    charge(cache, ino, index, piece.buffer.len(), Residence::write);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cores::{Machine, Profile, RwLock};

    use super::*;

    const FILE: Ino = 7;
    const PAGE: usize = BLOCK_SIZE;

    fn at(secs: i64) -> Timespec {
        Timespec { secs, nanos: 0 }
    }

    /// A cache with some clean pages of zeroes.
    fn cache(pages: u64) -> PageCache {
        let mut cache = PageCache::new(1 << 24);
        (0..pages).for_each(|index| cache.insert_clean(FILE, index, Block::zeroed()));
        cache
    }

    fn overwrite(
        overwrites: &Overwrites,
        cache: &PageCache,
        (offset, data): (usize, &[u8]),
        secs: i64,
    ) {
        let write = &mut Some(Write::new(offset as u64, data));
        let overwrite = Overwrite { ino: FILE, write, time: at(secs) };
        assert!(overwrites.write(cache, overwrite, |_| true));
    }

    #[test]
    fn parts_are_of_all_pages_in_order() {
        for pages in [0..1, 100..103, 5..130, 1000..1300, 3..3, 7..100_000] {
            let parts = Parts::of(pages.clone());
            let numbers: Vec<usize> = parts.numbers().collect();
            assert!(numbers.is_sorted_by(|a, b| a < b));
            for page in pages.take(300) {
                assert_eq!(numbers[parts.position(page)], shard_of(page, PARTS));
            }
        }
    }

    #[test]
    fn they_are_read_at_once_and_settled_once() {
        let (mut overwrites, mut cache) = (Overwrites::new("test"), cache(3));
        overwrite(&overwrites, &cache, (0, &[1; PAGE]), 5);
        overwrite(&overwrites, &cache, (PAGE - 1, &[2, 3]), 4);
        assert_eq!(cache.budget().dirty(), 2);
        assert!(overwrites.has(FILE, 1) && !overwrites.has(FILE, 2) && !overwrites.has(8, 0));
        assert_eq!(overwrites.last(FILE), Some(at(5)));
        let mut read = [9; 3];
        assert_eq!(overwrites.read(&cache, FILE, PAGE as u64 - 2, &mut read), 3);
        assert_eq!(read, [1, 2, 3]);
        let mut read = [9; 2 * PAGE];
        assert_eq!(
            overwrites.read(&cache, FILE, 2 * PAGE as u64, &mut read),
            PAGE,
            "page 3 is not there"
        );
        let mut wrote = Vec::new();
        overwrites.settle(&mut cache, |ino, time| wrote.push((ino, time)));
        assert_eq!(wrote, [(FILE, at(5))]);
        assert_eq!(cache.dirty_in(FILE, 0..9).collect::<Vec<_>>(), [0, 1]);
        assert_eq!((cache.budget().dirty(), cache.budget().pages()), (2, 3));
        assert_eq!(cache.get(FILE, 1).unwrap()[..2], [3, 0]);
        assert!(!overwrites.is_pending() && overwrites.last(FILE).is_none());
        overwrites.settle(&mut cache, |_, _| panic!("nothing is left"));
    }

    #[test]
    fn what_is_not_paid_for_is_not_written() {
        let (overwrites, cache) = (Overwrites::new("test"), cache(1));
        let mut write = Some(Write::new(0, &[1; PAGE]));
        let overwrite = Overwrite { ino: FILE, write: &mut write, time: at(1) };
        assert!(!overwrites.write(&cache, overwrite, |_| false));
        assert!(write.is_some() && !overwrites.is_pending());
    }

    /// Two threads overwrite the same three pages, a third reads them, and a fourth settles.
    /// Whether each read saw one overwrite.
    fn reads_are_whole(make: fn() -> Overwrites, seed: u64) -> bool {
        let profile = Profile::named("xeon-4116").unwrap();
        let test = move || {
            let both = (make(), cache(3));
            let both = Arc::new(RwLock::named("cache", both));
            let writers = [1, 2].map(|byte| {
                let both = both.clone();
                cores::spawn("write", Some(usize::from(byte)), move || {
                    for turn in 0..4 {
                        let (overwrites, cache) = &*both.read();
                        overwrite(overwrites, cache, (0, &[byte; 3 * PAGE]), turn);
                    }
                })
            });
            let reader = both.clone();
            let reader = cores::spawn("read", Some(3), move || {
                (0..8).all(|_| {
                    let (overwrites, cache) = &*reader.read();
                    let mut read = vec![0; 3 * PAGE];
                    overwrites.read(cache, FILE, 0, &mut read);
                    read.iter().all(|byte| *byte == read[0])
                })
            });
            let settler = cores::spawn("settle", Some(4), move || {
                for _ in 0..4 {
                    let (overwrites, cache) = &mut *both.write();
                    overwrites.settle(cache, |_, _| ());
                }
            });
            writers.into_iter().for_each(cores::JoinHandle::join);
            settler.join();
            reader.join()
        };
        Machine::simulated(&profile, seed).preempted().run(test).unwrap()
    }

    #[test]
    fn a_read_sees_an_overwrite_whole_in_any_schedule() {
        let make = || Overwrites::new("test");
        assert!((0..300).all(|seed| reads_are_whole(make, seed)));
        let broken = || Overwrites::new("test").without_range_lock();
        assert!(!(0..300).all(|seed| reads_are_whole(broken, seed)), "the range lock is left out");
    }
}
