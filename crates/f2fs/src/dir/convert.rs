//! Moving the entries of a directory out of its inode (`f2fs_convert_inline_dir`).

use std::collections::BTreeMap;

use drive::{BLOCK_SIZE, Block};
use vfs::Ino;

use crate::error::{Error, Result};
use crate::mount::engine::Engine;
use crate::ondisk::Nid;
use crate::ondisk::dentry::{Dentries, DentriesMut, bucket_of, slots_for};
use crate::ondisk::inode::{Inline, InodeLayout, MAX_DIR_DEPTH};

/// The blocks of a directory, and how many levels they are.
struct Tables {
    blocks: BTreeMap<u64, Box<[u8; BLOCK_SIZE]>>,
    depth: u32,
}

impl Tables {
    /// What `old`, which fits into one block, becomes. Without a `dir_level` all hashes lead to
    /// block 0, where each entry keeps its slot, so that earlier positions of `readdir` stay valid.
    fn of(old: &Dentries<'_>, dir_level: u8) -> Result<Self> {
        let first = BTreeMap::from([(0, Box::new([0; BLOCK_SIZE]))]);
        let mut tables = Self { blocks: first, depth: 1 };
        let mut from = 0;
        while let Some(entry) = old.next(from)? {
            let dots = entry.slot < 2;
            let (index, slot) = match dir_level {
                0 => (0, entry.slot),
                _ if dots => (0, entry.slot),
                _ => tables.room(dir_level, entry.hash, slots_for(entry.name.len()))?,
            };
            DentriesMut::block(tables.block(index))
                .insert(slot, entry.name, entry.hash, entry.ino, entry.kind);
            from = entry.next_slot();
        }
        Ok(tables)
    }

    fn block(&mut self, index: u64) -> &mut [u8; BLOCK_SIZE] {
        self.blocks.entry(index).or_insert_with(|| Box::new([0; BLOCK_SIZE]))
    }

    /// The first place for an entry, by its hash (`f2fs_add_inline_entries`).
    fn room(&mut self, dir_level: u8, hash: u32, slots: usize) -> Result<(u64, usize)> {
        for level in 0..=MAX_DIR_DEPTH {
            for index in bucket_of(level, dir_level, hash) {
                if let Some(slot) = Dentries::block(self.block(index), index).find_free(slots) {
                    self.depth = self.depth.max(level + 1);
                    return Ok((index, slot));
                }
            }
        }
        Err(Error::NoSpace)
    }

    /// Blocks that have an entry.
    fn used(self) -> impl Iterator<Item = (u64, Block)> {
        let used = |(index, block): &(u64, Box<_>)| !Dentries::block(block, *index).is_empty();
        self.blocks.into_iter().filter(used).map(|(index, block)| (index, Block::new(*block)))
    }
}

impl Engine {
    /// Moves inline entries to blocks of their own. If that fails, the directory is as before.
    pub(super) fn convert_inline_dir(&mut self, dir: Nid) -> Result<()> {
        let inode = self.inode(dir)?;
        let layout = inode.layout;
        let area = inode.block()[layout.inline_range()].to_vec();
        let keeps_xattrs = inode.inline().contains(Inline::XATTR);
        let extra = inode.extra().map_or(0, |e| e.extra_isize.get());
        let flexible = inode.extra().is_some_and(|e| e.inline_xattr_size.get() > 0);
        let dir_level = inode.dir_level;
        drop(inode);
        let tables = Tables::of(&Dentries::new(layout.inline_dentries(), &area, dir), dir_level)?;
        let depth = tables.depth;
        let blocks: Vec<_> = tables.used().collect();
        // Slot 0 is not part of the inline area, so taking block 0 may still fail without harm.
        self.reserve_block(dir, 0)?;
        self.node_mut(dir, dir)?[layout.inline_range()].fill(0);
        let mut others = blocks.iter().skip(1);
        if let Err(error) = others.try_for_each(|(at, _)| self.reserve_block(dir, *at).map(drop)) {
            self.truncate_blocks(dir, 0)?;
            self.node_mut(dir, dir)?[layout.inline_range()].copy_from_slice(&area);
            return Err(error);
        }
        let last = blocks.last().map_or(0, |(index, _)| *index);
        let raw = self.inode_mut(dir)?;
        raw.set_inline(raw.inline() - Inline::DENTRY);
        raw.size.set((last + 1) * BLOCK_SIZE as u64);
        raw.current_depth.set(raw.current_depth.get().max(depth));
        if !keeps_xattrs && !flexible {
            // The room reserved for attributes came with the inline entries and goes with them.
            self.set_layout(dir, InodeLayout::new(extra, 0));
        }
        let pages = &mut self.inodes.of(dir).pages;
        for (index, block) in blocks {
            pages.insert_dirty(Ino::from(dir), index, block);
        }
        Ok(())
    }
}
