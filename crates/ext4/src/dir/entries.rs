//! The entries of a directory, in its blocks (`ext4_search_dir`, `ext4_add_entry`,
//! `ext4_generic_delete_entry`).
//!
//! A hash tree finds names faster: see [`super::htree`] and `index`. To what reads past it, its
//! nodes look like blocks without names.

use drive::{BLOCK_SIZE, Block};
use vfs::FileKind;

use crate::blocks::{Blocks, Kind, Walked};
use crate::dir::htree::{self, is_indexed};
use crate::error::{Error, Result};
use crate::inode::cached::Inode;
use crate::inode::map;
use crate::mount::draft::Draft;
use crate::mount::want::{Halt, Step};
use crate::ondisk::dirent::{self, Dirent, Dirents, TAIL, record_len};
use crate::ondisk::extent::Extent;
use crate::ondisk::features::Compat;
use crate::ondisk::htree::{self as htree_block, Place};
use crate::ondisk::inode::Flags;
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{FileBlock, FsBlock, Ino};

/// An entry, and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) ino: Ino,
    /// Block of the volume.
    at: FsBlock,
    /// Byte of the record in it.
    offset: usize,
    /// Byte of the record in front of it in the block.
    before: Option<usize>,
}

/// Room for a record.
pub(super) struct Gap {
    pub(super) at: FsBlock,
    /// Byte of the record that has the room behind its name, or is free.
    pub(super) offset: usize,
}

/// Blocks of a directory.
pub(crate) fn block_count(sb: &Superblock, inode: &Inode) -> FileBlock {
    inode.size.div_ceil(sb.block_size.into()).min(u32::MAX.into()) as FileBlock
}

/// Block `index` of a directory, which has no holes.
pub(crate) fn dir_block<B: Blocks>(
    blocks: &B,
    inode: &Inode,
    index: FileBlock,
) -> Walked<(FsBlock, Block), B> {
    let (at, block) = map::block(blocks, inode, index, Kind::Dir(inode.seed))?;
    if let Some(seed) = inode.seed {
        let bytes = blocks.sb().bytes(&block);
        let expected = if index == 0 { Place::Root } else { Place::Node };
        let has_index = inode.flags().contains(Flags::INDEX);
        if Place::of(bytes).is_some_and(|place| !has_index || place != expected) {
            // It was verified as a node, which has no place here.
            dirent::verify(bytes, seed, at)?;
        }
    }
    Ok((at, block))
}

/// Finds `name`.
pub(crate) fn find<B: Blocks>(blocks: &B, inode: &Inode, name: &[u8]) -> Walked<Option<Found>, B> {
    let is_dots = matches!(name, b"." | b"..");
    if !is_dots && is_indexed(blocks.sb(), inode) {
        return htree::find(blocks, inode, name);
    }
    // These are in block 0, and no tree knows them.
    let count = if is_dots { 1 } else { block_count(blocks.sb(), inode) };
    find_before(blocks, inode, name, count)
}

