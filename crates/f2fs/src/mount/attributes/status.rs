//! The table of what a mounted volume shows of itself, under the names of `/sys/fs/f2fs/<disk>/`
//! where Linux has them (Documentation/ABI/testing/sysfs-fs-f2fs). Every figure is counted or read,
//! none estimated.

use queue::QueueStats;
use serde_json::{Map, Value};
use vfs::Health;
use vfs::attributes::Shown;

use crate::F2fs;
use crate::alloc::segments::Segments;
use crate::mount::attributes::{Knobs, extensions};
use crate::mount::engine::{Caller, Engine};
use crate::ondisk::checkpoint::CpFlags;
use crate::ondisk::superblock::Features;
use crate::ondisk::{BLOCK_SIZE, BLOCKS_PER_SEGMENT};

/// Features by the names that `features` and `feature_list` show.
const FEATURES: [(Features, &str, &str); 14] = [
    (Features::ENCRYPT, "encryption", "encryption"),
    (Features::BLKZONED, "blkzoned", "block_zoned"),
    (Features::EXTRA_ATTR, "extra_attr", "extra_attr"),
    (Features::PRJQUOTA, "projquota", "project_quota"),
    (Features::INODE_CHKSUM, "inode_checksum", "inode_checksum"),
    (Features::FLEXIBLE_INLINE_XATTR, "flexible_inline_xattr", "flexible_inline_xattr"),
    (Features::QUOTA_INO, "quota_ino", "quota_ino"),
    (Features::INODE_CRTIME, "inode_crtime", "inode_crtime"),
    (Features::LOST_FOUND, "lost_found", "lost_found"),
    (Features::VERITY, "verity", "verity"),
    (Features::SB_CHKSUM, "sb_checksum", "sb_checksum"),
    (Features::CASEFOLD, "casefold", "casefold"),
    (Features::RO, "readonly", "readonly"),
    (Features::COMPRESSION, "compression", "compression"),
];
/// What `features` shows of every volume: pinning a file needs nothing of the format.
const ALWAYS: &str = "pin_file";

/// `s_flag` of `struct f2fs_sb_info`, as `stat/sb_status` shows it: the volume has changes.
const SBI_IS_DIRTY: u32 = 1 << 0;
/// The volume was shut down.
const SBI_IS_SHUTDOWN: u32 = 1 << 6;

