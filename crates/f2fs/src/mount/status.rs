//! What a mounted volume says about itself, under the names of `/sys/fs/f2fs/<disk>/`
//! (Documentation/ABI/testing/sysfs-fs-f2fs). Every figure is counted or read, none estimated.

use queue::QueueStats;
use serde::Serialize;
use vfs::Health;

use crate::F2fs;
use crate::mount::engine::{Caller, Engine};
use crate::mount::tunables::{GcMode, Tunables};
use crate::ondisk::checkpoint::CpFlags;
use crate::ondisk::superblock::Features;
use crate::ondisk::{BLOCK_SIZE, BLOCKS_PER_SEGMENT};

/// Features by the names sysfs shows.
const FEATURES: [(Features, &str); 14] = [
    (Features::ENCRYPT, "encryption"),
    (Features::BLKZONED, "blkzoned"),
    (Features::EXTRA_ATTR, "extra_attr"),
    (Features::PRJQUOTA, "projquota"),
    (Features::INODE_CHKSUM, "inode_checksum"),
    (Features::FLEXIBLE_INLINE_XATTR, "flexible_inline_xattr"),
    (Features::QUOTA_INO, "quota_ino"),
    (Features::INODE_CRTIME, "inode_crtime"),
    (Features::LOST_FOUND, "lost_found"),
    (Features::VERITY, "verity"),
    (Features::SB_CHKSUM, "sb_checksum"),
    (Features::CASEFOLD, "casefold"),
    (Features::RO, "readonly"),
    (Features::COMPRESSION, "compression"),
];

/// `s_flag` of `struct f2fs_sb_info`, as `stat/sb_status` shows it: the volume has changes.
const SBI_IS_DIRTY: u32 = 1 << 0;
/// The volume was shut down.
const SBI_IS_SHUTDOWN: u32 = 1 << 6;

/// Attributes of a mounted volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// Segments that hold nothing.
    pub free_segments: u32,
    /// Segments with valid and invalid blocks that no log uses.
    pub dirty_segments: u32,
    /// Segments that users cannot have.
    pub ovp_segments: u32,
    /// Segments kept for cleaning (`rsvd_segment_count`).
    pub reserved_segments: u32,
    /// KiB written in the volume's life, as far as clean unmounts have recorded it.
    pub lifetime_write_kbytes: u64,
    /// First block of the main area.
    pub main_blkaddr: u32,
    /// Optional parts of the format in use.
    pub features: Vec<&'static str>,
    /// How folded names are encoded.
    pub encoding: &'static str,
    /// Seconds of the machine's clock when the volume was mounted.
    pub mounted_time_sec: u64,
    /// Blocks set aside for root. There is no such option here, so this is 0.
    pub reserved_blocks: u64,
    /// How many of these are set aside so far.
    pub current_reserved_blocks: u64,
    /// Blocks that cannot be used while checkpoints are off. Here they are always on.
    pub unusable: u64,
    /// Blocks of a section beyond its zone's capacity.
    pub unusable_blocks_per_sec: u32,
    /// Checkpoints that an operation waited for.
    pub cp_foreground_calls: u64,
    /// Checkpoints that nobody waited for.
    pub cp_background_calls: u64,
    /// Sections cleaned because space ran out, or by request.
    pub gc_foreground_calls: u64,
    /// Sections cleaned in the background.
    pub gc_background_calls: u64,
    /// Blocks moved by foreground cleaning.
    pub moved_blocks_foreground: u64,
    /// Blocks moved by background cleaning.
    pub moved_blocks_background: u64,
    /// `s_flag`, the bits that apply here: 0x1 dirty, 0x40 shut down.
    #[serde(rename = "stat/sb_status")]
    pub sb_status: u32,
    /// `ckpt_flags` of the last checkpoint; 0x8 if a write has failed since.
    #[serde(rename = "stat/cp_status")]
    pub cp_status: u32,
    /// KiB of pages in memory.
    #[serde(rename = "cache/pages_kb")]
    pub cached_pages_kb: u64,
    /// Of these, KiB that the drive does not have yet.
    #[serde(rename = "cache/dirty_kb")]
    pub dirty_pages_kb: u64,
    /// KiB of nodes in memory.
    #[serde(rename = "cache/nodes_kb")]
    pub cached_nodes_kb: u64,
    /// KiB of indexes of names.
    #[serde(rename = "cache/names_kb")]
    pub name_indexes_kb: u64,
    /// Blocks of files overwritten in place since the mount (`IPU` of debugfs).
    #[serde(rename = "stat/ipu_blocks")]
    pub ipu_blocks: u64,
    /// Blocks written to free slots of used segments (`SSR` of debugfs).
    #[serde(rename = "stat/ssr_blocks")]
    pub ssr_blocks: u64,
    /// Blocks written to free segments (`LFS` of debugfs).
    #[serde(rename = "stat/lfs_blocks")]
    pub lfs_blocks: u64,
    /// Of all these, blocks written to the logs of nodes.
    #[serde(rename = "stat/node_blocks")]
    pub node_blocks: u64,
    /// Hardware queues in use.
    #[serde(rename = "queue/nr_hw_queues")]
    pub nr_hw_queues: usize,
    /// Commands that the volume gave to the block layer since it was mounted.
    #[serde(rename = "queue/submitted")]
    pub submitted: u64,
    /// Of those, commands that joined another one's request.
    #[serde(rename = "queue/merged")]
    pub merged: u64,
    /// Requests sent to the drive.
    #[serde(rename = "queue/sent")]
    pub sent: u64,
    /// Times that a command had to wait for a tag.
    #[serde(rename = "queue/tag_waits")]
    pub tag_waits: u64,
    /// As `gc_urgent`: both show the mode of the gc thread.
    pub gc_idle: GcMode,
    /// The writable attributes.
    #[serde(flatten)]
    pub tunables: Tunables,
}

