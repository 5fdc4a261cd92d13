//! The six logs: where the next block of each temperature goes (`f2fs_allocate_data_block`).

use crate::error::{Error, Result};
use crate::io::Io;
use crate::ondisk::checkpoint::Curseg;
use crate::ondisk::sit::LogType;
use crate::ondisk::summary::{RawSummary, RawSummaryBlock};
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{BLOCKS_PER_SEGMENT, BlockAddr, SegNo, is_data_addr};
use crate::segments::Segments;

/// One log.
pub(crate) struct Log {
    /// Segment, next block in it, and how it is filled.
    pub(crate) at: Curseg,
    /// Owners of the segment's blocks; goes to the summary area when the log leaves the segment.
    pub(crate) summary: Box<RawSummaryBlock>,
}

/// All six logs and the rules they allocate by.
pub(crate) struct Logs {
    logs: [Log; 6],
    /// Reuse slots of used segments when free sections run low (never on zones).
    pub(crate) ssr_allowed: bool,
    /// Free sections at or below which a log goes on in a used segment (`f2fs_need_SSR`).
    pub(crate) ssr_threshold: u32,
}

impl Logs {
    pub(crate) fn new(logs: [Log; 6], ssr_allowed: bool, ssr_threshold: u32) -> Self {
        Self { logs, ssr_allowed, ssr_threshold }
    }

    /// A log's position and summary.
    pub(crate) fn get(&self, log: LogType) -> &Log {
        &self.logs[log.index()]
    }

    /// A log's position and summary, to change.
    pub(crate) fn get_mut(&mut self, log: LogType) -> &mut Log {
        &mut self.logs[log.index()]
    }

    /// Whether `segno` is where some log is.
    pub(crate) fn is_current(&self, segno: SegNo) -> bool {
        self.logs.iter().any(|log| log.at.segno == segno)
    }

    /// The summary of `segno` if a log is there.
    pub(crate) fn summary_of(&mut self, segno: SegNo) -> Option<&mut RawSummaryBlock> {
        self.logs.iter_mut().find(|log| log.at.segno == segno).map(|log| &mut *log.summary)
    }

    /// Address the next block of `log` will get.
    pub(crate) fn next_addr(&self, sb: &Superblock, log: LogType) -> BlockAddr {
        let at = self.get(log).at;
        sb.seg_start(at.segno) + u32::from(at.blkoff)
    }

    /// Takes the next block of `log` for what `summary` describes, in place of `old`.
    ///
    /// When the segment fills up the log moves on at once, so that [`Logs::next_addr`] is always
    /// where the next block will really be: roll-forward's chain is made of these addresses.
    pub(crate) fn allocate(
        &mut self,
        segments: &mut Segments,
        io: &mut Io,
        log: LogType,
        old: BlockAddr,
        summary: RawSummary,
        now: u64,
    ) -> Result<BlockAddr> {
        let addr = self.next_addr(segments.sb(), log);
        let current = &mut self.logs[log.index()];
        let (segno, offset) = (current.at.segno, usize::from(current.at.blkoff));
        segments.mark_valid(addr, now)?;
        current.summary.entries[offset] = summary;
        if is_data_addr(old) {
            self.invalidate(segments, old)?;
        }
        let current = &mut self.logs[log.index()];
        let next = if current.at.ssr {
            segments.next_reusable(segno, offset + 1)
        } else {
            Some(offset + 1).filter(|n| *n < segments.usable(segno) as usize)
        };
        match next {
            Some(next) => current.at.blkoff = next as u16,
            None => self.move_on(segments, io, log)?,
        }
        Ok(addr)
    }

    /// Drops a valid block; its segment becomes prefree when it was the last one.
    pub(crate) fn invalidate(&self, segments: &mut Segments, addr: BlockAddr) -> Result<()> {
        let segno = segments.mark_invalid(addr)?;
        if !self.is_current(segno) {
            segments.set_prefree_if_empty(segno);
        }
        Ok(())
    }

    /// Leaves the log's segment, which is full, for another one.
    fn move_on(&mut self, segments: &mut Segments, io: &mut Io, log: LogType) -> Result<()> {
        let use_ssr = self.ssr_allowed && segments.free_sections() <= self.ssr_threshold;
        if use_ssr && self.switch_to_used(segments, io, log)? {
            return Ok(());
        }
        let left = self.get(log).at.segno;
        let next = self.next_in_section(segments, left);
        match next.or_else(|| self.free_section_for(segments, log)) {
            Some(segno) => self.switch_to_free(segments, io, log, segno),
            None if self.ssr_allowed && self.switch_to_used(segments, io, log)? => Ok(()),
            None => Err(Error::NoSpace),
        }
    }

