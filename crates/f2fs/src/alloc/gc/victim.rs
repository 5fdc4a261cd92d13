//! Which section to clean (`get_victim_by_default`, `get_gc_cost`).

use super::by_age::ByAge;
use crate::alloc::segments::Segments;

/// How a victim is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Fewest valid blocks. For the foreground, when space is needed now.
    Greedy,
    /// Few valid blocks that have not changed for long. For the background.
    CostBenefit,
    /// Old and empty ones among the oldest (ATGC). For the background, mounted `atgc`.
    ByAge,
}

/// Which sections a search looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search {
    /// Where it begins if it does not look at all.
    pub(crate) from: u32,
    /// How many it looks at (`max_victim_search`).
    pub(crate) most: usize,
}

impl Search {
    /// All of them.
    pub(crate) const ALL: Self = Self { from: 0, most: usize::MAX };
}

/// The best section to clean among those that gain `least_gain` blocks, except those to `skip`.
pub(crate) fn select(
    segments: &Segments,
    policy: Policy,
    least_gain: u32,
    search: Search,
    ages: &ByAge,
    skip: impl Fn(u32) -> bool,
) -> Option<u32> {
    let sections = segments.sb().main_sections();
    let gains = |&section: &u32| {
        let valid = segments.section_valid(section);
        valid > 0 && segments.section_usable(section) >= valid + least_gain && !skip(section)
    };
    let all = (0..sections).filter(gains);
    let is_part = sections as usize > search.most && all.clone().nth(search.most).is_some();
    let from = if is_part { search.from.min(sections) } else { 0 };
    let gains = (from..sections).chain(0..from).filter(gains).take(search.most);
    match policy {
        Policy::Greedy => gains.min_by_key(|&section| segments.section_valid(section)),
        Policy::CostBenefit => {
            let range = segments.age_range();
            gains.min_by_key(|&section| cost_benefit(segments, section, range))
        }
        Policy::ByAge => ages.victim(segments, gains),
    }
}

/// `get_cb_cost`: subtracted from a maximum is a number that is larger the older and emptier the
/// section is.
fn cost_benefit(segments: &Segments, section: u32, (oldest, youngest): (u64, u64)) -> u64 {
    let mtime = segments.section_mtime(section);
    let usable = u64::from(segments.section_usable(section)).max(1);
    let used = u64::from(segments.section_valid(section)) * 100 / usable;
    let span = youngest.saturating_sub(oldest);
    let age = match span {
        0 => 0,
        span => {
            let since = u128::from(mtime.clamp(oldest, youngest) - oldest);
            100 - (100 * since / u128::from(span)) as u64
        }
    };
    u64::from(u32::MAX) - 100 * 100_u64.saturating_sub(used) * age / (100 + used)
}
