//! Write-back: dirty pages get blocks, go to the drive, and only then into the file's map.
//!
//! The order makes `data=ordered` true by itself: an operation maps blocks whose contents the drive
//! has completed, and the commit that makes it durable flushes before its commit block. Until then
//! the blocks are taken in memory only; a power cut leaves them free. A page stays dirty, and so in
//! memory, until its block is mapped.
//!
//! With `dioread_lock` blocks are mapped first, and the commit waits for their contents, as ext4
//! does by default before Linux 5.6: callers whose data is still on its way share the next commit.
//!
//! `data=writeback` maps new blocks while their contents are on the way, so another file's commit
//! may make the map durable and a power cut may leave what the blocks had before. An fsync waits
//! for both. Unwritten extents become written after their contents in any mode
//! (`ext4_end_io_rsv_work`). `data=journal` is in `data_journal`.

use std::ops::Range;

use drive::{BLOCK_SIZE, Block};
use journal::Ordered;
use queue::{IoError, WriteSet};
use vfs::inode::Turn;
use vfs::op::Stop;

use crate::error::{Error, Result};
use crate::file::small::promised_in_vain;
use crate::fsync::vouched::Written;
use crate::inode::cached::{Inode, Shard};
use crate::inode::map::{self, Mapped};
use crate::mount::apply::mark_written;
use crate::mount::draft::{Draft, Pages};
use crate::mount::engine::Engine;
use crate::mount::inject::Inject;
use crate::mount::options::{Alloc, DataMode};
use crate::mount::want::{Step, Want};
use crate::ondisk::extent::{Extent, LEN_MAX};
use crate::ondisk::{FileBlock, FsBlock, Ino};

/// Pages written at a time.
pub(super) const BATCH: usize = 1024;

/// A block of a file, its block of the volume, and its contents.
pub(crate) type Place = (u64, FsBlock, Block);

/// Dirty pages, and where they go.
#[derive(Default)]
pub(super) struct Batch {
    /// How long the file is in memory, and on the drive.
    sizes: (u64, u64),
    pub(super) pages: Vec<(u64, Block)>,
    /// Blocks of theirs that the file has, and where these are.
    mapped: Vec<(u64, FsBlock)>,
    pub(super) unwritten: Vec<Extent>,
    /// Runs of blocks that they lack, and where these should be.
    holes: Vec<(Range<u64>, FsBlock)>,
}

/// What a transaction that maps blocks waits for, besides its own.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    None,
    /// The blocks' contents.
    DataFirst,
}

/// Blocks taken for pages that are on their way. They go back unless they are mapped.
pub(super) struct Taken<'a> {
    engine: &'a Engine,
    pub(super) extents: Vec<Extent>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for extent in self.extents.drain(..) {
            self.engine.groups.give_back(&self.engine.sb, extent.home());
        }
    }
}

impl Engine {
    /// Writes back what is dirty of inode `ino`, and puts the inode into the running transaction.
    /// The drive has completed the data when this returns.
    pub(crate) fn flush_inode(&self, ino: Ino) -> Result<()> {
        let _turn = Turn::take(self, ino.into());
        self.flush_in_turn(ino)
    }

    /// As [`Engine::flush_inode`], a batch at a time, so that others who need the inode's turn wait
    /// for no more than one. What becomes dirty behind the last dirty page meanwhile is left for
    /// another time, or this would last as long as a stream into the file.
    pub(crate) fn flush_by_parts(&self, ino: Ino) -> Result<()> {
        self.for_dirty(ino, |page| self.flush_some(ino, page))?;
        let _turn = Turn::take(self, ino.into());
        self.write_changed_attributes(ino, 0)
    }

    /// Writes back a batch of the inode's dirty pages, from page `from` on. Returns the page behind
    /// it; `None` if there were none.
    pub(crate) fn flush_some(&self, ino: Ino, from: u64) -> Result<Option<u64>> {
        let _turn = Turn::take(self, ino.into());
        self.write_some(ino, from).inspect_err(|error| self.report(error))
    }

