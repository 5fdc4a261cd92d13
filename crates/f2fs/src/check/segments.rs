//! Blocks: each one that the walk reaches is claimed, and compared with SIT and SSA. In the end,
//! SIT may not have any others.

use drive::Block;

use super::{Checker, Place, Search};
use crate::ondisk::sit::{LogType, MAP_SIZE};
use crate::ondisk::summary::{RawSummary, RawSummaryBlock, TYPE_DATA, TYPE_NODE};
use crate::ondisk::{BLOCKS_PER_SEGMENT, BlockAddr, Nid, SegNo, bits};

/// What points to a block.
#[derive(Clone, Copy)]
pub(super) struct Owner {
    /// For data, the node that points to it; for a node, itself.
    nid: Nid,
    /// What the block's summary should be.
    summary: RawSummary,
    /// The log to which such a block is written.
    log: LogType,
}

impl Owner {
    /// Node `nid`, of the kind that `log` holds.
    pub(super) fn node(nid: Nid, log: LogType) -> Self {
        Self { nid, summary: RawSummary::node(nid), log }
    }

    /// Slot `slot` of node `nid`, whose NAT entry has `version`.
    pub(super) fn data(nid: Nid, version: u8, slot: u16, log: LogType) -> Self {
        Self { nid, summary: RawSummary::data(nid, version, slot), log }
    }
}

/// The result of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// The block belongs to the claimant.
    Granted,
    /// The address is outside the main area, or above its zone's write pointer.
    Outside,
    /// The block belongs to another node or file already.
    Taken,
    /// Its segment is of the other class: data where nodes belong, or nodes where data belongs.
    Alien,
}

impl Checker {
    /// Notes that `owner` points to the block at `addr`.
    pub(super) fn claim(&mut self, addr: BlockAddr, owner: Owner) -> Claim {
        let Some((segno, offset)) = self.volume.sb.locate(addr) else {
            let (start, end) = (self.volume.sb.main_blkaddr, self.volume.sb.main_end());
            let allowed = format!("{start:#x}..{end:#x}");
            self.find(Place::Node { nid: owner.nid }, "address", format!("{addr:#x}"), allowed);
            return Claim::Outside;
        };
        let place = Place::Block { addr: addr.into() };
        if self.mending() && !self.volume.is_written(addr) {
            self.find(place, "position", "above the write pointer", "below it");
            return Claim::Outside;
        }
        if self.is_reached(addr) {
            self.find(place, "owners", format!("node {} and another", owner.nid), "one");
            return Claim::Taken;
        }
        if !self.check_class(addr, segno, owner) {
            return Claim::Alien;
        }
        self.report.blocks += 1;
        self.volume.filled_by[segno as usize].get_or_insert(owner.log);
        let index = self.block_index(addr);
        bits::msb::set(&mut self.blocks_reached, index);
        if !self.sit_valid(segno, offset) && self.volume.has_sit {
            self.find(place, "SIT bit", "clear", "set");
        }
        self.check_summary(addr, segno, offset, owner);
        Claim::Granted
    }

    fn block_index(&self, addr: BlockAddr) -> usize {
        (addr - self.volume.sb.main_blkaddr) as usize
    }

    /// Whether the block at `addr`, which lies in the main area, was claimed.
    pub(crate) fn is_reached(&self, addr: BlockAddr) -> bool {
        bits::msb::test(&self.blocks_reached, self.block_index(addr))
    }

    /// Whether the segment's class is the owner's, by SIT. When mending, the class is wrong if the
    /// walk has found blocks of the other class there, or if SIT and SSA both name the other class.
    fn check_class(&mut self, addr: BlockAddr, segno: SegNo, owner: Owner) -> bool {
        let is_node = owner.log.is_node();
        let log = self.volume.sit_types[segno as usize];
        let wrong = log.is_node() != is_node && self.volume.has_sit;
        if wrong {
            let allowed = if is_node { "a node segment" } else { "a data segment" };
            self.find(Place::Segment { segno }, "SIT type", format!("{log:?}"), allowed);
        }
        if !self.mending() {
            return true;
        }
        let same = match self.volume.filled_by[segno as usize] {
            Some(log) => log.is_node() == is_node,
            None => !wrong || self.summary_type(segno) != Some(!is_node),
        };
        if !same && !wrong {
            let found = if is_node { "a node in a data segment" } else { "data among nodes" };
            self.find(Place::Block { addr: addr.into() }, "class", found, "one class");
        }
        same
    }

