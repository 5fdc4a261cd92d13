//! Tunables that decide where blocks go and what is cleaned, read with the volume locked: names and
//! defaults of `/sys/fs/f2fs/<disk>/` (`init_sbi_info`, `f2fs_build_segment_manager`).

use bitflags::bitflags;
use serde::{Serialize, Serializer};

use crate::mount::options::AllocationMode;
use crate::ondisk::checkpoint::Checkpoint;
use crate::ondisk::superblock::Superblock;

/// A volume of up to this many segments updates in place (`SMALL_VOLUME_SEGMENTS`, 16 GiB).
const SMALL_VOLUME_SEGMENTS: u32 = 16 * 512;
/// Share of the segments, and their most, that may be empty but not yet free
/// (`DEF_RECLAIM_PREFREE_SEGMENTS`, `DEF_MAX_RECLAIM_PREFREE_SEGMENTS`).
const RECLAIM: (u64, u64) = (5, 4096);

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

impl Serialize for IpuPolicy {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u32(self.bits())
    }
}

/// The tunables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// After how many failed foreground moves a file is unpinned.
    pub gc_pin_file_thresh: u64,
    /// How many node blocks roll-forward may have to read before an fsync writes a checkpoint; 0
    /// means no limit.
    pub max_roll_forward_node_blocks: u64,
    /// A file with at most this many dirty pages writes them to the hot log.
    pub min_hot_blocks: u64,
    /// Logs continue in used segments while at most this many sections are free, beside the
    /// reserved ones.
    pub min_ssr_sections: u64,
    /// When blocks are overwritten where they are.
    pub ipu_policy: IpuPolicy,
    /// Percent of the volume in use from which [`IpuPolicy::UTIL`] holds.
    pub min_ipu_util: u64,
    /// An fsync of at most this many pages is a small one.
    pub min_fsync_blocks: u64,
    /// Among how many sections background cleaning chooses at a time.
    pub max_victim_search: u64,
    /// With more empty segments than this that only a checkpoint frees, it is time for one.
    pub reclaim_segments: u64,
}

impl Limits {
    /// The kernel's defaults for a volume.
    pub(crate) fn new(mode: AllocationMode, sb: &Superblock, checkpoint: &Checkpoint) -> Self {
        let ipu_policy = match mode {
            AllocationMode::Lfs => IpuPolicy::empty(),
            _ if sb.segment_count_main <= SMALL_VOLUME_SEGMENTS => {
                IpuPolicy::FORCE | IpuPolicy::HONOR_OPU
            }
            AllocationMode::Adaptive => IpuPolicy::FSYNC,
        };
        let (percent, most) = RECLAIM;
        Self {
            gc_pin_file_thresh: 2048,
            max_roll_forward_node_blocks: 0,
            min_hot_blocks: 16,
            min_ssr_sections: reserved_sections(sb, checkpoint),
            ipu_policy,
            min_ipu_util: 70,
            min_fsync_blocks: 8,
            max_victim_search: 4096,
            reclaim_segments: (u64::from(sb.segment_count_main) * percent / 100).min(most),
        }
    }

    /// How many free sections make logs continue in used segments (`f2fs_need_SSR`). What dirty
    /// nodes and directories will need is not added here: changes make room before they begin.
    pub(crate) fn ssr_threshold(&self, sb: &Superblock, checkpoint: &Checkpoint) -> u64 {
        self.min_ssr_sections.saturating_add(reserved_sections(sb, checkpoint))
    }
}

fn reserved_sections(sb: &Superblock, checkpoint: &Checkpoint) -> u64 {
    checkpoint.rsvd_segment_count.div_ceil(sb.segs_per_sec).into()
}
