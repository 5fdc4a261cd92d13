//! Changing and writing a cached inode, under the volume's lock held exclusively or shared.
//!
//! The exclusive holder reads what is not cached. An [`Own`] does not, and allocates only from the
//! current segment of a log: if that is not enough it fails with [`Unseen::Absent`], and the caller
//! retries with the volume locked exclusively. Code that changes one inode is written once, over
//! [`Change`].

use cores::MutexGuard;
use drive::Block;
use smallvec::SmallVec;
use vfs::file;

use crate::alloc::curseg::Logs;
use crate::alloc::nat::{Cached, Nat};
use crate::alloc::segments::Segments;
use crate::error::Result;
use crate::inode::mapping::{Lookup, Mapping, Slot};
use crate::inode::node_cache::CachedNode;
use crate::inode::node_write::Frozen;
use crate::inode::see::{Own, See, Unseen};
use crate::inode::shards::Shard;
use crate::mount::engine::Engine;
use crate::mount::quota::{Amount, Owner};
use crate::ondisk::inode::RawInodeBlock;
use crate::ondisk::node::{RawNodeFooter, first_index_of};
use crate::ondisk::sit::LogType;
use crate::ondisk::summary::RawSummary;
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{BLOCK_SIZE, BlockAddr, NULL_ADDR, Nid};

/// Write access to one inode, under the exclusive or the shared lock.
pub(crate) trait Change: Mapping {
    /// The shard with what is cached of inode `ino`.
    fn shard_mut(&mut self, ino: Nid) -> Result<&mut Shard, Self::Error>;

    /// As [`Change::shard_mut`], together with the superblock.
    fn shard_and_sb(&mut self, ino: Nid) -> Result<(&Superblock, &mut Shard), Self::Error>;

    /// Node `nid` of inode `ino`.
    fn node(&mut self, ino: Nid, nid: Nid) -> Result<&CachedNode, Self::Error>;

    /// The bytes of node `nid` of inode `ino`, to be changed.
    fn node_mut(&mut self, ino: Nid, nid: Nid) -> Result<&mut [u8; BLOCK_SIZE], Self::Error>;

    /// What is known of the place of node `nid`.
    fn place_of(&mut self, nid: Nid) -> Result<Cached, Self::Error>;

    /// The node table, to change the entry of a node whose place is known.
    fn nat<T>(&mut self, change: impl FnOnce(&mut Nat) -> T) -> T;

    /// Whether roll-forward could repeat one more fsync.
    fn has_room_in_chain(&mut self) -> bool;

    /// Roll-forward's chain ends here until the next checkpoint.
    fn break_chain(&mut self);

    /// Takes a block of `log` in place of `old`.
    fn allocate(
        &mut self,
        log: LogType,
        old: BlockAddr,
        summary: RawSummary,
    ) -> Result<BlockAddr, Self::Error>;

    /// The address that the next block of `log` will get.
    fn next_addr(&mut self, log: LogType) -> BlockAddr;

    /// Page `index` of an inode, to be changed. Makes it where there is a hole.
    fn page_mut(&mut self, ino: Nid, index: u64) -> Result<&mut [u8; BLOCK_SIZE], Self::Error>;

    /// Sets an access time that was kept back (`lazytime`).
    fn settle_atime(&mut self, ino: Nid) -> Result<(), Self::Error>;

    /// The quotas that count inode `ino`; `None` if none does.
    fn counted_for(&mut self, ino: Nid) -> Result<Option<Owner>, Self::Error> {
        if !self.engine().quotas.is_on || self.engine().is_quota_file(ino) {
            return Ok(None);
        }
        Ok(Some(Owner::of(&*self.view(ino)?)))
    }

    /// Reserves `count` blocks for inode `ino`, in the volume and in the quotas.
    fn take_blocks(&mut self, ino: Nid, count: u64) -> Result<(), Self::Error> {
        self.take_quota(ino, count)?;
        let taken = self.engine().space.take_blocks(count);
        if taken.is_err() {
            self.give_quota(ino, count)?;
        }
        Ok(taken?)
    }

