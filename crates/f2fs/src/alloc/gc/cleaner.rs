//! How far the cleaner is, and what it cleans next.

use std::collections::BTreeSet;
use std::ops::Range;

use super::Policy;
use super::room::Shortage;
use crate::error::{Error, is_unreadable};
use crate::mount::engine::{Caller, Engine};
use crate::ondisk::{BLOCKS_PER_SEGMENT, SegNo};

/// How far the foreground cleaner is.
#[derive(Default)]
pub(crate) struct Cleaner {
    /// Segments left in the section that it is cleaning.
    pub(super) left: Range<SegNo>,
    /// The block of the first of these where it goes on.
    from: usize,
    /// How many blocks had been written when an operation last cleaned.
    pub(super) written: u64,
    /// Nothing is worth cleaning until this many blocks have become invalid.
    rests_until: u64,
    /// Cleaned sections of nodes. Their nodes move with the next checkpoint, which then frees the
    /// section.
    pub(super) moving: BTreeSet<u32>,
    /// Segments left in the section that is being cleaned in the background (`next_victim_seg`).
    pub(super) left_in_background: Range<SegNo>,
    /// The section behind the last victim, where a search of some sections begins (`last_victim`).
    pub(super) after_victim: u32,
}

impl Cleaner {
    /// Cleans no more of `section`, which has these segments.
    pub(super) fn leave(&mut self, section: u32, segments: &Range<SegNo>) {
        if segments.contains(&self.left.start) {
            (self.left, self.from) = (0..0, 0);
        }
        if segments.contains(&self.left_in_background.start) {
            self.left_in_background = 0..0;
        }
        self.moving.remove(&section);
    }

    /// Whether `section` needs no more cleaning before the next checkpoint.
    pub(super) fn is_done_with(&self, section: u32) -> bool {
        self.moving.contains(&section)
    }

    /// To be called when a checkpoint is durable: moved blocks are then in their new place.
    pub(crate) fn settle(&mut self) {
        self.moving.clear();
    }
}

impl Engine {
    /// The segment to clean a piece of, and the block where to go on. `None` if none is worth it.
    pub(super) fn next_piece(&mut self, shortage: Shortage) -> Option<(SegNo, usize)> {
        loop {
            let Some(segno) = self.cleaner.left.clone().next() else {
                if !self.choose_victim(shortage) {
                    return None;
                }
                continue;
            };
            if self.segments.get_mut().entry(segno).valid > 0
                && !self.logs.get_mut().is_current(segno)
            {
                return Some((segno, self.cleaner.from));
            }
            self.cleaner.left.next();
            self.cleaner.from = 0;
        }
    }

    /// The cleaner has moved what is in front of block `next` of `segno`.
    pub(super) fn end_piece(&mut self, segno: SegNo, next: usize) {
        self.cleaner.from = next;
        if next == BLOCKS_PER_SEGMENT as usize {
            self.cleaner.left.next();
            self.cleaner.from = 0;
            if self.segments.get_mut().entry(segno).log.is_node() {
                self.cleaner.moving.insert(self.sb.section_of(segno));
            }
        }
    }

    /// Chooses what to clean next. False if nothing is worth it.
    fn choose_victim(&mut self, shortage: Shortage) -> bool {
        if self.segments.get_mut().invalidated() < self.cleaner.rests_until {
            return false;
        }
        let least = if shortage == Shortage::Now { 1 } else { (self.mean_gain() / 2).max(1) };
        let section = self.begin_cleaning(Policy::Greedy, least, Caller::Foreground);
        match section {
            Some(section) => self.cleaner.left = self.sb.segments_of(section),
            None => {
                self.cleaner.rests_until = self.segments.get_mut().invalidated() + u64::from(least);
            }
        }
        section.is_some()
    }

    /// How many blocks cleaning a section in use gains on average.
    fn mean_gain(&mut self) -> u32 {
        let per_section = u64::from(self.segments.get_mut().section_capacity());
        let free = u64::from(self.segments.get_mut().free_sections());
        let used = u64::from(self.sb.main_sections()) - free;
        let invalid =
            self.segments.get_mut().usable_blocks() - self.segments.get_mut().valid_blocks();
        (invalid.saturating_sub(free * per_section) / used.max(1)) as u32
    }

    /// If `error`, met while the blocks of `segno` were looked for, says that something cannot be
    /// read or is corrupt, its section is left as it is until the next mount: otherwise the cleaner
    /// would meet this again and again, and all who wait for it.
    pub(super) fn leave_if_damaged(&mut self, segno: SegNo, error: &Error) {
        if !is_unreadable(error) {
            return;
        }
        self.note(error);
        let section = self.sb.section_of(segno);
        self.report(&format!("cleaning of section {section}: {error}; it is left as it is"));
        self.damaged_sections.insert(section);
        self.cleaner.leave(section, &self.sb.segments_of(section));
    }

    /// Whether the section of `segno` has been left.
    pub(super) fn is_left(&self, segno: SegNo) -> bool {
        self.damaged_sections.contains(&self.sb.section_of(segno))
    }
}
