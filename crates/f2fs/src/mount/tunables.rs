//! What can be set on a mounted volume, under the names in `/sys/fs/f2fs/<disk>/` and with the
//! kernel's defaults (Documentation/ABI/testing/sysfs-fs-f2fs).

use std::ops::RangeInclusive;

use serde::Serialize;
use vfs::attributes::Attribute;

use crate::alloc::gc::Policy;
use crate::mount::limits::{IpuPolicy, Limits};
use crate::mount::options::MountOptions;

/// Writable attributes. Times are in milliseconds if their name ends in `sleep_time`, else in
/// seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tunables {
    /// Shortest sleep of the gc thread.
    pub gc_min_sleep_time: u64,
    /// Longest sleep of the gc thread while there is something to do.
    pub gc_max_sleep_time: u64,
    /// Its sleep when there is nothing to clean.
    pub gc_no_gc_sleep_time: u64,
    /// Its sleep in the urgent modes.
    pub gc_urgent_sleep_time: u64,
    /// Mode of the gc thread, as set by `gc_urgent` and `gc_idle`.
    #[serde(rename = "gc_urgent")]
    pub gc_mode: GcMode,
    /// Rounds left of an urgent or idle mode; 0 means no limit.
    pub gc_remaining_trials: u64,
    /// How long the volume must have been without requests to count as idle.
    pub gc_idle_interval: u64,
    /// Zoned: no cleaning while more than this share of the sections is free.
    pub gc_no_zoned_gc_percent: u32,
    /// Zoned: hurry while less than this share of the sections is free.
    pub gc_boost_zoned_gc_percent: u32,
    /// Longest time between checkpoints.
    pub cp_interval: u64,
    /// Those that the engine reads with the volume locked.
    #[serde(flatten)]
    pub limits: Limits,
}

/// The most failed moves that an inode can count (`MAX_GC_FAILED_PINNED_FILES`).
pub(crate) const MAX_PIN_FAILURES: u32 = 0xffff;

/// `gc_urgent` and `gc_idle`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum GcMode {
    /// Cost-benefit, when idle.
    #[default]
    #[serde(rename = "GC_NORMAL")]
    Normal,
    /// Cost-benefit, when idle; chosen by hand.
    #[serde(rename = "GC_IDLE_CB")]
    IdleCb,
    /// Greedy, when idle.
    #[serde(rename = "GC_IDLE_GREEDY")]
    IdleGreedy,
    /// Every `gc_urgent_sleep_time`, greedy, idle or not.
    #[serde(rename = "GC_URGENT_HIGH")]
    UrgentHigh,
    /// As if the volume were always idle.
    #[serde(rename = "GC_URGENT_LOW")]
    UrgentLow,
    /// Every `gc_urgent_sleep_time`, cost-benefit, idle or not.
    #[serde(rename = "GC_URGENT_MID")]
    UrgentMid,
}

impl GcMode {
    /// Whether the gc thread should look at once.
    pub(crate) fn is_urgent(self) -> bool {
        matches!(self, Self::UrgentHigh | Self::UrgentMid)
    }

    /// How victims are chosen (`select_gc_type`). `sync` chooses as in the foreground.
    pub(crate) fn policy(self, sync: bool) -> Policy {
        match self {
            Self::IdleGreedy | Self::UrgentHigh => Policy::Greedy,
            Self::IdleCb | Self::UrgentLow | Self::UrgentMid => Policy::CostBenefit,
            Self::Normal if sync => Policy::Greedy,
            Self::Normal => Policy::CostBenefit,
        }
    }
}

impl Tunables {
    /// The kernel's defaults; a zoned volume is cleaned more often (`DEF_GC_THREAD_*_ZONED`).
    pub(crate) fn new(options: &MountOptions, zoned: bool, limits: Limits) -> Self {
        let (min, max, none) = if zoned { (10, 20, 60_000) } else { (30_000, 60_000, 300_000) };
        Self {
            gc_min_sleep_time: min,
            gc_max_sleep_time: max,
            gc_no_gc_sleep_time: none,
            gc_urgent_sleep_time: 500,
            gc_mode: GcMode::Normal,
            gc_remaining_trials: 0,
            gc_idle_interval: 5,
            gc_no_zoned_gc_percent: 60,
            gc_boost_zoned_gc_percent: 25,
            cp_interval: options.checkpoint_interval,
            limits,
        }
    }

