//! Block groups in memory: descriptors, bitmaps, and what of them may be allocated
//! (`mballoc.c`, `ialloc.c`).
//!
//! A group has each bitmap twice. One is as the running transaction has it. The allocator uses the
//! other one: there a bit is also set for each block that an operation has taken and not yet
//! applied, and for each block that was freed by a transaction that is not yet committed. Such a
//! block must not be written again: after a power cut it still belongs to its old owner.
//!
//! Invariant: the allocator's bits are a superset of the transaction's bits.

use std::ops::Range;

use cores::{Line, Mutex, MutexGuard, Rank};
use drive::Block;
use journal::Pin;

use crate::alloc::runs::{Run, free_run, longest_run};
use crate::alloc::system::SystemBlocks;
use crate::error::Result;
use crate::mount::journal::{Handle, Journal};
use crate::mount::want::{Step, Want};
use crate::ondisk::bitmap;
use crate::ondisk::group::{BLOCK_UNINIT, INODE_UNINIT, RawGroupDesc};
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{FsBlock, Group, Ino};

use vfs::op::Stop;

/// All groups of a volume.
pub(crate) struct Groups {
    groups: Box<[Mutex<GroupState>]>,
    /// Where the inode table of each begins. Mounted, none moves, so this needs no lock.
    tables: Box<[FsBlock]>,
    /// For each group, blocks that the allocator can take: to pass over full groups without their
    /// locks. A hint.
    free: Box<[Line]>,
    /// The same of inodes.
    free_inodes: Box<[Line]>,
    /// Blocks that are never freed.
    pub(crate) system: SystemBlocks,
    /// The blocks with the descriptors, once there is a journal.
    descs: Box<[Pin<()>]>,
}

/// One group behind its lock.
pub(crate) struct GroupState {
    /// Its descriptor, as the running transaction has it.
    pub(crate) desc: RawGroupDesc,
    /// Its bitmaps, once they are needed.
    pub(crate) bitmaps: Option<Bitmaps>,
}

/// Both bitmaps of a group.
pub(crate) struct Bitmaps {
    /// Blocks, as the running transaction has them.
    pub(crate) blocks: Pin<()>,
    /// Blocks that cannot be allocated.
    pub(crate) blocks_taken: Block,
    /// Inodes, as the running transaction has them.
    pub(crate) inodes: Pin<()>,
    /// Inodes that cannot be allocated.
    pub(crate) inodes_taken: Block,
}

impl Groups {
    /// The groups that these descriptors in `table` describe.
    pub(crate) fn new(sb: &Superblock, table: &[Block]) -> Result<Self> {
        let first = sb.super_block() + 1;
        let read = |group: Group| {
            let (at, byte) = sb.desc_place(group);
            let bytes = &table[(at - first) as usize][byte..];
            let desc = RawGroupDesc::read(bytes, sb.desc_size);
            desc.verify(sb.checksums, group, sb.desc_size, at)?;
            check_places(sb, &desc, at)?;
            Ok(desc)
        };
        let all: Vec<RawGroupDesc> = (0..sb.groups).map(read).collect::<Result<_>>()?;
        let lines = |count: fn(&RawGroupDesc) -> u32| {
            all.iter().map(|desc| Line::new(count(desc).into())).collect()
        };
        let lock = |(group, desc): (u64, &RawGroupDesc)| {
            let state = GroupState { desc: *desc, bitmaps: None };
            Mutex::ranked(Rank::Group, "ext4 group", state).keyed(group)
        };
        Ok(Self {
            groups: (0..).zip(&all).map(lock).collect(),
            tables: all.iter().map(RawGroupDesc::inode_table).collect(),
            free: lines(RawGroupDesc::free_clusters),
            free_inodes: lines(RawGroupDesc::free_inodes),
            system: SystemBlocks::new(sb, &all)?,
            descs: Box::default(),
        })
    }

    /// Keeps the blocks with the descriptors in the journal's memory.
    pub(crate) fn pin(&mut self, sb: &Superblock, journal: &Journal, table: Vec<Block>) {
        let blocks = (sb.super_block() + 1..).zip(table);
        self.descs = blocks.map(|(at, block)| journal.pin_as(at, block)).collect();
    }

