//! The table of what can be set on a mounted volume, under the names in `/sys/fs/f2fs/<disk>/` and
//! with the kernel's defaults (Documentation/ABI/testing/sysfs-fs-f2fs, `init_sbi_info`,
//! `f2fs_build_segment_manager`).
//!
//! One row is all that there is to say of an attribute: `tune`, `status` and docs/tunables.md come
//! from it. Times are in milliseconds if their name ends in `sleep_time` or `issue_time`, else in
//! seconds.

use std::ops::RangeInclusive;

use serde_json::Value;

use crate::mount::attributes::IpuPolicy;
use crate::mount::faults::ALL_TYPES;
use crate::mount::options::{AllocationMode, MountOptions};
use crate::mount::versions;
use crate::ondisk::BLOCKS_PER_SEGMENT;
use crate::ondisk::checkpoint::Checkpoint;
use crate::ondisk::superblock::Superblock;

/// A volume of up to this many segments updates in place (`SMALL_VOLUME_SEGMENTS`, 16 GiB).
const SMALL_VOLUME_SEGMENTS: u32 = 16 * 512;
/// Share of the segments, and their most, that may be empty but not yet free
/// (`DEF_RECLAIM_PREFREE_SEGMENTS`, `DEF_MAX_RECLAIM_PREFREE_SEGMENTS`).
const RECLAIM: (u64, u64) = (5, 4096);
/// The most failed moves that an inode can count (`MAX_GC_FAILED_PINNED_FILES`).
pub(crate) const MAX_PIN_FAILURES: u32 = 0xffff;
/// With more, the first table of names has so many buckets that a directory of few names is larger,
/// holes included, than 512 MiB. Linux has no limit.
const MAX_DIR_LEVEL: u64 = 16;

const ANY: RangeInclusive<u64> = 0..=u64::MAX;
const SOME: RangeInclusive<u64> = 1..=u64::MAX;
const PERCENT: RangeInclusive<u64> = 0..=100;
const SLEEP_MS: RangeInclusive<u64> = 1..=u32::MAX as u64;

/// What the defaults depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    zoned: bool,
    mode: AllocationMode,
    segments: u32,
    segments_per_section: u32,
    blocks: u64,
    reserved_sections: u64,
    checkpoint_interval: u64,
}

impl Geometry {
    pub(crate) fn new(
        options: &MountOptions,
        sb: &Superblock,
        checkpoint: &Checkpoint,
        zoned: bool,
    ) -> Self {
        Self {
            zoned,
            mode: options.mode,
            segments: sb.segment_count_main,
            segments_per_section: sb.segs_per_sec,
            blocks: u64::from(sb.segment_count_main) * u64::from(BLOCKS_PER_SEGMENT),
            reserved_sections: reserved_sections(sb, checkpoint),
            checkpoint_interval: options.checkpoint_interval,
        }
    }

    /// A zoned volume is cleaned more often (`DEF_GC_THREAD_*_ZONED`).
    fn sleep(&self, usual: u64, zoned: u64) -> u64 {
        if self.zoned { zoned } else { usual }
    }

    /// Where new blocks may go.
    pub(crate) fn mode(&self) -> AllocationMode {
        self.mode
    }

    /// Sections that are kept for cleaning.
    pub(crate) fn reserved_sections(&self) -> u64 {
        self.reserved_sections
    }

    fn is_small(&self) -> bool {
        self.segments <= SMALL_VOLUME_SEGMENTS
    }

    fn ipu_policy(&self) -> u64 {
        let policy = match self.mode {
            AllocationMode::Lfs => IpuPolicy::empty(),
            AllocationMode::Adaptive if self.is_small() => IpuPolicy::FORCE | IpuPolicy::HONOR_OPU,
            AllocationMode::Adaptive => IpuPolicy::FSYNC,
        };
        policy.bits().into()
    }

