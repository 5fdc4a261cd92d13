//! Which section to clean (`get_victim_by_default`, `get_gc_cost`).

use crate::segments::Segments;

/// How a victim is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Fewest valid blocks: foreground, when space is needed now.
    Greedy,
    /// Few valid blocks that have not changed for long: background.
    CostBenefit,
}

/// The best section to clean of those less than `valid_max_percent` valid, leaving out those to
/// `skip`; `None` if cleaning would free nothing.
pub(crate) fn select(
    segments: &Segments,
    policy: Policy,
    valid_max_percent: u32,
    skip: impl Fn(u32) -> bool,
) -> Option<u32> {
    let sb = segments.sb();
    let ages = segments.age_range();
    (0..sb.main_sections())
        .filter(|&section| {
            let valid = u64::from(segments.section_valid(section));
            let usable = u64::from(segments.section_usable(section));
            valid > 0 && valid * 100 < usable * u64::from(valid_max_percent) && !skip(section)
        })
        .min_by_key(|&section| match policy {
            Policy::Greedy => u64::from(segments.section_valid(section)),
            Policy::CostBenefit => cost_benefit(segments, section, ages),
        })
}

/// `get_cb_cost`: the larger the older and emptier, subtracted from a maximum.
fn cost_benefit(segments: &Segments, section: u32, (oldest, youngest): (u64, u64)) -> u64 {
    let sb = segments.sb();
    let first = sb.section_start(section);
    let segs = first..first + sb.segs_per_sec;
    // Times come from the drive, and the sum of any may be more than a word holds.
    let times: u128 = segs.map(|s| u128::from(segments.entry(s).mtime)).sum();
    let mtime = (times / u128::from(sb.segs_per_sec)) as u64;
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