    /// `increase_sleep_time`.
    pub(crate) fn longer(&self, wait: u64) -> u64 {
        if wait == self.gc_no_gc_sleep_time {
            return wait;
        }
        wait.saturating_add(self.gc_min_sleep_time).min(self.gc_max_sleep_time)
    }

    /// `decrease_sleep_time`.
    pub(crate) fn shorter(&self, wait: u64) -> u64 {
        let wait = if wait == self.gc_no_gc_sleep_time { self.gc_max_sleep_time } else { wait };
        wait.saturating_sub(self.gc_min_sleep_time).max(self.gc_min_sleep_time)
    }
}

const ANY: RangeInclusive<u64> = 0..=u64::MAX;
const PERCENT: RangeInclusive<u64> = 0..=100;
const SLEEP_MS: RangeInclusive<u64> = 1..=u32::MAX as u64;

/// Everything that can be set.
pub(crate) const ATTRIBUTES: [Attribute<Tunables>; 20] = [
    attribute("gc_min_sleep_time", SLEEP_MS, |t, n| t.gc_min_sleep_time = n),
    attribute("gc_max_sleep_time", SLEEP_MS, |t, n| t.gc_max_sleep_time = n),
    attribute("gc_no_gc_sleep_time", SLEEP_MS, |t, n| t.gc_no_gc_sleep_time = n),
    attribute("gc_urgent_sleep_time", SLEEP_MS, |t, n| t.gc_urgent_sleep_time = n),
    attribute("gc_urgent", 0..=3, |t, n| {
        t.gc_mode = match n {
            1 => GcMode::UrgentHigh,
            2 => GcMode::UrgentLow,
            3 => GcMode::UrgentMid,
            _ => GcMode::Normal,
        }
    }),
    attribute("gc_idle", 0..=2, |t, n| {
        t.gc_mode = match n {
            1 => GcMode::IdleCb,
            2 => GcMode::IdleGreedy,
            _ => GcMode::Normal,
        }
    }),
    attribute("gc_remaining_trials", ANY, |t, n| t.gc_remaining_trials = n),
    attribute("gc_idle_interval", ANY, |t, n| t.gc_idle_interval = n),
    attribute("gc_no_zoned_gc_percent", PERCENT, |t, n| t.gc_no_zoned_gc_percent = n as u32),
    attribute("gc_boost_zoned_gc_percent", PERCENT, |t, n| t.gc_boost_zoned_gc_percent = n as u32),
    attribute("cp_interval", 1..=u64::MAX, |t, n| t.cp_interval = n),
    attribute("gc_pin_file_thresh", 0..=MAX_PIN_FAILURES as u64, |t, n| {
        t.limits.gc_pin_file_thresh = n;
    }),
    attribute("max_roll_forward_node_blocks", ANY, |t, n| {
        t.limits.max_roll_forward_node_blocks = n;
    }),
    attribute("min_hot_blocks", ANY, |t, n| t.limits.min_hot_blocks = n),
    attribute("min_ssr_sections", ANY, |t, n| t.limits.min_ssr_sections = n),
    attribute("ipu_policy", 0..=IpuPolicy::all().bits() as u64, |t, n| {
        t.limits.ipu_policy = IpuPolicy::from_bits_truncate(n as u32);
    }),
    attribute("min_ipu_util", PERCENT, |t, n| t.limits.min_ipu_util = n),
    attribute("min_fsync_blocks", ANY, |t, n| t.limits.min_fsync_blocks = n),
    attribute("max_victim_search", 1..=u64::MAX, |t, n| t.limits.max_victim_search = n),
    attribute("reclaim_segments", ANY, |t, n| t.limits.reclaim_segments = n),
];

const fn attribute(
    name: &'static str,
    range: RangeInclusive<u64>,
    set: fn(&mut Tunables, u64),
) -> Attribute<Tunables> {
    Attribute { name, range, set }
}
