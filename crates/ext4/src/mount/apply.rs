//! Applying a plan: everything it needs is in memory, so this neither fails nor waits for a drive.

use std::ops::Range;

use drive::Block;
use journal::{Id, Ordered};
use smallvec::SmallVec;
use vfs::inode::OwnedShards;
use vfs::op::Work;

use crate::alloc::groups::{Bitmaps, GroupState, by_group};
use crate::inode::cached::{Inode, Shard, set_dtime};
use crate::inode::orphan::Link;
use crate::mount::draft::{Changes, Pages, Pins};
use crate::mount::engine::Engine;
use crate::mount::inject::Inject;
use crate::mount::journal::Handle;
use crate::ondisk::group::{BLOCK_UNINIT, RawGroupDesc};
use crate::ondisk::{FsBlock, Group, Ino, bitmap, xattr};

/// A new inode's place in the table.
struct NewSlot {
    ino: Ino,
    is_dir: bool,
    /// The next orphan, if it is one from the start.
    dtime: u32,
}

impl Changes<'_> {
    /// Blocks that applying this changes, at most.
    pub(super) fn room(&self) -> u32 {
        let ranges = self.taken.iter().chain(&self.adopted).chain(&self.freed);
        let mut groups: SmallVec<[Group; 8]> = SmallVec::new();
        for range in ranges {
            groups.extend(by_group(&self.engine.sb, range.clone()).map(|(group, _)| group));
        }
        groups.sort_unstable();
        groups.dedup();
        let inodes = self.made.len() + self.unmade.len();
        // Of a group, its bitmap and descriptor. Two for the list of orphans.
        let contents = self.logged_data.len() + self.revoked.len();
        let blocks = 2 * (groups.len() + inodes) + self.inodes.len() + self.blocks.len() + contents;
        let unshared = u32::from(self.unshared.is_some());
        blocks as u32 + self.table_blocks + 2 * u32::from(self.orphans.is_some()) + unshared
    }

    pub(super) fn apply(mut self, work: &mut Work<'_, Engine>) -> Option<Ordered> {
        let engine = self.engine;
        self.note_down(work);
        let handle = &mut work.permit;
        let links = self.apply_orphans(handle);
        for (ino, next) in links {
            if let Some(at) = self.inodes.iter().position(|(other, _)| *other == ino) {
                let (_, inode) = self.inodes.remove(at);
                self.apply_inode(work, ino, inode, Some(next));
            }
        }
        // Not before: until all links are written, the next change of the list would write one that
        // is then written over.
        self.orphans = None;
        let handle = &mut work.permit;
        if let Some((group, index)) = self.table.take() {
            engine.lengthen_table(handle, group, index);
        }
        for (ino, is_dir) in std::mem::take(&mut self.unmade) {
            engine.unmake_inode(handle, ino, is_dir);
            self.forget_inode(handle, ino);
            if let Some(shard) = work.shards.get_mut(ino.into()) {
                shard.pages.forget(ino.into());
                shard.inodes.remove(&ino);
                shard.names.forget(ino);
                shard.changed.remove(&ino);
            }
        }
        for (ino, inode) in std::mem::take(&mut self.inodes) {
            let dtime = (self.removed_orphan == Some(ino)).then_some(0);
            self.apply_inode(work, ino, inode, dtime);
        }
        let handle = &mut work.permit;
        self.apply_names(&mut work.shards);
        for (at, block) in std::mem::take(&mut self.blocks) {
            match block {
                Some(block) => handle.create(at, (), block),
                None => handle.forget(at),
            }
        }
        std::mem::take(&mut self.revoked).into_iter().for_each(|at| handle.forget(at));
        for (at, page) in std::mem::take(&mut self.logged_data) {
            handle.create(at, (), page);
        }
        if let Some((at, pin)) = self.unshared.take() {
            let (seed, size) = (engine.sb.checksums.seed(), engine.sb.block_size as usize);
            handle.change_pinned(&pin, (), |block| xattr::unshare(&mut block[..size], seed, at));
        }
        self.shares = None;
        let mut taken = std::mem::take(&mut self.taken);
        taken.extend(std::mem::take(&mut self.adopted));
        let count: u64 = taken.iter().map(|blocks| blocks.end - blocks.start).sum();
        engine.room.allocated(count - self.paid);
        for blocks in taken {
            engine.use_blocks(handle, blocks);
        }
        for blocks in std::mem::take(&mut self.freed) {
            engine.free_blocks(handle, blocks);
        }
        for pages in std::mem::take(&mut self.pages) {
            engine.apply_pages(work, pages);
        }
        self.apply_marks(work);
        if self.moves_dir {
            engine.note_moved_dir(work.permit.id());
        }
        self.applied = true;
        self.is_ordered.then(|| work.permit.order())
    }

    /// Writes an inode; with `dtime`, that in its place in the list of orphans.
    fn apply_inode(&self, work: &mut Work<'_, Engine>, ino: Ino, inode: Inode, dtime: Option<u32>) {
        let (engine, handle) = (self.engine, &mut work.permit);
        match self.made.iter().find(|(other, _)| *other == ino) {
            Some((_, is_dir)) => {
                let new = NewSlot { ino, is_dir: *is_dir, dtime: dtime.unwrap_or(0) };
                engine.make_inode(handle, &self.pins, &new, &inode);
            }
            None => engine.write_inode(handle, &self.pins, ino, |slot| inode.emit(slot, dtime)),
        }
        if let Some(shard) = work.shards.get_mut(ino.into()) {
            let is_mapped = self.mapped.contains(&ino);
            keep_inode(shard, ino, inode, (work.permit.id(), is_mapped));
        }
    }

    /// Notes what matters for records, and makes room for inodes that were made.
    fn apply_marks(&mut self, work: &mut Work<'_, Engine>) {
        for (ino, mark) in std::mem::take(&mut self.marks) {
            if let Some(shard) = work.shards.get_mut(ino.into()) {
                mark.note(shard, ino, work.permit.id());
            }
        }
        for (ino, _) in &self.made {
            work.shards.get_mut((*ino).into()).into_iter().for_each(|at| self.engine.weed(at));
        }
    }

    /// Cached names stay entries of their directories.
    fn apply_names(&mut self, shards: &mut OwnedShards<'_, Shard>) {
        for dir in std::mem::take(&mut self.lost_names) {
            if let Some(shard) = shards.get_mut(dir.into()) {
                shard.names.forget(dir);
            }
        }
        if let Some((dir, name, ino)) = self.new_dir.take()
            && let Some(shard) = shards.get_mut(dir.into())
        {
            let changes = shard.names.changes();
            shard.names.insert(dir, &name, ino, changes);
        }
    }

    /// Links the list of orphans anew. Returns the links in inodes that are written anyway.
    fn apply_orphans(&mut self, handle: &mut Handle<'_>) -> Vec<(Ino, u32)> {
        let engine = self.engine;
        let Some(orphans) = &mut self.orphans else { return Vec::new() };
        let (mut links, mut left) = (Vec::new(), Vec::new());
        if let Some(ino) = self.removed_orphan {
            links.extend(orphans.link_to_remove(ino));
            orphans.removed(ino);
        }
        if let Some(ino) = self.added_orphan {
            links.extend(orphans.links_to_add(ino));
            orphans.added(ino);
        }
        for link in links {
            match link {
                Link::First(ino) => {
                    let block = orphans.edit_superblock(|raw| raw.last_orphan = ino.into());
                    handle.create(engine.sb.super_block(), (), block);
                }
                Link::Next(ino, next) if self.inodes.iter().any(|(other, _)| *other == ino) => {
                    left.push((ino, next));
                }
                Link::Next(ino, next) => engine.write_inode(handle, &self.pins, ino, |slot| {
                    let generation = slot[0x64..0x68].try_into().map_or(0, u32::from_le_bytes);
                    let seed = engine.sb.checksums.inode_seed(ino, generation);
                    set_dtime(slot, seed, Some(next));
                }),
            }
        }
        left
    }

    /// Writes a freed inode: no links, no type, and when it was freed.
    fn forget_inode(&mut self, handle: &mut Handle<'_>, ino: Ino) {
        let Some(place) = self.inodes.iter().position(|(other, _)| *other == ino) else { return };
        let (_, mut inode) = self.inodes.remove(place);
        inode.raw.links_count = 0.into();
        inode.raw.set_size(0);
        let now = self.engine.clock.now().secs as u32;
        let write = |slot: &mut [u8]| inode.emit(slot, Some(now));
        self.engine.write_inode(handle, &self.pins, ino, write);
    }
}

