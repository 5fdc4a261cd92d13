//! Attributes whose numbers stand for something: the mode of the gc thread and the bits of
//! `ipu_policy`.

use bitflags::bitflags;

use crate::alloc::gc::Policy;
use crate::mount::attributes::Knobs;

/// `gc_urgent` and `gc_idle`: the mode of the gc thread, numbered as in the kernel (`enum` of
/// `GC_NORMAL`), because `gc_idle` shows the number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GcMode {
    /// Cost-benefit, when idle.
    #[default]
    Normal,
    /// Cost-benefit, when idle; chosen by hand.
    IdleCb,
    /// Greedy, when idle.
    IdleGreedy,
    /// By age (ATGC), when idle; chosen by hand.
    IdleAt,
    /// Every `gc_urgent_sleep_time`, greedy, idle or not.
    UrgentHigh,
    /// As if the volume were always idle.
    UrgentLow,
    /// Every `gc_urgent_sleep_time`, cost-benefit, idle or not.
    UrgentMid,
}

impl GcMode {
    /// As sysfs shows it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Normal => "GC_NORMAL",
            Self::IdleCb => "GC_IDLE_CB",
            Self::IdleGreedy => "GC_IDLE_GREEDY",
            Self::IdleAt => "GC_IDLE_AT",
            Self::UrgentHigh => "GC_URGENT_HIGH",
            Self::UrgentLow => "GC_URGENT_LOW",
            Self::UrgentMid => "GC_URGENT_MID",
        }
    }

    /// Whether the gc thread should look at once.
    pub(crate) fn is_urgent(self) -> bool {
        matches!(self, Self::UrgentHigh | Self::UrgentMid)
    }

    /// How victims are chosen in the background (`select_gc_type`). `sync` chooses as in the
    /// foreground. With `atgc` the volume is cleaned by age.
    pub(crate) fn policy(self, sync: bool, atgc: bool) -> Policy {
        match self {
            Self::IdleGreedy | Self::UrgentHigh => Policy::Greedy,
            Self::IdleCb | Self::UrgentLow | Self::UrgentMid => Policy::CostBenefit,
            Self::Normal if sync => Policy::Greedy,
            Self::Normal | Self::IdleAt if atgc => Policy::ByAge,
            Self::Normal | Self::IdleAt => Policy::CostBenefit,
        }
    }
}

bitflags! {
    /// `ipu_policy`: when a block is overwritten where it is (`enum` of `F2FS_IPU_*`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct IpuPolicy: u32 {
        /// Always.
        const FORCE = 0x1;
        /// When logs continue in used segments.
        const SSR = 0x2;
        /// When more than `min_ipu_util` of the volume is used.
        const UTIL = 0x4;
        /// When both are so.
        const SSR_UTIL = 0x8;
        /// In an fsync of few blocks (`min_fsync_blocks`), or an fdatasync.
        const FSYNC = 0x10;
        /// In write-back that nobody waits for.
        const ASYNC = 0x20;
        /// Linux: do not merge such writes in a cache of their own. No effect here: the block layer
        /// merges all writes alike.
        const NOCACHE = 0x40;
        /// Linux: a direct write that was out of place makes later ones of the file so. No effect
        /// here: a direct write of an allocated block is always in place.
        const HONOR_OPU = 0x80;
    }
}

impl Knobs {
    /// The mode of the gc thread; of `gc_urgent` and `gc_idle`, the one set last counts.
    pub fn gc_mode(&self) -> GcMode {
        match (self.gc_urgent, self.gc_idle) {
            (1, _) => GcMode::UrgentHigh,
            (2, _) => GcMode::UrgentLow,
            (3, _) => GcMode::UrgentMid,
            (_, 1) => GcMode::IdleCb,
            (_, 2) => GcMode::IdleGreedy,
            (_, 3) => GcMode::IdleAt,
            _ => GcMode::Normal,
        }
    }

    /// The bits of `ipu_policy`.
    pub fn ipu(&self) -> IpuPolicy {
        IpuPolicy::from_bits_truncate(self.ipu_policy as u32)
    }
}