    /// Charges `count` blocks to the owner of inode `ino`; fails beyond the limit.
    fn take_quota(&mut self, ino: Nid, count: u64) -> Result<(), Self::Error> {
        let Some(owner) = self.counted_for(ino)? else { return Ok(()) };
        let engine = self.engine();
        Ok(engine.quotas.take(owner, Amount::blocks(count), engine.quota_time())?)
    }

    /// Takes back a charge of `count` blocks.
    fn give_quota(&mut self, ino: Nid, count: u64) -> Result<(), Self::Error> {
        if let Some(owner) = self.counted_for(ino)? {
            self.engine().quotas.give(owner, Amount::blocks(count));
        }
        Ok(())
    }

    /// Adds to the inode's count of blocks.
    fn add_blocks(&mut self, ino: Nid, delta: i64) -> Result<(), Self::Error> {
        let inode = &mut RawInodeBlock::of_mut(self.node_mut(ino, ino)?).i;
        let blocks = inode.blocks.get().saturating_add_signed(delta);
        inode.blocks.set(blocks.max(1));
        Ok(())
    }

    /// Forgets what the extent cache knows of the block in `slot`, whose address changes.
    fn drop_extent(&mut self, ino: Nid, slot: Slot) -> Result<(), Self::Error> {
        if self.shard_mut(ino)?.extents.is_empty() || !self.shard_mut(ino)?.extents.has(ino) {
            return Ok(());
        }
        let footer = RawNodeFooter::of(self.block_of(ino, slot.nid)?).node_offset();
        let addrs = self.view(ino)?.layout().addr_counts();
        let first = first_index_of(footer, addrs);
        let extents = &mut self.shard_mut(ino)?.extents;
        match first {
            Some(first) => extents.drop_block(ino, first + u64::from(slot.ofs_in_node)),
            None => extents.forget(ino),
        }
        Ok(())
    }

    /// Stores an address. If the inode has a cached extent on the drive, it is dropped.
    fn set_addr(&mut self, ino: Nid, slot: Slot, addr: BlockAddr) -> Result<(), Self::Error> {
        self.drop_extent(ino, slot)?;
        let block = self.node_mut(ino, slot.nid)?;
        block[slot.byte..slot.byte + 4].copy_from_slice(&addr.to_le_bytes());
        if self.view(ino)?.ext.len.get() != 0 {
            RawInodeBlock::of_mut(self.node_mut(ino, ino)?).i.ext.len.set(0);
        }
        Ok(())
    }
}

impl Change for Engine {
    fn shard_mut(&mut self, ino: Nid) -> Result<&mut Shard> {
        Ok(self.inodes.of(ino))
    }

    fn shard_and_sb(&mut self, ino: Nid) -> Result<(&Superblock, &mut Shard)> {
        Ok((&self.sb, self.inodes.of(ino)))
    }

    fn node(&mut self, ino: Nid, nid: Nid) -> Result<&CachedNode> {
        Engine::node(self, ino, nid)
    }

    fn node_mut(&mut self, ino: Nid, nid: Nid) -> Result<&mut [u8; BLOCK_SIZE]> {
        Engine::node_mut(self, ino, nid)
    }

    fn place_of(&mut self, nid: Nid) -> Result<Cached> {
        self.nat.get_mut().load(&self.io, nid)
    }

    fn nat<T>(&mut self, change: impl FnOnce(&mut Nat) -> T) -> T {
        change(self.nat.get_mut())
    }

    fn has_room_in_chain(&mut self) -> bool {
        let logs = self.logs.lock();
        self.can_roll_forward(&logs, 0)
    }

    fn break_chain(&mut self) {
        self.logs.get_mut().break_chain();
    }

