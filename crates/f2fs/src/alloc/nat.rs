//! The node address table in memory: where each node is, which numbers are free, and what changed
//! since the last checkpoint.
//!
//! A number that was freed since the last checkpoint is not given out again before the next one is
//! durable; otherwise two inodes could share it after a cut (`add_free_nid` on flush).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drive::Block;
use rustc_hash::FxHashMap;

use crate::alloc::gc::piece::read_all;
use crate::error::{Error, Result};
use crate::mount::io::Io;
use crate::ondisk::nat::{self, ENTRIES_PER_BLOCK, NatEntry, RawNatBlock};
use crate::ondisk::nat_bits::NatBits;
use crate::ondisk::summary::NAT_JOURNAL_ENTRIES;
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{BlockAddr, NEW_ADDR, NULL_ADDR, Nid, bits};

/// An entry, and what an fsync has to know about it (`enum nat_state`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cached {
    pub(crate) entry: NatEntry,
    /// The last checkpoint has this node (`f2fs_is_checkpointed_node`).
    pub(crate) checkpointed: bool,
    /// An fsync since then wrote the inode, so roll-forward will find it.
    fsynced_inode: bool,
}

impl Cached {
    /// Whether roll-forward would not find this inode without a dentry mark
    /// (`f2fs_need_dentry_mark`).
    pub(crate) fn needs_dentry_mark(&self) -> bool {
        !self.checkpointed && !self.fsynced_inode
    }
}

/// Free numbers of one table block, once it has been read.
struct FreeNids {
    map: [u8; ENTRIES_PER_BLOCK.div_ceil(8)],
    count: u16,
}

/// Blocks of the table that a checkpoint is about to change, ascending.
pub(crate) type TableBlocks = Vec<(u32, Block)>;

/// The table.
pub(crate) struct Nat {
    sb: Arc<Superblock>,
    version_bitmap: Vec<u8>,
    cache: FxHashMap<Nid, Cached>,
    dirty: BTreeSet<Nid>,
    /// The entries that the last checkpoint has in its journal instead of in the table.
    journal: BTreeMap<Nid, NatEntry>,
    /// Blocks of the table as they are on the drive, to which nothing else writes.
    blocks: FxHashMap<u32, Block>,
    free: Vec<Option<FreeNids>>,
    /// Numbers given out whose node has not been made yet.
    reserved: BTreeSet<Nid>,
    next_scan: u32,
    /// How many more blocks are read along with one in which a number is looked for
    /// (`ra_nid_pages`).
    pub(crate) read_ahead: u32,
    available: u32,
    /// Which table blocks are full and which are empty, if the last unmount said so.
    bits: Option<NatBits>,
}

/// The largest table that is read as a whole to rebuild nat_bits: 64 MiB.
const REBUILD_BLOCKS_MAX: u32 = 16 * 1024;
/// Blocks read at once for that; the copies of the table alternate in larger pieces.
const REBUILD_RUN: usize = 64;

/// How many clean entries may be cached before some are dropped.
const CACHE_LIMIT: usize = 256 * 1024;
/// With fewer free numbers, none is taken on trial.
const SPARE: u32 = 1024;
/// How many blocks of the table are kept. A directory's nodes have neighbouring numbers.
const BLOCKS_LIMIT: usize = 256;

impl Nat {
    /// The table of a checkpoint, with its version bitmap and journal. `valid_nodes` is the
    /// checkpoint's count.
    pub(crate) fn new(
        sb: Arc<Superblock>,
        version_bitmap: Vec<u8>,
        journal: BTreeMap<Nid, NatEntry>,
        valid_nodes: u32,
        next_free_nid: Nid,
        bits: Option<NatBits>,
    ) -> Self {
        let blocks = sb.nat_blocks();
        Self {
            available: sb.max_nid().saturating_sub(3).saturating_sub(valid_nodes),
            version_bitmap,
            cache: FxHashMap::default(),
            dirty: BTreeSet::new(),
            journal,
            blocks: FxHashMap::default(),
            free: (0..blocks).map(|_| None).collect(),
            reserved: BTreeSet::new(),
            next_scan: nat::block_index(next_free_nid).min(blocks.saturating_sub(1)),
            read_ahead: 0,
            bits,
            sb,
        }
    }

    /// The present version bitmap, which the checkpoint stores.
    pub(crate) fn version_bitmap(&self) -> &[u8] {
        &self.version_bitmap
    }

    /// Full and empty table blocks, for the pack of a clean unmount. Leaving them out is always
    /// legal; `fsck.f2fs` rebuilds them.
    pub(crate) fn bits(&self) -> Option<&NatBits> {
        self.bits.as_ref()
    }