    /// Whether the segment's summary says it holds nodes.
    fn summary_type(&mut self, segno: SegNo) -> Option<bool> {
        let block = self.volume.summary(segno).ok()??;
        let kind = RawSummaryBlock::of(&block).entry_type;
        (kind <= TYPE_NODE).then_some(kind == TYPE_NODE)
    }

    /// What the summaries say about the block at `addr`, if they can be read and belong to `log`'s
    /// class.
    pub(super) fn summary_of(&mut self, addr: BlockAddr, is_node: bool) -> Option<RawSummary> {
        let (segno, offset) = self.volume.sb.locate(addr)?;
        let block = self.volume.summary(segno).ok()??;
        let summary = RawSummaryBlock::of(&block);
        let allowed = if is_node { TYPE_NODE } else { TYPE_DATA };
        (summary.entry_type == allowed).then(|| summary.entries[offset])
    }

    fn check_summary(&mut self, addr: BlockAddr, segno: SegNo, offset: usize, owner: Owner) {
        let read = self.volume.summary(segno);
        let summary = match self.keep(|| Place::Segment { segno }, read) {
            Some(Some(block)) => block,
            // A node log's summary, which the next mount rebuilds from the nodes.
            Some(None) => return,
            None => return self.set_summary(addr, owner.summary),
        };
        let summary = RawSummaryBlock::of(&summary);
        let allowed = if owner.log.is_node() { TYPE_NODE } else { TYPE_DATA };
        let (kind, found) = (summary.entry_type, summary.entries[offset]);
        if kind != allowed {
            self.find(Place::Segment { segno }, "summary_footer.entry_type", kind, allowed);
        }
        if found != owner.summary {
            let show = |s: RawSummary| {
                format!("node {} version {} slot {}", s.nid, s.version, s.ofs_in_node)
            };
            let place = Place::Block { addr: addr.into() };
            self.find(place, "summary", show(found), show(owner.summary));
        }
        if kind != allowed || found != owner.summary {
            self.set_summary(addr, owner.summary);
            if found.nid != owner.summary.nid || found.ofs_in_node != owner.summary.ofs_in_node {
                self.want(Search::Strays);
            }
        }
    }

    fn set_summary(&mut self, addr: BlockAddr, summary: RawSummary) {
        if let Some(mend) = &mut self.mend {
            mend.summaries.insert(addr, summary);
        }
    }

    /// Compares SIT with what was reached, and checks the count of free segments.
    pub(super) fn check_segments(&mut self) {
        for segno in 0..self.volume.sb.segment_count_main {
            let start = segno as usize * MAP_SIZE;
            let reached = &self.blocks_reached[start..start + MAP_SIZE];
            let counted = bits::count(reached);
            let valid = self.volume.sit_map(segno);
            let stray: u32 = valid.iter().zip(reached).map(|(v, r)| (v & !r).count_ones()).sum();
            let count = bits::count(valid);
            if stray > 0 && self.volume.has_sit {
                let found = format!("{count} blocks, {stray} of them nobody's");
                let allowed = count - stray;
                self.find(Place::Segment { segno }, "SIT map", found, allowed);
            }
            let usable = self.is_usable(segno);
            if !usable && count > 0 {
                self.find(Place::Segment { segno }, "valid blocks beyond capacity", count, 0);
            }
            let count = if self.mending() { counted } else { count };
            if usable && count == 0 && self.volume.log_of(segno).is_none() {
                self.report.free_segments += 1;
            }
        }
    }

    /// Checks each log: its segment has its type, and nothing is where it writes next.
    pub(super) fn check_cursegs(&mut self) {
        for log in LogType::ALL {
            if !self.volume.sb.has_log(log) {
                continue;
            }
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
