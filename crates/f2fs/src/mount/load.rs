//! Mounting, first step: from a drive to a volume whose checkpoint has been read and checked
//! (`f2fs_fill_super`). Recovery is the next step; see [`crate::recover`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cores::{Line, Mutex, Rank};
use drive::{Block, Drive};
use queue::BlockQueue;
use rustc_hash::{FxHashMap, FxHashSet};
use vfs::inode::{Opens, Turns};
use vfs::{Clock, Health};

use crate::alloc::credit::Credit;
use crate::alloc::curseg::{Log, Logs};
use crate::alloc::discard::Discards;
use crate::alloc::gc::Cleaner;
use crate::alloc::nat::Nat;
use crate::alloc::segments::Segments;
use crate::alloc::sit_table::SitTable;
use crate::alloc::space::Space;
use crate::alloc::zones::{WritePointers, usable_blocks};
use crate::error::{self, Error, Result};
use crate::inode::shards::Inodes;
use crate::mount::attributes::{Geometry, Knobs};
use crate::mount::devices::{check_complete, nodes_end};
use crate::mount::engine::{Engine, Stats};
use crate::mount::faults::Faults;
use crate::mount::io::Io;
use crate::mount::options::{AllocationMode, FsyncMode, Inject, MountOptions};
use crate::mount::quota::Quotas;
use crate::mount::since::SinceCheckpoint;
use crate::ondisk::bits;
use crate::ondisk::checkpoint::{Checkpoint, CpFlags};
use crate::ondisk::feature::{self, Mount};
use crate::ondisk::nat::NatEntry;
use crate::ondisk::nat_bits::{self, NatBits};
use crate::ondisk::node::RawNodeFooter;
use crate::ondisk::sit::{LogType, SitEntry};
use crate::ondisk::summary::{self, RawSummary, RawSummaryBlock};
use crate::ondisk::superblock::{Features, Superblock};
use crate::ondisk::{BLOCKS_PER_SEGMENT, Nid, SegNo};

/// Reads what is on `drive` as of its last checkpoint.
pub(crate) fn load(drive: Arc<dyn Drive>, options: &MountOptions) -> Result<Engine> {
    let faults = Arc::<Faults>::default();
    let injected = faults.clone();
    let queue = BlockQueue::for_files(drive, options.queue);
    let queue = queue.failing(move |verb| injected.of_command(verb));
    let io = Io::new(Arc::new(queue));
    let mut options = options.clone();
    let (sb, _) = Superblock::select(|addr| io.read(addr))?;
    check_drive(&sb, &io, &mut options)?;
    let sb = Arc::new(sb);
    let zones = WritePointers::load(&io)?;
    check_options(&sb, zones.as_ref(), &mut options)?;
    let selected = Checkpoint::select(&sb, |addr| io.read(addr))?;
    let checkpoint = selected.checkpoint;
    let start = sb.cp_pack(selected.pack);

    let mut summaries = data_summaries(&io, &checkpoint, start)?;
    let nat_journal = nat_journal(&sb, &summaries[0], start)?;
    let sit_journal = sit_journal(&sb, &summaries[2], start)?;
    let (sit, entries) =
        SitTable::load(sb.clone(), &io, checkpoint.sit_bitmap.clone(), sit_journal)?;
    let usable = usable_blocks(&sb, zones.as_ref())?;
    let mut segments = Segments::new(sb.clone(), entries, usable);
    for log in [LogType::HotNode, LogType::WarmNode, LogType::ColdNode] {
        summaries.push(node_summary(&io, &sb, &segments, &checkpoint, start, log)?);
    }
    let logs = make_logs(&sb, &mut segments, &checkpoint, summaries)?;
    check_counts(&segments, &checkpoint, start)?;
    let nat = Nat::new(
        sb.clone(),
        checkpoint.nat_bitmap.clone(),
        nat_journal,
        checkpoint.valid_node_count,
        checkpoint.next_free_nid,
        load_nat_bits(&io, &sb, &checkpoint, start)?,
    );
    let orphans = read_orphans(&io, &sb, &checkpoint, start)?;
    let pack = selected.pack;
    let parts = Parts {
        sb,
        options,
        io,
        faults,
        checkpoint,
        pack,
        nat,
        sit,
        segments,
        logs,
        orphans,
        zones,
    };
    Ok(parts.assemble())
}

