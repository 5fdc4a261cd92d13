//! Writes all tables of a volume anew, in another place and for another size of the main area, and
//! points the superblock to them.
//!
//! Blocks of the main area stay where they are; their segments get other numbers. The tables go to
//! their first copies, with all version bits clear.

use drive::Block;
use queue::BlockQueue;
use zerocopy::IntoBytes;

use crate::check::view::View;
use crate::error::{Error, Result};
use crate::offline::mkfs::Geometry;
use crate::offline::super_write;
use crate::ondisk::checkpoint::{Checkpoint, CpFlags};
use crate::ondisk::curseg::Curseg;
use crate::ondisk::nat::{self, RawNatBlock};
use crate::ondisk::sit::{self, LogType, RawSitBlock, SitEntry};
use crate::ondisk::summary::{self, RawSummaryBlock};
use crate::ondisk::superblock::{RawSuperblock, Superblock};
use crate::ondisk::{BLOCK_SIZE, BLOCKS_PER_SEGMENT, BlockAddr, SegNo};

/// How many blocks of a table one command writes.
const RUN: usize = 256;

/// Where everything will be. Counts are in segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) segment0: BlockAddr,
    pub(super) sit: u32,
    pub(super) nat: u32,
    pub(super) ssa: u32,
    pub(super) main: u32,
    pub(super) main_blkaddr: BlockAddr,
    pub(super) sections: u32,
    pub(super) cp_payload: u32,
    pub(super) reserved: u32,
    pub(super) overprov: u32,
    /// Blocks of the device that count as the volume's.
    pub(super) block_count: u64,
    pub(super) large_nat_bitmap: bool,
}

const CKPT: u32 = 2;

impl Shape {
    pub(super) fn new(g: &Geometry, block_count: u64, large_nat_bitmap: bool) -> Self {
        Self {
            segment0: g.segment0,
            sit: g.sit,
            nat: g.nat,
            ssa: g.ssa,
            main: g.main,
            main_blkaddr: g.main_blkaddr,
            sections: g.sections,
            cp_payload: g.cp_payload,
            reserved: g.reserved,
            overprov: g.overprov,
            block_count,
            large_nat_bitmap,
        }
    }

    /// Segments of all tables.
    fn tables(&self) -> u32 {
        CKPT + self.sit + self.nat + self.ssa
    }

    /// First block behind the main area.
    pub(super) fn end(&self) -> BlockAddr {
        self.main_blkaddr + self.main * BLOCKS_PER_SEGMENT
    }

    /// Whether `sb` has this shape already.
    pub(super) fn is_layout_of(&self, sb: &Superblock) -> bool {
        (self.segment0, self.sit, self.nat, self.ssa, self.main)
            == (
                sb.segment0_blkaddr,
                sb.segment_count_sit,
                sb.segment_count_nat,
                sb.segment_count_ssa,
                sb.segment_count_main,
            )
            && self.block_count == sb.block_count
    }

    /// The same tables from block `start` on, with everything behind them as main area: the part
    /// that both shapes have in common.
    pub(super) fn behind(&self, start: BlockAddr, sb: &Superblock) -> Result<Self> {
        let main_blkaddr = start + self.tables() * BLOCKS_PER_SEGMENT;
        let segments = self.end().saturating_sub(main_blkaddr) / BLOCKS_PER_SEGMENT;
        let sections = segments / sb.segs_per_sec;
        let main = sections * sb.segs_per_sec;
        if main <= self.overprov + LogType::ALL.len() as u32 {
            return Err(Error::usage("too small to move the tables aside while resizing"));
        }
        Ok(Self { segment0: start, main_blkaddr, main, sections, ..*self })
    }

    /// The superblock `raw` with this shape.
    fn apply(&self, raw: &RawSuperblock) -> RawSuperblock {
        let mut raw = raw.clone();
        let blocks = |segments: u32| segments * BLOCKS_PER_SEGMENT;
        let sit = self.segment0 + blocks(CKPT);
        let nat = sit + blocks(self.sit);
        raw.block_count.set(self.block_count);
        raw.section_count.set(self.sections);
        raw.segment_count.set(self.tables() + self.main);
        raw.segment_count_sit.set(self.sit);
        raw.segment_count_nat.set(self.nat);
        raw.segment_count_ssa.set(self.ssa);
        raw.segment_count_main.set(self.main);
        raw.segment0_blkaddr.set(self.segment0);
        raw.cp_blkaddr.set(self.segment0);
        raw.sit_blkaddr.set(sit);
        raw.nat_blkaddr.set(nat);
        raw.ssa_blkaddr.set(nat + blocks(self.nat));
        raw.main_blkaddr.set(self.main_blkaddr);
        raw.cp_payload.set(self.cp_payload);
        raw
    }
}

