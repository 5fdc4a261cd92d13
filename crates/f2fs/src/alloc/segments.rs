//! The segment information table in memory: which blocks are valid now, which were valid at the
//! last checkpoint, and which segments and sections are free.
//!
//! Invariants: a block that was valid at the last checkpoint, or has been written since, is not
//! written again before the next one, because roll-forward may need it. A segment that has become
//! empty since then is *prefree*, and free only when a checkpoint has made that durable
//! (`locate_dirty_segment`, `set_prefree_as_free_segments`).

mod free_blocks;
mod holes;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use crate::alloc::curseg::Logs;
use crate::alloc::discard::Pending;
use crate::error::{Error, Result};
use crate::ondisk::sit::{LogType, MAP_SIZE, SitEntry};
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{BlockAddr, SegNo, bits};

/// The table. Logs and allocation are in [`crate::alloc::curseg`].
pub(crate) struct Segments {
    sb: Arc<Superblock>,
    entries: Vec<SitEntry>,
    /// Blocks valid at the last checkpoint or written since.
    spent: Vec<[u8; MAP_SIZE]>,
    /// How many blocks of each segment lie below its zone's capacity.
    usable: Vec<u16>,
    in_use: Vec<bool>,
    sections: Vec<Section>,
    /// Usable blocks of the smallest section that has any.
    section_capacity: u32,
    free_sections: u32,
    freeing_sections: u32,
    usable_blocks: u64,
    valid_blocks: u64,
    /// Usable segments without a valid block.
    empty_segments: u32,
    /// Blocks that have become invalid since the mount.
    invalidated: u64,
    prefree: BTreeSet<SegNo>,
    dirty: BTreeSet<SegNo>,
    /// Sections in which nothing is allocated, although they may be free.
    barred: BTreeSet<u32>,
    /// The section cleaned last, until the next checkpoint (`cur_victim_sec`).
    victim: Option<u32>,
    /// Pending discards.
    pending: Pending,
    /// Segments in use with a discard of some of their blocks in flight; no log takes them, not
    /// even those that a checkpoint frees meanwhile.
    busy: BTreeMap<SegNo, bool>,
}

/// Sums over the segments of a section.
#[derive(Clone, Default)]
struct Section {
    usable: u32,
    valid: u32,
    /// Segments in use, without those beyond the zone's capacity.
    used: u32,
    /// How many of these the next checkpoint frees.
    prefree: u32,
    /// Sum of their mtimes. These come from the drive, so the sum may be too large for a word.
    mtime: u128,
}

impl Section {
    fn is_free(&self) -> bool {
        self.used == 0
    }

    /// Whether the next checkpoint frees all of it.
    fn is_freeing(&self) -> bool {
        self.used > 0 && self.used == self.prefree
    }
}

impl Segments {
    /// A table of `entries`, as in the checkpoint. `usable` says how many blocks of each segment
    /// can be written; segments that have none are never free.
    pub(crate) fn new(sb: Arc<Superblock>, entries: Vec<SitEntry>, usable: Vec<u16>) -> Self {
        let empty = |(e, u): &(&SitEntry, &u16)| e.valid == 0 && **u > 0;
        let mut table = Self {
            spent: entries.iter().map(|e| e.map).collect(),
            in_use: entries.iter().zip(&usable).map(|(e, u)| e.valid > 0 || *u == 0).collect(),
            sections: vec![Section::default(); sb.main_sections() as usize],
            section_capacity: 0,
            free_sections: 0,
            freeing_sections: 0,
            usable_blocks: usable.iter().map(|blocks| u64::from(*blocks)).sum(),
            valid_blocks: entries.iter().map(|e| u64::from(e.valid)).sum(),
            empty_segments: entries.iter().zip(&usable).filter(empty).count() as u32,
            invalidated: 0,
            prefree: BTreeSet::new(),
            dirty: BTreeSet::new(),
            barred: BTreeSet::new(),
            victim: None,
            pending: Pending::default(),
            busy: BTreeMap::new(),
            entries,
            usable,
            sb,
        };
        for segno in 0..table.sb.segment_count_main {
            let used = table.in_use[segno as usize] && !table.is_beyond_capacity(segno);
            let usable = table.usable(segno);
            let entry = &table.entries[segno as usize];
            let section = &mut table.sections[table.sb.section_of(segno) as usize];
            section.usable += usable;
            section.valid += u32::from(entry.valid);
            section.mtime += u128::from(entry.mtime);
            section.used += u32::from(used);
        }
        let capacities = table.sections.iter().map(|section| section.usable);
        table.section_capacity = capacities.filter(|blocks| *blocks > 0).min().unwrap_or(1);
        table.free_sections = table.sections.iter().filter(|s| s.is_free()).count() as u32;
        table
    }