    /// The lock of `group`, which is one of the volume.
    pub(crate) fn lock(&self, group: Group) -> MutexGuard<'_, GroupState> {
        self.groups[group as usize].lock()
    }

    /// Where the inode table of `group` begins.
    pub(crate) fn inode_table(&self, group: Group) -> FsBlock {
        self.tables[group as usize]
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.groups.len() as u32
    }

    /// Free blocks that descriptors count.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.groups.iter().map(|group| u64::from(group.lock().desc.free_clusters())).sum()
    }

    /// Free inodes that descriptors count.
    pub(crate) fn free_inodes(&self) -> u64 {
        self.groups.iter().map(|group| u64::from(group.lock().desc.free_inodes())).sum()
    }

    /// Seals and writes the descriptor of `group`, whose lock the caller holds.
    pub(crate) fn store(
        &self,
        handle: &mut Handle<'_>,
        sb: &Superblock,
        group: Group,
        desc: &mut RawGroupDesc,
    ) {
        desc.seal(sb.checksums, group, sb.desc_size);
        let (at, byte) = sb.desc_place(group);
        let pin = &self.descs[(at - sb.super_block() - 1) as usize];
        handle.change_pinned(pin, (), |block| desc.emit(&mut block[byte..], sb.desc_size));
    }

    /// Takes up to `most` adjacent blocks out of the allocator's bits, as near behind `goal` as
    /// possible. `None` if no block is free.
    pub(crate) fn take_blocks(
        &self,
        sb: &Superblock,
        goal: FsBlock,
        most: u32,
    ) -> Step<Option<Range<FsBlock>>> {
        let first = sb.group_of(goal.min(sb.blocks - 1));
        // First where there is a long run, then wherever there is anything.
        for least in [most.min(256), 1] {
            for distance in 0..self.count() {
                let group = (first + distance) % self.count();
                if self.free[group as usize].load() == 0 {
                    continue;
                }
                let from = if distance == 0 { sb.cluster_of(goal.min(sb.blocks - 1)) } else { 0 };
                if let Some(run) = self.take_in(sb, group, from, least, most)? {
                    let start = sb.group_start(group);
                    return Ok(Some(start + u64::from(run.start)..start + u64::from(run.end)));
                }
            }
        }
        Ok(None)
    }

    fn take_in(
        &self,
        sb: &Superblock,
        group: Group,
        from: u32,
        least: u32,
        most: u32,
    ) -> Step<Option<Run>> {
        let mut state = self.lock(group);
        let bitmaps = state.bitmaps.as_mut().ok_or(Stop::Want(Want::Group(group)))?;
        let blocks = sb.group_blocks(group);
        let end = (blocks.end - blocks.start) as u32;
        let run = [from..end, 0..from].into_iter().find_map(|bits| {
            let run = longest_run(&bitmaps.blocks_taken[..], bits, most);
            run.filter(|run| run.end - run.start >= least)
        });
        if let Some(run) = &run {
            bitmap::set_range(bitmaps.blocks_taken.make_mut(), run.clone());
            self.free[group as usize].fetch_add(u64::from(run.end - run.start).wrapping_neg());
        }
        Ok(run)
    }

    /// The first run of at least `least` blocks among `bits` of `group` that can be allocated.
    pub(crate) fn free_run(&self, group: Group, bits: Range<u32>, least: u32) -> Step<Option<Run>> {
        let state = self.lock(group);
        let bitmaps = state.bitmaps.as_ref().ok_or(Stop::Want(Want::Group(group)))?;
        let mut rest = bits;
        while let Some(run) = free_run(&bitmaps.blocks_taken[..], rest.clone()) {
            if run.end - run.start >= least {
                return Ok(Some(run));
            }
            rest.start = run.end;
        }
        Ok(None)
    }

    /// Takes these blocks of `group` out of the allocator's bits, if all of them are there.
    pub(crate) fn take_if_free(&self, group: Group, bits: Run) -> bool {
        let mut state = self.lock(group);
        let Some(bitmaps) = &mut state.bitmaps else { return false };
        let is_free = free_run(&bitmaps.blocks_taken[..], bits.clone()) == Some(bits.clone());
        if is_free {
            self.free[group as usize].fetch_add(u64::from(bits.end - bits.start).wrapping_neg());
            bitmap::set_range(bitmaps.blocks_taken.make_mut(), bits);
        }
        is_free
    }

    /// Gives blocks back to the allocator, which a plan took in vain or a committed transaction
    /// freed.
    pub(crate) fn give_back(&self, sb: &Superblock, blocks: Range<FsBlock>) {
        for (group, bits) in by_group(sb, blocks) {
            let mut state = self.lock(group);
            self.free[group as usize].fetch_add(u64::from(bits.end - bits.start));
            if let Some(bitmaps) = &mut state.bitmaps {
                let taken = bitmaps.blocks_taken.make_mut();
                bits.for_each(|bit| bitmap::clear(taken, bit));
            }
        }
    }

    /// Takes an inode out of the allocator's bits of `group`, the first free one. Also whether its
    /// block of the table is in use.
    pub(crate) fn take_inode_in(&self, sb: &Superblock, group: Group) -> Step<Option<(Ino, bool)>> {
        if self.free_inodes[group as usize].load() == 0 {
            return Ok(None);
        }
        let mut state = self.lock(group);
        if state.desc.free_inodes() == 0 {
            return Ok(None);
        }
        let used = state.used_inodes(sb);
        let bitmaps = state.bitmaps.as_mut().ok_or(Stop::Want(Want::Group(group)))?;
        let free = bitmap::first_free(&bitmaps.inodes_taken[..], 0..sb.inodes_per_group);
        Ok(free.map(|index| {
            bitmap::set(bitmaps.inodes_taken.make_mut(), index);
            self.free_inodes[group as usize].fetch_add(1_u64.wrapping_neg());
            (sb.ino_of(group, index), sb.first_beside(index) < used)
        }))
    }

    /// Gives an inode back to the allocator.
    pub(crate) fn give_back_inode(&self, sb: &Superblock, ino: Ino) {
        let Ok(place) = sb.inode_place(ino) else { return };
        if let Some(bitmaps) = &mut self.lock(place.group).bitmaps {
            self.give_back_in(place.group, bitmaps, place.index);
        }
    }

    /// Gives an inode back to the allocator, whose group the caller has locked.
    pub(crate) fn give_back_in(&self, group: Group, bitmaps: &mut Bitmaps, index: u32) {
        bitmap::clear(bitmaps.inodes_taken.make_mut(), index);
        self.free_inodes[group as usize].fetch_add(1);
    }
}

