//! The volume as a check sees it: superblock, checkpoint, and lookups in NAT, SIT and SSA.

use std::collections::BTreeMap;

use drive::Block;
use queue::BlockQueue;
use zerocopy::IntoBytes;

use super::{Checker, Place};
use crate::alloc::zones::WritePointers;
use crate::error::Result;
use crate::ondisk::checkpoint::{Checkpoint, CpFlags, Selected};
use crate::ondisk::nat::{self, NatEntry, RawNatBlock};
use crate::ondisk::nat_bits::NatBits;
use crate::ondisk::sit::{self, LogType, MAP_SIZE, RawSitBlock, RawSitEntry};
use crate::ondisk::summary::{RawSummaryBlock, unpack_compact};
use crate::ondisk::superblock::{Features, Superblock};
use crate::ondisk::{BLOCKS_PER_SEGMENT, BlockAddr, Nid, SegNo, bits};

/// How many blocks each of the caches of NAT and SSA holds.
const CACHE_BLOCKS: usize = 512;

/// What the check reads.
pub(crate) struct View {
    pub(crate) queue: BlockQueue,
    pub(crate) sb: Superblock,
    pub(crate) cp: Checkpoint,
    pub(crate) pack: usize,
    /// Maps of all segments, 64 bytes each.
    pub(crate) sit_maps: Vec<u8>,
    /// Types of all segments.
    pub(crate) sit_types: Vec<LogType>,
    /// Ages of all segments.
    pub(crate) sit_mtimes: Vec<u64>,
    /// Whether there is a SIT. Without a checkpoint there is none.
    pub(crate) has_sit: bool,
    /// For each segment, the log to which the first block belongs that the walk found there.
    pub(crate) filled_by: Vec<Option<LogType>>,
    /// Summaries of the open segments; a node log's is missing after a crash.
    pub(crate) open_summaries: [Option<Block>; 6],
    /// What a repair says about nodes, overriding journal and table.
    nats: BTreeMap<Nid, NatEntry>,
    /// The zones, which tell what was never written, if the drive has any.
    zones: Option<WritePointers>,
    /// nat_bits computed from the table's blocks, once they have been read.
    pub(crate) nat_bits: Option<NatBits>,
    nat_cache: BlockCache,
    ssa_cache: BlockCache,
}

/// A direct-mapped cache.
struct BlockCache(Vec<Option<(BlockAddr, Block)>>);

impl BlockCache {
    fn new() -> Self {
        Self(vec![None; CACHE_BLOCKS])
    }

    fn get(&mut self, addr: BlockAddr, read: impl FnOnce() -> Result<Block>) -> Result<Block> {
        let slot = &mut self.0[addr as usize % CACHE_BLOCKS];
        match slot {
            Some((cached, block)) if *cached == addr => Ok(block.clone()),
            _ => Ok(slot.insert((addr, read()?)).1.clone()),
        }
    }
}

impl View {
    pub(crate) fn open(queue: BlockQueue, sb: Superblock) -> Result<Self> {
        let selected = Checkpoint::select(&sb, |addr| Ok(queue.read_block(addr.into())?))?;
        Self::new(queue, sb, selected, true)
    }

    /// A volume as `selected` has it, without SIT and summaries if those are gone.
    pub(crate) fn new(
        queue: BlockQueue,
        sb: Superblock,
        selected: Selected,
        has_sit: bool,
    ) -> Result<Self> {
        let segments = sb.segment_count_main as usize;
        Ok(Self {
            cp: selected.checkpoint,
            pack: selected.pack,
            sit_maps: vec![0; segments * MAP_SIZE],
            sit_types: vec![LogType::HotData; segments],
            sit_mtimes: vec![0; segments],
            has_sit,
            filled_by: vec![None; segments],
            open_summaries: Default::default(),
            nats: BTreeMap::new(),
            zones: WritePointers::of(&queue)?,
            nat_bits: None,
            nat_cache: BlockCache::new(),
            ssa_cache: BlockCache::new(),
            queue,
            sb,
        })
    }

    /// Whether the block at `addr` was ever written, by the write pointer of a sequential zone.
    pub(crate) fn is_written(&self, addr: BlockAddr) -> bool {
        self.zones.as_ref().is_none_or(|zones| zones.is_written(addr))
    }

    /// Sets what the NAT says about `nid` from now on.
    pub(crate) fn set_nat(&mut self, nid: Nid, entry: NatEntry) {
        self.nats.insert(nid, entry);
    }

    /// All entries given to [`Self::set_nat`].
    pub(crate) fn changed_nats(&self) -> &BTreeMap<Nid, NatEntry> {
        &self.nats
    }

    pub(crate) fn read(&self, addr: BlockAddr) -> Result<Block> {
        Ok(self.queue.read_block(addr.into())?)
    }

    /// The NAT entry of `nid`, which must be in range, or that of the journal, which overrides it.
    pub(crate) fn nat(&mut self, nid: Nid) -> Result<NatEntry> {
        if let Some(entry) = self.nats.get(&nid) {
            return Ok(*entry);
        }
        let journal = self.open_summaries[LogType::HotData.index()].as_ref();
        if let Some(entry) = journal.and_then(|b| RawSummaryBlock::of(b).nat_journal().get(nid)) {
            return Ok(entry);
        }
        let addr = nat::block_addr(&self.sb, &self.cp.nat_bitmap, nat::block_index(nid));
        let block = self.nat_cache.get(addr, || Ok(self.queue.read_block(addr.into())?))?;
        Ok(RawNatBlock::of(&block).entry(nid))
    }