    /// Whether `segno` is in the unusable tail of a section. It does not keep the section from
    /// being free. A section without any usable segment (an offline zone) is never free.
    fn is_beyond_capacity(&self, segno: SegNo) -> bool {
        let first = self.sb.section_start(self.sb.section_of(segno));
        self.usable(segno) == 0 && self.usable(first) > 0
    }

    /// The geometry of the volume.
    pub(crate) fn sb(&self) -> &Arc<Superblock> {
        &self.sb
    }

    /// The table's entry of a segment.
    pub(crate) fn entry(&self, segno: SegNo) -> &SitEntry {
        &self.entries[segno as usize]
    }

    /// Blocks of `segno` that can be written.
    pub(crate) fn usable(&self, segno: SegNo) -> u32 {
        u32::from(self.usable[segno as usize])
    }

    /// Usable blocks of a section.
    pub(crate) fn section_usable(&self, section: u32) -> u32 {
        self.sections[section as usize].usable
    }

    /// Blocks of the main area that can be written.
    pub(crate) fn usable_blocks(&self) -> u64 {
        self.usable_blocks
    }

    /// Valid blocks of a section.
    pub(crate) fn section_valid(&self, section: u32) -> u32 {
        self.sections[section as usize].valid
    }

    /// Mean mtime of a section's segments.
    pub(crate) fn section_mtime(&self, section: u32) -> u64 {
        (self.sections[section as usize].mtime / u128::from(self.sb.segs_per_sec)) as u64
    }

    /// Whether no segment of the section is in use.
    pub(crate) fn is_section_free(&self, section: u32) -> bool {
        self.sections[section as usize].is_free()
    }

    /// Whether `segno` can be taken as a whole.
    pub(crate) fn is_free(&self, segno: SegNo) -> bool {
        !self.in_use[segno as usize]
    }

    /// Sections that can be taken as a whole.
    pub(crate) fn free_sections(&self) -> u32 {
        self.free_sections
    }

    /// Sections that the next checkpoint will free.
    pub(crate) fn freeing_sections(&self) -> u32 {
        self.freeing_sections
    }

    /// Segments that the next checkpoint will free.
    pub(crate) fn prefree_segments(&self) -> usize {
        self.prefree.len()
    }

    /// Segments without a valid block and without a log: the checkpoint's `free_segment_count`.
    pub(crate) fn free_segments(&self, logs: &Logs) -> u32 {
        let is_empty =
            |s: &SegNo| *s < self.count() && self.entry(*s).valid == 0 && self.usable(*s) > 0;
        self.empty_segments - logs.current().filter(is_empty).count() as u32
    }

    /// Segments that could be taken as a whole now.
    pub(crate) fn unused_segments(&self) -> u32 {
        (0..self.count()).filter(|s| self.is_free(*s) && self.usable(*s) > 0).count() as u32
    }

