//! The extent cache: where runs of a file's blocks are, so that a read needs none of the file's
//! nodes (`extent_cache.c`).
//!
//! Invariant: an extent agrees with the nodes. An address is changed and dropped from the extents
//! of its file under the same lock ([`crate::inode::change::Change::set_addr`]).

use std::collections::BTreeMap;
use std::ops::Range;

use cores::Line;
use rustc_hash::FxHashMap;

use crate::ondisk::{BlockAddr, Nid};

/// Pieces of a split extent that are shorter are not kept (`F2FS_MIN_EXTENT_LEN`).
const PIECE_MIN: u64 = 64;

/// The extents of the files of a shard.
#[derive(Default)]
pub(crate) struct Extents {
    files: FxHashMap<Nid, File>,
    /// How many there are.
    count: u64,
    /// Look-ups that were answered, those that the extent before answered again, and those that
    /// were not. Readers count together.
    hits: Line,
    hits_cached: Line,
    misses: Line,
}

/// The extents of a file, by first block.
#[derive(Default)]
struct File {
    extents: BTreeMap<u64, Extent>,
    /// Where the last look-up hit.
    last: Line,
}

#[derive(Clone, Copy)]
struct Extent {
    len: u64,
    addr: BlockAddr,
}

impl File {
    /// The extent with block `index`, and its first block.
    fn around(&self, index: u64) -> Option<(u64, Extent)> {
        let (&first, extent) = self.extents.range(..=index).next_back()?;
        (index - first < extent.len).then_some((first, *extent))
    }
}

/// Counts since the mount (`total_hit_ext` and the like).
#[derive(Clone, Copy, Default)]
pub(crate) struct ExtentCounts {
    /// Extents in memory now.
    pub(crate) extents: u64,
    pub(crate) lookups: u64,
    /// Of these, those that were answered.
    pub(crate) hits: u64,
    /// Of these, those that the same extent had answered before (`read_hit_cached`).
    pub(crate) hits_cached: u64,
}

impl std::iter::Sum for ExtentCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |a, b| Self {
            extents: a.extents + b.extents,
            lookups: a.lookups + b.lookups,
            hits: a.hits + b.hits,
            hits_cached: a.hits_cached + b.hits_cached,
        })
    }
}

impl Extents {
    /// What was counted.
    pub(crate) fn counts(&self) -> ExtentCounts {
        let (hits, hits_cached) = (self.hits.load(), self.hits_cached.load());
        let lookups = hits + self.misses.load();
        ExtentCounts { extents: self.count, lookups, hits, hits_cached }
    }

    /// Whether there are none at all.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Whether there are any of file `ino`.
    pub(crate) fn has(&self, ino: Nid) -> bool {
        self.files.contains_key(&ino)
    }

    /// Where block `index` is, and how many follow it side by side.
    pub(crate) fn look_up(&self, ino: Nid, index: u64) -> Option<(BlockAddr, u64)> {
        let found = self.files.get(&ino).and_then(|file| Some((file, file.around(index)?)));
        let Some((file, (first, extent))) = found else {
            self.misses.fetch_add(1);
            return None;
        };
        self.hits.fetch_add(1);
        if file.last.load() == first {
            self.hits_cached.fetch_add(1);
        } else {
            file.last.store(first);
        }
        let skip = index - first;
        Some((extent.addr + skip as BlockAddr, extent.len - skip))
    }

    /// Where block `index` is, for one that has looked it up before.
    pub(crate) fn at(&self, ino: Nid, index: u64) -> Option<BlockAddr> {
        let (first, extent) = self.files.get(&ino)?.around(index)?;
        Some(extent.addr + (index - first) as BlockAddr)
    }

    /// Notes that `blocks` of a file lie side by side from `addr` on, and joins them with what is
    /// known next to them.
    pub(crate) fn insert(&mut self, ino: Nid, blocks: Range<u64>, addr: BlockAddr) {
        self.drop_range(ino, blocks.clone(), 1);
        let file = self.files.entry(ino).or_default();
        let (mut start, mut addr, mut len) = (blocks.start, addr, blocks.end - blocks.start);
        if let Some((&first, before)) = file.extents.range(..start).next_back()
            && first + before.len == start
            && u64::from(before.addr) + before.len == u64::from(addr)
        {
            (start, addr, len) = (first, before.addr, before.len + len);
            self.count -= 1;
        }
        if let Some(behind) = file.extents.get(&(start + len)).copied()
            && u64::from(behind.addr) == u64::from(addr) + len
        {
            file.extents.remove(&(start + len));
            self.count -= 1;
            len += behind.len;
        }
        file.extents.insert(start, Extent { len, addr });
        self.count += 1;
    }

    /// Forgets where block `index` is, for its address changes.
    pub(crate) fn drop_block(&mut self, ino: Nid, index: u64) {
        self.drop_range(ino, index..index + 1, PIECE_MIN);
    }

    /// Forgets where `blocks` are. What is left of an extent stays if it is `least` blocks long.
    fn drop_range(&mut self, ino: Nid, blocks: Range<u64>, least: u64) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        let touched = file.extents.range(..blocks.end).rev();
        let touched = touched.take_while(|(first, extent)| **first + extent.len > blocks.start);
        let touched: Vec<(u64, Extent)> =
            touched.map(|(first, extent)| (*first, *extent)).collect();
        for (first, extent) in touched {
            file.extents.remove(&first);
            self.count -= 1;
            let end = first + extent.len;
            let (front, back) =
                (blocks.start.saturating_sub(first), end.saturating_sub(blocks.end));
            if front >= least {
                file.extents.insert(first, Extent { len: front, ..extent });
                self.count += 1;
            }
            if back >= least {
                let addr = extent.addr + (blocks.end - first) as BlockAddr;
                file.extents.insert(blocks.end, Extent { len: back, addr });
                self.count += 1;
            }
        }
        if file.extents.is_empty() {
            self.files.remove(&ino);
        }
    }

    /// Forgets all of file `ino`.
    pub(crate) fn forget(&mut self, ino: Nid) {
        if let Some(file) = self.files.remove(&ino) {
            self.count -= file.extents.len() as u64;
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.count = 0;
        self.files.clear();
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    /// Whatever is noted and dropped, an answer is what a list of addresses says, and the count is
    /// right.
    #[test]
    fn extents_say_what_the_addresses_are() {
        let mut extents = Extents::default();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut addrs: Vec<BlockAddr> = (1000..2000).collect();
        let mut hits = 0;
        for _ in 0..5000 {
            let at = rng.random_range(0..1000_u64);
            match rng.random_range(0..4) {
                0 => {
                    extents.drop_block(5, at);
                    addrs[at as usize] = rng.random_range(1000..9000);
                }
                1 => {
                    let run = addrs[at as usize..].windows(2);
                    let len = 1 + run.take_while(|pair| pair[1] == pair[0] + 1).count() as u64;
                    let len = rng.random_range(1..=len);
                    extents.insert(5, at..at + len, addrs[at as usize]);
                }
                _ => {
                    if let Some((addr, len)) = extents.look_up(5, at) {
                        hits += 1;
                        let real = &addrs[at as usize..(at + len) as usize];
                        assert!(real.iter().copied().eq(addr..addr + len as BlockAddr));
                    }
                }
            }
            let all: usize = extents.files.values().map(|file| file.extents.len()).sum();
            assert_eq!(extents.counts().extents, all as u64);
        }
        assert!(hits > 500 && extents.counts().hits == hits, "{hits}");
        extents.forget(5);
        assert!(extents.is_empty() && extents.counts().extents == 0);
    }
}