    /// The entries of the checkpoint's journal, which override the table.
    pub(crate) fn nat_journal(&self) -> impl Iterator<Item = (Nid, NatEntry)> + '_ {
        let block = self.open_summaries[LogType::HotData.index()].as_ref();
        let journal = block.map(|block| RawSummaryBlock::of(block).nat_journal());
        let entries = journal.into_iter().flat_map(|j| &j.entries[..j.len()]);
        entries.map(|entry| (entry.nid.get(), entry.entry.into()))
    }

    /// The log that has `segno` as its open segment.
    pub(crate) fn log_of(&self, segno: SegNo) -> Option<LogType> {
        let mut logs = LogType::ALL.into_iter().filter(|log| self.sb.has_log(*log));
        logs.find(|log| self.cp.curseg(*log).segno == segno)
    }

    /// The summary of `segno`. `None` if it is a node log's after a crash, or if the volume has
    /// none.
    pub(crate) fn summary(&mut self, segno: SegNo) -> Result<Option<Block>> {
        if self.sb.features.contains(Features::RO) {
            return Ok(None);
        }
        if let Some(log) = self.log_of(segno) {
            return Ok(self.open_summaries[log.index()].clone());
        }
        let addr = self.sb.ssa_block(segno);
        self.ssa_cache.get(addr, || Ok(self.queue.read_block(addr.into())?)).map(Some)
    }

    /// The map of segment `segno`.
    pub(crate) fn sit_map(&self, segno: SegNo) -> &[u8] {
        let start = segno as usize * MAP_SIZE;
        &self.sit_maps[start..start + MAP_SIZE]
    }

    /// Summaries of the open segments, in whichever form the pack has them.
    pub(crate) fn read_summaries(&self) -> Result<[Option<Block>; 6]> {
        let start = self.sb.cp_pack(self.pack);
        let mut logs: [Option<Block>; 6] = Default::default();
        for log in LogType::ALL {
            if let Some(block) = self.cp.summary_block(log) {
                logs[log.index()] = Some(self.read(start + block)?);
            }
        }
        if self.cp.flags.contains(CpFlags::COMPACT_SUM) {
            let data = [LogType::HotData, LogType::WarmData, LogType::ColdData];
            let counts = data.map(|log| {
                let curseg = self.cp.curseg(log);
                if curseg.ssr { BLOCKS_PER_SEGMENT as usize } else { curseg.blkoff.into() }
            });
            let first = start + self.cp.start_sum;
            let unpacked = unpack_compact(counts, |i| self.read(first + i))?;
            for (slot, summary) in logs.iter_mut().zip(unpacked) {
                *slot = Some(Block::from_prefix(summary.as_bytes()));
            }
        }
        Ok(logs)
    }
}

impl Checker {
    /// Loads the summaries of the open segments with their journals, which are checked here.
    pub(crate) fn load_summaries(&mut self) {
        let (read, pack) = (self.volume.read_summaries(), self.volume.pack);
        let place = || Place::Checkpoint { pack };
        let Some(summaries) = self.keep(place, read) else { return };
        self.volume.open_summaries = summaries;
        let at = self.volume.sb.cp_pack(self.volume.pack);
        let place = Place::Checkpoint { pack };
        if let Some(block) = self.volume.open_summaries[LogType::HotData.index()].clone() {
            let journal = RawSummaryBlock::of(&block).nat_journal().used(at);
            for entry in self.keep(|| place.clone(), journal).unwrap_or_default() {
                let nid = entry.nid.get();
                if !self.volume.sb.is_node_id(nid) {
                    self.find(place.clone(), "nat_journal nid", nid, "a node number");
                }
            }
        }
        if let Some(block) = self.volume.open_summaries[LogType::ColdData.index()].clone() {
            let journal = RawSummaryBlock::of(&block).sit_journal().used(at);
            for entry in self.keep(|| place.clone(), journal).unwrap_or_default() {
                let segno = entry.segno.get();
                if segno < self.volume.sb.segment_count_main {
                    self.take_sit_entry(segno, &entry.entry, at);
                } else {
                    self.find(place.clone(), "sit_journal segno", segno, "a segment");
                }
            }
        }
    }

    /// The SIT; the journal's entries override it.
    pub(crate) fn load_sit(&mut self) {
        let sb = &self.volume.sb;
        let segments = sb.segment_count_main;
        for index in 0..sit::block_index(segments - 1) + 1 {
            let addr = sit::block_addr(&self.volume.sb, &self.volume.cp.sit_bitmap, index);
            let read = self.volume.read(addr);
            let place = || Place::Block { addr: addr.into() };
            let Some(block) = self.keep(place, read) else { continue };
            let first = index * sit::ENTRIES_PER_BLOCK as u32;
            for segno in first..segments.min(first + sit::ENTRIES_PER_BLOCK as u32) {
                self.take_sit_entry(segno, RawSitBlock::of(&block).entry(segno), addr);
            }
        }
    }

    fn take_sit_entry(&mut self, segno: SegNo, raw: &RawSitEntry, at: BlockAddr) {
        let start = segno as usize * MAP_SIZE;
        self.volume.sit_maps[start..start + MAP_SIZE].copy_from_slice(&raw.valid_map);
        if let Some(entry) = self.keep(|| Place::Segment { segno }, raw.parse(at)) {
            self.volume.sit_types[segno as usize] = entry.log;
            self.volume.sit_mtimes[segno as usize] = entry.mtime;
        }
    }

    /// Whether SIT says the block is valid.
    pub(crate) fn sit_valid(&self, segno: SegNo, offset: usize) -> bool {
        bits::msb::test(self.volume.sit_map(segno), offset)
    }
}
