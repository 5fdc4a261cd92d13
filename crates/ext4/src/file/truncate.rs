//! Changing the size of a file (`ext4_setattr`, `ext4_truncate`), and freeing an inode without
//! links (`ext4_evict_inode`).

use std::ops::Range;

use drive::BLOCK_SIZE;
use vfs::inode::Turn;
use vfs::op::Stop;
use vfs::{Errno, SetAttr};

use crate::error::{Error, Result};
use crate::file::fallocate::Still;
use crate::file::map::{FileMap, written_at};
use crate::file::read_write::check_regular;
use crate::inode::map;
use crate::mount::draft::{Draft, Pages};
use crate::mount::engine::Engine;
use crate::mount::want::{Step, Want};
use crate::ondisk::{FsBlock, Ino};

const PAGE: u64 = BLOCK_SIZE as u64;
/// Extents that fit `i_block`.
const IN_INODE_MAX: u32 = 4;
/// Room in the log that freeing them needs, most often.
const ROOM: u32 = 24;

impl Engine {
    /// Sets the size of a file, and its times if the size is to be set by `set`.
    pub(crate) fn set_size(&self, ino: Ino, size: u64, set: &SetAttr) -> Result<()> {
        if size > self.sb.size_max() {
            return Err(Errno::FBIG.into());
        }
        let block_size = u64::from(self.sb.block_size);
        let _turn = Turn::take(self, ino.into());
        if self.with_map(ino, |map| map.grow(size))? {
            return Ok(());
        }
        // Where it takes several transactions, a write behind the end would bring back in between
        // what is not freed yet.
        let is_deep = self.look(ino.into(), |shard| Ok(shard.inode(ino)?.inode.has_deep_tree()))?;
        let may_pause = is_deep
            || self.has_journalled_data.load() != 0
            || self.freed_extents_max() < IN_INODE_MAX;
        let _still = may_pause.then(|| Still::begin(self, ino)).transpose()?;
        let done = self.change(&[ino.into()], ROOM, |draft| {
            draft.check_freeable(ino)?;
            draft.shrink(ino, size)?;
            let now = set.mtime.unwrap_or(draft.now);
            draft.inode_mut(ino)?.touch(now);
            let done = draft.free_behind(ino, size.div_ceil(block_size))?;
            draft.promise_to_last(ino, size)?;
            Ok(done)
        })?;
        if size == 0 && self.auto_da_alloc {
            let mut shard = self.inodes.own(ino.into());
            shard.inodes.get_mut(&ino).into_iter().for_each(|cached| cached.cut = true);
        }
        if done { Ok(()) } else { self.finish_truncation(ino, size.div_ceil(block_size)) }
    }

    /// Frees blocks behind the end of a file, from block `from` on, in as many transactions as it
    /// takes.
    pub(crate) fn finish_truncation(&self, ino: Ino, from: u64) -> Result<()> {
        let step = |draft: &mut Draft<'_, '_>| {
            let done = draft.free_behind(ino, from)?;
            // Others may have written behind the end since, to blocks that are free now.
            let first = from / self.sb.blocks_per_page();
            let dirty = draft.dirty_unmapped(ino, first..1 << 32)?;
            draft.change_pages(Pages::Unmapped { ino, promised: dirty });
            Ok(done)
        };
        while !self.change(&[ino.into()], ROOM, step)? {}
        Ok(())
    }

    /// Frees an inode that has no link, unless it is open.
    pub(crate) fn evict(&self, ino: Ino) -> Result<()> {
        let _turn = Turn::take(self, ino.into());
        if !self.inode_is(ino, |inode| inode.links() == 0) || self.opens.is_open(ino.into()) {
            return Ok(());
        }
        let mut is_cut = false;
        loop {
            let done = self.change(&[ino.into()], ROOM, |draft| {
                if draft.inode(ino)?.links() > 0 || self.opens.is_open(ino.into()) {
                    return Ok(true);
                }
                draft.check_freeable(ino)?;
                if !is_cut {
                    draft.shrink(ino, 0)?;
                }
                if draft.inode(ino)?.has_extents() && !draft.free_behind(ino, 0)? {
                    return Ok(false);
                }
                draft.free_inode(ino)?;
                // Late, since it locks the list; but that before the count of a shared block.
                draft.remove_orphan(ino)?;
                draft.drop_xattr_block(ino)?;
                Ok(true)
            })?;
            is_cut = true;
            if done {
                return Ok(());
            }
        }
    }
}

