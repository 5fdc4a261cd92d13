//! Data in the journal, `data=journal` or `chattr +j` (`ext4_should_journal_data`).
//!
//! Write-back puts the pages into the transaction that maps them, so contents, size and map become
//! durable together, and a block that is overwritten is never half new. A checkpoint brings the
//! pages home. Until then the drive has older ones, so reads ask the journal first; and a block
//! that is freed is revoked, or recovery would bring back what it had.

use std::ops::Range;

use drive::{Block, Blocks as DriveBlocks};
use vfs::FileKind;

use crate::error::Result;
use crate::file::write_back::{Batch, Taken};
use crate::inode::cached::Inode;
use crate::mount::draft::{Draft, Pages};
use crate::mount::engine::Engine;
use crate::mount::options::DataMode;
use crate::mount::want::Step;
use crate::ondisk::inode::Flags;
use crate::ondisk::{FsBlock, Ino};

/// Pages that are logged at a time, at most.
const BATCH: u32 = 256;

impl Engine {
    /// Whether the contents of a regular file are journalled.
    pub(crate) fn journals_data(&self, inode: &Inode) -> bool {
        self.data == DataMode::Journal || inode.raw.flags().contains(Flags::JOURNAL_DATA)
    }

    /// The same of inode `ino`.
    pub(super) fn is_logged(&self, ino: Ino) -> Result<bool> {
        self.look(ino.into(), |shard| Ok(self.journals_data(&shard.inode(ino)?.inode)))
    }

    /// Pages of a file that are written back at a time. Each block of one that is logged takes a
    /// block of the transaction, and up to six for its place.
    pub(crate) fn batch_max(&self, inode: &Inode) -> usize {
        match self.journals_data(inode) {
            true => {
                let each = self.sb.blocks_per_page() as u32;
                (self.journal.credits_max() / 8 / each).clamp(1, BATCH) as usize
            }
            false => super::write_back::BATCH,
        }
    }

    /// Blocks of contents in the journal that one transaction frees, at most.
    pub(crate) fn revokes_max(&self) -> usize {
        (self.journal.credits_max() / 4) as usize
    }

    /// Maps pages and logs them, in one transaction.
    pub(super) fn journal_batch(&self, ino: Ino, batch: Batch, mut taken: Taken<'_>) -> Result<()> {
        self.has_journalled_data.store(1);
        let places = batch.places(self, &taken.extents).into_iter();
        let places: Vec<_> = places.map(|(_, at, page)| (at, page)).collect();
        let Batch { pages, unwritten, .. } = batch;
        let extents = taken.extents.len() + unwritten.len();
        let room = 8 + (6 * extents + places.len()) as u32;
        self.change(&[ino.into()], room, |draft| {
            let end = pages.last().map_or(0, |(last, _)| (last + 1) << 12);
            draft.map_batch(ino, &taken.extents, &unwritten, end)?;
            // An overwrite has to be committed, too.
            draft.note_mapped(ino);
            draft.changes.logged_data = places.clone();
            let new: u64 = taken.extents.iter().map(|extent| u64::from(extent.len)).sum();
            let promised = new + draft.promised_in_vain(ino, &pages)?;
            draft.change_pages(Pages::Written { ino, pages: pages.clone(), promised });
            Ok(())
        })?;
        // They are the file's now.
        taken.extents.clear();
        Ok(())
    }

    /// Reads blocks of files, which may be in the journal.
    pub(crate) fn read_data(&self, blocks: Range<FsBlock>) -> Result<DriveBlocks> {
        let count = (blocks.end - blocks.start) as u32;
        if self.has_journalled_data.load() == 0 {
            return Ok(self.io.read_run(blocks.start, count)?);
        }
        // Asked before the drive is: what is home by then has been read, and what is logged
        // meanwhile is newer than the caller may keep.
        let ahead: Vec<Option<Block>> =
            blocks.clone().map(|at| self.journal.ahead_of_home(at)).collect();
        let mut read = self.io.read_run(blocks.start, count)?;
        for (place, block) in ahead.into_iter().enumerate() {
            if let Some(block) = block {
                read[place] = block;
            }
        }
        Ok(read)
    }
}

impl Draft<'_, '_> {
    /// Blocks of inode `ino`'s contents that are freed and that the log may have, in order: all but
    /// those of regular files are metadata.
    pub(crate) fn in_journal(&self, ino: Ino, blocks: Range<FsBlock>) -> Step<Vec<FsBlock>> {
        let engine = self.volume();
        Ok(match (self.inode(ino)?.kind(), engine.has_journalled_data.load()) {
            (FileKind::Regular, 0) => Vec::new(),
            (FileKind::Regular, _) => {
                blocks.filter(|at| engine.journal.ahead_of_home(*at).is_some()).collect()
            }
            _ => blocks.collect(),
        })
    }
}