/// The parts of a volume, read by [`load`] or derived by a repair.
pub(crate) struct Parts {
    pub(crate) sb: Arc<Superblock>,
    pub(crate) options: MountOptions,
    pub(crate) io: Io,
    pub(crate) faults: Arc<Faults>,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) pack: usize,
    pub(crate) nat: Nat,
    pub(crate) sit: SitTable,
    pub(crate) segments: Segments,
    pub(crate) logs: [Log; 6],
    pub(crate) orphans: BTreeSet<Nid>,
    pub(crate) zones: Option<WritePointers>,
}

impl Parts {
    /// A volume in which nothing has happened so far.
    pub(crate) fn assemble(self) -> Engine {
        let Self { sb, options, io, faults, checkpoint, pack, nat, sit, .. } = self;
        let Self { segments, logs, orphans, zones, .. } = self;
        let geometry = Geometry::new(&options, &sb, &checkpoint, zones.is_some());
        let knobs = Knobs::of_mount(&options, &geometry);
        let mut segments = segments;
        if options.discard && io.queue().identify().discard {
            segments.note_free(options.inject.contains(Inject::EARLY_REUSE));
        }
        let nodes_end = if options.hybrid { nodes_end(&sb).ok() } else { None };
        let ssr_allowed = options.mode == AllocationMode::Adaptive;
        let mut engine = Engine {
            written_before: written_before(&checkpoint, &logs),
            logs: Mutex::ranked(
                Rank::Log,
                "f2fs logs",
                Logs::new(logs, ssr_allowed, knobs.ssr_threshold(&sb, &checkpoint)),
            ),
            space: Space::new(
                &checkpoint,
                &sb,
                segments.usable_blocks(),
                options.root_reserve,
                faults.clone(),
            ),
            quotas: Quotas::new(&options),
            discards: Discards::default(),
            credit: Credit::default(),
            inodes: Inodes::new(options.cache_bytes),
            opens: Opens::default(),
            turns: Arc::new(Turns::new("f2fs fsync turns")),
            orphans,
            since_checkpoint: SinceCheckpoint::default(),
            clock: Clock::new(checkpoint.elapsed_time, options.frozen_time),
            generations: Line::new(checkpoint.version.wrapping_add(1)),
            pinned_sections: BTreeSet::new(),
            damaged_sections: BTreeSet::new(),
            stats: Stats::default(),
            iostat: Arc::default(),
            extent_misses: 0,
            atomic_writes: FxHashMap::default(),
            lazy_atimes: FxHashMap::default(),
            health: Health::Sound,
            last_checkpoint: cores::now(),
            operations: 0,
            write_errors: FxHashSet::default(),
            notes_corruption: false,
            repairing: false,
            witness: None,
            pack,
            cleaner: Cleaner::default(),
            atgc: options.atgc && checkpoint.elapsed_time >= knobs.atgc_age_threshold,
            knobs,
            faults,
            sb,
            options,
            io,
            checkpoint,
            nat: Mutex::ranked(Rank::Nat, "f2fs nat", nat),
            sit,
            segments: Mutex::ranked(Rank::Segments, "f2fs segments", segments),
            zones,
        };
        engine.set_knobs(knobs);
        engine.logs.get_mut().nodes_end = nodes_end;
        engine
    }
}

/// KiB written until the last clean unmount; the hot node log's summary has the number.
fn written_before(checkpoint: &Checkpoint, logs: &[Log; 6]) -> u64 {
    let kept = checkpoint.has_node_summaries();
    if kept { logs[LogType::HotNode.index()].summary.lifetime_kbytes() } else { 0 }
}

fn check_drive(sb: &Superblock, io: &Io, options: &mut MountOptions) -> Result<()> {
    let identity = io.queue().identify();
    check_complete(sb, identity)?;
    let foreign = sb.features & feature::all(|f| f.mount == Mount::Foreign);
    if !foreign.is_empty() {
        return Err(error::foreign(format!("a volume with {}", feature::names(foreign))));
    }
    let read_only = sb.features & feature::all(|f| f.mount == Mount::ReadOnly);
    if !options.read_only && !read_only.is_empty() {
        let names = feature::names(read_only);
        return Err(Error::unsupported(format!("writing a volume with {names}; mount it ro")));
    }
    if identity.read_only && !options.read_only {
        return Err(Error::ReadOnly);
    }
    Ok(())
}

