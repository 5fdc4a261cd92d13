//! Blocks: each reached one is claimed against SIT and SSA; at the end SIT may hold no other.

use drive::Block;

use super::{Checker, Place};
use crate::ondisk::sit::{LogType, MAP_SIZE};
use crate::ondisk::summary::{RawSummary, RawSummaryBlock, TYPE_DATA, TYPE_NODE};
use crate::ondisk::{BLOCKS_PER_SEGMENT, BlockAddr, Nid, SegNo, bits};

/// Who points to a block.
#[derive(Clone, Copy)]
pub(super) struct Owner {
    /// For data, the node that points to it; for a node, itself.
    pub nid: Nid,
    /// For data, the version of that node's NAT entry.
    pub version: u8,
    /// For data, the slot in that node.
    pub slot: u16,
    /// Whether the block is a node.
    pub is_node: bool,
}

impl Checker {
    /// Notes that `owner` points to the block at `addr`; `false` if it cannot be followed.
    pub(super) fn claim(&mut self, addr: BlockAddr, owner: Owner) -> bool {
        self.report.blocks += 1;
        let Some((segno, offset)) = self.volume.sb.locate(addr) else {
            let (start, end) = (self.volume.sb.main_blkaddr, self.volume.sb.main_end());
            let allowed = format!("{start:#x}..{end:#x}");
            self.find(Place::Node { nid: owner.nid }, "address", format!("{addr:#x}"), allowed);
            return false;
        };
        let place = Place::Block { addr: addr.into() };
        let index = segno as usize * BLOCKS_PER_SEGMENT as usize + offset;
        if bits::msb::set(&mut self.blocks_reached, index) {
            self.find(place, "owners", format!("node {} and another", owner.nid), "one");
            return false;
        }
        if !self.sit_valid(segno, offset) {
            self.find(place, "SIT bit", "clear", "set");
        }
        let log = self.volume.sit_types[segno as usize];
        if log.is_node() != owner.is_node {
            let allowed = if owner.is_node { "a node segment" } else { "a data segment" };
            self.find(Place::Segment { segno }, "SIT type", format!("{log:?}"), allowed);
        }
        self.check_summary(addr, segno, offset, owner);
        true
    }

    fn check_summary(&mut self, addr: BlockAddr, segno: SegNo, offset: usize, owner: Owner) {
        let read = self.volume.summary(segno);
        let Some(Some(block)) = self.keep(|| Place::Segment { segno }, read) else { return };
        let summary = RawSummaryBlock::of(&block);
        let allowed = if owner.is_node { TYPE_NODE } else { TYPE_DATA };
        if summary.entry_type != allowed {
            let found = summary.entry_type;
            self.find(Place::Segment { segno }, "summary_footer.entry_type", found, allowed);
        }
        let found = summary.entries[offset];
        let expected = if owner.is_node {
            RawSummary { nid: owner.nid.into(), ..found }
        } else {
            RawSummary::data(owner.nid, owner.version, owner.slot)
        };
        if found != expected {
            let show = |s: RawSummary| {
                format!("node {} version {} slot {}", s.nid, s.version, s.ofs_in_node)
            };
            let place = Place::Block { addr: addr.into() };
            self.find(place, "summary", show(found), show(expected));
        }
    }

    /// SIT against what was reached, and the count of free segments.
    pub(super) fn check_segments(&mut self) {
        for segno in 0..self.volume.sb.segment_count_main {
            let start = segno as usize * MAP_SIZE;
            let reached = &self.blocks_reached[start..start + MAP_SIZE];
            let valid = self.volume.sit_map(segno);
            let stray: u32 = valid.iter().zip(reached).map(|(v, r)| (v & !r).count_ones()).sum();
            let count = bits::count(valid);
            if stray > 0 {
                let found = format!("{count} blocks, {stray} of them nobody's");
                let allowed = count - stray;
                self.find(Place::Segment { segno }, "SIT map", found, allowed);
            }
            let usable = self.is_usable(segno);
            if !usable && count > 0 {
                self.find(Place::Segment { segno }, "valid blocks beyond capacity", count, 0);
            }
            if usable && count == 0 && self.volume.log_of(segno).is_none() {
                self.report.free_segments += 1;
            }
        }
    }

    /// Each log: its segment has its type, and nothing where it writes next.
    pub(super) fn check_cursegs(&mut self) {
        for log in LogType::ALL {
            let curseg = *self.volume.cp.curseg(log);
            let (segno, place) = (curseg.segno, Place::Segment { segno: curseg.segno });
            let found = self.volume.sit_types[segno as usize];
            if found != log {
                self.find(
                    place.clone(),
                    "SIT type of an open segment",
                    format!("{found:?}"),
                    format!("{log:?}"),
                );
            }
            let summary: Option<Block> = self.volume.open_summaries[log.index()].clone();
            if let Some(block) = summary {
                let checked =
                    RawSummaryBlock::of(&block).check_type(log, self.volume.sb.cp_pack(0));
                self.keep(|| place.clone(), checked);
            }
            let from = usize::from(curseg.blkoff);
            let to = if curseg.ssr { from + 1 } else { BLOCKS_PER_SEGMENT as usize };
            if let Some(valid) = bits::msb::next_one(self.volume.sit_map(segno), from, to) {
                let allowed = format!("none from {from} on");
                self.find(place, "valid block ahead of the log", valid, allowed);
            }
        }
    }
}
