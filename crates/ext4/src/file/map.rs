//! Where the pages of a file are: what ext4 answers to [`vfs::file`], with the file's shard locked.
//! What is not cached is a wish, never a wait.

use std::ops::Range;

use drive::{Blocks as DriveBlocks, Lba};
use vfs::PageCache;
use vfs::file::Map;
use vfs::op::Stop;

use crate::error::Error;
use crate::inode::cached::Shard;
use crate::inode::map::{self, Mapped};
use crate::mount::engine::Engine;
use crate::mount::want::{Halt, Step};
use crate::ondisk::{FileBlock, Ino};

/// A file whose shard is locked.
pub(crate) struct FileMap<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) shard: &'a mut Shard,
    pub(crate) ino: Ino,
}

/// Number of a file's block; larger ones are `EFBIG`.
pub(crate) fn file_block(index: u64) -> Step<FileBlock> {
    FileBlock::try_from(index).map_err(|_| Stop::Failed(Error::Posix(vfs::Errno::FBIG)))
}

impl FileMap<'_> {
    /// What block `index` is.
    pub(crate) fn find(&self, index: u64) -> Step<Mapped> {
        map::find(self.engine, &self.shard.inode(self.ino)?.inode, file_block(index)?)
    }

    /// Promises blocks to pages that have none.
    fn promise(&mut self, pages: u64) -> Step<()> {
        self.engine.room.promise(pages)?;
        match self.shard.inode_mut(self.ino) {
            Ok(cached) => cached.promised += pages,
            Err(halt) => {
                self.engine.room.release(pages);
                return Err(halt);
            }
        }
        Ok(())
    }
}

impl Map for FileMap<'_> {
    type File = vfs::Ino;
    type Error = Halt;

    fn pages(&mut self, _: vfs::Ino) -> &mut PageCache {
        &mut self.shard.pages
    }

    fn locate(&mut self, _: vfs::Ino, index: u64, most: u64) -> Step<Option<Range<Lba>>> {
        match self.find(index)? {
            Mapped::Extent(extent) if !extent.unwritten => {
                let skip = index - u64::from(extent.block);
                let start = extent.start + skip;
                Ok(Some(start..start + most.min(u64::from(extent.len) - skip)))
            }
            _ => Ok(None),
        }
    }

    /// Only ever called for a page that its caller could have waited for, so this is a wish.
    fn read_blocks(&mut self, _: Range<Lba>) -> Step<DriveBlocks> {
        Err(vfs::Errno::AGAIN.into())
    }

    fn reserve(&mut self, _: vfs::Ino, index: u64) -> Step<()> {
        match self.find(index)? {
            Mapped::Extent(_) => Ok(()),
            Mapped::Hole(_) => self.promise(1),
        }
    }

    fn reserve_run(&mut self, ino: vfs::Ino, pages: Range<u64>) -> Step<u64> {
        let mut at = pages.start;
        let mut needed = 0;
        while at < pages.end {
            let (end, is_hole) = match self.find(at)? {
                Mapped::Extent(extent) => (extent.end(), false),
                Mapped::Hole(end) => (end, true),
            };
            let end = end.min(pages.end);
            if is_hole {
                let dirty = self.shard.pages.dirty_in(ino, at..end).count() as u64;
                needed += end - at - dirty;
            }
            at = end;
        }
        match self.promise(needed) {
            Ok(()) => Ok(pages.end),
            // Then page by page, as far as there is room.
            Err(Stop::Failed(Error::NoSpace)) => Ok(pages.start),
            Err(halt) => Err(halt),
        }
    }
}
