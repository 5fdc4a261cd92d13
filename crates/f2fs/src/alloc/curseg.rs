//! The six logs: where the next block of each temperature goes (`f2fs_allocate_data_block`).

use crate::alloc::aged::Aged;
use crate::alloc::segments::Segments;
use crate::error::{Error, Result};
use crate::mount::io::Io;
use crate::ondisk::curseg::Curseg;
use crate::ondisk::sit::LogType;
use crate::ondisk::summary::{RawSummary, RawSummaryBlock};
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{BLOCKS_PER_SEGMENT, BlockAddr, SegNo, is_data_addr};

/// One log.
pub(crate) struct Log {
    /// Segment, next block in it, and how the segment is filled.
    pub(crate) at: Curseg,
    /// Owners of the segment's blocks. It goes to the summary area when the log leaves the segment.
    pub(crate) summary: Box<RawSummaryBlock>,
}

/// Where a log continues when its segment is full.
enum NextSegment {
    /// In a free segment.
    Free(SegNo),
    /// In free slots of a used segment, from this one on; with the segment's summary.
    Used(SegNo, u16, Box<RawSummaryBlock>),
}

/// All six logs, and the rules by which they allocate.
pub(crate) struct Logs {
    logs: [Log; 6],
    /// Whether slots of used segments are reused when few sections are free (never on zones).
    pub(crate) ssr_allowed: bool,
    /// A log continues in a used segment if no more sections than this are free (`f2fs_need_SSR`).
    pub(crate) ssr_threshold: u64,
    /// hybridF2FS: the first section behind those for nodes, on a device of their own.
    pub(crate) nodes_end: Option<u32>,
    /// Where the cleaner's blocks go while it moves them by age.
    pub(super) aged: Option<Aged>,
    /// Blocks of the log of roll-forward's chain since the last checkpoint.
    chain_blocks: u64,
    /// The chain has nodes of a write-back that did not come to its end: no checksum behind them is
    /// that of all nodes in front.
    is_chain_broken: bool,
    /// Blocks of all logs since then.
    allocated: u64,
    /// Blocks written to free segments, and to free slots of used ones, since the mount
    /// (`block_count` of LFS and SSR).
    written: [u64; 2],
    /// Blocks of these that went to the logs of nodes.
    nodes_written: u64,
}

impl Logs {
    pub(crate) fn new(logs: [Log; 6], ssr_allowed: bool, ssr_threshold: u64) -> Self {
        Self {
            logs,
            ssr_allowed,
            ssr_threshold,
            nodes_end: None,
            aged: None,
            chain_blocks: 0,
            is_chain_broken: false,
            allocated: 0,
            written: [0; 2],
            nodes_written: 0,
        }
    }

    /// Blocks that went to the log of roll-forward's chain since the last checkpoint.
    pub(crate) fn chain_blocks(&self) -> u64 {
        self.chain_blocks
    }

    /// Blocks taken since the last checkpoint, which tells how much room roll-forward needs.
    pub(crate) fn allocated(&self) -> u64 {
        self.allocated
    }

    /// Blocks written since the mount: to free segments, and to free slots of used ones.
    pub(crate) fn written(&self) -> [u64; 2] {
        self.written
    }

    /// Blocks of these that went to the logs of nodes.
    pub(crate) fn nodes_written(&self) -> u64 {
        self.nodes_written
    }

    /// Whether few enough sections are free that logs continue in used segments
    /// (`f2fs_need_SSR`).
    pub(crate) fn needs_ssr(&self, segments: &Segments) -> bool {
        self.ssr_allowed && u64::from(segments.free_sections()) <= self.ssr_threshold
    }

    /// To be called when a checkpoint is durable: a new chain begins.
    pub(crate) fn begin_chain(&mut self) {
        self.chain_blocks = 0;
        self.is_chain_broken = false;
        self.allocated = 0;
    }

