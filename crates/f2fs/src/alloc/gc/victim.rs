//! Which section to clean (`get_victim_by_default`, `get_gc_cost`).

use crate::alloc::segments::Segments;

/// How a victim is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Fewest valid blocks. For the foreground, when space is needed now.
    Greedy,
    /// Few valid blocks that have not changed for long. For the background.
    CostBenefit,
}

/// The best section to clean among those that gain `least_gain` blocks, except those to `skip`.
pub(crate) fn select(
    segments: &Segments,
    policy: Policy,
    least_gain: u32,
    skip: impl Fn(u32) -> bool,
) -> Option<u32> {
    let gains = (0..segments.sb().main_sections()).filter(|&section| {
        let valid = segments.section_valid(section);
        valid > 0 && segments.section_usable(section) >= valid + least_gain && !skip(section)
    });
    match policy {
        Policy::Greedy => gains.min_by_key(|&section| segments.section_valid(section)),
        Policy::CostBenefit => {
            let ages = segments.age_range();
            gains.min_by_key(|&section| cost_benefit(segments, section, ages))
        }
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