/// Finds `name` in the first `count` blocks, one by one.
pub(crate) fn find_before<B: Blocks>(
    blocks: &B,
    inode: &Inode,
    name: &[u8],
    count: FileBlock,
) -> Walked<Option<Found>, B> {
    for index in 0..count {
        let (at, block) = dir_block(blocks, inode, index)?;
        if let Some(found) = find_in(blocks.sb().bytes(&block), at, name)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Finds `name` in block `at`, or in the part of it that has records.
pub(crate) fn find_in(block: &[u8], at: FsBlock, name: &[u8]) -> Result<Option<Found>> {
    let mut before = None;
    for dirent in Dirents::new(block, at) {
        let Dirent { offset, ino, name: found, .. } = dirent?;
        if ino != 0 && found == name {
            return Ok(Some(Found { ino, at, offset, before }));
        }
        before = Some(offset);
    }
    Ok(None)
}

/// Whether a directory has no entries but `.` and `..`.
pub(crate) fn is_empty(blocks: &impl Blocks<Stop = Halt>, inode: &Inode) -> Step<bool> {
    for index in 0..block_count(blocks.sb(), inode) {
        let (at, block) = dir_block(blocks, inode, index)?;
        for dirent in Dirents::new(blocks.sb().bytes(&block), at) {
            let dirent = dirent?;
            if dirent.ino != 0 && !matches!(dirent.name, b"." | b"..") {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Bytes of a block that records fill.
pub(super) fn area(sb: &Superblock, inode: &Inode) -> usize {
    sb.block_size as usize - if inode.seed.is_some() { TAIL } else { 0 }
}

impl Draft<'_, '_> {
    /// Makes the first block of the new directory `ino` in `parent`.
    pub(crate) fn init_dir(&mut self, ino: Ino, parent: Ino) -> Step<()> {
        let inode = self.inode(ino)?;
        let (area, dir) = (area(&self.volume().sb, inode), FileKind::Directory.dirent_type());
        let mut block = Block::zeroed();
        let bytes = block.make_mut();
        let dot = record_len(1);
        dirent::emit(&mut bytes[..], 0, dot, ino, dir, b".");
        dirent::emit(&mut bytes[..], dot, area - dot, parent, dir, b"..");
        self.append_block(ino, block, None).map(drop)
    }

    /// Adds a block with entries to a directory, or one that is part of its tree. Which one of the
    /// directory and of the volume it is.
    pub(super) fn append_block(
        &mut self,
        ino: Ino,
        mut block: Block,
        place: Option<Place>,
    ) -> Step<(FileBlock, FsBlock)> {
        self.check_room(1)?;
        let sb = &self.volume().sb;
        let index = block_count(sb, self.inode(ino)?);
        let goal = match index.checked_sub(1) {
            Some(last) => map::find(self, self.inode(ino)?, last)?.at(last).map(|at| at + 1),
            None => None,
        };
        let goal = goal.map_or_else(|| self.goal(ino), Ok)?;
        // The kernel's replay of a name does not count the block that it adds for it.
        self.note_more();
        let at = self.take_blocks(goal, 1)?.start;
        self.count_blocks(ino, 1)?;
        self.insert_extent(ino, Extent { block: index, len: 1, start: at, unwritten: false })?;
        let seed = self.inode(ino)?.seed;
        if seed.is_some() && place.is_none() {
            dirent::emit_tail(sb.bytes_mut(&mut block));
        }
        self.seal_and_put(at, block, seed, place);
        let inode = self.inode_mut(ino)?;
        inode.size = u64::from(index + 1) * u64::from(sb.block_size);
        inode.raw.set_size(inode.size);
        Ok((index, at))
    }

    /// Changes a block of a directory whose checksums begin with `seed`: one with entries or, in
    /// its `place`, a part of its tree.
    pub(super) fn seal_and_put(
        &mut self,
        at: FsBlock,
        mut block: Block,
        seed: Option<u32>,
        place: Option<Place>,
    ) {
        if let Some(seed) = seed {
            let bytes = self.volume().sb.bytes_mut(&mut block);
            match place {
                Some(place) => htree_block::seal(bytes, place, seed),
                None => dirent::seal(bytes, seed),
            }
        }
        self.put(at, block);
    }

    /// Adds an entry, whose name the directory does not have.
    pub(crate) fn add_entry(
        &mut self,
        dir: Ino,
        name: &[u8],
        ino: Ino,
        kind: FileKind,
    ) -> Step<()> {
        if kind == FileKind::Directory {
            self.changes.new_dir = Some((dir, name.into(), ino));
        }
        let sb = &self.volume().sb;
        if is_indexed(sb, self.inode(dir)?) {
            return self.add_in_tree(dir, name, ino, kind);
        }
        if self.inode(dir)?.raw.flags().contains(Flags::INDEX) {
            return Err(Error::unsupported("trees without the feature dir_index").into());
        }
        let gap = match self.find_gap(dir, record_len(name.len()))? {
            Some(gap) => gap,
            // A directory of several blocks without a tree stays one, as in the kernel.
            None if sb.compat.contains(Compat::DIR_INDEX)
                && block_count(sb, self.inode(dir)?) == 1 =>
            {
                self.make_index(dir)?;
                return self.add_in_tree(dir, name, ino, kind);
            }
            None => {
                let area = area(sb, self.inode(dir)?);
                let mut block = Block::zeroed();
                dirent::emit(&mut block.make_mut()[..], 0, area, 0, 0, b"");
                let (_, at) = self.append_block(dir, block, None)?;
                Gap { at, offset: 0 }
            }
        };
        self.put_entry(dir, &gap, name, ino, kind)
    }

    /// Writes an entry into a gap that has room for it.
    pub(super) fn put_entry(
        &mut self,
        dir: Ino,
        gap: &Gap,
        name: &[u8],
        ino: Ino,
        kind: FileKind,
    ) -> Step<()> {
        let seed = self.inode(dir)?.seed;
        let mut block = self.block_of(gap.at, Kind::Dir(seed))?;
        let bytes = block.make_mut();
        let (used, rec_len) = record(bytes, gap.offset);
        if used > 0 {
            set_rec_len(bytes, gap.offset, used);
        }
        let offset = gap.offset + used;
        dirent::emit(&mut bytes[..], offset, rec_len - used, ino, kind.dirent_type(), name);
        self.seal_and_put(gap.at, block, seed, None);
        self.touch_dir(dir)
    }

    fn find_gap(&self, dir: Ino, needed: usize) -> Step<Option<Gap>> {
        let inode = self.inode(dir)?;
        let sb = &self.volume().sb;
        let area = area(sb, inode);
        // Most often there is room in the last block.
        for index in (0..block_count(sb, inode)).rev() {
            let (at, block) = dir_block(self, inode, index)?;
            if let Some(offset) = find_gap_in(&block, area, at, needed)? {
                return Ok(Some(Gap { at, offset }));
            }
        }
        Ok(None)
    }

    /// Removes an entry that was found in this draft.
    pub(crate) fn remove_entry(&mut self, dir: Ino, found: Found) -> Step<()> {
        self.changes.lost_names.push(dir);
        let seed = self.inode(dir)?.seed;
        let mut block = self.block_of(found.at, Kind::Dir(seed))?;
        let bytes = block.make_mut();
        match found.before {
            Some(before) => {
                let (_, freed) = record(bytes, found.offset);
                let (_, rec_len) = record(bytes, before);
                set_rec_len(bytes, before, rec_len + freed);
            }
            None => bytes[found.offset..found.offset + 4].fill(0),
        }
        self.seal_and_put(found.at, block, seed, None);
        self.touch_dir(dir)
    }

    /// Makes an entry that was found in this draft stand for another inode.
    pub(crate) fn set_entry(
        &mut self,
        dir: Ino,
        found: Found,
        ino: Ino,
        kind: FileKind,
    ) -> Step<()> {
        self.changes.lost_names.push(dir);
        let seed = self.inode(dir)?.seed;
        let mut block = self.block_of(found.at, Kind::Dir(seed))?;
        let bytes = block.make_mut();
        bytes[found.offset..found.offset + 4].copy_from_slice(&ino.to_le_bytes());
        bytes[found.offset + 7] = kind.dirent_type();
        let has_index = self.inode(dir)?.flags().contains(Flags::INDEX);
        // Of `..` it may be the root of the tree.
        let place = Place::of(self.volume().sb.bytes(&block)).filter(|_| has_index);
        self.seal_and_put(found.at, block, seed, place);
        Ok(())
    }

    /// Contents of a directory changed.
    pub(crate) fn touch_dir(&mut self, dir: Ino) -> Step<()> {
        let now = self.now;
        self.inode_mut(dir)?.touch(now);
        Ok(())
    }
}

/// The record in the first `area` bytes of block `at` that has room for `needed` bytes.
pub(super) fn find_gap_in(
    block: &Block,
    area: usize,
    at: FsBlock,
    needed: usize,
) -> Result<Option<usize>> {
    for dirent in Dirents::new(&block[..area], at) {
        let dirent = dirent?;
        let used = if dirent.ino == 0 { 0 } else { record_len(dirent.name.len()) };
        if dirent.rec_len - used >= needed {
            return Ok(Some(dirent.offset));
        }
    }
    Ok(None)
}

/// Bytes that the record at `offset` uses, none if it is free, and bytes that it has.
fn record(bytes: &[u8; BLOCK_SIZE], offset: usize) -> (usize, usize) {
    let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let is_free = bytes[offset..offset + 4] == [0; 4];
    let used = if is_free { 0 } else { record_len(bytes[offset + 6].into()) };
    (used, word(offset + 4).into())
}

fn set_rec_len(bytes: &mut [u8; BLOCK_SIZE], offset: usize, rec_len: usize) {
    bytes[offset + 4..offset + 6].copy_from_slice(&(rec_len as u16).to_le_bytes());
}
