//! NAT, SIT and SSA, entry by entry. Entries in the checkpoint's journals replace those of the
//! tables.

use std::ops::Range;

use super::{Dump, Emit, Record, Shape, Value};
use crate::error::{Error, Result};
use crate::ondisk::nat;
use crate::ondisk::sit::{self, LogType, RawSitBlock, RawSitEntry};
use crate::ondisk::summary::{RawSummaryBlock, TYPE_NODE};
use crate::ondisk::{Nid, SegNo, bits};

/// The value of `pack` for an entry that is in the journal.
const JOURNAL: &str = "journal";

/// The part of `asked` that a table of `count` entries has; fails if that is nothing.
fn within(asked: Range<u32>, count: u32, entries: &str) -> Result<Range<u32>> {
    if asked.start >= count {
        let last = count.saturating_sub(1);
        return Err(Error::usage(format!("{}: the {entries} are 0 to {last}", asked.start)));
    }
    Ok(asked.start..asked.end.min(count))
}

/// 1 or 2, as `dump.f2fs` numbers the copies of a table's block.
fn copy_of(bitmap: &[u8], index: u32) -> u64 {
    1 + u64::from(bits::msb::test(bitmap, index as usize))
}

impl Dump {
    /// Used entries of the NAT.
    pub fn nat(&mut self, nids: Range<Nid>, emit: Emit<'_>) -> Result<()> {
        let volume = self.volume()?;
        let hot = volume.open_summaries[LogType::HotData.index()].clone();
        for nid in within(nids, volume.sb.max_nid(), "NAT's entries")? {
            let index = nat::block_index(nid);
            let journalled =
                hot.as_ref().and_then(|b| RawSummaryBlock::of(b).nat_journal().get(nid));
            let entry = match volume.nat(nid) {
                Ok(entry) => entry,
                Err(error) => {
                    let mut row = Record::new("nat_entry", Shape::Row);
                    row.put("nid", nid).complain(&error);
                    if !emit(row) {
                        break;
                    }
                    continue;
                }
            };
            if entry.is_free() {
                continue;
            }
            let addr = nat::block_addr(&volume.sb, &volume.cp.nat_bitmap, index);
            let mut row = Record::new("nat_entry", Shape::Row);
            row.put("nid", nid).put("ino", entry.ino).put("version", entry.version);
            row.put("blkaddr", entry.addr).put("nat_block", addr);
            match journalled {
                Some(_) => row.put("pack", JOURNAL),
                None => row.put("pack", copy_of(&volume.cp.nat_bitmap, index)),
            };
            if !emit(row) {
                break;
            }
        }
        Ok(())
    }

    /// Entries of the SIT.
    pub fn sit(&mut self, segments: Range<SegNo>, emit: Emit<'_>) -> Result<()> {
        let volume = self.volume()?;
        let segments = within(segments, volume.sb.segment_count_main, "segments")?;
        let cold = volume.open_summaries[LogType::ColdData.index()].clone();
        let journal = cold.as_ref().map(|block| RawSummaryBlock::of(block).sit_journal());
        for segno in segments {
            let index = sit::block_index(segno);
            let addr = sit::block_addr(&volume.sb, &volume.cp.sit_bitmap, index);
            let mut row = Record::new("sit_entry", Shape::Row);
            row.put("segno", segno);
            let journalled = journal.and_then(|journal| journal.get(segno));
            match (journalled, volume.read(addr)) {
                (Some(entry), _) => {
                    sit_entry(&mut row, entry);
                    row.put("sit_pack", JOURNAL);
                }
                (None, Ok(block)) => {
                    sit_entry(&mut row, RawSitBlock::of(&block).entry(segno));
                    row.put("sit_pack", copy_of(&volume.cp.sit_bitmap, index));
                }
                (None, Err(error)) => {
                    row.complain(&error);
                }
            }
            if !emit(row) {
                break;
            }
        }
        Ok(())
    }

    /// Summaries of segments: who owns each block.
    pub fn ssa(&mut self, segments: Range<SegNo>, emit: Emit<'_>) -> Result<()> {
        let volume = self.volume()?;
        for segno in within(segments, volume.sb.segment_count_main, "segments")? {
            let mut row = Record::new("summary_block", Shape::Row);
            row.put("segno", segno);
            match volume.summary(segno) {
                Ok(Some(block)) => {
                    let from = if volume.log_of(segno).is_some() { "checkpoint" } else { "ssa" };
                    summary(&mut row, RawSummaryBlock::of(&block));
                    row.put("from", from);
                }
                Ok(None) => {
                    row.put("error", "a node log's summary after a crash: in the nodes only");
                }
                Err(error) => {
                    row.complain(&error);
                }
            }
            if !emit(row) {
                break;
            }
        }
        Ok(())
    }
}

fn sit_entry(row: &mut Record, raw: &RawSitEntry) {
    let vblocks = raw.vblocks.get();
    row.put("vblocks", vblocks & 0x3ff).put("seg_type", vblocks >> 10).put("mtime", raw.mtime);
    row.put("valid_map", &raw.valid_map[..]);
    if let Err(error) = raw.parse(0) {
        row.complain(&error);
    }
}

fn summary(row: &mut Record, raw: &RawSummaryBlock) {
    let kind = if raw.entry_type == TYPE_NODE { "Node" } else { "Data" };
    row.put("entry_type", kind);
    let entries = raw.entries.iter().enumerate().filter(|(_, entry)| entry.nid.get() != 0);
    let entries = entries.map(|(offset, entry)| {
        let mut of = Record::new("summary", Shape::Row);
        of.put("offset", offset as u64).put("nid", entry.nid).put("version", entry.version);
        of.put("ofs_in_node", entry.ofs_in_node);
        Value::Record(of)
    });
    row.put("entries", Value::List(entries.collect()));
}
