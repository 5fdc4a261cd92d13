//! The entries of a directory, in its blocks (`ext4_search_dir`, `ext4_add_entry`,
//! `ext4_generic_delete_entry`).
//!
//! A hash tree finds names faster, and this reads past it: the nodes of the tree look like blocks
//! without names. When a name is added to a directory with a tree, the tree is dropped.

use drive::{BLOCK_SIZE, Block};
use vfs::FileKind;

use crate::error::{Error, Result};
use crate::inode::cached::Inode;
use crate::inode::map::{self, Blocks};
use crate::mount::draft::Draft;
use crate::mount::want::{Kind, Step};
use crate::ondisk::dirent::{self, Dirent, Dirents, TAIL, record_len};
use crate::ondisk::extent::Extent;
use crate::ondisk::inode::Flags;
use crate::ondisk::{FileBlock, FsBlock, Ino, htree};

const SIZE: u64 = BLOCK_SIZE as u64;

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
struct Gap {
    at: FsBlock,
    /// Byte of the record that has the room behind its name, or is free.
    offset: usize,
}

/// Blocks of a directory.
pub(crate) fn block_count(inode: &Inode) -> FileBlock {
    inode.size.div_ceil(SIZE).min(u32::MAX.into()) as FileBlock
}

/// Block `index` of a directory, which has no holes.
pub(crate) fn dir_block(
    blocks: &impl Blocks,
    inode: &Inode,
    index: FileBlock,
) -> Step<(FsBlock, Block)> {
    let Some(at) = map::find(blocks, inode, index)?.at(index) else {
        let error = Error::corrupt("directory", u64::from(index), "a hole", "a block");
        return Err(error.into());
    };
    Ok((at, blocks.block(at, Kind::Dir(inode.seed))?))
}

