//! The page cache: 4 KiB pages of files, which of them are dirty, and a memory limit.
//!
//! A file system owns its cache and locks it, so there is no lock in here. Where several threads
//! are to work on different files at once, it owns several caches that share one [`Budget`]. Pages
//! live in chunks of 64 neighbours, with one bit per page for each of present, dirty and
//! referenced. A file's chunks are in a B-tree if there are several, and the chunk of the last
//! access is tried first, so that sequential access seldom searches. A dirty page is never evicted.
//! The limit holds for the clean ones, and [`Budget::write_back`] tells the owner when to write
//! back.
//!
//! Invariants: `dirty` and `referenced` are subsets of `present`; a chunk without a page is free; a
//! file without a chunk has no entry; the dirty chunks of a file are those with a dirty page.
//! Eviction is a clock over the chunks in slot order, so the same calls always leave the same
//! pages.

mod slots;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use cores::Residence;
use drive::Block;
use rustc_hash::{FxHashMap, FxHashSet};

use self::slots::Slots;
use crate::Ino;
use crate::budget::Budget;

/// Pages in a chunk, one for each bit of a word.
const CHUNK_PAGES: u64 = 64;

/// Pages of many files. See the module's header.
///
/// ```
/// use vfs::{Block, PageCache};
///
/// let mut cache = PageCache::new(1 << 20);
/// cache.insert_dirty(7, 0, Block::from_prefix(b"new"));
/// cache.insert_clean(7, 1, Block::zeroed()); // as read from the drive
/// let dirty: Vec<u64> = cache.dirty_in(7, 0..u64::MAX).collect();
/// assert_eq!(dirty, [0]);
/// cache.mark_clean(7, 0); // its write has been submitted
/// assert_eq!((cache.budget().dirty(), cache.get(7, 0).is_some()), (0, true));
/// ```
pub struct PageCache {
    files: FxHashMap<Ino, FilePages>,
    chunks: Vec<Chunk>,
    /// Slots of `chunks` that can be used again, the last one freed first.
    free: Vec<u32>,
    /// Slot of the last access. It is only a guess: the chunk itself says to which file it belongs.
    last: u32,
    /// Next slot the clock looks at.
    hand: usize,
    dirty_inos: FxHashSet<Ino>,
    budget: Arc<Budget>,
    /// Whether it evicts for each page that is added. Otherwise its owner does, for several caches.
    alone: bool,
}

#[derive(Debug, Default)]
struct FilePages {
    /// Slot of each chunk, by page index / 64.
    chunks: Slots,
    /// The same of those with a dirty page, so that an fsync does not look at all of a large file.
    dirty_chunks: Slots,
    dirty: usize,
}

#[derive(Debug)]
struct Chunk {
    ino: Ino,
    /// First page's index / 64.
    number: u64,
    present: u64,
    dirty: u64,
    /// Set under the shared lock, too.
    referenced: AtomicU64,
    pages: [Option<Block>; CHUNK_PAGES as usize],
    residences: [Residence; CHUNK_PAGES as usize],
}

impl PageCache {
    /// An empty cache that keeps up to `limit_bytes` of clean and dirty pages.
    pub fn new(limit_bytes: usize) -> Self {
        Self { alone: true, ..Self::sharing(&Arc::new(Budget::new(limit_bytes))) }
    }

    /// An empty cache, one of several. Its owner calls [`PageCache::evict`] on any of them when
    /// they hold too much.
    pub fn sharing(budget: &Arc<Budget>) -> Self {
        Self {
            files: FxHashMap::default(),
            chunks: Vec::new(),
            free: Vec::new(),
            last: 0,
            hand: 0,
            dirty_inos: FxHashSet::default(),
            budget: budget.clone(),
            alone: false,
        }
    }

    /// What it holds, with those that share the budget, and may hold.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The page, marked as in use.
    #[inline]
    pub fn get(&mut self, ino: Ino, index: u64) -> Option<&Block> {
        let (slot, bit) = self.find(ino, index)?;
        let chunk = &mut self.chunks[slot];
        chunk.refer(bit);
        chunk.pages[bit].as_ref()
    }