    /// Until the next checkpoint nothing behind what is in the chain can be recovered.
    pub(crate) fn break_chain(&mut self) {
        self.is_chain_broken = true;
    }

    /// Whether recovery can read the chain to its end.
    pub(crate) fn is_chain_broken(&self) -> bool {
        self.is_chain_broken
    }

    /// A log's position and summary.
    pub(crate) fn get(&self, log: LogType) -> &Log {
        &self.logs[log.index()]
    }

    /// A log's position and summary, to be changed.
    pub(crate) fn get_mut(&mut self, log: LogType) -> &mut Log {
        &mut self.logs[log.index()]
    }

    /// Whether some log is in `segno`.
    pub(crate) fn is_current(&self, segno: SegNo) -> bool {
        self.logs.iter().any(|log| log.at.segno == segno) || self.is_aged(segno)
    }

    /// The segments where logs are, each once.
    pub(crate) fn current(&self) -> impl Iterator<Item = SegNo> + '_ {
        let segnos = || self.logs.iter().map(|log| log.at.segno);
        segnos().enumerate().filter_map(move |(i, segno)| {
            let first = segnos().position(|other| other == segno);
            (first == Some(i)).then_some(segno)
        })
    }

    /// How many blocks a log can take before it needs another section.
    pub(crate) fn room(&self, segments: &Segments, log: LogType) -> u32 {
        let at = self.get(log).at;
        if at.ssr {
            segments.reusable_behind(at.segno, at.blkoff.into())
        } else {
            segments.room_behind(at.segno, at.blkoff.into())
        }
    }

    /// How many blocks a log can take before it needs another segment.
    pub(crate) fn room_in_segment(&self, segments: &Segments, log: LogType) -> u32 {
        let at = self.get(log).at;
        if at.ssr {
            segments.reusable_behind(at.segno, at.blkoff.into())
        } else {
            segments.usable(at.segno).saturating_sub(at.blkoff.into())
        }
    }

    /// The summary of `segno`, if a log is there.
    pub(crate) fn summary_of(&mut self, segno: SegNo) -> Option<&mut RawSummaryBlock> {
        self.logs.iter_mut().find(|log| log.at.segno == segno).map(|log| &mut *log.summary)
    }

    /// The address that the next block of `log` will get.
    pub(crate) fn next_addr(&self, sb: &Superblock, log: LogType) -> BlockAddr {
        let at = self.get(log).at;
        sb.seg_start(at.segno) + u32::from(at.blkoff)
    }

    /// Takes the next block of `log` for what `summary` describes, in place of `old`.
    ///
    /// When the segment is full the log moves on at once, so that [`Logs::next_addr`] is always
    /// where the next block will really be: roll-forward's chain consists of these addresses. If
    /// this fails, nothing changes.
    pub(crate) fn allocate(
        &mut self,
        segments: &mut Segments,
        io: &Io,
        log: LogType,
        old: BlockAddr,
        summary: RawSummary,
        mut now: u64,
    ) -> Result<BlockAddr> {
        if is_data_addr(old) {
            segments.check_valid(old)?;
        }
        if self.aged.is_some() && log == LogType::ColdData && is_data_addr(old) {
            let from = *segments.entry(segments.locate(old)?.0);
            if let Some(addr) = self.allocate_by_age(segments, io, (old, &from), summary)? {
                return Ok(addr);
            }
            // A moved block stays as old as it was.
            now = from.mtime;
        }
        let addr = self.next_addr(segments.sb(), log);
        let at = self.get(log).at;
        let offset = usize::from(at.blkoff);
        let next = if at.ssr {
            segments.next_reusable(at.segno, offset + 1)
        } else {
            Some(offset + 1).filter(|n| *n < segments.usable(at.segno) as usize)
        };
        let place = if next.is_none() { Some(self.next_segment(segments, io, log)?) } else { None };
        segments.mark_valid(addr, now)?;
        self.count_written(log, at.ssr);
        self.get_mut(log).summary.entries[offset] = summary;
        if is_data_addr(old) {
            self.invalidate(segments, old)?;
        }
        if let Some(next) = next {
            self.get_mut(log).at.blkoff = next as u16;
        }
        if let Some(place) = place {
            self.enter(segments, io, log, place);
        }
        Ok(addr)
    }

    pub(super) fn count_written(&mut self, log: LogType, ssr: bool) {
        self.chain_blocks += u64::from(log == LogType::WarmNode);
        self.allocated += 1;
        self.written[usize::from(ssr)] += 1;
        self.nodes_written += u64::from(log.is_node());
    }

    /// Drops a valid block. If it was the last one of its segment, the segment becomes prefree.
    pub(crate) fn invalidate(&self, segments: &mut Segments, addr: BlockAddr) -> Result<()> {
        let segno = segments.mark_invalid(addr)?;
        if !self.is_current(segno) {
            segments.set_prefree_if_empty(segno);
        }
        Ok(())
    }

    /// Where a log continues when its segment is full.
    fn next_segment(&self, segments: &Segments, io: &Io, log: LogType) -> Result<NextSegment> {
        if self.needs_ssr(segments)
            && let Some(used) = self.used_segment(segments, io, log)?
        {
            return Ok(used);
        }
        let next = self.next_in_section(segments, self.get(log).at.segno);
        match next.or_else(|| self.free_section_for(segments, log)) {
            Some(segno) => Ok(NextSegment::Free(segno)),
            None if !self.ssr_allowed => Err(Error::NoSpace),
            None => self.used_segment(segments, io, log)?.ok_or(Error::NoSpace),
        }
    }

    fn next_in_section(&self, segments: &Segments, segno: SegNo) -> Option<SegNo> {
        let sb = segments.sb();
        let next = segno + 1;
        let same = next < segments.count() && sb.section_of(next) == sb.section_of(segno);
        (same && segments.is_free(next)).then_some(next)
    }

    /// A free section for the log. Nodes and hot data gather at the front, other logs go on to the
    /// right (`no_heap`). With a device for nodes, each class keeps to its own as long as there is
    /// room.
    fn free_section_for(&self, segments: &Segments, log: LogType) -> Option<SegNo> {
        let sb = segments.sb();
        let from = if log.is_node() || log == LogType::HotData {
            0
        } else {
            sb.section_of(self.get(log).at.segno) + 1
        };
        let all = 0..sb.main_sections();
        let own = match self.nodes_end {
            Some(end) if log.is_node() => 0..end,
            Some(end) => end..all.end,
            None => all.clone(),
        };
        let section = segments.find_free_section(&own, from);
        let section = section.or_else(|| segments.find_free_section(&all, from));
        section.map(|section| sb.section_start(section))
    }

    /// Free slots of a used segment, for the log.
    fn used_segment(
        &self,
        segments: &Segments,
        io: &Io,
        log: LogType,
    ) -> Result<Option<NextSegment>> {
        let candidates = std::iter::once(log).chain(siblings(log));
        let victim = candidates
            .filter_map(|kind| segments.ssr_victim(kind, |segno| self.is_current(segno)))
            .next();
        let Some(segno) = victim else { return Ok(None) };
        let Some(blkoff) = segments.next_reusable(segno, 0) else { return Ok(None) };
        let summary = stored_summary(segments, io, segno)?;
        Ok(Some(NextSegment::Used(segno, blkoff as u16, summary)))
    }

    /// Moves the log on.
    fn enter(&mut self, segments: &mut Segments, io: &Io, log: LogType, next: NextSegment) {
        self.leave(segments, io, log);
        let mut summary = fresh_summary(log, &self.get(log).summary);
        let at = match next {
            NextSegment::Free(segno) => Curseg { segno, blkoff: 0, ssr: false },
            NextSegment::Used(segno, blkoff, used) => {
                summary.entries = used.entries;
                Curseg { segno, blkoff, ssr: true }
            }
        };
        // A used segment may also have become empty a moment ago.
        segments.take(at.segno, log);
        *self.get_mut(log) = Log { at, summary };
    }

    /// Stores the summary of the segment a log is leaving.
    fn leave(&mut self, segments: &mut Segments, io: &Io, log: LogType) {
        let current = self.get(log);
        let segno = current.at.segno;
        io.write_meta(segments.sb().ssa_block(segno), summary_area_block(&current.summary));
        segments.set_prefree_if_empty(segno);
    }

    /// As [`Logs::start_afresh`], but if there is no section, in free slots of a used segment where
    /// blocks may be written in any order: a nearly full volume may have no other room.
    pub(crate) fn start_elsewhere(
        &mut self,
        segments: &mut Segments,
        io: &Io,
        log: LogType,
    ) -> Result<()> {
        match self.start_afresh(segments, io, log) {
            Err(Error::NoSpace) => {
                let place = self.used_segment(segments, io, log)?.ok_or(Error::NoSpace)?;
                self.enter(segments, io, log, place);
                Ok(())
            }
            done => done,
        }
    }

    /// Lets the log go on at `addr` in its section, behind blocks that were written since the
    /// checkpoint and do not count.
    pub(crate) fn skip_to(
        &mut self,
        segments: &mut Segments,
        io: &Io,
        log: LogType,
        addr: BlockAddr,
    ) -> Result<()> {
        let (segno, offset) = segments.locate(addr)?;
        if segno != self.get(log).at.segno {
            // Roll-forward may have found blocks in front of `addr`.
            let summary = stored_summary(segments, io, segno)?;
            self.enter(segments, io, log, NextSegment::Used(segno, offset as u16, summary));
        }
        self.get_mut(log).at = Curseg { segno, blkoff: offset as u16, ssr: false };
        Ok(())
    }

    /// Gives the log a fresh section and leaves the rest of its segment unused, because
    /// roll-forward wrote past it or its zone's write pointer is not where the log is.
    pub(crate) fn start_afresh(
        &mut self,
        segments: &mut Segments,
        io: &Io,
        log: LogType,
    ) -> Result<()> {
        let segno = self.free_section_for(segments, log).ok_or(Error::NoSpace)?;
        self.enter(segments, io, log, NextSegment::Free(segno));
        Ok(())
    }
}