/// Makes [`Status`] and the table. A row: field, type, name in sysfs or our own, version of Linux.
macro_rules! shown {
    ($(
        $(#[doc = $about:literal])+
        $field:ident: $type:ty, $name:literal, $since:literal;
    )+) => {
        /// What a mounted volume shows of itself.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Status {
            $($(#[doc = $about])+ pub $field: $type,)+
            /// The writable attributes.
            pub knobs: Knobs,
            /// Extensions of names, cold and hot.
            pub extension_list: Value,
            /// What owners, groups and projects use and may use, if the volume has quota files.
            pub quota_limits: Value,
        }

        pub(super) const TABLE: &[Shown<Status>] = &[$(Shown {
            name: $name,
            about: concat!($($about),+),
            since: $since,
            show: |status| serde_json::to_value(&status.$field).unwrap_or_default(),
        },)+];
    };
}

shown! {
    /// Segments that hold nothing.
    free_segments: u32, "free_segments", "5.4";
    /// Segments with valid and invalid blocks that no log uses.
    dirty_segments: u32, "dirty_segments", "4.15";
    /// Segments that users cannot have.
    ovp_segments: u32, "ovp_segments", "5.17";
    /// Segments kept for cleaning (`rsvd_segment_count`).
    reserved_segments: u32, "reserved_segments", "";
    /// KiB written in the volume's life, as far as clean unmounts have recorded it.
    lifetime_write_kbytes: u64, "lifetime_write_kbytes", "4.6";
    /// First block of the main area.
    main_blkaddr: u32, "main_blkaddr", "5.5";
    /// Optional parts of the format in use.
    features: Vec<&'static str>, "features", "4.14";
    /// Each optional part of the format, and whether this volume has it.
    feature_list: Map<String, Value>, "feature_list", "5.14";
    /// How folded names are encoded.
    encoding: &'static str, "encoding", "5.4";
    /// Seconds of the machine's clock when the volume was mounted.
    mounted_time_sec: u64, "mounted_time_sec", "5.9";
    /// How many of these are set aside so far.
    current_reserved_blocks: u64, "current_reserved_blocks", "4.15";
    /// Blocks that cannot be used while checkpoints are off. Here they are always on.
    unusable: u64, "unusable", "5.2";
    /// Blocks of a section beyond its zone's capacity.
    unusable_blocks_per_sec: u32, "unusable_blocks_per_sec", "5.18";
    /// Checkpoints that an operation waited for.
    cp_foreground_calls: u64, "cp_foreground_calls", "5.4";
    /// Checkpoints that nobody waited for.
    cp_background_calls: u64, "cp_background_calls", "5.4";
    /// Sections cleaned because space ran out, or by request.
    gc_foreground_calls: u64, "gc_foreground_calls", "5.4";
    /// Sections cleaned in the background.
    gc_background_calls: u64, "gc_background_calls", "5.4";
    /// Blocks moved by foreground cleaning.
    moved_blocks_foreground: u64, "moved_blocks_foreground", "5.4";
    /// Blocks moved by background cleaning.
    moved_blocks_background: u64, "moved_blocks_background", "5.4";
    /// Whether the volume is cleaned by age: mounted `atgc`, and old enough then.
    atgc: bool, "atgc", "";
    /// Valid blocks of a section that has some, but not all, on average; 0 without
    /// `dirty_segments`.
    avg_vblocks: u32, "avg_vblocks", "5.4";
    /// `s_flag`, the bits that apply here: 0x1 dirty, 0x40 shut down.
    sb_status: u32, "stat/sb_status", "5.11";
    /// `ckpt_flags` of the last checkpoint; 0x8 if a write has failed since.
    cp_status: u32, "stat/cp_status", "5.18";
    /// Runs of free blocks that the drive has not been told of.
    pending_discard: usize, "pending_discard", "5.17";
    /// Blocks outside zones that the drive was told are free, since the mount.
    discarded_blocks: u64, "stat/discarded_blocks", "";
    /// Commands that took.
    discard_commands: u64, "stat/discard_commands", "";
    /// Bytes read and written since `iostat_enable` was set, by kind (`iostat_info` of procfs).
    iostat: Map<String, Value>, "iostat", "4.14";
    /// Extents of files in memory (`Extent Cache` of debugfs).
    extents: u64, "extent_cache/extents", "";
    /// Look-ups of blocks there.
    extent_lookups: u64, "extent_cache/lookups", "";
    /// Of these, those that were answered.
    extent_hits: u64, "extent_cache/hits", "";
    /// Of these, those that the same extent had answered before.
    extent_hits_cached: u64, "extent_cache/hits_cached", "";
    /// KiB of pages in memory.
    cached_pages_kb: u64, "cache/pages_kb", "";
    /// Of these, KiB that the drive does not have yet.
    dirty_pages_kb: u64, "cache/dirty_kb", "";
    /// KiB of nodes in memory.
    cached_nodes_kb: u64, "cache/nodes_kb", "";
    /// KiB of indexes of names.
    name_indexes_kb: u64, "cache/names_kb", "";
    /// Blocks of files overwritten in place since the mount (`IPU` of debugfs).
    ipu_blocks: u64, "stat/ipu_blocks", "";
    /// Blocks written to free slots of used segments (`SSR` of debugfs).
    ssr_blocks: u64, "stat/ssr_blocks", "";
    /// Blocks written to free segments (`LFS` of debugfs).
    lfs_blocks: u64, "stat/lfs_blocks", "";
    /// Of all these, blocks written to the logs of nodes.
    node_blocks: u64, "stat/node_blocks", "";
    /// Hardware queues in use.
    nr_hw_queues: usize, "queue/nr_hw_queues", "";
    /// Commands that the volume gave to the block layer since it was mounted.
    submitted: u64, "queue/submitted", "";
    /// Of those, commands that joined another one's request.
    merged: u64, "queue/merged", "";
    /// Requests sent to the drive.
    sent: u64, "queue/sent", "";
    /// Times that a command had to wait for a tag.
    tag_waits: u64, "queue/tag_waits", "";
}

impl F2fs {
    /// The volume's present attributes.
    pub fn status(&self) -> Status {
        let knobs = self.knobs();
        self.lock().status(knobs)
    }
}

impl Engine {
    fn status(&mut self, knobs: Knobs) -> Status {
        let changed = self.has_changed();
        let of = |counts: [u64; 2], caller| counts[caller as usize];
        let stats = &self.stats;
        let (features, feature_list) = features(self.sb.features);
        let casefold = self.sb.features.contains(Features::CASEFOLD);
        let (sb_status, cp_status) = self.state_flags(changed);
        let queues = self.io.queue().stats();
        let nr_hw_queues = queues.len();
        let mut queue = QueueStats::default();
        queues.into_iter().for_each(|stats| queue += stats);
        let (segments, logs) = (self.segments.get_mut(), self.logs.get_mut());
        let dirty_segments = segments.dirty_segments(|segno| logs.is_current(segno));
        let unusable_blocks_per_sec =
            (self.sb.segs_per_sec * BLOCKS_PER_SEGMENT).saturating_sub(segments.section_capacity());
        let avg_vblocks = if dirty_segments > 0 { mean_valid_blocks(segments) } else { 0 };
        let pending_discard = segments.pending().count();
        let ([lfs_blocks, ssr_blocks], node_blocks) = (logs.written(), logs.nodes_written());
        let extents = self.inodes.extent_counts();
        Status {
            free_segments: segments.unused_segments(),
            dirty_segments,
            ovp_segments: self.checkpoint.overprov_segment_count,
            reserved_segments: self.checkpoint.rsvd_segment_count,
            lifetime_write_kbytes: self.lifetime_kbytes(),
            main_blkaddr: self.sb.main_blkaddr,
            features,
            feature_list,
            encoding: if casefold { "UTF-8 (12.1.0)" } else { "(none)" },
            mounted_time_sec: self.clock.mounted() / 1_000_000_000,
            current_reserved_blocks: self.space.reserved(),
            unusable: 0,
            unusable_blocks_per_sec,
            cp_foreground_calls: of(stats.checkpoints, Caller::Foreground),
            cp_background_calls: of(stats.checkpoints, Caller::Background),
            gc_foreground_calls: of(stats.cleanings, Caller::Foreground),
            gc_background_calls: of(stats.cleanings, Caller::Background),
            moved_blocks_foreground: of(stats.moved_blocks, Caller::Foreground),
            moved_blocks_background: of(stats.moved_blocks, Caller::Background),
            atgc: self.atgc,
            avg_vblocks,
            pending_discard,
            discarded_blocks: self.discards.blocks,
            discard_commands: self.discards.commands,
            iostat: self.iostat.by_name(),
            extents: extents.extents,
            extent_lookups: extents.lookups,
            extent_hits: extents.hits,
            extent_hits_cached: extents.hits_cached,
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
            knobs,
            extension_list: extensions::show(&self.sb),
            quota_limits: self.quotas.report(),
        }
    }

    /// `s_flag` and `ckpt_flags`, of a volume that has `changed` or not.
    fn state_flags(&self, changed: bool) -> (u32, CpFlags) {
        let sb_status = if changed { SBI_IS_DIRTY } else { 0 };
        let flags = self.checkpoint.flags;
        match self.health {
            Health::Stopped => (sb_status, flags | CpFlags::ERROR),
            Health::Shutdown => (sb_status | SBI_IS_SHUTDOWN, flags | CpFlags::ERROR),
            Health::Sound | Health::Gone => (sb_status, flags),
        }
    }

    /// KiB written in the volume's life.
    pub(crate) fn lifetime_kbytes(&self) -> u64 {
        self.written_before.saturating_add(self.io.written_blocks() * 4)
    }
}

/// `features` and `feature_list` of a volume with these.
fn features(present: Features) -> (Vec<&'static str>, Map<String, Value>) {
    let names = FEATURES.iter().filter(|(bit, ..)| present.contains(*bit)).map(|row| row.1);
    let list = FEATURES.iter().map(|(bit, _, name)| {
        let said = if present.contains(*bit) { "supported" } else { "unsupported" };
        ((*name).to_owned(), said.into())
    });
    (names.chain([ALWAYS]).collect(), list.collect())
}

/// Valid blocks of a section that is neither empty nor full, on average (`f2fs_update_sit_info`).
fn mean_valid_blocks(segments: &Segments) -> u32 {
    let of = |section| (segments.section_valid(section), segments.section_usable(section));
    let partial = (0..segments.sb().main_sections()).map(of);
    let partial = partial.filter(|(valid, usable)| *valid > 0 && valid < usable);
    let (count, sum) = partial.fold((0, 0), |(n, sum), (valid, _)| (n + 1, sum + u64::from(valid)));
    sum.checked_div(count).unwrap_or(0) as u32
}