fn check_options(
    sb: &Superblock,
    zones: Option<&WritePointers>,
    options: &mut MountOptions,
) -> Result<()> {
    if sb.features.contains(Features::BLKZONED) {
        options.mode = AllocationMode::Lfs;
    }
    if options.atgc && options.mode == AllocationMode::Lfs {
        return Err(Error::usage("atgc: not with mode=lfs, which zoned drives need"));
    }
    if options.quota_limits[2] && !sb.features.contains(Features::PRJQUOTA) {
        return Err(Error::usage("prjquota: the volume was made without project_quota"));
    }
    if options.hybrid {
        nodes_end(sb)?;
    }
    let judged = zones.is_some_and(|z| z.is_sequential(sb.main_end() - 1));
    if options.oprw && !judged && options.fsync_mode != FsyncMode::Strict {
        return Err(Error::usage(
            "oprw: the drive has no write pointers to recover by; without them it is \
             fsync_mode=strict,oprw, which recovers by checksums",
        ));
    }
    Ok(())
}

/// The three data logs' summaries, in whichever form the pack has them.
fn data_summaries(
    io: &Io,
    checkpoint: &Checkpoint,
    start: u32,
) -> Result<Vec<Box<RawSummaryBlock>>> {
    let data = [LogType::HotData, LogType::WarmData, LogType::ColdData];
    if checkpoint.flags.contains(CpFlags::COMPACT_SUM) {
        let counts = data.map(|log| {
            let at = checkpoint.curseg(log);
            if at.ssr { BLOCKS_PER_SEGMENT as usize } else { usize::from(at.blkoff) }
        });
        let first = start + checkpoint.start_sum;
        return Ok(summary::unpack_compact(counts, |i| io.read(first + i))?.into());
    }
    data.into_iter().map(|log| pack_summary(io, checkpoint, start, log)).collect()
}

fn pack_summary(
    io: &Io,
    checkpoint: &Checkpoint,
    start: u32,
    log: LogType,
) -> Result<Box<RawSummaryBlock>> {
    let index = checkpoint.summary_block(log).ok_or_else(|| {
        Error::corrupt("checkpoint.cp_pack_total_block_count", start, checkpoint.pack_total, "more")
    })?;
    let block = io.read(start + index)?;
    let summary = RawSummaryBlock::of(&block);
    summary.check_type(log, start + index)?;
    Ok(Box::new(summary.clone()))
}

/// A node log's summary: from the pack or, after a cut, from the footers of its blocks
/// (`f2fs_restore_node_summary`).
fn node_summary(
    io: &Io,
    sb: &Superblock,
    segments: &Segments,
    checkpoint: &Checkpoint,
    start: u32,
    log: LogType,
) -> Result<Box<RawSummaryBlock>> {
    if checkpoint.has_node_summaries() {
        return pack_summary(io, checkpoint, start, log);
    }
    footer_summary(io, sb, segments, checkpoint.curseg(log).segno, log)
}

/// The summary of segment `segno` of node log `log`, from the footers of its valid blocks.
pub(crate) fn footer_summary(
    io: &Io,
    sb: &Superblock,
    segments: &Segments,
    segno: SegNo,
    log: LogType,
) -> Result<Box<RawSummaryBlock>> {
    let entry = segments.entry(segno);
    let mut summary = RawSummaryBlock::empty(log);
    if entry.valid == 0 {
        return Ok(summary);
    }
    // Not only to the end of the usable part: nothing of a read-only zone is usable, but all of it
    // can be read.
    let used = bits::msb_last_one(&entry.map).map_or(0, |last| last as u32 + 1);
    let blocks = io.read_run(sb.seg_start(segno), used)?;
    for (offset, block) in blocks.iter().enumerate() {
        if entry.is_valid(offset) {
            summary.entries[offset] = RawSummary::node(RawNodeFooter::of(block).nid.get());
        }
    }
    Ok(summary)
}

/// Full and empty NAT blocks, if this checkpoint has them (`__get_nat_bitmaps`).
fn load_nat_bits(
    io: &Io,
    sb: &Superblock,
    checkpoint: &Checkpoint,
    start: u32,
) -> Result<Option<NatBits>> {
    if !checkpoint.flags.contains(CpFlags::NAT_BITS) {
        return Ok(None);
    }
    let Some(first) = nat_bits::start(sb, checkpoint.pack_total) else { return Ok(None) };
    let blocks = io.read_run(start + first, nat_bits::blocks(sb))?;
    let bytes: Vec<u8> = blocks.iter().flat_map(Block::bytes).copied().collect();
    Ok(NatBits::decode(sb, checkpoint, &bytes))
}