    /// The page, marked as in use, under the shared lock of the cache.
    pub fn touch(&self, ino: Ino, index: u64) -> Option<&Block> {
        let chunk = &self.chunks[self.slot_of(ino, index / CHUNK_PAGES)?];
        chunk.refer(bit_of(index));
        chunk.pages[bit_of(index)].as_ref()
    }

    /// The page, without marking it.
    pub fn peek(&self, ino: Ino, index: u64) -> Option<&Block> {
        let slot = self.slot_of(ino, index / CHUNK_PAGES)?;
        self.chunks[slot].pages[bit_of(index)].as_ref()
    }

    /// Where the page is in a virtual machine's memory.
    pub fn residence(&self, ino: Ino, index: u64) -> Option<&Residence> {
        let slot = self.slot_of(ino, index / CHUNK_PAGES)?;
        Some(&self.chunks[slot].residences[bit_of(index)])
    }

    /// Puts in a page that is the same as on the drive. A page that is already there is replaced
    /// and becomes clean.
    pub fn insert_clean(&mut self, ino: Ino, index: u64, page: Block) {
        let (slot, bit) = self.insert(ino, index, page);
        self.clear_dirty(slot, 1 << bit);
    }

    /// Puts in a page the drive does not have yet.
    pub fn insert_dirty(&mut self, ino: Ino, index: u64, page: Block) {
        let (slot, bit) = self.insert(ino, index, page);
        self.chunks[slot].refer(bit);
        self.set_dirty(slot, bit);
    }

    /// The page, to be changed, if it is here; it becomes dirty. A write in flight keeps its own
    /// copy, because [`Block::make_mut`] copies a block that is shared.
    #[inline]
    pub fn dirty_mut(&mut self, ino: Ino, index: u64) -> Option<&mut Block> {
        let (slot, bit) = self.find(ino, index)?;
        self.chunks[slot].refer(bit);
        self.set_dirty(slot, bit);
        self.chunks[slot].pages[bit].as_mut()
    }

    /// Whether the page is here and dirty.
    pub fn is_dirty(&self, ino: Ino, index: u64) -> bool {
        self.slot_of(ino, index / CHUNK_PAGES)
            .is_some_and(|slot| self.chunks[slot].dirty & 1 << bit_of(index) != 0)
    }

    /// Marks the page as submitted to the drive. It may be evicted from now on, so a read must find
    /// a write that is still in flight.
    pub fn mark_clean(&mut self, ino: Ino, index: u64) {
        if let Some((slot, bit)) = self.find(ino, index) {
            self.clear_dirty(slot, 1 << bit);
        }
    }

    /// Marks the page as still to be written, for instance because a write failed. False if it is
    /// not here.
    pub fn mark_dirty(&mut self, ino: Ino, index: u64) -> bool {
        match self.find(ino, index) {
            Some((slot, bit)) => {
                self.set_dirty(slot, bit);
                true
            }
            None => false,
        }
    }

