//! Turns a walk's results into a mounted volume in memory: what a mount would have read if nothing
//! had been wrong. Everything that differs from the drive is dirty, so that the next checkpoint
//! writes it, out of place as always.

use std::collections::BTreeSet;
use std::sync::Arc;

use drive::{Block, Drive};
use queue::BlockQueue;

use crate::alloc::curseg::{Log, summary_area_block};
use crate::alloc::nat::Nat;
use crate::alloc::segments::Segments;
use crate::alloc::sit_table::SitTable;
use crate::alloc::zones::{WritePointers, usable_blocks};
use crate::check::{Checker, Mend};
use crate::error::{Error, Result};
use crate::mount::engine::Engine;
use crate::mount::io::Io;
use crate::mount::load::{Parts, footer_summary};
use crate::mount::options::{AllocationMode, MountOptions};
use crate::ondisk::checkpoint::CpFlags;
use crate::ondisk::curseg::Curseg;
use crate::ondisk::nat::{self};
use crate::ondisk::sit::{self, LogType, MAP_SIZE, RawSitBlock, RawSitEntry, SitEntry};
use crate::ondisk::summary::{RawSummaryBlock, TYPE_DATA, TYPE_NODE};
use crate::ondisk::superblock::{Features, Superblock};
use crate::ondisk::{BLOCKS_PER_SEGMENT, SegNo, bits};

/// Everything of which a mended volume is made.
struct Builder<'a> {
    checker: &'a mut Checker,
    io: Io,
    sb: Arc<Superblock>,
    segments: Segments,
}

/// The volume as it should be, by `checker`, which has walked all of it.
pub(super) fn volume_of(
    drive: &Arc<dyn Drive>,
    checker: &mut Checker,
    mut options: MountOptions,
) -> Result<Engine> {
    let io = Io::new(Arc::new(BlockQueue::new(Arc::clone(drive))));
    let sb = Arc::new(checker.volume.sb.clone());
    if sb.features.contains(Features::BLKZONED) {
        options.mode = AllocationMode::Lfs;
    }
    let zones = WritePointers::load(&io)?;
    let usable = usable_blocks(&sb, zones.as_ref())?;
    let segments = Segments::new(sb.clone(), sit_entries(checker), usable);
    let mut builder = Builder { checker, io, sb, segments };
    builder.mark_changed_segments()?;
    let logs = builder.place_logs()?;
    builder.store_summaries(&logs)?;
    let nat = builder.nat()?;
    let Builder { checker, io, sb, segments } = builder;

    let mut checkpoint = checker.volume.cp.clone();
    let report = &checker.report;
    checkpoint.valid_block_count = report.blocks;
    checkpoint.valid_node_count = report.nodes as u32;
    checkpoint.valid_inode_count = report.inodes as u32;
    checkpoint.flags -= CpFlags::ERROR | CpFlags::FSCK;
    let orphans = checker.mend.as_ref().map(|mend| mend.orphans.clone()).unwrap_or_default();
    let sit = SitTable::mended(sb.clone(), checkpoint.sit_bitmap.clone());
    let pack = checker.volume.pack;
    let parts = Parts {
        sb,
        options,
        io,
        faults: Arc::default(),
        checkpoint,
        pack,
        nat,
        sit,
        segments,
        logs,
        orphans,
        zones,
    };
    Ok(Engine { repairing: true, ..parts.assemble() })
}

/// The SIT entries for what was reached. A segment keeps its type if its class is right.
fn sit_entries(checker: &Checker) -> Vec<SitEntry> {
    let volume = &checker.volume;
    let entry = |segno: usize| {
        let start = segno * MAP_SIZE;
        let mut map = [0; MAP_SIZE];
        map.copy_from_slice(&checker.blocks_reached[start..start + MAP_SIZE]);
        let (known, filled) = (volume.sit_types[segno], volume.filled_by[segno]);
        let log = filled.filter(|log| log.is_node() != known.is_node() || !volume.has_sit);
        let valid = bits::count(&map) as u16;
        SitEntry { log: log.unwrap_or(known), valid, map, mtime: volume.sit_mtimes[segno] }
    };
    (0..volume.sb.segment_count_main as usize).map(entry).collect()
}