fn nat_journal(sb: &Superblock, hot: &RawSummaryBlock, at: u32) -> Result<BTreeMap<Nid, NatEntry>> {
    let mut journal = BTreeMap::new();
    for entry in hot.nat_journal().used(at)? {
        let nid = entry.nid.get();
        if nid >= sb.max_nid() {
            return Err(Error::corrupt("nat_journal.nid", at, nid, format!("0..{}", sb.max_nid())));
        }
        journal.insert(nid, entry.entry.into());
    }
    Ok(journal)
}

fn sit_journal(sb: &Superblock, cold: &RawSummaryBlock, at: u32) -> Result<Vec<(SegNo, SitEntry)>> {
    let mut journal = Vec::new();
    for entry in cold.sit_journal().used(at)? {
        let segno = entry.segno.get();
        if segno >= sb.segment_count_main {
            let allowed = format!("0..{}", sb.segment_count_main);
            return Err(Error::corrupt("sit_journal.segno", at, segno, allowed));
        }
        journal.push((segno, entry.entry.parse(at)?));
    }
    Ok(journal)
}

fn make_logs(
    sb: &Superblock,
    segments: &mut Segments,
    checkpoint: &Checkpoint,
    summaries: Vec<Box<RawSummaryBlock>>,
) -> Result<[Log; 6]> {
    let mut logs = Vec::with_capacity(6);
    for (log, summary) in LogType::ALL.into_iter().zip(summaries) {
        let at = *checkpoint.curseg(log);
        if !sb.has_log(log) {
            logs.push(Log { at, summary });
            continue;
        }
        let entry = segments.entry(at.segno);
        if entry.valid > 0 && entry.log != log {
            let (found, allowed) = (format!("{:?}", entry.log), format!("{log:?}"));
            return Err(Error::corrupt("sit_entry.type of a log", at.segno, found, allowed));
        }
        let head = usize::from(at.blkoff);
        let next = bits_from(entry, head, at.ssr);
        if next {
            let found = format!("a valid block at or behind {head} of segment {}", at.segno);
            return Err(Error::corrupt("checkpoint blkoff", at.segno, found, "a free log head"));
        }
        if segments.is_free(at.segno) {
            segments.resume(at.segno, log);
        }
        logs.push(Log { at, summary });
    }
    logs.try_into().map_err(|_| Error::corrupt("logs", 0_u32, "fewer", 6))
}

/// Whether a valid block lies where the log would write.
fn bits_from(entry: &SitEntry, head: usize, ssr: bool) -> bool {
    let end = if ssr { head + 1 } else { BLOCKS_PER_SEGMENT as usize };
    crate::ondisk::bits::msb::next_one(&entry.map, head, end).is_some()
}

/// The SIT's totals agree with the checkpoint's (`f2fs_build_segment_manager`).
fn check_counts(segments: &Segments, checkpoint: &Checkpoint, at: u32) -> Result<()> {
    let valid = segments.valid_blocks();
    if valid > checkpoint.valid_block_count {
        let allowed = format!("at least the SIT's {valid}");
        let found = checkpoint.valid_block_count;
        return Err(Error::corrupt("checkpoint.valid_block_count", at, found, allowed));
    }
    let nodes: u64 = (0..segments.count())
        .map(|segno| segments.entry(segno))
        .filter(|entry| entry.log.is_node())
        .map(|entry| u64::from(entry.valid))
        .sum();
    if nodes != u64::from(checkpoint.valid_node_count) {
        let found = checkpoint.valid_node_count;
        return Err(Error::corrupt("checkpoint.valid_node_count", at, found, nodes));
    }
    Ok(())
}

fn read_orphans(
    io: &Io,
    sb: &Superblock,
    checkpoint: &Checkpoint,
    start: u32,
) -> Result<BTreeSet<Nid>> {
    let mut orphans = BTreeSet::new();
    for index in checkpoint.orphan_blocks(sb) {
        let at = start + index;
        let block: Block = io.read(at)?;
        let raw = crate::ondisk::orphan::RawOrphanBlock::of(&block);
        for ino in raw.inos(at)? {
            if !sb.is_node_id(ino) {
                let allowed = format!("3..{}", sb.max_nid());
                return Err(Error::corrupt("orphan_block.ino", at, ino, allowed));
            }
            orphans.insert(ino);
        }
    }
    Ok(orphans)
}