    /// Gives blocks to a file that is about to replace another one, or has replaced its own old
    /// contents, so that no power cut leaves it empty (`ext4_alloc_da_blocks`). If that fails, its
    /// pages stay dirty, and its fsync meets the failure again.
    pub(crate) fn write_ahead(&self, ino: Ino) {
        let is_dirty = {
            let mut shard = self.inodes.own(ino.into());
            let cached = shard.inodes.get_mut(&ino);
            cached.into_iter().for_each(|cached| cached.cut = false);
            shard.pages.dirty_count(ino.into()) > 0
        };
        if is_dirty {
            let _ = self.flush_inode(ino);
        }
    }

    /// As [`Engine::flush_inode`]; the caller has the inode's turn.
    pub(crate) fn flush_in_turn(&self, ino: Ino) -> Result<()> {
        let size = self.size_of(ino);
        self.write_pages(ino).inspect_err(|error| self.report(error))?;
        self.write_changed_attributes(ino, size)
    }

    /// The size of a file in memory; 0 if it is not there.
    fn size_of(&self, ino: Ino) -> u64 {
        let shard = self.inodes.look(ino.into());
        shard.inodes.get(&ino).map_or(0, |cached| cached.inode.size)
    }

    fn write_changed_attributes(&self, ino: Ino, size: u64) -> Result<()> {
        let is_changed = self.inodes.look(ino.into()).changed.contains(&ino);
        if is_changed { self.write_attributes(ino, size) } else { Ok(()) }
    }

    /// As [`Engine::flush_in_turn`], without attributes that are not needed to read the contents.
    pub(crate) fn flush_contents(&self, ino: Ino) -> Result<()> {
        let size = self.size_of(ino);
        self.write_pages(ino)?;
        let has_other_size = self.inode_is(ino, |inode| inode.size != inode.raw.size());
        if has_other_size { self.write_attributes(ino, size) } else { Ok(()) }
    }

    /// Whether the inode is in memory, and like this.
    pub(super) fn inode_is(&self, ino: Ino, like: impl FnOnce(&Inode) -> bool) -> bool {
        self.inodes.look(ino.into()).inodes.get(&ino).is_some_and(|cached| like(&cached.inode))
    }

    fn write_pages(&self, ino: Ino) -> Result<()> {
        self.for_dirty(ino, |page| self.write_some(ino, page))
    }

    /// Calls `write` with page after page of a file, as it returns them, up to the last that is
    /// dirty now: while others append, there would be no end (`tag_pages_for_writeback`).
    fn for_dirty(&self, ino: Ino, write: impl Fn(u64) -> Result<Option<u64>>) -> Result<()> {
        let last = self.inodes.look(ino.into()).pages.last_dirty(ino.into());
        let mut from = last.and(Some(0));
        while let Some(page) = from.filter(|page| Some(*page) <= last) {
            from = write(page)?;
        }
        Ok(())
    }

    fn write_some(&self, ino: Ino, from: u64) -> Result<Option<u64>> {
        let batch = self.look(ino.into(), |shard| self.batch(shard, ino, from))?;
        let Some((last, _)) = batch.pages.last() else { return Ok(None) };
        let next = last + 1;
        self.write_batch(ino, batch)?;
        Ok(Some(next))
    }

    /// Puts the inode into the running transaction, if memory has a newer one. All pages that were
    /// dirty while the file had `size` bytes have been written.
    fn write_attributes(&self, ino: Ino, size: u64) -> Result<()> {
        self.change(&[ino.into()], 2, |draft| {
            if !draft.shard(ino)?.changed.contains(&ino) {
                return Ok(());
            }
            let has_dirty = draft.shard(ino)?.pages.dirty_count(ino.into()) > 0;
            let inode = draft.inode_mut(ino)?;
            // Pages that became dirty meanwhile may lie behind what the drive has.
            let covered = if has_dirty { inode.size.min(size) } else { inode.size };
            if !has_dirty || covered > inode.raw.size() {
                inode.raw.set_size(covered);
            }
            Ok(())
        })
    }