    /// Segments that cleaning could empty: they have some valid blocks, and no log uses them.
    pub(crate) fn dirty_segments(&self, is_current: impl Fn(SegNo) -> bool) -> u32 {
        let is_dirty = |s: &SegNo| {
            let valid = u32::from(self.entry(*s).valid);
            valid > 0 && valid < self.usable(*s) && !is_current(*s)
        };
        (0..self.count()).filter(is_dirty).count() as u32
    }

    /// All valid blocks.
    pub(crate) fn valid_blocks(&self) -> u64 {
        self.valid_blocks
    }

    /// How many blocks have become invalid since the mount.
    pub(crate) fn invalidated(&self) -> u64 {
        self.invalidated
    }

    /// Blocks behind `offset` of `segno` that a log there gets before it needs another section.
    pub(crate) fn room_behind(&self, segno: SegNo, offset: u32) -> u32 {
        let section = self.sb.section_of(segno);
        let end = self.sb.section_start(section) + self.sb.segs_per_sec;
        let behind = (segno + 1..end).take_while(|next| self.is_free(*next));
        let behind: u32 = behind.map(|next| self.usable(next)).sum();
        self.usable(segno).saturating_sub(offset) + behind
    }

    /// Slots from `offset` of `segno` on that can be written before the next checkpoint.
    pub(crate) fn reusable_behind(&self, segno: SegNo, offset: usize) -> u32 {
        let end = self.usable(segno) as usize;
        (offset..end).filter(|slot| !bits::msb::test(&self.spent[segno as usize], *slot)).count()
            as u32
    }

    /// First free section at or behind `from`, wrapping around.
    pub(crate) fn find_free_section(&self, among: &Range<u32>, from: u32) -> Option<u32> {
        let from = if among.contains(&from) { from } else { among.start };
        (from..among.end).chain(among.start..from).find(|s| self.is_section_free(*s))
    }

    /// Takes a free segment into use, or the free blocks of a used one.
    pub(crate) fn take(&mut self, segno: SegNo, log: LogType) {
        self.pending.taken(self.sb.blocks_of(segno));
        self.forget_prefree(segno);
        self.set_used(segno);
        self.set_log(segno, log);
    }

    /// Records which log fills `segno`.
    pub(crate) fn set_log(&mut self, segno: SegNo, log: LogType) {
        self.entries[segno as usize].log = log;
        self.dirty.insert(segno);
    }

    /// Takes a segment into use that holds nothing and in which `log` stands already, as the
    /// checkpoint says. So its table entry need not be written.
    pub(crate) fn resume(&mut self, segno: SegNo, log: LogType) {
        self.set_used(segno);
        self.entries[segno as usize].log = log;
    }

    /// Keeps a free section from being taken, until [`Segments::release`].
    pub(crate) fn hold(&mut self, section: u32) {
        let first = self.sb.section_start(section);
        for segno in first..first + self.sb.segs_per_sec {
            self.set_used(segno);
        }
    }

    /// Keeps the free segments of a section, now and later, from being taken, so that the section
    /// becomes empty and stays so.
    pub(crate) fn bar(&mut self, section: u32) {
        self.hold(section);
        self.barred.insert(section);
    }

    /// Ends [`Segments::hold`]: segments of the section that hold nothing are free again.
    pub(crate) fn release(&mut self, section: u32, is_current: impl Fn(SegNo) -> bool) {
        let first = self.sb.section_start(section);
        for segno in first..first + self.sb.segs_per_sec {
            if self.entries[segno as usize].valid == 0 && !is_current(segno) {
                self.set_free(segno);
            }
        }
    }

    /// Keeps a free segment from being taken, until [`Segments::give_back`].
    pub(crate) fn withhold(&mut self, segno: SegNo) {
        self.set_used(segno);
    }

    /// Ends [`Segments::withhold`].
    pub(crate) fn give_back(&mut self, segno: SegNo) {
        self.set_free(segno);
    }

    fn set_used(&mut self, segno: SegNo) {
        if !std::mem::replace(&mut self.in_use[segno as usize], true) {
            self.change_section(segno, |section| section.used += 1);
        }
    }

