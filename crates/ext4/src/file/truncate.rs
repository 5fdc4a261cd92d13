//! Changing the size of a file (`ext4_setattr`, `ext4_truncate`), and freeing an inode that nobody
//! needs (`ext4_evict_inode`).

use std::ops::Range;

use drive::BLOCK_SIZE;
use vfs::inode::Turn;
use vfs::op::Stop;
use vfs::{Errno, SetAttr};

use crate::error::Result;
use crate::file::map::{FileMap, file_block};
use crate::file::read_write::{SIZE_MAX, check_regular};
use crate::inode::map::{self, Mapped};
use crate::mount::draft::{Draft, Pages};
use crate::mount::engine::Engine;
use crate::mount::want::{Step, Want};
use crate::ondisk::Ino;

const PAGE: u64 = BLOCK_SIZE as u64;
/// Extents that one transaction frees.
const EXTENTS_MAX: u32 = 24;
/// Room in the log that freeing them needs, most often.
const ROOM: u32 = 24;

impl Engine {
    /// Sets the size of a file, and its times if the size is to be set by `set`.
    pub(crate) fn set_size(&self, ino: Ino, size: u64, set: &SetAttr) -> Result<()> {
        if size > SIZE_MAX {
            return Err(Errno::FBIG.into());
        }
        let _turn = Turn::take(self, ino.into());
        loop {
            let grown = {
                let mut shard = self.inodes.own(ino.into());
                self.check_writable()?;
                let mut map = FileMap { engine: self, shard: &mut shard, ino };
                map.grow(size)
            };
            match grown {
                Ok(true) => return Ok(()),
                Ok(false) => break,
                Err(stop) => self.fetch_or_fail(stop)?,
            }
        }
        let done = self.change(&[ino.into()], ROOM, |draft| {
            draft.shrink(ino, size)?;
            let now = set.mtime.unwrap_or(draft.now);
            draft.inode_mut(ino)?.touch(now);
            draft.free_behind(ino, size.div_ceil(PAGE))
        })?;
        if size == 0 && self.auto_da_alloc {
            let mut shard = self.inodes.own(ino.into());
            shard.inodes.get_mut(&ino).into_iter().for_each(|cached| cached.cut = true);
        }
        if done { Ok(()) } else { self.finish_truncation(ino, size.div_ceil(PAGE)) }
    }

    /// Frees blocks behind the end of a file, page `from`, in as many transactions as it takes.
    pub(crate) fn finish_truncation(&self, ino: Ino, from: u64) -> Result<()> {
        let step = |draft: &mut Draft<'_, '_>| {
            let done = draft.free_behind(ino, from)?;
            // Others may have written behind the end since, to blocks that are free now.
            let dirty = draft.dirty_unmapped(ino, from..1 << 32)?;
            draft.change_pages(Pages::Unmapped { ino, promised: dirty });
            Ok(done)
        };
        while !self.change(&[ino.into()], ROOM, step)? {}
        Ok(())
    }

    /// Frees an inode that has no link, if nobody has it open.
    pub(crate) fn evict(&self, ino: Ino) -> Result<()> {
        let _turn = Turn::take(self, ino.into());
        if !self.is_left(ino) {
            return Ok(());
        }
        let mut is_cut = false;
        loop {
            let done = self.change(&[ino.into()], ROOM, |draft| {
                if draft.inode(ino)?.links() > 0 || self.opens.is_open(ino.into()) {
                    return Ok(true);
                }
                if !is_cut {
                    draft.shrink(ino, 0)?;
                }
                if draft.inode(ino)?.has_extents() && !draft.free_behind(ino, 0)? {
                    return Ok(false);
                }
                draft.remove_orphan(ino)?;
                draft.drop_xattr_block(ino)?;
                draft.free_inode(ino)?;
                Ok(true)
            })?;
            is_cut = true;
            if done {
                return Ok(());
            }
        }
    }

    fn is_left(&self, ino: Ino) -> bool {
        let shard = self.inodes.look(ino.into());
        let links = shard.inodes.get(&ino).map(|cached| cached.inode.links());
        links == Some(0) && !self.opens.is_open(ino.into())
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
    /// Sets a smaller size: pages behind it go, and the rest of the last one becomes zero.
    fn shrink(&mut self, ino: Ino, size: u64) -> Step<()> {
        let from = size.div_ceil(PAGE);
        let shard = self.shard(ino)?;
        let promised = self.promised_in(ino, from..1 << 32)?;
        let zero = (!size.is_multiple_of(PAGE)).then_some((size / PAGE, (size % PAGE) as usize));
        if let Some((index, _)) = zero
            && shard.pages.peek(ino.into(), index).is_none()
            && let Mapped::Extent(extent) = map::find(self, self.inode(ino)?, index as u32)?
            && !extent.unwritten
        {
            let at = extent.start + (index - u64::from(extent.block));
            let miss = vfs::file::Miss { file: ino.into(), index, blocks: at..at + 1 };
            return Err(Stop::Want(Want::Pages(miss)));
        }
        let inode = self.inode_mut(ino)?;
        inode.size = size;
        inode.raw.set_size(size);
        self.change_pages(Pages::Truncate { ino, from, zero, promised });
        Ok(())
    }

    /// Dirty pages in a range that have been promised a block: before the change, they have none.
    pub(crate) fn promised_in(&self, ino: Ino, pages: Range<u64>) -> Step<u64> {
        let cached = self.cached(ino)?;
        let mut promised = 0;
        for index in self.shard(ino)?.pages.dirty_in(ino.into(), pages) {
            let found = map::find(self.volume(), &cached.inode, file_block(index)?)?;
            promised += u64::from(found.at(index as u32).is_none());
        }
        Ok(promised)
    }

    /// Dirty pages in a range that the change leaves without a block.
    fn dirty_unmapped(&self, ino: Ino, pages: Range<u64>) -> Step<u64> {
        let mut now = 0;
        for index in self.shard(ino)?.pages.dirty_in(ino.into(), pages.clone()) {
            let found = map::find(self, self.inode(ino)?, file_block(index)?)?;
            now += u64::from(found.at(index as u32).is_none());
        }
        Ok(now - self.promised_in(ino, pages)?)
    }

    /// Frees blocks behind the end, page `from`. If some are left, the inode is an orphan meanwhile
    /// and this is false.
    fn free_behind(&mut self, ino: Ino, from: u64) -> Step<bool> {
        // A freed extent may change the bitmaps and descriptors of two groups.
        let most = (self.volume().journal.credits_max() / 6).clamp(1, EXTENTS_MAX);
        let done = self.remove_extents(ino, from..1 << 32, most)?.is_none();
        if !done {
            self.add_orphan(ino)?;
        } else if self.inode(ino)?.links() > 0 {
            self.remove_orphan(ino)?;
        }
        Ok(done)
    }
}