    /// Dirty pages of a file from page `from` on.
    fn batch(&self, shard: &Shard, ino: Ino, from: u64) -> Step<Batch> {
        let mut batch = Batch::default();
        let Ok(cached) = shard.inode(ino) else { return Ok(batch) };
        let inode = &cached.inode;
        batch.sizes = (inode.size, inode.raw.size());
        let most = self.batch_max(inode);
        let mut goal = None;
        let mut known: Option<Mapped> = None;
        for index in shard.pages.dirty_in(ino.into(), from..1 << 32).take(most) {
            let Some(page) = shard.pages.peek(ino.into(), index) else { continue };
            batch.pages.push((index, page.clone()));
            for index in self.blocks_of(index, inode.size) {
                let block = index as FileBlock;
                let found = match known {
                    Some(found) if covers(&found, index) => found,
                    _ => map::find(self, inode, block)?,
                };
                known = Some(found);
                let Some(at) = found.at(block) else {
                    let goal = match goal {
                        Some(goal) => goal,
                        None => self.goal_of(inode, ino, block)?,
                    };
                    push_hole(&mut batch.holes, index, goal);
                    continue;
                };
                batch.mapped.push((index, at));
                goal = Some(at + 1);
                if let Mapped::Extent(Extent { unwritten: true, .. }) = found {
                    push_page(&mut batch.unwritten, block, at);
                }
            }
        }
        Ok(batch)
    }

    /// The blocks of a page in front of the end of its file, which has `size` bytes; the first in
    /// any case.
    fn blocks_of(&self, page: u64, size: u64) -> Range<u64> {
        let each = self.sb.blocks_per_page();
        let first = page * each;
        let end = size.div_ceil(self.sb.block_size.into()).clamp(first + 1, first + each);
        first..end
    }

    /// Where the block of a page should be: behind that of the page in front of it, or in the
    /// inode's group.
    fn goal_of(&self, inode: &Inode, ino: Ino, block: u32) -> Step<FsBlock> {
        if self.alloc == Alloc::PerCore {
            return Ok(self.sb.group_start(self.groups.of_core()));
        }
        if let Some(before) = block.checked_sub(1)
            && let Some(at) = map::find(self, inode, before)?.at(before)
        {
            return Ok(at + 1);
        }
        Ok(self.sb.group_start(self.sb.inode_place(ino)?.group))
    }

    fn write_batch(&self, ino: Ino, batch: Batch) -> Result<()> {
        let mut taken = Taken { engine: self, extents: Vec::new() };
        for (blocks, goal) in &batch.holes {
            self.take_for(blocks.clone(), *goal, &mut taken.extents)?;
        }
        if self.is_logged(ino)? {
            return self.journal_batch(ino, batch, taken);
        }
        let places = batch.places(self, &taken.extents);
        self.keep_vouched(ino, &places)?;
        let block_size = self.sb.block_size;
        let summed = if self.record_csum { batch.sums(&places, block_size) } else { Vec::new() };
        self.write_and_map(ino, batch, taken, places)?;
        self.note_written(ino, summed);
        Ok(())
    }

    fn write_and_map(
        &self,
        ino: Ino,
        batch: Batch,
        mut taken: Taken<'_>,
        places: Vec<Place>,
    ) -> Result<()> {
        let mut writes = WriteSet::default();
        for (_, at, page) in places {
            writes.push(&self.io, at, page);
        }
        writes.submit(&self.io);
        let Batch { pages, unwritten, .. } = batch;
        let end = pages.last().map_or(0, |(last, _)| (last + 1) * BLOCK_SIZE as u64);
        let Some(order) = self.early_order(&taken, &unwritten) else {
            self.await_data(&mut writes)?;
            return self.map_pages(ino, &mut taken, unwritten, (end, pages), Order::None).map(drop);
        };
        // Until their contents are there, they stay dirty, and what was taken in vain stays taken.
        let mapped = self.map_pages(ino, &mut taken, unwritten, (end, Vec::new()), order);
        let written = self.await_data(&mut writes);
        if let Some(ordered) = mapped? {
            ordered.end(written.map_err(journal::Error::from));
        }
        written?;
        mark_written(&mut self.inodes.own(ino.into()), ino, pages);
        Ok(())
    }

