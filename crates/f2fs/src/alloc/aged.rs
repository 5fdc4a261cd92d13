//! The log of blocks moved by age (`CURSEG_ALL_DATA_ATGC`). It is there only while the cleaner
//! submits blocks, fills holes of used segments, and no checkpoint knows it: the segment looks like
//! any other that SSR filled.

use std::iter;

use crate::alloc::curseg::{Log, Logs, siblings, stored_summary, summary_area_block};
use crate::alloc::gc::by_age::ByAge;
use crate::alloc::segments::Segments;
use crate::error::Result;
use crate::mount::io::Io;
use crate::ondisk::curseg::Curseg;
use crate::ondisk::sit::{LogType, SitEntry};
use crate::ondisk::summary::RawSummary;
use crate::ondisk::{BlockAddr, SegNo};

/// The rules by which moved blocks are placed, and where the next one goes.
pub(crate) struct Aged {
    rules: ByAge,
    at: Option<Log>,
}

impl Logs {
    /// From now on, blocks moved to the cold log go to segments of blocks of about their age
    /// instead.
    pub(crate) fn begin_by_age(&mut self, rules: ByAge) {
        self.aged = Some(Aged { rules, at: None });
    }

    /// Ends [`Logs::begin_by_age`].
    pub(crate) fn end_by_age(&mut self, segments: &mut Segments, io: &Io) {
        if let Some(at) = self.aged.take().and_then(|aged| aged.at) {
            leave(segments, io, &at);
        }
    }

    /// Whether the log of moved blocks is in `segno`.
    pub(super) fn is_aged(&self, segno: SegNo) -> bool {
        let at = self.aged.as_ref().and_then(|aged| aged.at.as_ref());
        at.is_some_and(|log| log.at.segno == segno)
    }

    /// Takes a block for what `summary` describes, in place of `old`, which lies in segment `from`,
    /// in a segment about as old as that. The block stays as old as it was. `None` if there is no
    /// such segment.
    pub(super) fn allocate_by_age(
        &mut self,
        segments: &mut Segments,
        io: &Io,
        (old, from): (BlockAddr, &SitEntry),
        summary: RawSummary,
    ) -> Result<Option<BlockAddr>> {
        let Some(mut log) = self.aged_log(segments, io, from)? else { return Ok(None) };
        let Curseg { segno, blkoff, .. } = log.at;
        let addr = segments.sb().seg_start(segno) + u32::from(blkoff);
        segments.mark_valid(addr, from.mtime)?;
        log.summary.entries[usize::from(blkoff)] = summary;
        self.count_written(LogType::ColdData, true);
        let next = segments.next_reusable(segno, usize::from(blkoff) + 1);
        match (next, &mut self.aged) {
            (Some(next), Some(aged)) => {
                log.at.blkoff = next as u16;
                aged.at = Some(log);
            }
            _ => leave(segments, io, &log),
        }
        self.invalidate(segments, old)?;
        Ok(Some(addr))
    }

    /// The log of moved blocks, or a new one for those of a segment like `from`, preferably in one
    /// of its type. A segment keeps its type (`get_atssr_segment`).
    fn aged_log(
        &mut self,
        segments: &mut Segments,
        io: &Io,
        from: &SitEntry,
    ) -> Result<Option<Log>> {
        let Some(Aged { rules, at }) = &mut self.aged else { return Ok(None) };
        if let Some(log) = at.take() {
            return Ok(Some(log));
        }
        let rules = *rules;
        let kinds = iter::once(from.log).chain(siblings(from.log));
        let holes = |kind| segments.with_holes(kind, |segno| self.is_current(segno));
        let found = kinds.filter_map(|k| rules.destination(segments, from.mtime, holes(k))).next();
        let Some((segno, first)) = found.and_then(|s| Some((s, segments.next_reusable(s, 0)?)))
        else {
            return Ok(None);
        };
        let summary = stored_summary(segments, io, segno)?;
        segments.take(segno, segments.entry(segno).log);
        Ok(Some(Log { at: Curseg { segno, blkoff: first as u16, ssr: true }, summary }))
    }
}

/// Stores the summary of the segment the log is leaving.
fn leave(segments: &mut Segments, io: &Io, log: &Log) {
    io.write_meta(segments.sb().ssa_block(log.at.segno), summary_area_block(&log.summary));
}