/// A new segment's summary. The journal belongs to the log and not to the segment.
fn fresh_summary(log: LogType, left: &RawSummaryBlock) -> Box<RawSummaryBlock> {
    let mut summary = RawSummaryBlock::empty(log);
    summary.journal = left.journal;
    summary
}

/// The summary that the summary area has of a segment.
pub(super) fn stored_summary(
    segments: &Segments,
    io: &Io,
    segno: SegNo,
) -> Result<Box<RawSummaryBlock>> {
    let block = io.read_meta(segments.sb().ssa_block(segno))?;
    Ok(Box::new(RawSummaryBlock::of(&block).clone()))
}

/// A summary, as it is stored in the summary area.
pub(crate) fn summary_area_block(summary: &RawSummaryBlock) -> drive::Block {
    use zerocopy::IntoBytes;
    drive::Block::from_prefix(summary.as_bytes())
}

/// The other logs of the same class, nearest temperature first, where SSR may look next.
pub(super) fn siblings(log: LogType) -> [LogType; 2] {
    match log {
        LogType::HotData => [LogType::WarmData, LogType::ColdData],
        LogType::WarmData => [LogType::ColdData, LogType::HotData],
        LogType::ColdData => [LogType::WarmData, LogType::HotData],
        LogType::HotNode => [LogType::WarmNode, LogType::ColdNode],
        LogType::WarmNode => [LogType::ColdNode, LogType::HotNode],
        LogType::ColdNode => [LogType::WarmNode, LogType::HotNode],
    }
}

const _: () = assert!(BLOCKS_PER_SEGMENT <= u16::MAX as u32);