/// Finds `name`.
pub(crate) fn find(blocks: &impl Blocks, inode: &Inode, name: &[u8]) -> Step<Option<Found>> {
    for index in 0..block_count(inode) {
        let (at, block) = dir_block(blocks, inode, index)?;
        if let Some(found) = find_in(&block, at, name)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn find_in(block: &Block, at: FsBlock, name: &[u8]) -> Result<Option<Found>> {
    let mut before = None;
    for dirent in Dirents::new(&block[..], at) {
        let Dirent { offset, ino, .. } = dirent?;
        if ino != 0 && dirent_name(block, at, offset)? == name {
            return Ok(Some(Found { ino, at, offset, before }));
        }
        before = Some(offset);
    }
    Ok(None)
}

fn dirent_name(block: &Block, at: FsBlock, offset: usize) -> Result<&[u8]> {
    let len = usize::from(block[offset + 6]);
    let name = block.get(offset + dirent::HEADER..offset + dirent::HEADER + len);
    name.ok_or_else(|| Error::corrupt("dirent.name_len", at, len, "within the block"))
}

/// Whether a directory has no entries but `.` and `..`.
pub(crate) fn is_empty(blocks: &impl Blocks, inode: &Inode) -> Step<bool> {
    for index in 0..block_count(inode) {
        let (at, block) = dir_block(blocks, inode, index)?;
        for dirent in Dirents::new(&block[..], at) {
            let dirent = dirent?;
            if dirent.ino != 0 && !matches!(dirent.name, b"." | b"..") {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Bytes of a block that records fill.
fn area(inode: &Inode) -> usize {
    if inode.seed.is_some() { BLOCK_SIZE - TAIL } else { BLOCK_SIZE }
}

impl Draft<'_, '_> {
    /// Makes the first block of the new directory `ino` in `parent`.
    pub(crate) fn init_dir(&mut self, ino: Ino, parent: Ino) -> Step<()> {
        let inode = self.inode(ino)?;
        let (area, dir) = (area(inode), FileKind::Directory.dirent_type());
        let mut block = Block::zeroed();
        let bytes = block.make_mut();
        let dot = record_len(1);
        dirent::emit(&mut bytes[..], 0, dot, ino, dir, b".");
        dirent::emit(&mut bytes[..], dot, area - dot, parent, dir, b"..");
        self.append_block(ino, block)
    }

    /// Adds a block to a directory, and seals it.
    fn append_block(&mut self, ino: Ino, mut block: Block) -> Step<()> {
        let index = block_count(self.inode(ino)?);
        let goal = match index.checked_sub(1) {
            Some(last) => map::find(self, self.inode(ino)?, last)?.at(last).map(|at| at + 1),
            None => None,
        };
        let goal = goal.map_or_else(|| self.goal(ino), Ok)?;
        let at = self.take_blocks(goal, 1)?.start;
        self.count_blocks(ino, 1)?;
        self.insert_extent(ino, Extent { block: index, len: 1, start: at, unwritten: false })?;
        let seed = self.inode(ino)?.seed;
        if seed.is_some() {
            dirent::emit_tail(&mut block.make_mut()[..]);
        }
        self.seal_and_put(at, block, seed);
        let inode = self.inode_mut(ino)?;
        inode.size = u64::from(index + 1) * SIZE;
        inode.raw.set_size(inode.size);
        Ok(())
    }

    fn seal_and_put(&mut self, at: FsBlock, mut block: Block, seed: Option<u32>) {
        if let Some(seed) = seed {
            dirent::seal(&mut block.make_mut()[..], seed);
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
        self.drop_index(dir)?;
        let gap = match self.find_gap(dir, record_len(name.len()))? {
            Some(gap) => gap,
            None => {
                let area = area(self.inode(dir)?);
                let mut block = Block::zeroed();
                dirent::emit(&mut block.make_mut()[..], 0, area, 0, 0, b"");
                self.append_block(dir, block)?;
                let last = block_count(self.inode(dir)?) - 1;
                let (at, _) = dir_block(self, self.inode(dir)?, last)?;
                Gap { at, offset: 0 }
            }
        };
        let seed = self.inode(dir)?.seed;
        let mut block = self.block_of(gap.at, Kind::Dir(seed))?;
        let bytes = block.make_mut();
        let (used, rec_len) = record(bytes, gap.offset);
        if used > 0 {
            set_rec_len(bytes, gap.offset, used);
        }
        let offset = gap.offset + used;
        dirent::emit(&mut bytes[..], offset, rec_len - used, ino, kind.dirent_type(), name);
        self.seal_and_put(gap.at, block, seed);
        self.touch_dir(dir)
    }

    fn find_gap(&self, dir: Ino, needed: usize) -> Step<Option<Gap>> {
        let inode = self.inode(dir)?;
        let area = area(inode);
        // Most often there is room in the last block.
        for index in (0..block_count(inode)).rev() {
            let (at, block) = dir_block(self, inode, index)?;
            for dirent in Dirents::new(&block[..area], at) {
                let dirent = dirent?;
                let used = if dirent.ino == 0 { 0 } else { record_len(dirent.name.len()) };
                if dirent.rec_len - used >= needed {
                    return Ok(Some(Gap { at, offset: dirent.offset }));
                }
            }
        }
        Ok(None)
    }

    /// Removes an entry that was found in this draft.
    pub(crate) fn remove_entry(&mut self, dir: Ino, found: Found) -> Step<()> {
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
        self.seal_and_put(found.at, block, seed);
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
        let seed = self.inode(dir)?.seed;
        let mut block = self.block_of(found.at, Kind::Dir(seed))?;
        let bytes = block.make_mut();
        bytes[found.offset..found.offset + 4].copy_from_slice(&ino.to_le_bytes());
        bytes[found.offset + 7] = kind.dirent_type();
        self.seal_and_put_any(dir, found.at, block)
    }

    /// As `seal_and_put`, of a block that may be the root of a hash tree.
    fn seal_and_put_any(&mut self, dir: Ino, at: FsBlock, mut block: Block) -> Step<()> {
        let seed = self.inode(dir)?.seed;
        let has_index = self.inode(dir)?.raw.flags().contains(Flags::INDEX);
        match (seed, htree::Place::of(&block[..]).filter(|_| has_index)) {
            (Some(seed), Some(place)) => {
                htree::seal(&mut block.make_mut()[..], place, seed);
                self.put(at, block);
            }
            _ => self.seal_and_put(at, block, seed),
        }
        Ok(())
    }

    /// Contents of a directory changed.
    pub(crate) fn touch_dir(&mut self, dir: Ino) -> Step<()> {
        let now = self.now;
        self.inode_mut(dir)?.touch(now);
        Ok(())
    }

    /// Makes a directory with a hash tree one without: the nodes become blocks without names.
    fn drop_index(&mut self, dir: Ino) -> Step<()> {
        let inode = self.inode(dir)?.clone();
        if !inode.raw.flags().contains(Flags::INDEX) {
            return Ok(());
        }
        for index in 0..block_count(&inode) {
            let (at, mut block) = dir_block(self, &inode, index)?;
            let Some(place) = htree::Place::of(&block[..]) else { continue };
            let area = area(&inode);
            let first = if place == htree::Place::Root { record_len(1) } else { 0 };
            let bytes = block.make_mut();
            let keep = first + if first > 0 { record_len(2) } else { dirent::HEADER };
            bytes[keep..].fill(0);
            set_rec_len(bytes, first, area - first);
            if inode.seed.is_some() {
                dirent::emit_tail(&mut bytes[..]);
            }
            self.seal_and_put(at, block, inode.seed);
        }
        let raw = &mut self.inode_mut(dir)?.raw;
        raw.flags = (raw.flags() - Flags::INDEX).bits().into();
        Ok(())
    }

    /// Blocks of inode `ino` that are freed may have been logged, unless it is a regular file.
    pub(crate) fn forget_contents(
        &mut self,
        ino: Ino,
        blocks: std::ops::Range<FsBlock>,
    ) -> Step<()> {
        if self.inode(ino)?.kind() != FileKind::Regular {
            blocks.for_each(|at| self.forget(at));
        }
        Ok(())
    }
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