    fn allocate(&mut self, log: LogType, old: BlockAddr, summary: RawSummary) -> Result<BlockAddr> {
        let _span = cores::span(cores::Stage::AllocBlock);
        let (logs, segments) = (self.logs.get_mut(), self.segments.get_mut());
        logs.allocate(segments, &self.io, log, old, summary, self.clock.elapsed())
    }

    fn next_addr(&mut self, log: LogType) -> BlockAddr {
        self.logs.get_mut().next_addr(&self.sb, log)
    }

    fn page_mut(&mut self, ino: Nid, index: u64) -> Result<&mut [u8; BLOCK_SIZE]> {
        file::page_to_change(self, ino, index)
    }

    fn settle_atime(&mut self, ino: Nid) -> Result<()> {
        if let Some(atime) = self.lazy_atimes.remove(&ino) {
            self.inode_mut(ino)?.set_atime(atime);
        }
        Ok(())
    }
}

/// Where blocks are and go: the logs, the tables of segments and of nodes, locked in this order.
pub(crate) struct Tables<'a> {
    logs: MutexGuard<'a, Logs>,
    segments: MutexGuard<'a, Segments>,
    nat: MutexGuard<'a, Nat>,
}

impl<'a> Tables<'a> {
    fn of(engine: &'a Engine) -> Self {
        let (logs, segments) = (engine.logs.lock(), engine.segments.lock());
        Self { logs, segments, nat: engine.nat.lock() }
    }
}

impl Own<'_> {
    /// Locks the logs until [`Own::let_go`], so that `nodes` follow one another in the chain.
    pub(crate) fn keep_logs(&mut self, nodes: &Frozen) -> Result<(), Unseen> {
        let (tables, count) = (Tables::of(self.engine), nodes.nids().count());
        // After the last block of a segment the log moves on, which may read the drive.
        let room = tables.logs.room_in_segment(&tables.segments, LogType::WarmNode);
        let is_here = room as usize > count
            && nodes.are_all_for(LogType::WarmNode)
            && nodes.nids().all(|nid| tables.nat.known(nid).is_some())
            && self.engine.can_roll_forward(&tables.logs, count as u64);
        if !is_here {
            return Err(Unseen::Absent);
        }
        self.sight.tables = Some(tables);
        Ok(())
    }

    /// Unlocks the logs.
    pub(crate) fn let_go(&mut self) {
        self.sight.tables = None;
    }

    /// Drops the blocks at `addrs`, or none unless all are valid.
    pub(crate) fn invalidate_all(
        &mut self,
        mut addrs: SmallVec<[BlockAddr; 16]>,
    ) -> Result<(), Unseen> {
        addrs.sort_unstable();
        let (logs, mut segments) = (self.engine.logs.lock(), self.engine.segments.lock());
        let are_different = addrs.is_sorted_by(|a, b| a < b);
        if !are_different || !addrs.iter().all(|addr| segments.is_valid(*addr)) {
            return Err(Unseen::Absent);
        }
        for addr in addrs {
            logs.invalidate(&mut segments, addr)?;
        }
        Ok(())
    }

    /// Takes `blocks` from the credit for concurrent changes. Fails now and then, so that the
    /// exclusive retry sees whether a checkpoint is due.
    pub(crate) fn pay(&mut self, ino: Nid, blocks: u64) -> Result<(), Unseen> {
        let engine = self.engine;
        let has_paid = engine.pay(&mut self.shard_mut(ino)?.purse, blocks);
        if has_paid { Ok(()) } else { Err(Unseen::Absent) }
    }
}

impl Engine {
    /// Takes `blocks` out of `purse`, which is filled from the credit; false if too little is left.
    pub(crate) fn pay(&self, purse: &mut u64, blocks: u64) -> bool {
        if *purse < blocks
            && (self.inodes.has_many_changed_nodes()
                || self.inodes.has_many_clean_nodes()
                || !self.credit.hand_out(purse, blocks))
        {
            return false;
        }
        *purse -= blocks;
        true
    }
}