/// Gives the volume, which was cleanly unmounted, the shape `to`. Its tables must not lie where the
/// present ones do.
pub(super) fn relocate(queue: &BlockQueue, to: &Shape) -> Result<()> {
    let (raw, old) = super_write::read(queue)?;
    let raw = to.apply(&raw);
    let mut sealed = raw.clone();
    sealed.seal();
    let new = Superblock::parse(sealed.to_block().bytes(), 0)?;
    debug_assert!(
        new.main_blkaddr <= old.segment0_blkaddr || old.main_blkaddr <= new.segment0_blkaddr
    );
    let view = View::open(BlockQueue::new(queue.drive().clone()), old)?;
    let mut mover = Mover { queue, view, new, to };
    mover.view.open_summaries = mover.view.read_summaries()?;
    mover.write_nat()?;
    let entries = mover.entries()?;
    mover.write_sit(&entries)?;
    mover.write_ssa(&entries)?;
    mover.write_checkpoint(&entries)?;
    queue.flush()?;
    super_write::replace(queue, raw).map(drop)
}

struct Mover<'a> {
    queue: &'a BlockQueue,
    /// The volume as it is now.
    view: View,
    new: Superblock,
    to: &'a Shape,
}

impl Mover<'_> {
    /// The new number of a segment; `None` if it no longer belongs to the volume.
    fn renumber(&self, segno: SegNo) -> Option<SegNo> {
        self.new.segno_of(self.view.sb.seg_start(segno))
    }

    fn write_nat(&mut self) -> Result<()> {
        let (old, new) = (self.view.sb.nat_blocks(), self.new.nat_blocks());
        let empty = |_: u32| -> Result<Block> { Ok(Block::zeroed()) };
        for index in 0..new {
            // A run never crosses the border between two segments, where the copies alternate.
            if index % RUN as u32 == 0 {
                let run = (index..new.min(index + RUN as u32))
                    .map(|index| if index < old { self.nat_block(index) } else { empty(index) });
                let run = run.collect::<Result<Vec<_>>>()?;
                let at = nat::block_addr(&self.new, &[], index);
                self.queue.write_blocks(at.into(), run, false)?;
            }
        }
        Ok(())
    }

    fn nat_block(&mut self, index: u32) -> Result<Block> {
        let mut bytes = [0; BLOCK_SIZE];
        let table = RawNatBlock::of_mut(&mut bytes);
        let first = index * nat::ENTRIES_PER_BLOCK as u32;
        for nid in first..first + nat::ENTRIES_PER_BLOCK as u32 {
            table.set_entry(nid, self.view.nat(nid)?);
        }
        Ok(Block::new(bytes))
    }

    /// The SIT, by new numbers. Segments that leave the main area must be empty.
    fn entries(&mut self) -> Result<Vec<SitEntry>> {
        let empty = SitEntry::empty(LogType::HotData);
        let mut entries = vec![empty; self.new.segment_count_main as usize];
        let cold = self.view.open_summaries[LogType::ColdData.index()].clone();
        let journal = cold.as_ref().map(|block| RawSummaryBlock::of(block).sit_journal());
        for segno in 0..self.view.sb.segment_count_main {
            let index = sit::block_index(segno);
            let at = sit::block_addr(&self.view.sb, &self.view.cp.sit_bitmap, index);
            let entry = match journal.and_then(|journal| journal.get(segno)) {
                Some(entry) => entry.parse(at)?,
                None => {
                    let block = self.view.read(at)?;
                    RawSitBlock::of(&block).entry(segno).parse(at)?
                }
            };
            let slot = self.renumber(segno).and_then(|new| entries.get_mut(new as usize));
            match slot {
                Some(slot) => *slot = entry,
                None if entry.valid == 0 => {}
                None => return Err(Error::corrupt("sit_entry.vblocks", at, entry.valid, 0)),
            }
        }
        Ok(entries)
    }

    fn write_sit(&self, entries: &[SitEntry]) -> Result<()> {
        let mut blocks = vec![Block::zeroed(); self.new.sit_blocks() as usize];
        for (segno, entry) in (0..).zip(entries) {
            let block = &mut blocks[sit::block_index(segno) as usize];
            RawSitBlock::of_mut(block.make_mut()).set_entry(segno, entry);
        }
        for (run, at) in blocks.chunks(RUN).zip((self.new.sit_blkaddr..).step_by(RUN)) {
            self.queue.write_blocks(at.into(), run.to_vec(), false)?;
        }
        Ok(())
    }

    /// Writes summaries of the segments that hold something. Those of the logs are in the
    /// checkpoint.
    fn write_ssa(&mut self, entries: &[SitEntry]) -> Result<()> {
        for segno in 0..self.view.sb.segment_count_main {
            let Some(new) = self.renumber(segno) else { continue };
            if entries.get(new as usize).is_none_or(|entry| entry.valid == 0) {
                continue;
            }
            if let Some(summary) = self.view.summary(segno)? {
                let at = self.new.ssa_block(new);
                self.queue.write_blocks(at.into(), vec![summary], false)?;
            }
        }
        Ok(())
    }

    fn write_checkpoint(&self, entries: &[SitEntry]) -> Result<()> {
        let old = &self.view.cp;
        let cursegs = self.cursegs()?;
        let is_current = |segno: SegNo| cursegs.iter().any(|log| log.segno == segno);
        let free = (0..).zip(entries).filter(|(s, entry)| entry.valid == 0 && !is_current(*s));
        let usable = u64::from(self.to.main - self.to.overprov) * u64::from(BLOCKS_PER_SEGMENT);
        let mut flags = CpFlags::UMOUNT | CpFlags::CRC_RECOVERY;
        let lasting = CpFlags::ERROR | CpFlags::FSCK | CpFlags::QUOTA_NEED_FSCK;
        flags |= old.flags & lasting;
        flags.set(CpFlags::LARGE_NAT_BITMAP, self.to.large_nat_bitmap);
        let mut cp = Checkpoint {
            version: old.version.wrapping_add(1),
            // While the tables are in their temporary place, there may be less room than is in use.
            user_block_count: usable.max(old.valid_block_count),
            rsvd_segment_count: self.to.reserved,
            overprov_segment_count: self.to.overprov,
            free_segment_count: free.count() as u32,
            cursegs,
            flags,
            pack_total: 0,
            start_sum: 1 + self.to.cp_payload,
            sit_bitmap: vec![0; self.new.sit_bitmap_size() as usize],
            nat_bitmap: vec![0; self.new.nat_bitmap_size() as usize],
            crc: 0,
            ..old.clone()
        };
        let summaries = self.summaries();
        cp.pack_total = cp.start_sum + summaries.len() as u32 + 1;
        let header = cp.encode(&self.new);
        let tail = header[0].clone();
        let pack: Vec<Block> = header.into_iter().chain(summaries).collect();
        let at = self.new.cp_pack(0);
        // What was here before may still look like a checkpoint pack.
        self.queue.write_blocks(self.new.cp_pack(1).into(), vec![Block::zeroed()], false)?;
        self.queue.write_blocks(at.into(), pack, false)?;
        self.queue.flush()?;
        self.queue.write_blocks((at + cp.pack_total - 1).into(), vec![tail], true)?;
        Ok(())
    }

    fn cursegs(&self) -> Result<[Curseg; 6]> {
        let mut cursegs = self.view.cp.cursegs;
        for log in &mut cursegs {
            log.segno = self.renumber(log.segno).ok_or_else(|| {
                let main = format!("{:#x}..{:#x}", self.new.main_blkaddr, self.new.main_end());
                Error::corrupt("checkpoint curseg", self.view.sb.cp_blkaddr, log.segno, main)
            })?;
        }
        Ok(cursegs)
    }

    /// The logs' full summaries, with empty journals: the tables have everything.
    fn summaries(&self) -> Vec<Block> {
        let one = |log: LogType| {
            let mut summary = match &self.view.open_summaries[log.index()] {
                Some(block) => Box::new(RawSummaryBlock::of(block).clone()),
                None => RawSummaryBlock::empty(log),
            };
            if !log.is_node() {
                summary.journal = [0; summary::JOURNAL_SIZE];
            }
            Block::from_prefix(summary.as_bytes())
        };
        LogType::ALL.map(one).into()
    }
}