    /// Changes how much of a section is in use, and with it the number of sections that are free.
    fn change_section(&mut self, segno: SegNo, change: impl FnOnce(&mut Section)) {
        let section = &mut self.sections[self.sb.section_of(segno) as usize];
        self.free_sections -= u32::from(section.is_free());
        self.freeing_sections -= u32::from(section.is_freeing());
        change(section);
        self.free_sections += u32::from(section.is_free());
        self.freeing_sections += u32::from(section.is_freeing());
    }

    fn set_prefree(&mut self, segno: SegNo) {
        if self.prefree.insert(segno) {
            self.change_section(segno, |section| section.prefree += 1);
        }
    }

    fn forget_prefree(&mut self, segno: SegNo) {
        if self.prefree.remove(&segno) {
            self.change_section(segno, |section| section.prefree -= 1);
        }
    }

    /// Takes a free section out of service for good: its zone can no longer be reset.
    pub(crate) fn retire(&mut self, section: u32) {
        let first = self.sb.section_start(section);
        for segno in first..first + self.sb.segs_per_sec {
            if self.is_free(segno) {
                self.take(segno, self.entry(segno).log);
            }
            self.empty_segments -= u32::from(self.usable(segno) > 0);
            self.usable[segno as usize] = 0;
        }
        let lost = std::mem::take(&mut self.sections[section as usize].usable);
        self.usable_blocks -= u64::from(lost);
    }

    fn set_free(&mut self, segno: SegNo) {
        if self.usable(segno) == 0 || self.barred.contains(&self.sb.section_of(segno)) {
            return;
        }
        self.forget_prefree(segno);
        if let Some(freed) = self.busy.get_mut(&segno) {
            *freed = true;
            return;
        }
        if std::mem::replace(&mut self.in_use[segno as usize], false) {
            self.change_section(segno, |section| section.used -= 1);
        }
    }

    /// If a segment no longer holds anything, puts it on the list of those that the next checkpoint
    /// frees.
    pub(crate) fn set_prefree_if_empty(&mut self, segno: SegNo) {
        if self.entries[segno as usize].valid == 0 && self.in_use[segno as usize] {
            self.set_prefree(segno);
        }
    }

    /// Whether the block at `addr` is valid now.
    pub(crate) fn is_valid(&self, addr: BlockAddr) -> bool {
        self.sb.locate(addr).is_some_and(|(s, offset)| self.entries[s as usize].is_valid(offset))
    }

    /// Fails unless the block at `addr` is valid.
    #[inline]
    pub(crate) fn check_valid(&self, addr: BlockAddr) -> Result<()> {
        if self.is_valid(addr) { Ok(()) } else { self.locate(addr).and(Err(not_valid(addr))) }
    }

    /// Whether any block from `addr` to the end of its section must not be written before the next
    /// checkpoint.
    pub(crate) fn has_spent_from(&self, addr: BlockAddr) -> bool {
        let Some((segno, offset)) = self.sb.locate(addr) else { return false };
        let end = self.sb.segments_of(self.sb.section_of(segno)).end;
        let spent = |segno: SegNo, from| {
            bits::msb::next_one(&self.spent[segno as usize], from, MAP_SIZE * 8).is_some()
        };
        spent(segno, offset) || (segno + 1..end).any(|behind| spent(behind, 0))
    }

    /// Segment and offset of a block of the main area.
    pub(crate) fn locate(&self, addr: BlockAddr) -> Result<(SegNo, usize)> {
        self.sb.locate(addr).ok_or_else(|| {
            let main = format!("{:#x}..{:#x}", self.sb.main_blkaddr, self.sb.main_end());
            Error::corrupt("block address", addr, format!("{addr:#x}"), main)
        })
    }