    /// Reads the whole table to find out which blocks are full and which are empty, if a cut has
    /// left that unknown. Does not if that would take longer than it saves. For use before an
    /// unmount, which empties the journal into the table, so the journal does not matter.
    pub(crate) fn rebuild_bits(&mut self, io: &Io) -> Result<()> {
        let blocks = self.sb.nat_blocks();
        if self.bits.is_some() || blocks > REBUILD_BLOCKS_MAX {
            return Ok(());
        }
        let mut bits = NatBits::new(&self.sb);
        for first in (0..blocks).step_by(REBUILD_RUN) {
            let run = first..blocks.min(first + REBUILD_RUN as u32);
            let addr = |index| nat::block_addr(&self.sb, &self.version_bitmap, index);
            let side_by_side = run.clone().all(|index| addr(index) == addr(first) + index - first);
            if side_by_side {
                let read = io.read_run(addr(first), run.end - run.start)?;
                run.zip(&read).for_each(|(i, block)| bits.look_at(i, block));
            } else {
                for index in run {
                    let block = io.read(addr(index))?;
                    bits.look_at(index, &block);
                }
            }
        }
        self.bits = Some(bits);
        Ok(())
    }

    /// How many numbers are free.
    pub(crate) fn available(&self) -> u32 {
        self.available
    }

    /// Entries changed since the last checkpoint.
    pub(crate) fn dirty_count(&self) -> usize {
        self.dirty.len()
    }

    fn table_block(&mut self, io: &Io, index: u32) -> Result<Block> {
        if let Some(block) = self.blocks.get(&index) {
            return Ok(block.clone());
        }
        let block = io.read_meta(nat::block_addr(&self.sb, &self.version_bitmap, index))?;
        self.keep_block(index, block.clone());
        Ok(block)
    }

    /// Reads block `index` and those behind it, all at once. What cannot be read is left to
    /// [`Nat::table_block`].
    fn read_ahead(&mut self, io: &Io, index: u32) {
        let end = index.saturating_add(self.read_ahead).min(self.sb.nat_blocks() - 1);
        if end == index || self.blocks.contains_key(&index) {
            return;
        }
        let addr = |index| nat::block_addr(&self.sb, &self.version_bitmap, index);
        let wanted = (index..=end).filter(|index| {
            let is_needed = self.free[*index as usize].is_none() && !self.is_known(*index);
            is_needed && !self.blocks.contains_key(index) && io.is_unchanged(addr(*index))
        });
        let wanted: BTreeMap<BlockAddr, u32> = wanted.map(|index| (addr(index), index)).collect();
        for (addr, block) in read_all(io.queue(), wanted.keys().copied().collect()) {
            self.keep_block(wanted[&addr], block);
        }
    }

    /// Whether nat_bits say all of a block of the table.
    fn is_known(&self, index: u32) -> bool {
        let says = |map: &[u8]| bits::lsb::test(map, index as usize);
        self.bits.as_ref().is_some_and(|bits| says(&bits.full) != says(&bits.empty))
    }

    fn keep_block(&mut self, index: u32, block: Block) {
        if self.blocks.len() >= BLOCKS_LIMIT {
            self.blocks.clear();
        }
        self.blocks.insert(index, block);
    }

    /// The entry of `nid` and what is known of it, if it is in memory.
    pub(crate) fn known(&self, nid: Nid) -> Option<Cached> {
        self.cache.get(&nid).copied()
    }

    /// As [`Nat::known`], from memory or the drive.
    pub(crate) fn load(&mut self, io: &Io, nid: Nid) -> Result<Cached> {
        if let Some(cached) = self.known(nid) {
            return Ok(cached);
        }
        if nid >= self.sb.max_nid() {
            let allowed = format!("0..{}", self.sb.max_nid());
            return Err(Error::corrupt("node number", self.sb.nat_blkaddr, nid, allowed));
        }
        if let Some(cached) = self.recall(nid) {
            return Ok(cached);
        }
        let block = self.table_block(io, nat::block_index(nid))?;
        Ok(self.remember(nid, RawNatBlock::of(&block).entry(nid)))
    }

    /// As [`Nat::known`], also from the journal and from blocks of the table that are in memory.
    fn recall(&mut self, nid: Nid) -> Option<Cached> {
        if let Some(cached) = self.known(nid) {
            return Some(cached);
        }
        let stored = || Some(RawNatBlock::of(self.blocks.get(&nat::block_index(nid))?).entry(nid));
        let entry = self.journal.get(&nid).copied().or_else(stored)?;
        Some(self.remember(nid, entry))
    }