    fn reclaim_segments(&self) -> u64 {
        let (percent, most) = RECLAIM;
        (u64::from(self.segments) * percent / 100).min(most)
    }
}

/// Sections that are kept for cleaning.
fn reserved_sections(sb: &Superblock, checkpoint: &Checkpoint) -> u64 {
    checkpoint.rsvd_segment_count.div_ceil(sb.segs_per_sec).into()
}

/// A row of the table.
pub(super) struct Knob {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) since: &'static str,
    pub(super) range: RangeInclusive<u64>,
    pub(super) show: fn(&Knobs) -> Value,
    pub(super) set: fn(&mut Knobs, u64),
    /// Why it has no effect; empty if it has one.
    pub(super) without_effect: &'static [&'static str],
}

/// Makes [`Knobs`] and the table. A row: name, version of Linux, range, default; if need be, what
/// setting it does to others, how it is shown, and why it has no effect.
macro_rules! knobs {
    ($(
        $(#[doc = $about:literal])+
        $name:ident: $since:literal, $range:expr, $default:expr
        $(, then $then:expr)? $(, shown $shown:expr)? $(, without_effect $why:literal)?;
    )+) => {
        /// The values of the writable attributes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each has the doc of its row")]
        pub struct Knobs {
            $($(#[doc = $about])+ pub $name: u64,)+
        }

        impl Knobs {
            /// The kernel's defaults for a volume.
            fn new(volume: &Geometry) -> Self {
                let of = |default: fn(&Geometry) -> u64| default(volume);
                Self { $($name: of($default),)+ }
            }
        }

        pub(super) const TABLE: &[Knob] = &[$(Knob {
            name: stringify!($name),
            about: concat!($($about),+),
            since: $since,
            range: $range,
            show: |knobs| {
                let shown: fn(&Knobs, u64) -> Value = |_, value| value.into();
                $(let shown: fn(&Knobs, u64) -> Value = { let _ = shown; $shown };)?
                shown(knobs, knobs.$name)
            },
            set: |knobs, value| {
                knobs.$name = value;
                $(let then: fn(&mut Knobs) = $then; then(knobs);)?
            },
            without_effect: &[$($why)?],
        },)+];
    };
}

knobs! {
    /// Shortest sleep of the gc thread.
    gc_min_sleep_time: "3.12", SLEEP_MS, |v| v.sleep(30_000, 10);
    /// Longest sleep of the gc thread while there is something to do.
    gc_max_sleep_time: "3.12", SLEEP_MS, |v| v.sleep(60_000, 20);
    /// Sleep of the gc thread when there is nothing to clean.
    gc_no_gc_sleep_time: "3.12", SLEEP_MS, |v| v.sleep(300_000, 60_000);
    /// How an idle volume is cleaned: 1 cost-benefit, 2 greedy, 3 by age (mounted `atgc`), 0 as
    /// usual. It shows 4, 5 or 6 while `gc_urgent` is 1, 2 or 3.
    gc_idle: "3.12", 0..=3, |_| 0,
        then |knobs| knobs.gc_urgent = 0, shown |knobs, _| (knobs.gc_mode() as u64).into();
    /// With more empty segments than this that only a checkpoint frees, one is written.
    reclaim_segments: "3.13", ANY, Geometry::reclaim_segments;
    /// When a block is overwritten where it is; a sum of 1 always, 2 when logs fill holes (SSR), 4
    /// above `min_ipu_util`, 8 when both are so, 16 in small fsyncs and fdatasync, 32 in
    /// write-back. 64 (no cache of such writes) and 128 (after direct writes out of place) have no
    /// effect.
    ipu_policy: "3.14", 0..=IpuPolicy::all().bits() as u64, Geometry::ipu_policy;
    /// Percent of the volume in use from which bits 4 and 8 of `ipu_policy` hold.
    min_ipu_util: "3.14", PERCENT, |_| 70;
    /// Among how many sections background cleaning chooses at a time.
    max_victim_search: "3.14", SOME, |_| 4096;
    /// How many runs of blocks shorter than a segment a checkpoint adds to what the drive will be
    /// told is free; 0 for none.
    max_small_discards: "3.14", ANY, |v| v.blocks;
    /// Level of hashing that a new directory's tables of names begin with: 2 to the power of it
    /// times as many buckets.
    dir_level: "3.15", 0..=MAX_DIR_LEVEL, |_| 0;
    /// How much memory tables may take, in hundredths of a hundred times `cache=` (of the machine's
    /// memory in Linux): half of it extents of files, a quarter entries of the node table.
    ram_thresh: "3.15", 0..=100, |_| 1;
    /// An fsync of at most this many pages is a small one.
    min_fsync_blocks: "3.18", ANY, |_| 8;
    /// How many sections `fstrim` looks at before it lets others at the volume and writes another
    /// checkpoint; 0 for all.
    batched_trim_sections: "4.0", 0..=u32::MAX as u64, |_| 0;
    /// How many further blocks of the node table are read with one in which a free number is
    /// looked for.
    ra_nid_pages: "4.4", 0..=128, |_| 0;
    /// Longest time between checkpoints.
    cp_interval: "4.4", SOME, |v| v.checkpoint_interval;
    /// Sets `gc_idle_interval` and `discard_idle_interval`, which are all there was before Linux
    /// 4.20 told them apart.
    idle_interval: "4.5", ANY, |_| 5, then |knobs| {
        knobs.gc_idle_interval = knobs.idle_interval;
        knobs.discard_idle_interval = knobs.idle_interval;
    };
    /// Percent of all node numbers whose changed entries make a checkpoint due.
    dirty_nats_ratio: "4.6", PERCENT, |_| 10;
    /// Of the calls that could fail, of those kinds that `inject_type` says, every Nth fails; 0 for
    /// none.
    inject_rate: "4.7", 0..=u32::MAX as u64, |_| 0;
    /// What fails, a sum of 32 number of a new node, 64 removing a last name, 128 new block, 256
    /// new name, 512 freeing an inode without a name, 1024 cutting a file off, 2048 read, 4096 the
    /// next change, which stops the volume, 8192 discard, 16384 write. 1, 2, 4, 8, 16 and 32768
    /// (memory), 65536 (quota) and 131072 (locks that are tried) have no effect.
    inject_type: "4.7", 0..=ALL_TYPES as u64, |_| 0;
    /// A file with at most this many dirty pages writes them to the hot log (small I/O, 64 KiB).
    min_hot_blocks: "4.12", ANY, |_| 16;
    /// Blocks kept from users, as far as they are free.
    reserved_blocks: "4.13", ANY, |_| 0;
    /// The shortest run of blocks that the drive is told of while the volume is mounted, unless
    /// more than 80% of it are in use.
    discard_granularity: "4.14", 1..=BLOCKS_PER_SEGMENT as u64,
        |v| if v.is_small() { 1 } else { 16 };
    /// 1: clean every `gc_urgent_sleep_time`, greedily, idle or not; 2: as if always idle; 3: as 1,
    /// but by cost-benefit; 0: when idle.
    gc_urgent: "4.14", 0..=3, |_| 0,
        then |knobs| knobs.gc_idle = 0, shown |knobs, _| knobs.gc_mode().name().into();
    /// Sleep of the gc thread in the urgent modes 1 and 3.
    gc_urgent_sleep_time: "4.14", SLEEP_MS, |_| 500;
    /// 1: what is read and written is counted by kind (`iostat`); 0: the counts are dropped.
    iostat_enable: "4.14", 0..=1, |_| 0;
    /// Logs continue in used segments while at most this many sections are free, beside the
    /// reserved ones.
    min_ssr_sections: "4.15", ANY, |v| v.reserved_sections;
    /// 1: inodes whose names have been listed are read at once, before anybody asks for them.
    readdir_ra: "4.16", 0..=1, |_| 1;
    /// After how many failed foreground moves a file is unpinned.
    gc_pin_file_thresh: "4.16", 0..=MAX_PIN_FAILURES as u64, |_| 2048;
    /// The write-back of a file with at least this many dirty pages waits for that of others like
    /// it, so that each lies in one piece.
    min_seq_blocks: "4.19", ANY, |_| BLOCKS_PER_SEGMENT.into();
    /// How many segments of a larger section are cleaned at a time in the background.
    migration_granularity: "4.20", SOME, |v| v.segments_per_section.into();
    /// How long the volume must have been without requests before the drive is told what is free.
    discard_idle_interval: "4.20", ANY, |_| 5;
    /// How long the volume must have been without requests to be cleaned.
    gc_idle_interval: "4.20", ANY, |_| 5;
    /// How long an unmount goes on telling the drive what is free.
    umount_discard_timeout: "5.1", ANY, |_| 5;
    /// `atgc`: percent of the candidates, oldest first, of which one is chosen.
    atgc_candidate_ratio: "5.15", PERCENT, |_| 20;
    /// `atgc`: at least among how many candidates one is chosen.
    atgc_candidate_count: "5.15", ANY, |_| 10;
    /// `atgc`: what a section's age counts, in percent; its free blocks count the rest.
    atgc_age_weight: "5.15", PERCENT, |_| 60;
    /// `atgc`: how many seconds a section must be older than the youngest one to be cleaned; a
    /// younger volume is mounted without `atgc`.
    atgc_age_threshold: "5.15", ANY, |_| 7 * 24 * 60 * 60;
    /// How many runs the drive is told of at a time.
    max_discard_request: "5.17", 1..=1024, |_| 8;
    /// Wait between two rounds of telling the drive.
    min_discard_issue_time: "5.17", SLEEP_MS, |_| 50;
    /// Wait if the volume is in use and the drive therefore was told nothing.
    mid_discard_issue_time: "5.17", SLEEP_MS, |_| 500;
    /// Wait if there is nothing long enough to tell the drive.
    max_discard_issue_time: "5.17", SLEEP_MS, |_| 60_000;
    /// Rounds left of an urgent or idle mode; 0 means no limit.
    gc_remaining_trials: "6.2", ANY, |_| 0;
    /// How many node blocks roll-forward may have to read before an fsync writes a checkpoint; 0
    /// means no limit.
    max_roll_forward_node_blocks: "5.18", ANY, |_| 0;
    /// How many nodes of a file are read ahead when it is read in order; 0 for none.
    ra_node_pages: "", 0..=128, |_| 128;
    /// Operations clean when no more sections than this are free, even if they would not need as
    /// many (in Linux, the reserved ones); 0: when they need them.
    fg_gc_sections: "", ANY, |_| 0;
    /// Zoned: no cleaning while more than this share of the sections is free.
    gc_no_zoned_gc_percent: "6.12", PERCENT, |_| 60;
    /// Zoned: hurry while less than this share of the sections is free.
    gc_boost_zoned_gc_percent: "6.12", PERCENT, |_| 25;
}

impl Knobs {
    /// Those of a volume that is mounted with these options.
    pub(crate) fn of_mount(options: &MountOptions, volume: &Geometry) -> Self {
        let mut knobs = Self::new(volume);
        versions::apply_to_knobs(options, &mut knobs, volume);
        for (name, value) in &options.settings {
            let knob = TABLE.iter().find(|knob| knob.name == *name);
            knob.into_iter().for_each(|knob| (knob.set)(&mut knobs, *value));
        }
        knobs
    }

    /// How many free sections make logs continue in used segments (`f2fs_need_SSR`). What dirty
    /// nodes and directories will need is not added here: changes make room before they begin.
    pub(crate) fn ssr_threshold(&self, sb: &Superblock, checkpoint: &Checkpoint) -> u64 {
        self.min_ssr_sections.saturating_add(reserved_sections(sb, checkpoint))
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
