//! Which used segments have holes that a log may fill (SSR).

use super::Segments;
use crate::ondisk::sit::LogType;
use crate::ondisk::{SegNo, bits};

impl Segments {
    /// The cleaner empties the section of `segno`: until the next checkpoint, SSR leaves it alone.
    pub(crate) fn set_victim(&mut self, segno: SegNo) {
        self.victim = Some(self.sb.section_of(segno));
    }

    /// For SSR: the used segment of type `log` that has room and the fewest blocks valid at the
    /// last checkpoint. `is_current` excludes the segments of the logs.
    pub(crate) fn ssr_victim(
        &self,
        log: LogType,
        is_current: impl Fn(SegNo) -> bool,
    ) -> Option<SegNo> {
        self.with_holes(log, is_current).min_by_key(|segno| self.spent_blocks(*segno))
    }

    /// Used segments of type `log` that have room, except those that `is_current` excludes.
    pub(crate) fn with_holes(
        &self,
        log: LogType,
        is_current: impl Fn(SegNo) -> bool,
    ) -> impl Iterator<Item = SegNo> {
        (0..self.sb.segment_count_main).filter(move |&s| {
            let entry = self.entry(s);
            entry.log == log
                && entry.valid > 0
                && u32::from(entry.valid) < self.usable(s)
                && !is_current(s)
                && !self.barred.contains(&self.sb.section_of(s))
                && self.victim != Some(self.sb.section_of(s))
                && !self.busy.contains_key(&s)
                && self.next_reusable(s, 0).is_some()
        })
    }

    /// Blocks of a segment that were valid at the last checkpoint or have been written since
    /// (`ckpt_valid_blocks`).
    pub(crate) fn spent_blocks(&self, segno: SegNo) -> u32 {
        bits::count(&self.spent[segno as usize])
    }
}
