//! Walking a directory's hash tree (`dx_probe`, `ext4_htree_next_block`), and names in its leaves.

use drive::Block;
use smallvec::SmallVec;

use crate::blocks::{Blocks, Walked};
use crate::dir::entries::{Found, dir_block, find_in};
use crate::error::{Error, Result};
use crate::inode::cached::Inode;
use crate::ondisk::features::{Compat, Incompat};
use crate::ondisk::hash::{HALF_MD4, Hasher, TEA};
use crate::ondisk::htree::{self, Entry, Node, Place};
use crate::ondisk::inode::Flags;
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{FileBlock, FsBlock};

/// A node on the way to a leaf.
pub(crate) struct Level {
    pub(crate) at: FsBlock,
    pub(crate) place: Place,
    pub(crate) block: Block,
    /// The child that the way goes through.
    pub(crate) slot: usize,
}

/// The way from the root to a leaf.
pub(crate) struct Path {
    /// The root first.
    pub(crate) levels: SmallVec<[Level; 3]>,
    pub(crate) leaf: FileBlock,
    pub(crate) hasher: Hasher,
    /// The hash that it was found for.
    pub(crate) hash: u32,
}

/// Whether a directory's names are found through a tree.
pub(crate) fn is_indexed(sb: &Superblock, inode: &Inode) -> bool {
    // Trees of directories that ignore case hash other forms of their names.
    let flags = inode.flags() & (Flags::INDEX | Flags::CASEFOLD);
    flags == Flags::INDEX && sb.compat.contains(Compat::DIR_INDEX)
}

/// Levels of nodes below the root, at most (`ext4_dir_htree_level`).
pub(crate) fn deepest(sb: &Superblock) -> u8 {
    if sb.incompat.contains(Incompat::LARGEDIR) { 2 } else { 1 }
}

/// How a new tree hashes names (`s_def_hash_version`).
pub(crate) fn default_version(sb: &Superblock) -> u8 {
    Some(sb.raw.def_hash_version).filter(|version| *version <= TEA).unwrap_or(HALF_MD4)
}

/// How names are hashed by `version`, which block `at` says.
pub(crate) fn hasher(sb: &Superblock, version: u8, at: FsBlock) -> Result<Hasher> {
    Hasher::new(version, sb.unsigned_hash(), sb.hash_seed())
        .ok_or_else(|| Error::corrupt("dx_root_info.hash_version", at, version, "0, 1 or 2"))
}

impl Level {
    /// Block `index` of a directory, which is an inner node.
    pub(crate) fn inner<B: Blocks>(blocks: &B, inode: &Inode, index: FileBlock) -> Walked<Self, B> {
        let (at, block) = dir_block(blocks, inode, index)?;
        Ok(Self { at, place: Place::Node, block, slot: 0 })
    }

    /// The node's children.
    pub(crate) fn node(&self, sb: &Superblock, inode: &Inode) -> Result<Node<'_>> {
        Node::parse(sb.bytes(&self.block), self.place, inode.seed.is_some(), self.at)
    }
}

/// The root of a directory's tree, how that hashes names, and how many levels of nodes there are
/// below.
pub(crate) fn root<B: Blocks>(blocks: &B, inode: &Inode) -> Walked<(Level, Hasher, u8), B> {
    let (at, block) = dir_block(blocks, inode, 0)?;
    let info = htree::info(blocks.sb().bytes(&block), deepest(blocks.sb()), at)?;
    let hasher = hasher(blocks.sb(), info.hash_version, at)?;
    Ok((Level { at, place: Place::Root, block, slot: 0 }, hasher, info.indirect_levels))
}

/// The way to the first leaf that may have names with the hash that `wanted` says.
pub(crate) fn walk<B: Blocks>(
    blocks: &B,
    inode: &Inode,
    wanted: impl FnOnce(&Hasher) -> u32,
) -> Walked<Path, B> {
    let (mut level, hasher, below) = root(blocks, inode)?;
    let hash = wanted(&hasher);
    let mut levels = SmallVec::new();
    loop {
        let node = level.node(blocks.sb(), inode)?;
        let slot = node.find(hash);
        let child = child(&node, slot, level.at)?.block;
        level.slot = slot;
        levels.push(level);
        if levels.len() > usize::from(below) {
            return Ok(Path { levels, leaf: child, hasher, hash });
        }
        level = Level::inner(blocks, inode, child)?;
    }
}

fn child(node: &Node<'_>, slot: usize, at: FsBlock) -> Result<Entry> {
    node.entry(slot).ok_or_else(|| Error::corrupt("dx_entry", at, slot, "a child"))
}

impl Path {
    /// Goes to the leaf that follows in the order of hashes. The lowest hash that it may have; bit
    /// 0 is set if the leaf in front of it has the same. `None` at the end.
    pub(crate) fn next<B: Blocks>(&mut self, blocks: &B, inode: &Inode) -> Walked<Option<u32>, B> {
        let mut depth = self.levels.len();
        let next = loop {
            let Some(above) = depth.checked_sub(1) else { return Ok(None) };
            depth = above;
            let level = &mut self.levels[depth];
            let next = level.node(blocks.sb(), inode)?.entry(level.slot + 1);
            if let Some(next) = next {
                level.slot += 1;
                break next;
            }
        };
        self.leaf = next.block;
        for depth in depth + 1..self.levels.len() {
            let level = Level::inner(blocks, inode, self.leaf)?;
            self.leaf = child(&level.node(blocks.sb(), inode)?, 0, level.at)?.block;
            self.levels[depth] = level;
        }
        Ok(Some(next.hash))
    }
}

/// Finds `name`, which is neither `.` nor `..`, through the tree. Names with one hash may continue
/// in the leaves that follow.
pub(crate) fn find<B: Blocks>(blocks: &B, inode: &Inode, name: &[u8]) -> Walked<Option<Found>, B> {
    let mut path = walk(blocks, inode, |hasher| hasher.hash(name).major)?;
    let mut left = crate::dir::entries::block_count(blocks.sb(), inode);
    loop {
        let (at, block) = dir_block(blocks, inode, path.leaf)?;
        if let Some(found) = find_in(blocks.sb().bytes(&block), at, name)? {
            return Ok(Some(found));
        }
        if path.next(blocks, inode)? != Some(path.hash | 1) {
            return Ok(None);
        }
        left = left
            .checked_sub(1)
            .ok_or_else(|| Error::corrupt("dx_entry.block", at, path.leaf, "each block once"))?;
    }
}