/// Fails unless a group's bitmaps and table lie on the volume.
pub(crate) fn check_places(sb: &Superblock, desc: &RawGroupDesc, at: FsBlock) -> Result<()> {
    let mut parts = sb.parts_of(desc).into_iter();
    parts.try_for_each(|(start, count)| sb.check_blocks(start, count, "group_desc", at))
}

/// The parts of `blocks` that lie in one group each: the group, and its bits.
pub(crate) fn by_group(
    sb: &Superblock,
    blocks: Range<FsBlock>,
) -> impl Iterator<Item = (Group, Range<u32>)> {
    let mut rest = blocks;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let group = sb.group_of(rest.start);
        let all = sb.group_blocks(group);
        let end = rest.end.min(all.end).max(rest.start + 1);
        let bits = (rest.start - all.start) as u32..(end - all.start) as u32;
        rest.start = end;
        Some((group, bits))
    })
}

/// The block bitmap of a group that was never written: superblock, descriptors, and those bitmaps
/// and tables of any group that lie in it (`ext4_init_block_bitmap`).
pub(crate) fn fresh_block_bitmap(
    sb: &Superblock,
    group: Group,
    own: impl Iterator<Item = RawGroupDesc>,
) -> Block {
    let mut block = Block::zeroed();
    let bits = block.make_mut();
    let all = sb.group_blocks(group);
    bitmap::set_range(bits, 0..sb.base_meta_blocks(group));
    for desc in own {
        for (start, count) in sb.parts_of(&desc) {
            for at in (start..start + count).filter(|at| all.contains(at)) {
                bitmap::set(bits, (at - all.start) as u32);
            }
        }
    }
    bitmap::set_range(bits, (all.end - all.start) as u32..sb.block_size * 8);
    block
}

/// The inode bitmap of a group that was never written.
pub(crate) fn fresh_inode_bitmap(sb: &Superblock) -> Block {
    let mut block = Block::zeroed();
    bitmap::set_range(block.make_mut(), sb.inodes_per_group..sb.block_size * 8);
    block
}

impl Bitmaps {
    /// Those of the group with this descriptor as the drive has them, or as they are to be: what
    /// they say is free can be taken.
    pub(crate) fn new(
        journal: &Journal,
        desc: &RawGroupDesc,
        blocks_taken: Block,
        inodes_taken: Block,
    ) -> Self {
        let blocks = journal.pin_as(desc.block_bitmap(), blocks_taken.clone());
        let inodes = journal.pin_as(desc.inode_bitmap(), inodes_taken.clone());
        Self { blocks, blocks_taken, inodes, inodes_taken }
    }
}

impl GroupState {
    /// Inodes at the start of the table that have been used. Never fewer.
    pub(crate) fn used_inodes(&self, sb: &Superblock) -> u32 {
        sb.inodes_per_group.saturating_sub(self.desc.itable_unused())
    }

    /// Whether the bitmaps are as the drive has them, or have to be made up.
    pub(crate) fn is_fresh(&self) -> (bool, bool) {
        (self.desc.has(BLOCK_UNINIT), self.desc.has(INODE_UNINIT))
    }
}
