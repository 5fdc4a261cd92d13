//! Free inode numbers. Memory only, as for blocks.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use cores::{Mutex, Rank, slot};
use vfs::Ino;

const BITS: u64 = u64::BITS as u64;

/// Which inodes are free.
pub(crate) struct Numbers {
    range: Range<Ino>,
    parts: Box<[Part]>,
    /// Words of a part's bitmap.
    part_words: usize,
    free: AtomicU64,
}

/// Aligned so that cores do not share lines.
#[repr(align(128))]
struct Part {
    /// A bit for each free number, and the first word that may have one. Protects this part only.
    bits: Mutex<(Vec<u64>, usize)>,
}

impl Numbers {
    /// All of `range` is free.
    pub(crate) fn new(range: Range<Ino>, cores: u32) -> Self {
        let words = (range.end - range.start).div_ceil(BITS) as usize;
        let part_words = words.div_ceil(cores as usize).max(1);
        let parts = words.div_ceil(part_words);
        let part = |n: usize| {
            let len = part_words.min(words - n * part_words);
            let mut bits = vec![u64::MAX; len];
            let end =
                ((n * part_words + len) as u64 * BITS).saturating_sub(range.end - range.start);
            if let Some(last) = bits.last_mut() {
                *last >>= end;
            }
            Part { bits: Mutex::ranked(Rank::Space, "pmfs inode numbers", (bits, 0)) }
        };
        let parts = (0..parts).map(part).collect();
        let free = AtomicU64::new(range.end - range.start);
        Self { range, parts, part_words, free }
    }

    pub(crate) fn free(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    pub(crate) fn total(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Marks a number as used.
    pub(crate) fn remove(&self, ino: Ino) {
        let (part, word, bit) = self.place(ino);
        let mut bits = self.parts[part].bits.lock();
        if bits.0[word] & bit != 0 {
            bits.0[word] &= !bit;
            self.free.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Takes a number of the caller's core, or of another.
    pub(crate) fn take(&self) -> Option<Ino> {
        let own = slot() % self.parts.len();
        (own..self.parts.len()).chain(0..own).find_map(|number| {
            let mut bits = self.parts[number].bits.lock();
            let (words, first) = &mut *bits;
            let word = (*first..words.len()).find(|&word| words[word] != 0);
            *first = word.unwrap_or(words.len());
            let word = word?;
            let bit = words[word].trailing_zeros();
            words[word] &= !(1 << bit);
            self.free.fetch_sub(1, Ordering::Relaxed);
            let word = (number * self.part_words + word) as u64;
            Some(self.range.start + word * BITS + u64::from(bit))
        })
    }

    /// Gives a number back.
    pub(crate) fn give(&self, ino: Ino) {
        let (part, word, bit) = self.place(ino);
        let mut bits = self.parts[part].bits.lock();
        bits.0[word] |= bit;
        bits.1 = bits.1.min(word);
        self.free.fetch_add(1, Ordering::Relaxed);
    }

    fn place(&self, ino: Ino) -> (usize, usize, u64) {
        let index = ino - self.range.start;
        let word = (index / BITS) as usize;
        (word / self.part_words, word % self.part_words, 1 << (index % BITS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_once() {
        let numbers = Numbers::new(1..1000, 3);
        numbers.remove(1);
        numbers.remove(1);
        let mut all: Vec<_> = std::iter::from_fn(|| numbers.take()).collect();
        all.sort_unstable();
        assert_eq!(all, (2..1000).collect::<Vec<_>>());
        assert_eq!(numbers.free(), 0);
        numbers.give(500);
        assert_eq!((numbers.take(), numbers.take()), (Some(500), None));
    }
}