    fn next_in_section(&self, segments: &Segments, segno: SegNo) -> Option<SegNo> {
        let sb = segments.sb();
        let next = segno + 1;
        let same = next < segments.count() && sb.section_of(next) == sb.section_of(segno);
        (same && segments.is_free(next)).then_some(next)
    }

    /// Nodes and hot data gather at the front, the rest goes on to the right (`no_heap`).
    fn free_section_for(&self, segments: &Segments, log: LogType) -> Option<SegNo> {
        let sb = segments.sb();
        let from = if log.is_node() || log == LogType::HotData {
            0
        } else {
            sb.section_of(self.get(log).at.segno) + 1
        };
        segments.find_free_section(from).map(|section| sb.section_start(section))
    }

    /// Moves the log to a free segment.
    fn switch_to_free(
        &mut self,
        segments: &mut Segments,
        io: &mut Io,
        log: LogType,
        segno: SegNo,
    ) -> Result<()> {
        self.leave(segments, io, log);
        segments.take(segno, log);
        let current = self.get_mut(log);
        current.at = Curseg { segno, blkoff: 0, ssr: false };
        current.summary = fresh_summary(log, &current.summary);
        Ok(())
    }

    /// Moves the log to free slots of a used segment; false if there is none.
    fn switch_to_used(
        &mut self,
        segments: &mut Segments,
        io: &mut Io,
        log: LogType,
    ) -> Result<bool> {
        let candidates = std::iter::once(log).chain(siblings(log));
        let victim = candidates
            .filter_map(|kind| segments.ssr_victim(kind, |segno| self.is_current(segno)))
            .next();
        let Some(segno) = victim else { return Ok(false) };
        let Some(blkoff) = segments.next_reusable(segno, 0) else { return Ok(false) };
        let block = io.read_meta(segments.sb().ssa_block(segno))?;
        self.leave(segments, io, log);
        segments.set_log(segno, log);
        let current = self.get_mut(log);
        let mut summary = fresh_summary(log, &current.summary);
        summary.entries = RawSummaryBlock::of(&block).entries;
        current.at = Curseg { segno, blkoff: blkoff as u16, ssr: true };
        current.summary = summary;
        Ok(true)
    }

    /// Stores the summary of the segment a log is leaving.
    fn leave(&mut self, segments: &mut Segments, io: &mut Io, log: LogType) {
        let current = self.get(log);
        let segno = current.at.segno;
        io.write_meta(segments.sb().ssa_block(segno), summary_area_block(&current.summary));
        segments.set_prefree_if_empty(segno);
    }

    /// As [`Logs::start_afresh`], or in a used segment with free slots if there is no section: a
    /// nearly full volume may have no other room.
    pub(crate) fn start_elsewhere(
        &mut self,
        segments: &mut Segments,
        io: &mut Io,
        log: LogType,
    ) -> Result<()> {
        match self.start_afresh(segments, io, log) {
            Err(Error::NoSpace)
                if self.ssr_allowed && self.switch_to_used(segments, io, log)? =>
            {
                Ok(())
            }
            done => done,
        }
    }

    /// Gives the log a fresh section, leaving the rest of its segment unused: after roll-forward
    /// wrote behind its back, or when its zone's write pointer is not where the log is.
    pub(crate) fn start_afresh(
        &mut self,
        segments: &mut Segments,
        io: &mut Io,
        log: LogType,
    ) -> Result<()> {
        let segno = self.free_section_for(segments, log).ok_or(Error::NoSpace)?;
        self.switch_to_free(segments, io, log, segno)
    }
}

/// A new segment's summary. The journal belongs to the log, not to the segment.
fn fresh_summary(log: LogType, left: &RawSummaryBlock) -> Box<RawSummaryBlock> {
    let mut summary = RawSummaryBlock::empty(log);
    summary.journal = left.journal;
    summary
}

/// A summary as the summary area stores it.
pub(crate) fn summary_area_block(summary: &RawSummaryBlock) -> drive::Block {
    use zerocopy::IntoBytes;
    drive::Block::from_prefix(summary.as_bytes())
}

/// The other logs of the same class, nearest temperature first: where SSR may look next.
fn siblings(log: LogType) -> [LogType; 2] {
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