    /// Whether blocks are mapped before the drive has their contents, and then, whether the commit
    /// waits for these. A batch that takes more than one transaction may wait for a commit.
    fn early_order(&self, taken: &Taken<'_>, unwritten: &[Extent]) -> Option<Order> {
        // What lies behind the end of the file of a page is taken back when it becomes clean, which
        // a change has to plan where a page has several blocks.
        if !unwritten.is_empty() || self.sb.blocks_per_page() > 1 {
            return None;
        }
        let skips = self.inject.contains(Inject::SKIP_ORDERED);
        match self.data {
            DataMode::Writeback => Some(Order::None),
            _ if skips => Some(Order::None),
            _ if self.dioread_lock && taken.extents.len() <= self.extents_max() => {
                Some(Order::DataFirst)
            }
            _ => None,
        }
    }

    /// Extents that one transaction of a small log has room for, with a new block of the tree.
    fn extents_max(&self) -> usize {
        (self.journal.credits_max().min(208).saturating_sub(8) / 6).max(1) as usize
    }

    fn await_data(&self, writes: &mut WriteSet) -> std::result::Result<(), IoError> {
        let _span = cores::span(cores::Stage::WaitData);
        writes.wait(self.io.queue())
    }

    /// Puts blocks into the file's map, new ones and parts of unwritten extents, and the size up to
    /// `end`. Pages become clean.
    fn map_pages(
        &self,
        ino: Ino,
        taken: &mut Taken<'_>,
        mut unwritten: Vec<Extent>,
        (end, mut pages): (u64, Vec<(u64, Block)>),
        order: Order,
    ) -> Result<Option<Ordered>> {
        let grows = self.inode_is(ino, |inode| inode.raw.size() < inode.size.min(end));
        let is_small = self.sb.blocks_per_page() > 1;
        if taken.extents.is_empty() && unwritten.is_empty() && !grows && !is_small {
            mark_written(&mut self.inodes.own(ino.into()), ino, pages);
            return Ok(None);
        }
        let most = self.extents_max();
        loop {
            let new: Vec<_> = taken.extents.iter().copied().take(most).collect();
            let old: Vec<_> = unwritten.iter().copied().take(most - new.len()).collect();
            let is_last = new.len() == taken.extents.len() && old.len() == unwritten.len();
            let (end, pages) = match is_last {
                true => (end, std::mem::take(&mut pages)),
                false => {
                    let last = new.iter().chain(&old).map(Extent::end).max().unwrap_or(0);
                    (last * u64::from(self.sb.block_size), Vec::new())
                }
            };
            let promised: u64 = new.iter().map(|extent| u64::from(extent.len)).sum();
            let room = 8 + 6 * (new.len() + old.len()) as u32;
            let ((), ordered) = self.change_ordered(&[ino.into()], room, |draft| {
                draft.map_batch(ino, &new, &old, end)?;
                let promised = promised + draft.promised_in_vain(ino, &pages)?;
                draft.change_pages(Pages::Written { ino, pages: pages.clone(), promised });
                if order == Order::DataFirst {
                    draft.order();
                }
                Ok(())
            })?;
            // They are the file's now.
            taken.extents.drain(..new.len());
            unwritten.drain(..old.len());
            if is_last {
                return Ok(ordered);
            }
        }
    }

    /// Takes blocks for those of a file that it lacks.
    fn take_for(
        &self,
        mut blocks: Range<u64>,
        mut goal: FsBlock,
        extents: &mut Vec<Extent>,
    ) -> Result<()> {
        while !blocks.is_empty() {
            let most = (blocks.end - blocks.start).min(u64::from(LEN_MAX));
            match self.groups.take_blocks(&self.sb, goal, most as u32) {
                Ok(Some(taken)) => {
                    let len = (taken.end - taken.start) as u32;
                    let block = blocks.start as FileBlock;
                    extents.push(Extent { block, len, start: taken.start, unwritten: false });
                    blocks.start += u64::from(len);
                    goal = taken.end;
                }
                Ok(None) if self.has_parked() => self.fetch_or_fail(Stop::Want(Want::Commit))?,
                Ok(None) => return Err(Error::NoSpace),
                Err(stop) => self.heed(self.fetch_or_fail(stop))?,
            }
        }
        Ok(())
    }
}