    /// Makes the block at `addr` valid at time `now` (seconds).
    pub(crate) fn mark_valid(&mut self, addr: BlockAddr, now: u64) -> Result<()> {
        let (segno, offset) = self.locate(addr)?;
        let entry = &mut self.entries[segno as usize];
        if bits::msb::set(&mut entry.map, offset) {
            return Err(Error::corrupt("sit_entry.valid_map", addr, "a valid block", "a free one"));
        }
        let valid = u64::from(entry.valid);
        let before = entry.mtime;
        entry.mtime = (before.saturating_mul(valid).saturating_add(now)) / (valid + 1);
        entry.valid += 1;
        bits::msb::set(&mut self.spent[segno as usize], offset);
        debug_assert!(!self.pending.would_lose(addr), "{addr:#x} would be discarded");
        self.pending.written(segno, offset);
        let section = &mut self.sections[self.sb.section_of(segno) as usize];
        section.valid += 1;
        section.mtime = section.mtime - u128::from(before) + u128::from(entry.mtime);
        self.valid_blocks += 1;
        if valid == 0 {
            self.empty_segments -= u32::from(self.usable(segno) > 0);
            self.forget_prefree(segno);
        }
        self.dirty.insert(segno);
        Ok(())
    }

    /// Makes the block at `addr` invalid. Returns its segment, so that the caller can see whether
    /// it has become prefree.
    pub(crate) fn mark_invalid(&mut self, addr: BlockAddr) -> Result<SegNo> {
        let (segno, offset) = self.locate(addr)?;
        let entry = &mut self.entries[segno as usize];
        if !bits::msb::clear(&mut entry.map, offset) {
            return Err(not_valid(addr));
        }
        entry.valid -= 1;
        let emptied = entry.valid == 0 && self.usable(segno) > 0;
        self.empty_segments += u32::from(emptied);
        self.sections[self.sb.section_of(segno) as usize].valid -= 1;
        self.valid_blocks -= 1;
        self.invalidated += 1;
        self.dirty.insert(segno);
        Ok(segno)
    }

    /// First block of `segno` at or behind `from` that is not valid and was not at the last
    /// checkpoint or since.
    pub(crate) fn next_reusable(&self, segno: SegNo, from: usize) -> Option<usize> {
        bits::msb::next_zero(&self.spent[segno as usize], from, self.usable(segno) as usize)
    }

    /// Segments whose table entry changed since the last checkpoint, ascending.
    pub(crate) fn dirty(&self) -> &BTreeSet<SegNo> {
        &self.dirty
    }

    /// To be called when the checkpoint is durable: prefree segments become free. Returns them,
    /// ascending.
    pub(crate) fn free_prefree(&mut self) -> Vec<SegNo> {
        self.victim = None;
        let freed: Vec<SegNo> = self.prefree.iter().copied().collect();
        for &segno in &freed {
            self.set_free(segno);
        }
        // Segments of barred sections stay taken.
        freed.iter().for_each(|segno| self.forget_prefree(*segno));
        freed
    }

    /// Oldest and youngest mtime among used sections, for cost-benefit cleaning
    /// (`init_min_max_mtime`).
    pub(crate) fn age_range(&self) -> (u64, u64) {
        let used = (0..self.sb.main_sections()).filter(|section| self.section_valid(*section) > 0);
        let ages = used.map(|section| self.section_mtime(section));
        ages.fold((u64::MAX, 0), |(oldest, youngest), age| (oldest.min(age), youngest.max(age)))
    }

    /// How many segments the volume has.
    pub(crate) fn count(&self) -> u32 {
        self.sb.segment_count_main
    }

    /// How many blocks of every section can be written: a zone's capacity, not its size.
    pub(crate) fn section_capacity(&self) -> u32 {
        self.section_capacity
    }
}

#[cold]
fn not_valid(addr: BlockAddr) -> Error {
    Error::corrupt("sit_entry.valid_map", addr, "a free block", "a valid one")
}
