//! How much memory page caches may use together, and when it is time to write back.

use cores::Line;
use drive::BLOCK_SIZE;

/// Share of the limit, in percent, that may be dirty before [`Budget::write_back`] says so.
const DIRTY_PERCENT: usize = 50;

/// When dirty pages have to be written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteBack {
    /// Not yet.
    Later,
    /// A background thread should begin.
    Soon,
    /// Before more become dirty.
    Now,
}

/// How many pages one cache holds, or several together, and may hold.
pub struct Budget {
    pages: Line,
    dirty: Line,
    pages_max: usize,
    dirty_max: usize,
}

impl Budget {
    /// For up to `limit_bytes` of clean and dirty pages.
    pub fn new(limit_bytes: usize) -> Self {
        let pages_max = (limit_bytes / BLOCK_SIZE).max(1);
        let dirty_max = pages_max / 100 * DIRTY_PERCENT + pages_max % 100 * DIRTY_PERCENT / 100;
        Self { pages: Line::new(0), dirty: Line::new(0), pages_max, dirty_max }
    }

    /// All pages.
    pub fn pages(&self) -> usize {
        self.pages.load() as usize
    }

    /// Dirty pages.
    pub fn dirty(&self) -> usize {
        self.dirty.load() as usize
    }

    /// How many pages still fit.
    pub fn room(&self) -> usize {
        self.pages_max.saturating_sub(self.pages())
    }

    /// How many pages to evict at a time, so that callers that cannot evict find room, too.
    pub fn batch(&self) -> usize {
        (self.pages_max / 64).clamp(1, 256)
    }

    /// How many clean pages to evict, so that `coming` more fit; fewer if only dirty ones are left.
    pub fn excess(&self, coming: usize) -> usize {
        let pages = self.pages();
        match (pages + coming).saturating_sub(self.pages_max) {
            0 => 0,
            wanted => wanted.min(pages.saturating_sub(self.dirty())),
        }
    }

    /// Whether it is time to write back: now, if more than half of the limit is dirty.
    pub fn write_back(&self) -> WriteBack {
        match self.dirty() {
            dirty if dirty > self.dirty_max => WriteBack::Now,
            dirty if dirty > self.dirty_max / 2 => WriteBack::Soon,
            _ => WriteBack::Later,
        }
    }

    /// Counts pages that came in.
    pub(crate) fn add_pages(&self, count: usize) {
        self.pages.fetch_add(count as u64);
    }

    /// Counts pages that were dropped.
    pub(crate) fn remove_pages(&self, count: usize) {
        self.pages.fetch_add((count as u64).wrapping_neg());
    }

    /// Counts a page that became dirty.
    pub(crate) fn add_dirty(&self) {
        self.dirty.fetch_add(1);
    }

    /// Counts pages that became clean.
    pub(crate) fn remove_dirty(&self, count: usize) {
        self.dirty.fetch_add((count as u64).wrapping_neg());
    }
}
