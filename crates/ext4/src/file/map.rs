//! Where the pages of a file are: what ext4 answers to [`vfs::file`], with the file's shard locked.
//! What is not cached is a wish, never a wait.
//!
//! Where blocks are smaller than a page, a page in memory is one that has been put together of its
//! blocks, with zeroes for those that are holes (see `small`). So a clean page may lack blocks,
//! which are promised when it becomes dirty. What [`Map::locate`] answers then counts pages only.

use std::ops::Range;

use drive::{Blocks as DriveBlocks, Lba};
use vfs::PageCache;
use vfs::file::Map;
use vfs::op::Stop;

use crate::blocks::Blocks;
use crate::error::{Error, Result};
use crate::inode::cached::{Inode, Shard};
pub(crate) use crate::inode::map::file_block;
use crate::inode::map::{self, Mapped};
use crate::mount::engine::Engine;
use crate::mount::want::{Halt, Step};
use crate::ondisk::{FsBlock, Ino};

/// A file whose shard is locked.
pub(crate) struct FileMap<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) shard: &'a mut Shard,
    pub(crate) ino: Ino,
}

impl FileMap<'_> {
    /// What block `index` is.
    pub(crate) fn find(&self, index: u64) -> Step<Mapped> {
        map::find(self.engine, &self.shard.inode(self.ino)?.inode, file_block(index)?)
    }

    /// Promises blocks to pages that have none.
    fn promise(&mut self, blocks: u64) -> Step<()> {
        self.engine.room.promise(blocks)?;
        match self.shard.inode_mut(self.ino) {
            Ok(cached) => cached.promised += blocks,
            Err(halt) => {
                self.engine.room.release(blocks);
                return Err(halt);
            }
        }
        Ok(())
    }
}

impl Engine {
    /// Changes what memory has of a file, again and again until `job` lacks nothing.
    pub(super) fn with_map<T>(
        &self,
        ino: Ino,
        mut job: impl FnMut(&mut FileMap<'_>) -> Step<T>,
    ) -> Result<T> {
        self.make_room();
        loop {
            let done = {
                let mut shard = self.inodes.own(ino.into());
                self.check_writable()?;
                job(&mut FileMap { engine: self, shard: &mut shard, ino })
            };
            match done {
                Ok(done) => return Ok(done),
                Err(stop) => self.heed(self.fetch_or_fail(stop))?,
            }
        }
    }
}

/// Where block `index` of a file is, if it has been written.
pub(super) fn written_at(
    blocks: &impl Blocks<Stop = Halt>,
    inode: &Inode,
    index: u64,
) -> Step<Option<FsBlock>> {
    let block = file_block(index)?;
    Ok(map::find(blocks, inode, block)?.written_at(block))
}

/// Blocks of dirty pages of a file among `blocks`.
pub(crate) fn dirty_among(
    engine: &Engine,
    shard: &Shard,
    ino: Ino,
    blocks: Range<u64>,
) -> impl Iterator<Item = Range<u64>> {
    let each = engine.sb.blocks_per_page();
    let pages = blocks.start / each..blocks.end.div_ceil(each);
    let within =
        move |page: u64| (page * each).max(blocks.start)..((page + 1) * each).min(blocks.end);
    shard.pages.dirty_in(ino.into(), pages).map(within)
}

/// How many these are.
pub(crate) fn count_dirty(engine: &Engine, shard: &Shard, ino: Ino, blocks: Range<u64>) -> u64 {
    dirty_among(engine, shard, ino, blocks).map(|blocks| blocks.end - blocks.start).sum()
}

/// Blocks of a file among `blocks` that are holes and that no dirty page has been promised.
pub(super) fn count_lacking(
    engine: &Engine,
    shard: &Shard,
    ino: Ino,
    blocks: Range<u64>,
) -> Step<u64> {
    let inode = &shard.inode(ino)?.inode;
    let (mut at, mut lacking) = (blocks.start, 0);
    while at < blocks.end {
        let found = map::find(engine, inode, file_block(at)?)?;
        if let Mapped::Hole(end) = found {
            let hole = at..end.min(blocks.end);
            lacking += hole.end - hole.start - count_dirty(engine, shard, ino, hole);
        }
        at = found.end();
    }
    Ok(lacking)
}

impl Map for FileMap<'_> {
    type File = vfs::Ino;
    type Error = Halt;

    fn pages(&mut self, _: vfs::Ino) -> &mut PageCache {
        &mut self.shard.pages
    }

    fn locate(&mut self, _: vfs::Ino, index: u64, most: u64) -> Step<Option<Range<Lba>>> {
        if self.engine.sb.blocks_per_page() > 1 {
            return self.locate_small(index, most);
        }
        let found = self.find(index)?;
        let start = found.written_at(index as u32);
        Ok(start.map(|start| start..start + most.min(found.end() - index)))
    }

    /// Only ever called for a page that its caller could have waited for, so this is a wish.
    fn read_blocks(&mut self, _: Range<Lba>) -> Step<DriveBlocks> {
        Err(vfs::Errno::AGAIN.into())
    }

    fn reserve(&mut self, _: vfs::Ino, index: u64) -> Step<()> {
        let holes = map::holes_in(self.engine, &self.shard.inode(self.ino)?.inode, index)?;
        if holes > 0 { self.promise(holes) } else { Ok(()) }
    }

    fn reserve_run(&mut self, ino: vfs::Ino, pages: Range<u64>) -> Step<u64> {
        let each = self.engine.sb.blocks_per_page();
        // Pages that are dirty have blocks, or promises of some.
        let is_dirty = |index: &u64| self.shard.pages.is_dirty(ino, *index);
        let first = pages.clone().find(|index| !is_dirty(index)).unwrap_or(pages.end);
        let blocks = first * each..pages.end * each;
        match self.promise(count_lacking(self.engine, self.shard, ino as Ino, blocks)?) {
            Ok(()) => Ok(pages.end),
            // Then page by page, as far as there is room.
            Err(Stop::Failed(Error::NoSpace)) => Ok(pages.start),
            Err(halt) => Err(halt),
        }
    }

    /// A clean page that is about to become dirty may lack blocks.
    fn unshare(&mut self, ino: vfs::Ino, index: u64) -> Step<()> {
        let pages = &self.shard.pages;
        let is_clean = || pages.peek(ino, index).is_some() && !pages.is_dirty(ino, index);
        if self.engine.sb.blocks_per_page() > 1 && is_clean() {
            return self.reserve(ino, index);
        }
        Ok(())
    }
}