impl Change for Own<'_> {
    fn shard_mut(&mut self, ino: Nid) -> Result<&mut Shard, Unseen> {
        self.sight.shard_mut(ino).ok_or(Unseen::Absent)
    }

    fn shard_and_sb(&mut self, ino: Nid) -> Result<(&Superblock, &mut Shard), Unseen> {
        Ok((&self.engine.sb, self.sight.shard_mut(ino).ok_or(Unseen::Absent)?))
    }

    fn node(&mut self, ino: Nid, nid: Nid) -> Result<&CachedNode, Unseen> {
        self.shard(ino)?.nodes.get(nid).ok_or(Unseen::Absent)
    }

    fn node_mut(&mut self, ino: Nid, nid: Nid) -> Result<&mut [u8; BLOCK_SIZE], Unseen> {
        self.shard_mut(ino)?.nodes.change(nid).ok_or(Unseen::Absent)
    }

    fn place_of(&mut self, nid: Nid) -> Result<Cached, Unseen> {
        let known = match &self.sight.tables {
            Some(tables) => tables.nat.known(nid),
            None => self.engine.nat.lock().known(nid),
        };
        known.ok_or(Unseen::Absent)
    }

    fn nat<T>(&mut self, change: impl FnOnce(&mut Nat) -> T) -> T {
        match &mut self.sight.tables {
            Some(tables) => change(&mut tables.nat),
            None => change(&mut self.engine.nat.lock()),
        }
    }

    fn has_room_in_chain(&mut self) -> bool {
        // Checked by [`Own::keep_logs`], which keeps the logs locked.
        true
    }

    fn break_chain(&mut self) {
        match &mut self.sight.tables {
            Some(tables) => tables.logs.break_chain(),
            None => self.engine.logs.lock().break_chain(),
        }
    }

    fn allocate(
        &mut self,
        log: LogType,
        old: BlockAddr,
        summary: RawSummary,
    ) -> Result<BlockAddr, Unseen> {
        let _span = cores::span(cores::Stage::AllocBlock);
        let engine = self.engine;
        let mut tables = None;
        let tables = match &mut self.sight.tables {
            Some(kept) => kept,
            None => tables.insert(Tables::of(engine)),
        };
        if tables.logs.room_in_segment(&tables.segments, log) <= 1 {
            return Err(Unseen::Absent);
        }
        let (now, io) = (engine.clock.elapsed(), &engine.io);
        Ok(tables.logs.allocate(&mut tables.segments, io, log, old, summary, now)?)
    }

    fn next_addr(&mut self, log: LogType) -> BlockAddr {
        match &self.sight.tables {
            Some(tables) => tables.logs.next_addr(&self.engine.sb, log),
            None => self.engine.logs.lock().next_addr(&self.engine.sb, log),
        }
    }

    fn page_mut(&mut self, ino: Nid, index: u64) -> Result<&mut [u8; BLOCK_SIZE], Unseen> {
        if self.shard(ino)?.pages.peek(ino.into(), index).is_none() {
            let Lookup::Slot(slot) = self.lookup_slot(ino, index)? else {
                return Err(Unseen::Absent);
            };
            let is_hole = self.addr_in(slot)? == NULL_ADDR;
            if !is_hole || self.engine.inodes.pages().room() == 0 {
                return Err(Unseen::Absent);
            }
            self.fill_holes(ino, &[(index, slot)])?;
            self.shard_mut(ino)?.pages.insert_dirty(ino.into(), index, Block::zeroed());
        }
        let page = self.shard_mut(ino)?.pages.dirty_mut(ino.into(), index);
        page.map(Block::make_mut).ok_or(Unseen::Absent)
    }

    fn settle_atime(&mut self, ino: Nid) -> Result<(), Unseen> {
        let waits = self.engine.lazy_atimes.contains_key(&ino);
        if waits { Err(Unseen::Absent) } else { Ok(()) }
    }
}