impl Builder<'_> {
    fn mend(&self) -> Option<&Mend> {
        self.checker.mend.as_ref()
    }

    /// Marks the segments whose entry in the table differs.
    fn mark_changed_segments(&mut self) -> Result<()> {
        use zerocopy::IntoBytes;
        let segments = self.sb.segment_count_main;
        for index in 0..=sit::block_index(segments - 1) {
            let addr = sit::block_addr(&self.sb, &self.checker.volume.cp.sit_bitmap, index);
            let block = match self.io.read(addr) {
                Ok(block) => block,
                Err(_) => self.replace_unreadable(addr),
            };
            let first = index * sit::ENTRIES_PER_BLOCK as u32;
            for segno in first..segments.min(first + sit::ENTRIES_PER_BLOCK as u32) {
                let entry = *self.segments.entry(segno);
                let stored = RawSitBlock::of(&block).entry(segno);
                if stored.as_bytes() != RawSitEntry::from(&entry).as_bytes() {
                    self.segments.set_log(segno, entry.log);
                }
            }
        }
        Ok(())
    }

    /// Stands in for a metadata block that cannot be read. Rewriting it may make it readable.
    fn replace_unreadable(&mut self, addr: u32) -> Block {
        self.io.write_meta(addr, Block::zeroed());
        Block::zeroed()
    }

    /// The logs, where the checkpoint has them if they can continue there, or else each at a free
    /// segment.
    fn place_logs(&mut self) -> Result<[Log; 6]> {
        let mut logs: Vec<Log> = Vec::with_capacity(6);
        let cursegs = self.checker.volume.cp.cursegs;
        for log in LogType::ALL {
            let at = cursegs[log.index()];
            let again = cursegs[..log.index()].iter().any(|other| other.segno == at.segno);
            let at = if !again && self.can_go_on(log, at) {
                at
            } else {
                self.fresh_position(|segno| {
                    cursegs.iter().any(|at| at.segno == segno)
                        || logs.iter().any(|log| log.at.segno == segno)
                })?
            };
            if self.segments.is_free(at.segno) {
                self.segments.take(at.segno, log);
            } else {
                self.segments.set_log(at.segno, log);
            }
            let mut summary = self.summary_of(at.segno, log)?;
            if log != LogType::HotNode {
                summary.journal.fill(0);
            }
            logs.push(Log { at, summary });
        }
        logs.try_into().map_err(|_| Error::corrupt("logs", 0_u32, "fewer", 6))
    }

    /// Whether the blocks that the log would write are free.
    fn can_go_on(&self, log: LogType, at: Curseg) -> bool {
        if !self.checker.volume.has_sit || at.segno >= self.segments.count() {
            return false;
        }
        let entry = self.segments.entry(at.segno);
        let head = usize::from(at.blkoff);
        let end = if at.ssr { head + 1 } else { BLOCKS_PER_SEGMENT as usize };
        (entry.valid == 0 || entry.log.is_node() == log.is_node())
            && head < self.segments.usable(at.segno) as usize
            && bits::msb::next_one(&entry.map, head, end).is_none()
    }

    fn fresh_position(&self, is_taken: impl Fn(SegNo) -> bool) -> Result<Curseg> {
        let sections = 0..self.sb.main_sections();
        let whole = sections
            .filter(|section| self.segments.is_section_free(*section))
            .map(|section| self.sb.section_start(section))
            .find(|segno| !is_taken(*segno));
        let segno = whole.or_else(|| {
            (0..self.segments.count())
                .find(|segno| self.segments.is_free(*segno) && !is_taken(*segno))
        });
        let segno = segno.ok_or(Error::NoSpace)?;
        Ok(Curseg { segno, blkoff: 0, ssr: false })
    }

    /// The summary of `segno`, corrected.
    fn summary_of(&mut self, segno: SegNo, log: LogType) -> Result<Box<RawSummaryBlock>> {
        let stored = self.checker.volume.summary(segno);
        let mut summary = match stored {
            Ok(Some(block)) => Box::new(RawSummaryBlock::of(&block).clone()),
            Ok(None) => footer_summary(&self.io, &self.sb, &self.segments, segno, log)?,
            Err(_) => RawSummaryBlock::empty(log),
        };
        summary.entry_type = if log.is_node() { TYPE_NODE } else { TYPE_DATA };
        let start = self.sb.seg_start(segno);
        if let Some(mend) = self.mend() {
            for (addr, entry) in mend.summaries.range(start..start + BLOCKS_PER_SEGMENT) {
                summary.entries[(addr - start) as usize] = *entry;
            }
        }
        Ok(summary)
    }

    /// Writes corrected summaries, and those of segments that the logs have left, to the summary
    /// area.
    fn store_summaries(&mut self, logs: &[Log; 6]) -> Result<()> {
        let wrong = self.mend().into_iter().flat_map(|mend| mend.summaries.keys());
        let mut changed: BTreeSet<SegNo> =
            wrong.filter_map(|addr| self.sb.segno_of(*addr)).collect();
        let left = self.checker.volume.cp.cursegs.map(|at| at.segno);
        changed.extend(left.into_iter().filter(|segno| *segno < self.segments.count()));
        for segno in changed {
            if logs.iter().any(|log| log.at.segno == segno) || self.segments.entry(segno).valid == 0
            {
                continue;
            }
            let summary = self.summary_of(segno, self.segments.entry(segno).log)?;
            self.io.write_meta(self.sb.ssa_block(segno), summary_area_block(&summary));
        }
        Ok(())
    }

    /// The NAT, with all changes put into it.
    fn nat(&mut self) -> Result<Nat> {
        let volume = &self.checker.volume;
        let cp = &volume.cp;
        let bitmap = cp.nat_bitmap.clone();
        for index in 0..self.sb.nat_blocks() {
            let addr = nat::block_addr(&self.sb, &bitmap, index);
            let stale = match self.io.read(addr) {
                Ok(block) => !self.checker.volume.has_sit && block != Block::zeroed(),
                Err(_) => true,
            };
            if stale {
                self.replace_unreadable(addr);
            }
        }
        let volume = &self.checker.volume;
        let mut nat = Nat::new(
            self.sb.clone(),
            bitmap,
            volume.nat_journal().filter(|(nid, _)| *nid < self.sb.max_nid()).collect(),
            self.checker.report.nodes as u32,
            cp_hint(&self.sb, volume.cp.next_free_nid),
            volume.nat_bits.clone(),
        );
        for (nid, entry) in volume.changed_nats() {
            nat.force(*nid, *entry);
        }
        Ok(nat)
    }
}

fn cp_hint(sb: &Superblock, next_free_nid: u32) -> u32 {
    if next_free_nid < sb.max_nid() { next_free_nid } else { sb.root_ino }
}
