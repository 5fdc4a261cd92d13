//! Where everything is on a volume, according to its checked superblock.

use std::ops::Range;

use super::{Features, Superblock};
use crate::ondisk::sit::LogType;
use crate::ondisk::{BLOCKS_PER_SEGMENT, BlockAddr, Nid, SegNo, nat};

impl Superblock {
    /// Whether the volume has this log. A read-only one has only those through which it was filled
    /// (`NR_CURSEG_RO_TYPE`), and no summaries of its segments.
    pub fn has_log(&self, log: LogType) -> bool {
        let filled = matches!(log, LogType::HotData | LogType::HotNode);
        filled || !self.features.contains(Features::RO)
    }

    /// Blocks in a section.
    pub fn blocks_per_section(&self) -> u32 {
        self.segs_per_sec.saturating_mul(BLOCKS_PER_SEGMENT)
    }

    /// Sections of the main area.
    pub fn main_sections(&self) -> u32 {
        self.section_count
    }

    /// Blocks of the main area.
    pub fn main_blocks(&self) -> u32 {
        self.segment_count_main * BLOCKS_PER_SEGMENT
    }

    /// First block behind the main area, which is the end of the volume.
    pub fn main_end(&self) -> BlockAddr {
        self.main_blkaddr + self.main_blocks()
    }

    /// Whether `addr` is a block of the main area.
    pub fn in_main(&self, addr: BlockAddr) -> bool {
        (self.main_blkaddr..self.main_end()).contains(&addr)
    }

    /// Segment and block in it of a main-area address.
    pub fn locate(&self, addr: BlockAddr) -> Option<(SegNo, usize)> {
        let offset = addr.checked_sub(self.main_blkaddr)?;
        let segno = offset / BLOCKS_PER_SEGMENT;
        (segno < self.segment_count_main).then_some((segno, (offset % BLOCKS_PER_SEGMENT) as usize))
    }

    /// Segment of a main-area address.
    pub fn segno_of(&self, addr: BlockAddr) -> Option<SegNo> {
        self.locate(addr).map(|(segno, _)| segno)
    }

    /// First block of segment `segno`, which must be one of the main area's.
    pub fn seg_start(&self, segno: SegNo) -> BlockAddr {
        debug_assert!(segno < self.segment_count_main);
        self.main_blkaddr + segno * BLOCKS_PER_SEGMENT
    }

    /// Section of segment `segno`.
    pub fn section_of(&self, segno: SegNo) -> u32 {
        segno / self.segs_per_sec
    }

    /// Segments of a section.
    pub fn segments_of(&self, section: u32) -> std::ops::Range<SegNo> {
        let first = self.section_start(section);
        first..first + self.segs_per_sec
    }

    /// First segment of section `section`.
    pub fn section_start(&self, section: u32) -> SegNo {
        section * self.segs_per_sec
    }

    /// Where the summary of segment `segno` is.
    pub fn ssa_block(&self, segno: SegNo) -> BlockAddr {
        self.ssa_blkaddr + segno
    }

    /// First block of checkpoint pack 0 or 1.
    pub fn cp_pack(&self, pack: usize) -> BlockAddr {
        self.cp_blkaddr + (pack as u32 & 1) * BLOCKS_PER_SEGMENT
    }

    /// Blocks of one copy of the SIT.
    pub fn sit_blocks(&self) -> u32 {
        self.segment_count_sit / 2 * BLOCKS_PER_SEGMENT
    }

    /// Blocks of one copy of the NAT.
    pub fn nat_blocks(&self) -> u32 {
        self.segment_count_nat / 2 * BLOCKS_PER_SEGMENT
    }

    /// Bytes of the SIT's version bitmap.
    pub fn sit_bitmap_size(&self) -> u32 {
        self.sit_blocks() / 8
    }

    /// Bytes of the NAT's version bitmap.
    pub fn nat_bitmap_size(&self) -> u32 {
        self.nat_blocks() / 8
    }

    /// The blocks of a segment.
    pub fn blocks_of(&self, segno: SegNo) -> Range<BlockAddr> {
        let start = self.seg_start(segno);
        start..start + BLOCKS_PER_SEGMENT
    }

    /// The segments that have some of these blocks of the main area.
    pub fn segments_with(&self, blocks: &Range<BlockAddr>) -> Range<SegNo> {
        let number = |addr: BlockAddr| addr.saturating_sub(self.main_blkaddr);
        let (first, end) = (number(blocks.start), number(blocks.end));
        first / BLOCKS_PER_SEGMENT..end.div_ceil(BLOCKS_PER_SEGMENT)
    }

    /// Node numbers are below this.
    pub fn max_nid(&self) -> Nid {
        self.nat_blocks().saturating_mul(nat::ENTRIES_PER_BLOCK as u32)
    }

    /// Whether `nid` can be a node of a file: it is in range and not reserved.
    pub fn is_node_id(&self, nid: Nid) -> bool {
        nid >= self.root_ino && nid < self.max_nid()
    }
}