/// The inode is like this, since a transaction that has changed its map or has not.
fn keep_inode(shard: &mut Shard, ino: Ino, inode: Inode, (id, is_mapped): (Id, bool)) {
    if inode.size == inode.raw.size() {
        shard.changed.remove(&ino);
    }
    match shard.inodes.get_mut(&ino) {
        Some(cached) => {
            let old = &cached.inode;
            let is_same = old.rest == inode.rest && old.raw.differs_in_times_only(&inode.raw);
            if is_mapped || !is_same {
                cached.data_id = Some(id);
            }
            (cached.inode, cached.id) = (inode, Some(id));
        }
        None => shard.insert(ino, inode, Some(id)),
    }
}

impl Drop for Changes<'_> {
    fn drop(&mut self) {
        if self.applied {
            return;
        }
        let engine = self.engine;
        for blocks in self.taken.drain(..) {
            engine.groups.give_back(&engine.sb, blocks);
        }
        for (ino, _) in self.made.drain(..) {
            engine.groups.give_back_inode(&engine.sb, ino);
        }
    }
}

impl Engine {
    fn write_inode(
        &self,
        handle: &mut Handle<'_>,
        pins: &Pins,
        ino: Ino,
        write: impl FnOnce(&mut [u8]),
    ) {
        let Ok((at, byte)) = self.inode_slot(ino) else { return };
        self.edit(handle, pins, at, |block| write(&mut block[byte..byte + self.inode_size()]));
    }