impl F2fs {
    /// The volume's present attributes.
    pub fn status(&self) -> Status {
        let tunables = self.tunables();
        self.lock().status(tunables)
    }
}

impl Engine {
    fn status(&mut self, tunables: Tunables) -> Status {
        let changed = self.has_changed();
        let of = |counts: [u64; 2], caller| counts[caller as usize];
        let stats = &self.stats;
        let features = FEATURES.iter().filter(|(bit, _)| self.sb.features.contains(*bit));
        let casefold = self.sb.features.contains(Features::CASEFOLD);
        let mut sb_status = if changed { SBI_IS_DIRTY } else { 0 };
        let mut cp_status = self.checkpoint.flags;
        match self.health {
            Health::Stopped => cp_status |= CpFlags::ERROR,
            Health::Shutdown => {
                cp_status |= CpFlags::ERROR;
                sb_status |= SBI_IS_SHUTDOWN;
            }
            Health::Sound | Health::Gone => {}
        }
        let queues = self.io.queue().stats();
        let nr_hw_queues = queues.len();
        let mut queue = QueueStats::default();
        queues.into_iter().for_each(|stats| queue += stats);
        let (segments, logs) = (self.segments.get_mut(), self.logs.get_mut());
        let dirty_segments = segments.dirty_segments(|segno| logs.is_current(segno));
        let unusable_blocks_per_sec =
            (self.sb.segs_per_sec * BLOCKS_PER_SEGMENT).saturating_sub(segments.section_capacity());
        let ([lfs_blocks, ssr_blocks], node_blocks) = (logs.written(), logs.nodes_written());
        Status {
            free_segments: segments.unused_segments(),
            dirty_segments,
            ovp_segments: self.checkpoint.overprov_segment_count,
            reserved_segments: self.checkpoint.rsvd_segment_count,
            lifetime_write_kbytes: self.lifetime_kbytes(),
            main_blkaddr: self.sb.main_blkaddr,
            features: features.map(|(_, name)| *name).collect(),
            encoding: if casefold { "UTF-8 (12.1.0)" } else { "(none)" },
            mounted_time_sec: self.clock.mounted() / 1_000_000_000,
            reserved_blocks: 0,
            current_reserved_blocks: 0,
            unusable: 0,
            unusable_blocks_per_sec,
            cp_foreground_calls: of(stats.checkpoints, Caller::Foreground),
            cp_background_calls: of(stats.checkpoints, Caller::Background),
            gc_foreground_calls: of(stats.cleanings, Caller::Foreground),
            gc_background_calls: of(stats.cleanings, Caller::Background),
            moved_blocks_foreground: of(stats.moved_blocks, Caller::Foreground),
            moved_blocks_background: of(stats.moved_blocks, Caller::Background),
            sb_status,
            cp_status: cp_status.bits(),
            cached_pages_kb: (self.inodes.pages().pages() * BLOCK_SIZE / 1024) as u64,
            dirty_pages_kb: (self.inodes.pages().dirty() * BLOCK_SIZE / 1024) as u64,
            cached_nodes_kb: (self.inodes.nodes().all() * BLOCK_SIZE / 1024) as u64,
            name_indexes_kb: self.inodes.names.bytes() / 1024,
            ipu_blocks: self.inodes.in_place(),
            ssr_blocks,
            lfs_blocks,
            node_blocks,
            nr_hw_queues,
            submitted: queue.submitted,
            merged: queue.merged,
            sent: queue.sent,
            tag_waits: queue.tag_waits,
            gc_idle: tunables.gc_mode,
            tunables,
        }
    }

    /// KiB written in the volume's life.
    pub(crate) fn lifetime_kbytes(&self) -> u64 {
        self.written_before.saturating_add(self.io.written_blocks() * 4)
    }
}