impl FileMap<'_> {
    /// Makes the file as long as `size`, in memory. False if it has to become shorter.
    fn grow(&mut self, size: u64) -> Step<bool> {
        let inode = &self.shard.inode(self.ino)?.inode;
        check_regular(inode)?;
        inode.protection().check_changeable()?;
        if size < inode.size {
            return Ok(false);
        }
        self.grow_to(size)?;
        Ok(true)
    }

    /// Makes the file as long as `size`, in memory, unless it is longer. What it has there reads as
    /// zeroes.
    pub(crate) fn grow_to(&mut self, size: u64) -> Step<()> {
        let old = self.shard.inode(self.ino)?.inode.size;
        if size > old {
            self.zero_behind(old)?;
        }
        let now = self.engine.clock.now();
        let inode = &mut self.shard.inode_mut(self.ino)?.inode;
        inode.size = old.max(size);
        inode.touch(now);
        self.shard.changed.insert(self.ino);
        Ok(())
    }
}

impl Draft<'_, '_> {
    /// Fails if the blocks of inode `ino` cannot be freed here.
    pub(crate) fn check_freeable(&self, ino: Ino) -> Step<()> {
        match self.inode(ino)?.has_indirect(&self.volume().sb) {
            true => Err(Error::unsupported("freeing files without extents").into()),
            false => Ok(()),
        }
    }

    /// Sets a smaller size: pages behind it go, and the rest of the last one becomes zero.
    fn shrink(&mut self, ino: Ino, size: u64) -> Step<()> {
        let from = size.div_ceil(PAGE);
        let shard = self.shard(ino)?;
        let promised = self.promised_in(ino, from..1 << 32)?;
        let zero = (!size.is_multiple_of(PAGE)).then_some((size / PAGE, (size % PAGE) as usize));
        if let Some((index, _)) = zero
            && shard.pages.peek(ino.into(), index).is_none()
            && let Some(at) = self.first_written(ino, index)?
        {
            let miss = vfs::file::Miss { file: ino.into(), index, blocks: at..at + 1 };
            return Err(Stop::Want(Want::Pages(miss)));
        }
        let inode = self.inode_mut(ino)?;
        inode.size = size;
        inode.raw.set_size(size);
        self.change_pages(Pages::Truncate { ino, from, zero, promised });
        Ok(())
    }

    /// Where the first written block of a page is.
    fn first_written(&self, ino: Ino, page: u64) -> Step<Option<FsBlock>> {
        let each = self.volume().sb.blocks_per_page();
        for block in page * each..(page + 1) * each {
            let found = written_at(self, self.inode(ino)?, block)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Where a page has several blocks: the last one, whose rest becomes zero and so dirty, is
    /// promised blocks for those that it has lost and those that it never had.
    fn promise_to_last(&mut self, ino: Ino, size: u64) -> Step<()> {
        let index = size / PAGE;
        let pages = &self.shard(ino)?.pages;
        let is_here = pages.peek(ino.into(), index).is_some() && !size.is_multiple_of(PAGE);
        if self.volume().sb.blocks_per_page() == 1 || !is_here {
            return Ok(());
        }
        let holes = map::holes_in(self, self.inode(ino)?, index)?;
        let promised = holes - self.promised_in(ino, index..index + 1)?;
        self.change_pages(Pages::Unmapped { ino, promised });
        Ok(())
    }

    /// Blocks that dirty pages in a range have been promised: before the change, they have none.
    pub(crate) fn promised_in(&self, ino: Ino, pages: Range<u64>) -> Step<u64> {
        let (engine, inode) = (self.volume(), &self.cached(ino)?.inode);
        let dirty = self.shard(ino)?.pages.dirty_in(ino.into(), pages);
        dirty.map(|index| map::holes_in(engine, inode, index)).sum()
    }

    /// Blocks that the change takes from dirty pages in a range.
    fn dirty_unmapped(&self, ino: Ino, pages: Range<u64>) -> Step<u64> {
        let inode = self.inode(ino)?;
        let dirty = self.shard(ino)?.pages.dirty_in(ino.into(), pages.clone());
        let now: u64 = dirty.map(|index| map::holes_in(self, inode, index)).sum::<Step<_>>()?;
        Ok(now - self.promised_in(ino, pages)?)
    }

    /// Frees blocks behind the end, from block `from` on. If some are left, the inode is an orphan
    /// meanwhile and this is false.
    fn free_behind(&mut self, ino: Ino, from: u64) -> Step<bool> {
        let most = self.volume().freed_extents_max();
        let done = self.remove_extents(ino, from..1 << 32, most)?.is_none();
        if !done {
            self.add_orphan(ino)?;
        } else if self.inode(ino)?.links() > 0 {
            self.remove_orphan(ino)?;
        }
        Ok(done)
    }
}
