//! Age-threshold cleaning (`atgc`): young blocks may soon be overwritten anyway, so only old
//! sections are cleaned, and a moved block goes to a segment of blocks of about its age
//! (`add_victim_entry`, `atgc_lookup_victim`, `atssr_lookup_victim`).
//!
//! - Candidates are at least `atgc_age_threshold` seconds older than the youngest section.
//! - Of these the oldest `atgc_candidate_ratio` percent are compared, but at least
//!   `atgc_candidate_count`, and the one with the best sum of age and free blocks is cleaned. In
//!   the sum age counts `atgc_age_weight` percent.
//! - A moved block goes to the fullest one of as many segments on either side of its own in age, so
//!   that few segments take many blocks.

use std::cmp::Reverse;

use crate::alloc::segments::Segments;
use crate::mount::attributes::Knobs;
use crate::ondisk::SegNo;

/// Parts of one in which age and free blocks are counted (`DEFAULT_ACCURACY_CLASS`).
const PARTS: u128 = 10_000;

/// The rules, as the attributes set them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByAge {
    threshold: u64,
    ratio: u64,
    count: u64,
    weight: u64,
}

/// Candidates, oldest first.
struct Candidates {
    /// With the seconds of each.
    by_age: Vec<(u64, u32)>,
    /// The seconds of the oldest and the youngest before the threshold.
    range: (u64, u64),
    /// How many are compared.
    most: usize,
}

impl ByAge {
    /// The rules on a volume that is `elapsed` seconds old. If that is less than the threshold,
    /// there is none (`f2fs_get_victim` retries).
    pub(crate) fn new(knobs: &Knobs, elapsed: u64) -> Self {
        let threshold = knobs.atgc_age_threshold;
        Self {
            threshold: if elapsed < threshold { 0 } else { threshold },
            ratio: knobs.atgc_candidate_ratio,
            count: knobs.atgc_candidate_count,
            weight: knobs.atgc_age_weight,
        }
    }

    fn candidates(&self, all: impl Iterator<Item = (u64, u32)>) -> Option<Candidates> {
        let mut by_age: Vec<_> = all.collect();
        by_age.sort_unstable();
        let range = (by_age.first()?.0, by_age.last()?.0);
        by_age.retain(|(mtime, _)| range.1 - mtime >= self.threshold);
        let share = self.ratio * by_age.len() as u64 / 100;
        let most = usize::try_from(self.count.max(share)).unwrap_or(usize::MAX);
        Some(Candidates { by_age, range, most })
    }

    /// The section to clean among `sections`, all of which would gain something.
    pub(super) fn victim(
        &self,
        segments: &Segments,
        sections: impl Iterator<Item = u32>,
    ) -> Option<u32> {
        let aged = sections.map(|section| (segments.section_mtime(section), section));
        let Candidates { by_age, range, most } = self.candidates(aged)?;
        let end = u128::from(range.1) + 1;
        let span = end - u128::from(range.0);
        let worth = |&(mtime, section): &(u64, u32)| {
            let usable = segments.section_usable(section);
            let free = u128::from(usable - segments.section_valid(section));
            let age = PARTS * (end - u128::from(mtime)) / span * u128::from(self.weight);
            let free = PARTS * free / u128::from(usable) * u128::from(100 - self.weight);
            (age + free, age)
        };
        // The first of the best is the oldest.
        by_age
            .iter()
            .take(most)
            .min_by_key(|aged| Reverse(worth(aged)))
            .map(|(_, section)| *section)
    }

    /// The segment, among `holes`, that takes blocks of a segment last changed at `mtime`.
    pub(crate) fn destination(
        &self,
        segments: &Segments,
        mtime: u64,
        holes: impl Iterator<Item = SegNo>,
    ) -> Option<SegNo> {
        let age_of = |segno| (segments.section_mtime(segments.sb().section_of(segno)), segno);
        let Candidates { by_age, most, .. } = self.candidates(holes.map(age_of))?;
        let (older, younger) = by_age.split_at(by_age.partition_point(|(age, _)| *age < mtime));
        let near = older.iter().rev().take(most).chain(younger.iter().take(most));
        let best = near.min_by_key(|(age, segno)| {
            (Reverse(segments.spent_blocks(*segno)), age.abs_diff(mtime))
        });
        best.map(|(_, segno)| *segno)
    }
}
