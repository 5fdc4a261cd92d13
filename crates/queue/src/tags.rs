//! The tags of one hardware queue, handed out as Linux's `sbitmap_queue` does (lib/sbitmap.c).
//!
//! Tags lie in words on cache lines of their own. A core starts at the word of the tag that it gave
//! back last, so cores share a word only if there are more of them than words, or if their first
//! words, which are chosen by hash, happen to be the same. Since Linux 5.0, a tag that is given
//! back is noted on a second line of its word and becomes free again when the word has no other
//! (`cleared`): giving back does not take the first line from a core that is looking for a tag.

use std::sync::atomic::{AtomicU32, Ordering};

use cores::{Condvar, Line, Mutex, Rank};

use crate::options::Linux;

/// Bits of a word, as a power of two, in a set that is large enough.
const WORD_SHIFT: u32 = 6;

struct Word {
    taken: Line,
    cleared: Line,
    /// Held while `cleared` is moved to `taken`. Protects no data of its own.
    swap: Mutex<()>,
    /// The bits that are tags.
    mask: u64,
}

/// Numbers below a depth, each with one user at a time.
pub(crate) struct TagSet {
    words: Box<[Word]>,
    shift: u32,
    depth: u32,
    linux: Linux,
    /// Where each core looks first.
    hints: Box<[AtomicU32]>,
    /// How many sleep for a tag (`ws_active`).
    waiting: Line,
    /// Orders going to sleep and waking. Innermost but for `swap`: nothing else is taken within.
    sleep: Mutex<()>,
    freed: Condvar,
}

impl TagSet {
    /// The tags `0..depth` of hardware queue `queue`.
    pub(crate) fn new(depth: u16, queue: u16, linux: Linux) -> Self {
        let depth = u32::from(depth.max(1));
        // `sbitmap_init_node`: a small set is spread over at least four lines.
        let mut shift = WORD_SHIFT;
        while shift > 0 && depth >= 4 && 4 << shift > depth {
            shift -= 1;
        }
        let word = |first: u32| Word {
            taken: Line::new(0),
            cleared: Line::new(0),
            swap: Mutex::ranked(Rank::Tags, "tag word", ()).keyed(1),
            mask: u64::MAX >> (64 - (depth - first).min(1 << shift)),
        };
        let hint = |core| cores::mix(u64::from(queue) << 32 | core as u64) % u64::from(depth);
        Self {
            words: (0..depth).step_by(1 << shift).map(word).collect(),
            shift,
            depth,
            linux,
            hints: (0..cores::core_count()).map(|core| AtomicU32::new(hint(core) as u32)).collect(),
            waiting: Line::new(0),
            sleep: Mutex::ranked(Rank::Tags, "tags", ()),
            freed: Condvar::new(),
        }
    }

    /// A free tag, if the caller finds one (`sbitmap_queue_get`).
    pub(crate) fn get(&self) -> Option<u16> {
        let hint = self.hint();
        let first = hint.load(Ordering::Relaxed);
        let from = (first >> self.shift) as usize;
        for index in (from..self.words.len()).chain(0..from) {
            let start = match self.linux {
                Linux::V4 if index == from => first & ((1 << self.shift) - 1),
                _ => 0,
            };
            if let Some(bit) = self.words[index].get(start) {
                let tag = ((index as u32) << self.shift) + bit;
                if tag == first {
                    hint.store((tag + 1) % self.depth, Ordering::Relaxed);
                }
                return u16::try_from(tag).ok();
            }
        }
        hint.store(0, Ordering::Relaxed);
        None
    }

    /// A free tag. Sleeps until another thread gives one back, if there is none.
    pub(crate) fn get_or_sleep(&self) -> u16 {
        if let Some(tag) = self.get() {
            return tag;
        }
        let mut guard = self.sleep.lock();
        self.waiting.fetch_add(1);
        // A thread that frees a tag from here on sees that there is a waiter.
        let tag = loop {
            match self.get() {
                Some(tag) => break tag,
                None => self.freed.wait(&mut guard),
            }
        };
        self.waiting.fetch_add(u64::MAX);
        tag
    }