    /// Changes a block of the inode table, which the plan has pinned.
    fn edit(
        &self,
        handle: &mut Handle<'_>,
        pins: &Pins,
        at: FsBlock,
        change: impl FnOnce(&mut [u8]),
    ) {
        let pin = pins.iter().find(|(other, _)| *other == at);
        debug_assert!(pin.is_some(), "block {at} of the inode table is not pinned");
        if let Some((_, pin)) = pin {
            handle.change_pinned(pin, (), |block| change(&mut block[..]));
        }
    }

    fn make_inode(&self, handle: &mut Handle<'_>, pins: &Pins, new: &NewSlot, inode: &Inode) {
        let NewSlot { ino, is_dir, dtime } = *new;
        let Ok(place) = self.sb.inode_place(ino) else { return };
        let mut state = self.groups.lock(place.group);
        self.use_table(handle, &mut state, place.index);
        let GroupState { desc, bitmaps: Some(bitmaps) } = &mut *state else { return };
        let (at, byte) = self.sb.inode_at(desc.inode_table(), place.index);
        self.edit(handle, pins, at, |block| {
            let slot = &mut block[byte..byte + self.inode_size()];
            slot.fill(0);
            inode.emit(slot, Some(dtime));
        });
        desc.set_free_inodes(desc.free_inodes().saturating_sub(1));
        desc.set_used_dirs(desc.used_dirs() + u32::from(is_dir));
        let set = |bits: &mut [u8]| bitmap::set(bits, place.index);
        self.store_inodes(handle, place.group, desc, bitmaps, set);
    }

    /// As [`Engine::make_inode`], without an inode.
    fn lengthen_table(&self, handle: &mut Handle<'_>, group: Group, index: u32) {
        let mut state = self.groups.lock(group);
        self.use_table(handle, &mut state, index);
        let GroupState { desc, bitmaps: Some(bitmaps) } = &mut *state else { return };
        self.store_inodes(handle, group, desc, bitmaps, |_| {});
    }

    fn unmake_inode(&self, handle: &mut Handle<'_>, ino: Ino, is_dir: bool) {
        let Ok(place) = self.sb.inode_place(ino) else { return };
        let mut state = self.groups.lock(place.group);
        let GroupState { desc, bitmaps: Some(bitmaps) } = &mut *state else { return };
        // Records may name it until this is committed.
        if self.journal.has_records() {
            self.park_inode(handle.id(), ino);
        } else {
            self.groups.give_back_in(place.group, bitmaps, place.index);
        }
        desc.set_free_inodes(desc.free_inodes() + 1);
        desc.set_used_dirs(desc.used_dirs().saturating_sub(u32::from(is_dir)));
        let clear = |bits: &mut [u8]| bitmap::clear(bits, place.index);
        self.store_inodes(handle, place.group, desc, bitmaps, clear);
    }

