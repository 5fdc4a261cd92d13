//! Pages of several blocks, on volumes whose blocks are smaller: putting them together, and taking
//! them apart.
//!
//! A page is written back as a whole, up to the end of the file, so what it lacks of blocks is
//! allocated then. Blocks behind the end are not written.

use std::ops::Range;

use drive::{Block, Blocks as DriveBlocks, Lba};
use vfs::file::Miss;
use vfs::op::look;

use crate::blocks::Blocks;
use crate::error::Result;
use crate::file::map::{FileMap, written_at};
use crate::inode::cached::{Inode, Shard};
use crate::inode::map;
use crate::mount::engine::Engine;
use crate::mount::want::{Halt, Step};
use crate::ondisk::{FsBlock, Ino};

/// Pages that are put together at once.
const READ_AHEAD: u64 = 32;

/// Where the written blocks of pages are, in order.
fn places(engine: &Engine, inode: &Inode, pages: Range<u64>) -> Step<Vec<Option<FsBlock>>> {
    let each = engine.sb.blocks_per_page();
    let blocks = pages.start * each..pages.end * each;
    blocks.map(|block| written_at(engine, inode, block)).collect()
}

impl FileMap<'_> {
    /// Whether page `index` has a block that was written.
    fn is_there(&self, index: u64) -> Step<bool> {
        let inode = &self.shard.inode(self.ino)?.inode;
        Ok(places(self.engine, inode, index..index + 1)?.iter().any(Option::is_some))
    }

    /// Page `index` and those behind it that have blocks, `most` at most, as a range of that
    /// length. `None` if the page has none.
    pub(super) fn locate_small(&self, index: u64, most: u64) -> Step<Option<Range<Lba>>> {
        let mut count = 0;
        while count < most.min(READ_AHEAD) && self.is_there(index + count)? {
            count += 1;
        }
        Ok((count > 0).then_some(0..count))
    }
}

impl Engine {
    /// Reads pages that are missing, each put together of its blocks, into memory.
    pub(crate) fn fetch_small(&self, miss: &Miss<vfs::Ino>) -> Result<()> {
        let ino = miss.file as Ino;
        let pages = miss.index..miss.index + (miss.blocks.end - miss.blocks.start);
        let (before, found) = look(self, miss.file, |shard| {
            let cached = shard.inode(ino)?;
            Ok((cached.overwrites, places(self, &cached.inode, pages.clone())?))
        })?;
        let blocks = self.read_places(&found)?;
        self.make_room();
        let mut shard = self.inodes.own(miss.file);
        let is_same = shard.inode(ino).is_ok_and(|cached| {
            let now = || places(self, &cached.inode, pages);
            cached.overwrites == before && now().is_ok_and(|now| now == found)
        });
        if is_same { self.keep_pages(&mut shard, miss, blocks, |_, _, _| Ok(true)) } else { Ok(()) }
    }

    /// The pages whose blocks are at `places`; what has none is zero.
    fn read_places(&self, places: &[Option<FsBlock>]) -> Result<DriveBlocks> {
        let size = self.sb.block_size as usize;
        let each = self.sb.blocks_per_page() as usize;
        let mut pages: DriveBlocks = places.chunks(each).map(|_| Block::zeroed()).collect();
        let mut at = 0;
        while at < places.len() {
            let Some(start) = places[at] else {
                at += 1;
                continue;
            };
            let follows =
                (start..).zip(&places[at..]).take_while(|(at, place)| Some(*at) == **place);
            let count = follows.count();
            for block in self.read_data(start..start + count as u64)? {
                let from = at % each * size;
                pages[at / each].make_mut()[from..from + size].copy_from_slice(&block[..size]);
                at += 1;
            }
        }
        Ok(pages)
    }

    /// What a page has for its block `index` of the file.
    pub(super) fn piece(&self, page: &Block, index: u64) -> Block {
        let (each, size) = (self.sb.blocks_per_page(), self.sb.block_size as usize);
        if each == 1 {
            return page.clone();
        }
        let from = (index % each) as usize * size;
        Block::from_prefix(&page[from..from + size])
    }
}

/// Blocks that pages which now become clean have been promised in vain, as they lie behind the end
/// of the file. `inode` has been changed as it will be.
pub(super) fn promised_in_vain(
    blocks: &impl Blocks<Stop = Halt>,
    shard: &Shard,
    (ino, inode): (Ino, &Inode),
    pages: &[(u64, Block)],
) -> Step<u64> {
    if blocks.sb().blocks_per_page() == 1 {
        return Ok(0);
    }
    let is_clean = |(index, written): &&(u64, Block)| {
        shard.pages.peek(ino.into(), *index).is_some_and(|here| here.same_page(written))
    };
    let holes = |(index, _): &(u64, Block)| map::holes_in(blocks, inode, *index);
    pages.iter().filter(is_clean).map(holes).sum()
}