    /// Indexes of the dirty pages of `ino` in `range`, ascending.
    pub fn dirty_in(&self, ino: Ino, range: Range<u64>) -> impl Iterator<Item = u64> + '_ {
        let file = self.files.get(&ino).filter(|f| f.dirty > 0 && range.start < range.end);
        let numbers = range.start / CHUNK_PAGES..=range.end.saturating_sub(1) / CHUNK_PAGES;
        file.into_iter().flat_map(move |f| f.dirty_chunks.range(numbers.clone())).flat_map(
            move |(number, slot)| {
                let first = number * CHUNK_PAGES;
                Bits(self.chunks[slot as usize].dirty & mask(number, &range))
                    .map(move |bit| first + bit as u64)
            },
        )
    }

    /// The first dirty page of `ino` at or behind `from`.
    pub fn next_dirty(&self, ino: Ino, from: u64) -> Option<u64> {
        let number = from / CHUNK_PAGES;
        if let Some(slot) = self.last_used(ino, number) {
            let dirty = self.chunks[slot].dirty & u64::MAX << bit_of(from);
            if let Some(bit) = Bits(dirty).next() {
                return Some(number * CHUNK_PAGES + bit as u64);
            }
        }
        self.dirty_in(ino, from..u64::MAX).next()
    }

    /// The last dirty page of `ino`.
    pub fn last_dirty(&self, ino: Ino) -> Option<u64> {
        let (number, slot) = self.files.get(&ino)?.dirty_chunks.range(0..=u64::MAX).next_back()?;
        let bit = self.chunks[slot as usize].dirty.checked_ilog2()?;
        Some(number * CHUNK_PAGES + u64::from(bit))
    }

    /// Dirty pages of `ino`.
    pub fn dirty_count(&self, ino: Ino) -> usize {
        self.files.get(&ino).map_or(0, |f| f.dirty)
    }

    /// Files that have a dirty page, ascending.
    pub fn dirty_inos(&self) -> impl Iterator<Item = Ino> + use<> {
        let mut inos: Vec<Ino> = self.dirty_inos.iter().copied().collect();
        inos.sort_unstable();
        inos.into_iter()
    }

    /// Drops all pages of `ino` from `from_index` on, dirty ones too.
    pub fn truncate(&mut self, ino: Ino, from_index: u64) {
        self.drop_range(ino, from_index..u64::MAX);
    }

    /// Drops the pages of `ino` in `range`, dirty ones too.
    pub fn drop_range(&mut self, ino: Ino, range: Range<u64>) {
        if range.start >= range.end {
            return;
        }
        let numbers = range.start / CHUNK_PAGES..=(range.end - 1) / CHUNK_PAGES;
        let Some(file) = self.files.get(&ino) else { return };
        let hit: Vec<(u64, u32)> = file.chunks.range(numbers).collect();
        for (number, slot) in hit {
            self.drop_pages(slot as usize, mask(number, &range));
        }
    }

    /// Takes one page out.
    pub fn remove(&mut self, ino: Ino, index: u64) -> Option<Block> {
        let (slot, bit) = self.find(ino, index)?;
        let page = self.chunks[slot].pages[bit].clone();
        self.drop_pages(slot, 1 << bit);
        page
    }

    /// Drops every page of `ino`.
    pub fn forget(&mut self, ino: Ino) {
        self.truncate(ino, 0);
    }

    #[inline]
    fn slot_of(&self, ino: Ino, number: u64) -> Option<usize> {
        let look_up = || Some(self.files.get(&ino)?.chunks.get(number)? as usize);
        self.last_used(ino, number).or_else(look_up)
    }

    /// The slot of this chunk, if it is the one that was used last.
    #[inline]
    fn last_used(&self, ino: Ino, number: u64) -> Option<usize> {
        let slot = self.last as usize;
        let chunk = self.chunks.get(slot)?;
        (chunk.ino == ino && chunk.number == number && chunk.present != 0).then_some(slot)
    }

    /// Slot and bit of a page that is present.
    #[inline]
    fn find(&mut self, ino: Ino, index: u64) -> Option<(usize, usize)> {
        let slot = self.slot_of(ino, index / CHUNK_PAGES)?;
        self.last = slot as u32;
        let bit = bit_of(index);
        (self.chunks[slot].present & 1 << bit != 0).then_some((slot, bit))
    }

    fn insert(&mut self, ino: Ino, index: u64, page: Block) -> (usize, usize) {
        let bit = bit_of(index);
        if let Some((slot, bit)) = self.find(ino, index) {
            self.chunks[slot].pages[bit] = Some(page);
            return (slot, bit);
        }
        while self.alone && self.budget.excess(1) > 0 {
            self.evict(self.budget.excess(1));
        }
        let slot = self.chunk_for(ino, index / CHUNK_PAGES);
        let chunk = &mut self.chunks[slot];
        chunk.present |= 1 << bit;
        chunk.pages[bit] = Some(page);
        chunk.residences[bit].renew();
        self.budget.add_pages(1);
        (slot, bit)
    }

    fn chunk_for(&mut self, ino: Ino, number: u64) -> usize {
        if let Some(slot) = self.slot_of(ino, number) {
            return slot;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.chunks.push(Chunk::empty());
            (self.chunks.len() - 1) as u32
        });
        let chunk = &mut self.chunks[slot as usize];
        (chunk.ino, chunk.number) = (ino, number);
        self.files.entry(ino).or_default().chunks.insert(number, slot);
        self.last = slot;
        slot as usize
    }

    fn set_dirty(&mut self, slot: usize, bit: usize) {
        let chunk = &mut self.chunks[slot];
        if chunk.dirty & 1 << bit != 0 {
            return;
        }
        let was_clean = chunk.dirty == 0;
        chunk.dirty |= 1 << bit;
        self.budget.add_dirty();
        let (ino, number) = (chunk.ino, chunk.number);
        if let Some(file) = self.files.get_mut(&ino) {
            if was_clean {
                file.dirty_chunks.insert(number, slot as u32);
            }
            file.dirty += 1;
            if file.dirty == 1 {
                self.dirty_inos.insert(ino);
            }
        }
    }

    fn clear_dirty(&mut self, slot: usize, bits: u64) {
        let chunk = &mut self.chunks[slot];
        let cleared = (chunk.dirty & bits).count_ones() as usize;
        if cleared == 0 {
            return;
        }
        chunk.dirty &= !bits;
        self.budget.remove_dirty(cleared);
        let (ino, number, is_clean) = (chunk.ino, chunk.number, chunk.dirty == 0);
        if let Some(file) = self.files.get_mut(&ino) {
            if is_clean {
                file.dirty_chunks.remove(number);
            }
            file.dirty -= cleared;
            if file.dirty == 0 {
                self.dirty_inos.remove(&ino);
            }
        }
    }

    /// Drops the pages of one chunk that `bits` select, and the chunk with its last page.
    fn drop_pages(&mut self, slot: usize, bits: u64) {
        self.clear_dirty(slot, bits);
        let chunk = &mut self.chunks[slot];
        let gone = chunk.present & bits;
        for bit in Bits(gone) {
            chunk.pages[bit] = None;
        }
        chunk.present &= !gone;
        *chunk.referenced.get_mut() &= !gone;
        if gone != 0 {
            self.budget.remove_pages(gone.count_ones() as usize);
        }
        if chunk.present != 0 || gone == 0 {
            return;
        }
        let (ino, number) = (chunk.ino, chunk.number);
        self.free.push(slot as u32);
        if let Some(file) = self.files.get_mut(&ino) {
            file.chunks.remove(number);
            if file.chunks.is_empty() {
                self.files.remove(&ino);
            }
        }
    }

    /// Moves the clock's hand over one chunk, and evicts up to `wanted` clean pages there that were
    /// not used since it was last there. False at the end of a round.
    pub fn evict(&mut self, wanted: usize) -> bool {
        let Some(chunk) = self.chunks.get_mut(self.hand) else {
            self.hand = 0;
            return false;
        };
        let victims = chunk.present & !chunk.dirty & !*chunk.referenced.get_mut();
        let taken = lowest(victims, wanted);
        let slot = self.hand;
        if taken == victims {
            *chunk.referenced.get_mut() = 0;
            self.hand += 1;
        }
        if taken != 0 {
            self.drop_pages(slot, taken);
        }
        true
    }
}