    fn store_inodes(
        &self,
        handle: &mut Handle<'_>,
        group: Group,
        desc: &mut RawGroupDesc,
        bitmaps: &Bitmaps,
        change: impl FnOnce(&mut [u8]),
    ) {
        let (seed, count) = (self.sb.checksums.seed(), self.sb.inodes_per_group);
        let sum = handle.change_pinned(&bitmaps.inodes, (), |bits| {
            change(&mut bits[..]);
            seed.map(|seed| bitmap::checksum(seed, &bits[..], count))
        });
        sum.into_iter().for_each(|sum| desc.set_inode_bitmap_csum(sum));
        self.groups.store(handle, &self.sb, group, desc);
    }

    /// Blocks that were taken belong to a file now.
    fn use_blocks(&self, handle: &mut Handle<'_>, blocks: Range<FsBlock>) {
        self.change_bits(handle, blocks, |bits, range, free| {
            let count = range.end - range.start;
            bitmap::set_range(bits, range);
            free.saturating_sub(count)
        });
    }

    /// Blocks belong to no file any more. They can be used again once this is committed.
    fn free_blocks(&self, handle: &mut Handle<'_>, blocks: Range<FsBlock>) {
        self.room.freed(blocks.end - blocks.start);
        self.change_bits(handle, blocks.clone(), |bits, range, free| {
            let count = range.end - range.start;
            range.for_each(|bit| bitmap::clear(bits, bit));
            free + count
        });
        if self.inject.contains(Inject::EARLY_REUSE) {
            self.groups.give_back(&self.sb, blocks);
        } else {
            self.park(handle.id(), blocks);
        }
    }

    /// Changes bits of block bitmaps; `change` returns the new count of free blocks.
    fn change_bits(
        &self,
        handle: &mut Handle<'_>,
        blocks: Range<FsBlock>,
        change: impl Fn(&mut [u8], Range<u32>, u32) -> u32,
    ) {
        for (group, range) in by_group(&self.sb, blocks) {
            let mut state = self.groups.lock(group);
            let GroupState { desc, bitmaps: Some(bitmaps) } = &mut *state else { continue };
            let (seed, count) = (self.sb.checksums.seed(), self.sb.clusters_per_group);
            let (free, sum) = handle.change_pinned(&bitmaps.blocks, (), |bits| {
                let free = change(&mut bits[..], range, desc.free_clusters());
                (free, seed.map(|seed| bitmap::checksum(seed, &bits[..], count)))
            });
            desc.set_free_clusters(free);
            desc.flags = (desc.flags.get() & !BLOCK_UNINIT).into();
            sum.into_iter().for_each(|sum| desc.set_block_bitmap_csum(sum));
            self.groups.store(handle, &self.sb, group, desc);
        }
    }

    fn apply_pages(&self, work: &mut Work<'_, Self>, change: Pages) {
        let (Pages::Truncate { ino, promised, .. }
        | Pages::Dropped { ino, promised, .. }
        | Pages::Unmapped { ino, promised }
        | Pages::Written { ino, promised, .. }) = change;
        let Some(shard) = work.shards.get_mut(ino.into()) else { return };
        let is_more = matches!(change, Pages::Unmapped { .. });
        if let Some(cached) = shard.inodes.get_mut(&ino) {
            cached.promised = match is_more {
                true => cached.promised + promised,
                false => cached.promised.saturating_sub(promised),
            };
        }
        if is_more {
            self.room.promise_freed(promised);
        } else {
            self.room.release(promised);
        }
        match change {
            Pages::Unmapped { .. } => {}
            Pages::Dropped { pages, .. } => shard.pages.drop_range(ino.into(), pages),
            Pages::Truncate { from, zero, .. } => {
                shard.pages.truncate(ino.into(), from);
                if let Some((index, byte)) = zero
                    && let Some(page) = shard.pages.dirty_mut(ino.into(), index)
                {
                    page.make_mut()[byte..].fill(0);
                }
            }
            Pages::Written { pages, .. } => mark_written(shard, ino, pages),
        }
    }
}

/// Pages that are still as they were written become clean.
pub(crate) fn mark_written(shard: &mut Shard, ino: Ino, pages: Vec<(u64, Block)>) {
    shard.inodes.get_mut(&ino).into_iter().for_each(|cached| cached.overwrites += 1);
    for (index, written) in pages {
        let here = shard.pages.peek(ino.into(), index);
        if here.is_some_and(|here| here.same_page(&written)) {
            shard.pages.mark_clean(ino.into(), index);
        }
    }
}