    /// Gives `tag` back (`sbitmap_queue_clear`).
    pub(crate) fn put(&self, tag: u16) {
        let tag = u32::from(tag);
        let word = &self.words[(tag >> self.shift) as usize];
        let bit = 1 << (tag & ((1 << self.shift) - 1));
        match self.linux {
            Linux::V6 => word.cleared.fetch_or(bit),
            Linux::V4 => word.taken.fetch_and(!bit),
        };
        if self.waiting.load() > 0 {
            let _guard = self.sleep.lock();
            self.freed.notify_one();
        }
        self.hint().store(tag, Ordering::Relaxed);
    }

    fn hint(&self) -> &AtomicU32 {
        &self.hints[cores::current_core() % self.hints.len()]
    }
}

impl Word {
    /// A free bit, if there is one: the first from `start` on, or else the first of all.
    fn get(&self, start: u32) -> Option<u32> {
        loop {
            let free = !self.taken.load() & self.mask;
            if free == 0 {
                if self.reclaim() {
                    continue;
                }
                return None;
            }
            let late = free & u64::MAX << start;
            let bit = if late != 0 { late } else { free }.trailing_zeros();
            if self.taken.fetch_or(1 << bit) & 1 << bit == 0 {
                return Some(bit);
            }
        }
    }

    /// Frees what was given back; false if the word has nothing free (`sbitmap_deferred_clear`).
    #[cold]
    fn reclaim(&self) -> bool {
        let _guard = self.swap.lock();
        if self.cleared.load() == 0 {
            // Another thread may have done it while this one waited for the lock. Linux before
            // 6.11 did not look, and could sleep beside free tags.
            return !self.taken.load() & self.mask != 0;
        }
        let cleared = self.cleared.fetch_and(0);
        self.taken.fetch_and(!cleared);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cores::{Machine, Profile};

    use super::*;

    #[test]
    fn every_tag_is_given_out_once() {
        let depths = [1, 3, 4, 31, 32, 64, 100, 1024, 4096];
        for (depth, linux) in depths.into_iter().flat_map(|d| [(d, Linux::V4), (d, Linux::V6)]) {
            let tags = TagSet::new(depth, 0, linux);
            let mut all: Vec<u16> = std::iter::from_fn(|| tags.get()).collect();
            all.sort_unstable();
            assert!(all.iter().copied().eq(0..depth), "{depth}: {all:?}");
            tags.put(depth / 2);
            assert_eq!((tags.get(), tags.get()), (Some(depth / 2), None), "{depth}");
        }
    }

    /// Whether a run of the preempted machine keeps every tag with one user and loses no wake-up.
    fn shares(tags: u16, linux: Linux, seed: u64) -> bool {
        let profile = Profile::named("xeon-4116").expect("profile");
        let machine = Machine::simulated(&profile, seed).preempted();
        let run = machine.run(|| {
            let set = Arc::new(TagSet::new(tags, 0, linux));
            let users: Arc<Vec<AtomicU32>> = Arc::new((0..tags).map(|_| 0.into()).collect());
            let threads = (0..8).map(|core| {
                let (set, users) = (set.clone(), users.clone());
                cores::spawn("user", Some(core), move || {
                    (0..40).all(|n| {
                        let tag = set.get_or_sleep();
                        let user = &users[usize::from(tag)];
                        let alone = user.fetch_add(1, Ordering::Relaxed) == 0;
                        cores::spend(n * 7 % 100);
                        user.fetch_sub(1, Ordering::Relaxed);
                        set.put(tag);
                        alone
                    })
                })
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().all(cores::JoinHandle::join)
        });
        run.unwrap_or(false)
    }

    #[test]
    fn threads_share_few_tags_in_every_schedule() {
        explore(0..200);
    }

    #[test]
    #[ignore = "long: make test-all"]
    fn many_schedules() {
        explore(200..1450);
    }

    /// Eight schedules for each seed.
    fn explore(seeds: std::ops::Range<u64>) {
        for seed in seeds {
            for tags in [1, 2, 5, 8] {
                for linux in [Linux::V4, Linux::V6] {
                    assert!(shares(tags, linux, seed), "{tags} tags, {linux:?}, seed {seed}");
                }
            }
        }
    }
}