impl Batch {
    /// Where each block of the pages goes, with `new` ones for those that the file lacked.
    pub(super) fn places(&self, engine: &Engine, new: &[Extent]) -> Vec<Place> {
        let mut mapped = self.mapped.iter().peekable();
        let mut places = Vec::with_capacity(self.pages.len());
        for (index, page) in &self.pages {
            for block in engine.blocks_of(*index, self.sizes.0) {
                let at = match mapped.next_if(|(mapped, _)| *mapped == block) {
                    Some((_, at)) => Some(*at),
                    None => new.iter().find_map(|extent| extent.at(block)),
                };
                places.extend(at.map(|at| (block, at, engine.piece(page, block))));
            }
        }
        places
    }

    /// The sums of blocks, of `block_size` bytes, that go there.
    fn sums(&self, places: &[Place], block_size: u32) -> Vec<Written> {
        let (size, on_drive) = self.sizes;
        let is_plain = |index: u64| {
            self.mapped.binary_search_by_key(&index, |(mapped, _)| *mapped).is_ok()
                && !self.unwritten.iter().any(|extent| extent.range().contains(&index))
        };
        let sum = |place: &Place| {
            let end = size.min((place.0 + 1) * u64::from(block_size));
            Written::new(place, block_size, size, end > on_drive || !is_plain(place.0))
        };
        places.iter().map(sum).collect()
    }
}

fn covers(found: &Mapped, index: u64) -> bool {
    match found {
        Mapped::Extent(extent) => extent.range().contains(&index),
        Mapped::Hole(end) => index < *end,
    }
}

/// Adds a block of a file to runs of them.
fn push_page(runs: &mut Vec<Extent>, block: FileBlock, at: FsBlock) {
    match runs.last_mut() {
        Some(run)
            if run.end() == u64::from(block)
                && run.home().end == at
                && run.len < LEN_MAX.into() =>
        {
            run.len += 1;
        }
        _ => runs.push(Extent { block, len: 1, start: at, unwritten: false }),
    }
}

fn push_hole(holes: &mut Vec<(Range<u64>, FsBlock)>, index: u64, goal: FsBlock) {
    match holes.last_mut() {
        Some((pages, _)) if pages.end == index => pages.end += 1,
        _ => holes.push((index..index + 1, goal)),
    }
}

impl Draft<'_, '_> {
    /// Puts written extents into the map of `ino`, `new` ones and parts of unwritten ones, and the
    /// size up to `end`.
    pub(super) fn map_batch(
        &mut self,
        ino: Ino,
        new: &[Extent],
        unwritten: &[Extent],
        end: u64,
    ) -> Step<()> {
        new.iter().try_for_each(|extent| self.map_written(ino, *extent))?;
        unwritten.iter().try_for_each(|extent| self.convert(ino, *extent))?;
        let inode = self.inode_mut(ino)?;
        inode.raw.set_size(inode.raw.size().max(inode.size.min(end)));
        Ok(())
    }

    /// See [`promised_in_vain`], of the inode as this draft leaves it.
    pub(super) fn promised_in_vain(&self, ino: Ino, pages: &[(u64, Block)]) -> Step<u64> {
        promised_in_vain(self, self.shard(ino)?, (ino, self.inode(ino)?), pages)
    }

    /// Maps blocks that were taken before this operation and written.
    fn map_written(&mut self, ino: Ino, extent: Extent) -> Step<()> {
        self.changes.adopted.push(extent.home());
        self.count_blocks(ino, extent.len.into())?;
        self.insert_extent(ino, extent)
    }

    /// Part of an unwritten extent has been written.
    fn convert(&mut self, ino: Ino, extent: Extent) -> Step<()> {
        self.unmap(ino, extent.range())?;
        self.insert_extent(ino, extent)
    }
}