    fn remember(&mut self, nid: Nid, entry: NatEntry) -> Cached {
        let cached = Cached { entry, checkpointed: true, fsynced_inode: false };
        if self.cache.len() >= CACHE_LIMIT {
            let dirty = &self.dirty;
            self.cache.retain(|nid, _| dirty.contains(nid));
        }
        self.cache.insert(nid, cached);
        cached
    }

    /// The entry of `nid`.
    pub(crate) fn get(&mut self, io: &Io, nid: Nid) -> Result<NatEntry> {
        Ok(self.load(io, nid)?.entry)
    }

    /// Records that node `nid` of inode `ino` is now at `addr` (`set_node_addr`). If it is freed,
    /// the number gets its next version.
    pub(crate) fn set(&mut self, io: &Io, nid: Nid, ino: Nid, addr: BlockAddr) -> Result<()> {
        let known = self.load(io, nid)?;
        self.put(known, nid, ino, addr);
        Ok(())
    }

    /// As [`Nat::set`], of a node that is `known`.
    pub(crate) fn put(&mut self, known: Cached, nid: Nid, ino: Nid, addr: BlockAddr) {
        let mut cached = known;
        if addr == NULL_ADDR {
            cached.entry.version = cached.entry.version.wrapping_add(1);
        }
        if addr == NEW_ADDR || addr == NULL_ADDR {
            cached.checkpointed = false;
            cached.fsynced_inode = false;
        }
        cached.entry.ino = ino;
        cached.entry.addr = addr;
        self.reserved.remove(&nid);
        self.cache.insert(nid, cached);
        self.dirty.insert(nid);
    }

    /// Makes `entry` the entry of `nid`, whatever the table says (`fsck`).
    pub(crate) fn force(&mut self, nid: Nid, entry: NatEntry) {
        self.cache.insert(nid, Cached { entry, checkpointed: true, fsynced_inode: false });
        self.dirty.insert(nid);
    }

    /// Notes that an fsync has written the inode.
    pub(crate) fn set_fsynced_inode(&mut self, ino: Nid) {
        if let Some(cached) = self.cache.get_mut(&ino) {
            cached.fsynced_inode = true;
        }
    }

    /// Takes a free number. Its entry is in memory, so that [`Nat::set`] cannot fail.
    pub(crate) fn reserve(&mut self, io: &Io) -> Result<Nid> {
        for _ in 0..=self.sb.nat_blocks() {
            self.scan(io, self.next_scan)?;
            if let Some(nid) = self.first_free() {
                self.load(io, nid)?;
                self.take(nid);
                return Ok(nid);
            }
            self.next_scan = (self.next_scan + 1) % self.sb.nat_blocks();
        }
        Err(Error::NoSpace)
    }

    /// As [`Nat::reserve`], with the number's entry, and without looking at the drive; `None` if
    /// that does not do.
    pub(crate) fn reserve_known(&mut self) -> Option<(Nid, Cached)> {
        if self.available < SPARE {
            // Another thread may need the last ones while we try.
            return None;
        }
        let nid = self.first_free()?;
        let entry = self.recall(nid)?;
        self.take(nid);
        Some((nid, entry))
    }

    /// Gives back a number that was taken for a node that was not made.
    pub(crate) fn give_back(&mut self, nid: Nid) {
        if self.reserved.remove(&nid) {
            self.give(nid);
        }
    }

    /// The first free number of the table block that is searched now, if that was scanned.
    fn first_free(&self) -> Option<Nid> {
        let free = self.free.get(self.next_scan as usize)?.as_ref()?;
        let n = bits::lsb::next_one(&free.map, 0, ENTRIES_PER_BLOCK)?;
        Some(self.next_scan * ENTRIES_PER_BLOCK as u32 + n as u32)
    }

    /// Takes the given number, for recovery (`f2fs_recover_inode_page`). False if it is in use.
    pub(crate) fn reserve_exact(&mut self, io: &Io, nid: Nid) -> Result<bool> {
        self.load(io, nid)?;
        self.scan(io, nat::block_index(nid))?;
        Ok(self.take(nid))
    }

    /// Takes a number of a table block that was scanned. False if it is in use.
    fn take(&mut self, nid: Nid) -> bool {
        let n = nid as usize % ENTRIES_PER_BLOCK;
        let taken = self.free[nat::block_index(nid) as usize].as_mut().is_some_and(|free| {
            let was_free = bits::lsb::clear(&mut free.map, n);
            free.count -= u16::from(was_free);
            was_free
        });
        if taken {
            self.reserved.insert(nid);
            // This count came from the checkpoint, and may be wrong.
            self.available = self.available.saturating_sub(1);
        }
        taken
    }