impl Chunk {
    fn refer(&self, bit: usize) {
        // Most often it is set: others need not lose their copy of the cache line.
        if self.referenced.load(Relaxed) >> bit & 1 == 0 {
            self.referenced.fetch_or(1 << bit, Relaxed);
        }
    }

    fn empty() -> Self {
        Self {
            ino: 0,
            number: 0,
            present: 0,
            dirty: 0,
            referenced: AtomicU64::new(0),
            pages: [const { None }; CHUNK_PAGES as usize],
            residences: [const { Residence::new() }; CHUNK_PAGES as usize],
        }
    }
}

/// The numbers of the bits set in a word, ascending.
struct Bits(u64);

impl Iterator for Bits {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(bit)
    }
}

fn bit_of(index: u64) -> usize {
    (index % CHUNK_PAGES) as usize
}

/// The bits of chunk `number` that lie in `range`, which overlaps the chunk.
fn mask(number: u64, range: &Range<u64>) -> u64 {
    let first = number * CHUNK_PAGES;
    let low = range.start.saturating_sub(first);
    let high = (range.end - first).min(CHUNK_PAGES);
    (u64::MAX << low) & (u64::MAX >> (CHUNK_PAGES - high))
}

/// The lowest `count` bits set in `bits`.
fn lowest(bits: u64, count: usize) -> u64 {
    let mut rest = bits;
    for _ in 0..count.min(bits.count_ones() as usize) {
        rest &= rest - 1;
    }
    bits & !rest
}