    fn give(&mut self, nid: Nid) {
        self.available += 1;
        let n = nid as usize % ENTRIES_PER_BLOCK;
        if let Some(free) = &mut self.free[nat::block_index(nid) as usize] {
            free.count += u16::from(!bits::lsb::set(&mut free.map, n));
        }
    }

    /// Collects the free numbers of one table block.
    fn scan(&mut self, io: &Io, index: u32) -> Result<()> {
        if self.free[index as usize].is_some() {
            return Ok(());
        }
        let bits = self.bits.as_ref();
        let is_full = bits.is_some_and(|bits| bits::lsb::test(&bits.full, index as usize));
        // A block that is neither full nor empty has to be read.
        let block = if self.is_known(index) {
            None
        } else {
            self.read_ahead(io, index);
            Some(self.table_block(io, index)?)
        };
        let stored = |nid| match &block {
            Some(block) => RawNatBlock::of(block).entry(nid).is_free(),
            None => !is_full,
        };
        let first = index * ENTRIES_PER_BLOCK as u32;
        let mut free = FreeNids { map: [0; ENTRIES_PER_BLOCK.div_ceil(8)], count: 0 };
        for n in 0..ENTRIES_PER_BLOCK {
            let nid = first + n as u32;
            let cached = self.cache.get(&nid);
            let known = cached.map(|c| c.entry);
            let entry = known.or_else(|| self.journal.get(&nid).copied());
            let is_free = entry.map_or_else(|| stored(nid), |entry| entry.is_free());
            // Freed since the checkpoint. Numbers that a repair found free are free already.
            let freed = self.dirty.contains(&nid) && cached.is_none_or(|c| !c.checkpointed);
            let taken = freed || self.reserved.contains(&nid);
            if nid > 3 && is_free && !taken {
                bits::lsb::set(&mut free.map, n);
                free.count += 1;
            }
        }
        self.free[index as usize] = Some(free);
        Ok(())
    }

    /// Where the next search for a free number begins, for the checkpoint's `next_free_nid`.
    pub(crate) fn next_free_nid(&self) -> Nid {
        (self.next_scan * ENTRIES_PER_BLOCK as u32).max(4)
    }

    /// Reads the blocks of the table that the next checkpoint changes; `None` if the journal takes
    /// all that changed.
    pub(crate) fn read_for_checkpoint(
        &mut self,
        io: &Io,
        keep_journal: bool,
    ) -> Result<Option<TableBlocks>> {
        let new = self.dirty.iter().filter(|nid| !self.journal.contains_key(nid)).count();
        if keep_journal && self.journal.len() + new <= NAT_JOURNAL_ENTRIES {
            return Ok(None);
        }
        let nids = self.journal.keys().chain(&self.dirty);
        let indexes: BTreeSet<u32> = nids.map(|nid| nat::block_index(*nid)).collect();
        let read = indexes.into_iter().map(|index| Ok((index, self.table_block(io, index)?)));
        read.collect::<Result<_>>().map(Some)
    }

    /// Writes what changed to the journal or, if it does not fit there, to the table's other
    /// copies, of which the `blocks` were read (`f2fs_flush_nat_entries`). Returns the journal for
    /// the checkpoint.
    pub(crate) fn checkpoint(
        &mut self,
        io: &Io,
        blocks: Option<TableBlocks>,
    ) -> &BTreeMap<Nid, NatEntry> {
        let changed = std::mem::take(&mut self.dirty);
        for &nid in &changed {
            if let Some(cached) = self.cache.get_mut(&nid) {
                cached.checkpointed = true;
                cached.fsynced_inode = false;
                let mut entry = cached.entry;
                if entry.addr == NEW_ADDR {
                    // A node that was made and never written exists nowhere else.
                    entry.addr = NULL_ADDR;
                }
                self.journal.insert(nid, entry);
                if entry.is_free() {
                    self.give(nid);
                }
            }
        }
        if let Some(blocks) = blocks {
            self.flush_journal(io, blocks);
        }
        &self.journal
    }

    fn flush_journal(&mut self, io: &Io, blocks: TableBlocks) {
        let mut entries = std::mem::take(&mut self.journal).into_iter().peekable();
        for (index, mut block) in blocks {
            let table = RawNatBlock::of_mut(block.make_mut());
            while let Some((nid, entry)) =
                entries.next_if(|(nid, _)| nat::block_index(*nid) == index)
            {
                table.set_entry(nid, entry);
            }
            if let Some(bits) = &mut self.bits {
                bits.update(index, table);
            }
            bits::msb::flip(&mut self.version_bitmap, index as usize);
            self.keep_block(index, block.clone());
            io.write_meta(nat::block_addr(&self.sb, &self.version_bitmap, index), block);
        }
    }
}
