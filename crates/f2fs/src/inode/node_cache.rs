//! Node blocks in memory. The block *is* the node: attributes and addresses are read from and
//! written to its bytes, so there is no second copy that could disagree.
//!
//! Invariant: a cached node has passed its checks, so reading its fields needs none.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use cores::Line;
use drive::{BLOCK_SIZE, Block};
use rustc_hash::FxHashMap;
use vfs::{Errno, FileKind};

use crate::error::{Error, Result};
use crate::inode::change::Change;
use crate::mount::engine::Engine;
use crate::mount::faults::FaultType;
use crate::mount::iostat::Moved;
use crate::mount::quota::Amount;
use crate::ondisk::inode::{InodeLayout, RawInode, RawInodeBlock};
use crate::ondisk::node::{NodeKind, RawNodeFooter};
use crate::ondisk::sit::LogType;
use crate::ondisk::{NEW_ADDR, NULL_ADDR, Nid, is_data_addr};

/// A node block and what was derived from it when it was checked.
pub(crate) struct CachedNode {
    pub(crate) block: Block,
    ino: Nid,
    pub(super) layout: InodeLayout,
    dirty: bool,
    /// Used since the cache last shrank; set under the shared lock, too.
    referenced: AtomicBool,
}

impl CachedNode {
    /// Whether it is inode `ino` itself, not a node below another.
    pub(super) fn is_inode_of(&self, ino: Nid) -> bool {
        self.ino == ino
    }

    /// Whether it is the node at `node_offset` of inode `ino`.
    pub(super) fn is_at(&self, ino: Nid, node_offset: u32) -> bool {
        self.ino == ino && RawNodeFooter::of(&self.block).node_offset() == node_offset
    }

    fn refer(&self) {
        // Most often it is set: others need not lose their copy of the cache line.
        if !self.referenced.load(Relaxed) {
            self.referenced.store(true, Relaxed);
        }
    }

    fn log(&self) -> LogType {
        log_of(RawNodeFooter::of(&self.block))
    }
}

/// The node blocks in memory of some inodes.
pub(crate) struct NodeCache {
    map: FxHashMap<Nid, CachedNode>,
    /// By inode, so that an fsync finds its own nodes.
    dirty: BTreeSet<(Nid, Nid)>,
    /// Nodes in which only the cleaner changed addresses. Until the next checkpoint the old
    /// addresses are valid too, so no fsync writes these nodes.
    moved: BTreeSet<(Nid, Nid)>,
    counts: Arc<NodeCounts>,
}

/// How many nodes there are in all caches of a volume.
#[derive(Default)]
pub(crate) struct NodeCounts {
    all: Line,
    /// How many changed nodes each log will get.
    changed: [Line; LogType::ALL.len()],
}

impl NodeCounts {
    /// All nodes in memory.
    pub(crate) fn all(&self) -> usize {
        self.all.load() as usize
    }

    /// How many nodes have changed.
    pub(crate) fn changed(&self) -> usize {
        self.changed.iter().map(|line| line.load() as usize).sum()
    }

    /// How many changed nodes will go to `log`.
    pub(crate) fn changed_for(&self, log: LogType) -> usize {
        self.changed[log.index()].load() as usize
    }

    fn add_changed(&self, log: LogType) {
        self.changed[log.index()].fetch_add(1);
    }

    fn remove_changed(&self, log: LogType) {
        self.changed[log.index()].fetch_add(u64::MAX);
    }
}

impl NodeCache {
    /// An empty cache, one of several.
    pub(crate) fn new(counts: &Arc<NodeCounts>) -> Self {
        // No node has the number 0. With it, the set is never empty and keeps its memory.
        let (dirty, moved) = (BTreeSet::from([(0, 0)]), BTreeSet::new());
        Self { map: FxHashMap::default(), dirty, moved, counts: counts.clone() }
    }

    /// Node `nid`, if it is in memory.
    pub(crate) fn get(&self, nid: Nid) -> Option<&CachedNode> {
        self.map.get(&nid).inspect(|node| node.refer())
    }

    /// Whether node `nid` of inode `ino` has changes that an fsync has to write.
    pub(crate) fn is_dirty(&self, ino: Nid, nid: Nid) -> bool {
        self.dirty.contains(&(ino, nid))
    }

    /// Notes that in this node only addresses of blocks have changed, and that these blocks are
    /// stable.
    pub(crate) fn leave_to_checkpoint(&mut self, ino: Nid, nid: Nid) {
        if self.dirty.remove(&(ino, nid)) {
            self.moved.insert((ino, nid));
        }
    }

    /// Whether only the cleaner changed node `nid` of inode `ino`, so that no fsync writes it.
    pub(crate) fn is_left_to_checkpoint(&self, ino: Nid, nid: Nid) -> bool {
        self.moved.contains(&(ino, nid))
    }

    /// Whether nodes of inode `ino` have changes that an fsync has to write.
    pub(crate) fn has_dirty(&self, ino: Nid) -> bool {
        self.dirty.range((ino, 0)..=(ino, Nid::MAX)).next().is_some()
    }

    /// Changed nodes of inode `ino` that an fsync has to write, ascending by number.
    pub(crate) fn dirty_of(&self, ino: Nid) -> impl Iterator<Item = Nid> + '_ {
        self.dirty.range((ino, 0)..=(ino, Nid::MAX)).map(|(_, nid)| *nid)
    }

    /// All nodes, with their inodes, that have changes an fsync has to write.
    pub(super) fn dirty_all(&self) -> impl Iterator<Item = (Nid, Nid)> + '_ {
        self.dirty.iter().skip(1).copied()
    }

    /// All nodes, with their inodes, that only the cleaner changed.
    pub(super) fn moved_all(&self) -> impl Iterator<Item = (Nid, Nid)> + '_ {
        self.moved.iter().copied()
    }

    /// Forgets a node that was freed.
    pub(crate) fn remove(&mut self, nid: Nid) {
        let Some(node) = self.map.remove(&nid) else { return };
        self.counts.all.fetch_add(u64::MAX);
        if node.dirty {
            self.dirty.remove(&(node.ino, nid));
            self.moved.remove(&(node.ino, nid));
            self.counts.remove_changed(node.log());
        }
    }

    fn insert(&mut self, nid: Nid, node: CachedNode) {
        if self.map.insert(nid, node).is_none() {
            self.counts.all.fetch_add(1);
        }
    }

    /// Adds a node that exists nowhere else yet.
    pub(crate) fn insert_new(&mut self, nid: Nid, ino: Nid, block: Block, layout: InodeLayout) {
        self.remove(nid);
        let node = CachedNode { block, ino, layout, dirty: true, referenced: true.into() };
        self.counts.add_changed(node.log());
        self.insert(nid, node);
        self.dirty.insert((ino, nid));
    }

    /// The bytes of a node, to be changed; `None` if it is not here.
    pub(super) fn change(&mut self, nid: Nid) -> Option<&mut [u8; BLOCK_SIZE]> {
        let node = self.map.get_mut(&nid)?;
        if !std::mem::replace(&mut node.dirty, true) {
            self.dirty.insert((node.ino, nid));
            self.counts.add_changed(node.log());
        } else if !self.moved.is_empty() && self.moved.remove(&(node.ino, nid)) {
            self.dirty.insert((node.ino, nid));
        }
        Some(node.block.make_mut())
    }

    /// Marks a node as clean because it is about to be written, and returns its bytes for final
    /// changes. `None` if it is not here, or has changed since it was `frozen`.
    pub(crate) fn clean(&mut self, nid: Nid, frozen: Option<&Block>) -> Option<&mut Block> {
        let node = self.map.get_mut(&nid)?;
        if frozen.is_some_and(|frozen| !frozen.same_page(&node.block)) {
            return None;
        }
        if std::mem::take(&mut node.dirty) {
            self.dirty.remove(&(node.ino, nid));
            self.moved.remove(&(node.ino, nid));
            self.counts.remove_changed(node.log());
        }
        Some(&mut node.block)
    }

    /// Drops clean nodes that were not used since the last time.
    pub(super) fn drop_unused(&mut self) {
        let before = self.map.len();
        self.map.retain(|_, node| node.dirty || std::mem::take(node.referenced.get_mut()));
        self.counts.all.fetch_add(((before - self.map.len()) as u64).wrapping_neg());
    }
}

/// An inode to read: its fields by name, and the use of its slots.
pub(crate) struct Inode {
    block: Block,
    pub(crate) layout: InodeLayout,
}

impl std::ops::Deref for Inode {
    type Target = RawInode;
    fn deref(&self) -> &RawInode {
        &RawInodeBlock::of(&self.block).i
    }
}

impl Inode {
    /// Type of file; checked when the inode was read.
    pub(crate) fn file_kind(&self) -> FileKind {
        self.kind().unwrap_or(FileKind::Regular)
    }

    /// Whether this is a directory.
    pub(crate) fn is_dir(&self) -> bool {
        self.file_kind() == FileKind::Directory
    }

    /// The whole node block.
    pub(crate) fn block(&self) -> &[u8; BLOCK_SIZE] {
        &self.block
    }
}

impl Engine {
    /// Node `nid` of inode `ino`, from memory or the drive.
    pub(crate) fn node(&mut self, ino: Nid, nid: Nid) -> Result<&CachedNode> {
        if !self.has_node(ino, nid) {
            self.load_node(ino, nid)?;
        }
        self.inodes.of(ino).nodes.get(nid).ok_or(Error::Posix(Errno::IO))
    }

    /// Whether node `nid` of inode `ino` is in memory.
    pub(super) fn has_node(&mut self, ino: Nid, nid: Nid) -> bool {
        self.inodes.of(ino).nodes.map.contains_key(&nid)
    }

    pub(super) fn load_node(&mut self, ino: Nid, nid: Nid) -> Result<()> {
        let entry = self.nat.get_mut().get(&self.io, nid)?;
        let at = entry.addr;
        if !is_data_addr(at) || !self.segments.get_mut().is_valid(at) {
            let allowed = "the address of a valid block";
            return Err(Error::corrupt("nat_entry.block_addr", nid, format!("{at:#x}"), allowed));
        }
        let block = self.io.read(at)?;
        self.iostat.add_blocks(Moved::FsNodeRead, 1);
        RawNodeFooter::of(&block).check(nid, ino, at)?;
        let layout = if nid == ino {
            RawInodeBlock::of(&block).check(&self.sb, nid, at)?
        } else {
            InodeLayout::default()
        };
        self.inodes.shrink_nodes();
        let node = CachedNode { block, ino, layout, dirty: false, referenced: true.into() };
        self.inodes.of(ino).nodes.insert(nid, node);
        Ok(())
    }

    /// Node `nid`, which must be the one at `node_offset` of inode `ino`. Every place in a file's
    /// tree has an offset of its own, so a tree that contains a circle fails at the first wrong
    /// step.
    pub(crate) fn node_at(&mut self, nid: Nid, ino: Nid, node_offset: u32) -> Result<&CachedNode> {
        let entry = self.nat.get_mut().get(&self.io, nid)?;
        let node = self.node(ino, nid)?;
        let footer = RawNodeFooter::of(&node.block);
        footer.check(nid, ino, entry.addr)?;
        if footer.node_offset() != node_offset {
            let found = footer.node_offset();
            return Err(Error::corrupt("node_footer.flag", entry.addr, found, node_offset));
        }
        Ok(node)
    }

    /// The bytes of node `nid` of inode `ino`, to be changed.
    pub(crate) fn node_mut(&mut self, ino: Nid, nid: Nid) -> Result<&mut [u8; BLOCK_SIZE]> {
        self.node(ino, nid)?;
        self.inodes.of(ino).nodes.change(nid).ok_or(Error::Posix(Errno::IO))
    }

    /// Inode `ino`; `ENOENT` if no inode has this number.
    pub(crate) fn inode(&mut self, ino: Nid) -> Result<Inode> {
        let node = self.inode_node(ino)?;
        Ok(Inode { block: node.block.clone(), layout: node.layout })
    }

    /// As [`Engine::inode`], for a short look: without the cost of a reference to the block.
    pub(crate) fn raw_inode(&mut self, ino: Nid) -> Result<&RawInode> {
        Ok(&RawInodeBlock::of(&self.inode_node(ino)?.block).i)
    }

    /// Type of the file `ino`.
    pub(crate) fn kind_of(&mut self, ino: Nid) -> Result<FileKind> {
        Ok(self.raw_inode(ino)?.kind().unwrap_or(FileKind::Regular))
    }

    /// Whether `ino` is a directory.
    pub(crate) fn is_dir(&mut self, ino: Nid) -> Result<bool> {
        Ok(self.kind_of(ino)? == FileKind::Directory)
    }

    pub(super) fn inode_node(&mut self, ino: Nid) -> Result<&CachedNode> {
        if !self.has_node(ino, ino) {
            self.load_inode(ino)?;
        }
        let node = self.inodes.of(ino).nodes.get(ino).ok_or(Error::Posix(Errno::IO))?;
        if node.ino != ino {
            return Err(Error::Posix(Errno::NOENT));
        }
        Ok(node)
    }

    #[cold]
    fn load_inode(&mut self, ino: Nid) -> Result<()> {
        if !self.sb.is_node_id(ino) {
            return Err(Error::Posix(Errno::NOENT));
        }
        let entry = self.nat.get_mut().get(&self.io, ino)?;
        if entry.is_free() || entry.ino != ino {
            return Err(Error::Posix(Errno::NOENT));
        }
        self.load_node(ino, ino)
    }

    /// How the slots of inode `ino` are used, without holding its block.
    pub(crate) fn layout(&mut self, ino: Nid) -> Result<InodeLayout> {
        Ok(self.node(ino, ino)?.layout)
    }

    /// Inode `ino`, to be changed.
    pub(crate) fn inode_mut(&mut self, ino: Nid) -> Result<&mut RawInode> {
        Ok(&mut RawInodeBlock::of_mut(self.node_mut(ino, ino)?).i)
    }

    /// Records that the inode's flags changed the use of its slots.
    pub(crate) fn set_layout(&mut self, ino: Nid, layout: InodeLayout) {
        self.inodes.of(ino).extents.forget(ino);
        if let Some(node) = self.inodes.of(ino).nodes.map.get_mut(&ino) {
            node.layout = layout;
        }
    }

    /// Takes a block for a new node, which counts at once, and a number; or neither.
    pub(crate) fn take_node(&mut self, is_inode: bool) -> Result<Nid> {
        self.space.take_node(is_inode)?;
        if self.faults.fires(FaultType::ALLOC_NID) {
            self.space.give_node(is_inode);
            return Err(Error::NoSpace);
        }
        self.nat.get_mut().reserve(&self.io).inspect_err(|_| self.space.give_node(is_inode))
    }

    /// Makes a node at `node_offset` of inode `ino`. Its block counts at once.
    pub(crate) fn new_node(&mut self, ino: Nid, node_offset: u32) -> Result<Nid> {
        let is_dir = self.is_dir(ino)?;
        self.take_quota(ino, 1)?;
        let nid = match self.take_node(false) {
            Ok(nid) => nid,
            Err(error) => {
                self.give_quota(ino, 1)?;
                return Err(error);
            }
        };
        let mut block = [0; BLOCK_SIZE];
        let footer = RawNodeFooter::of_mut(&mut block);
        *footer = RawNodeFooter::new(nid, ino, node_offset);
        footer.set_cold(!is_dir);
        self.nat.get_mut().set(&self.io, nid, ino, NEW_ADDR)?;
        self.inodes.of(ino).nodes.insert_new(nid, ino, Block::new(block), InodeLayout::default());
        self.since_checkpoint.made_node(ino, node_offset);
        self.add_blocks(ino, 1)?;
        Ok(nid)
    }

    /// Frees node `nid` of inode `ino`, which must not be the inode itself.
    pub(crate) fn free_node(&mut self, nid: Nid, ino: Nid) -> Result<()> {
        let offset = RawNodeFooter::of(&self.node(ino, nid)?.block).node_offset();
        self.drop_node_block(nid, ino)?;
        self.since_checkpoint.freed_node(ino, offset);
        self.space.give_node(false);
        self.give_quota(ino, 1)?;
        self.add_blocks(ino, -1)
    }

    /// Frees inode `ino` itself, after everything else of it.
    pub(crate) fn free_inode_node(&mut self, ino: Nid) -> Result<()> {
        let owner = self.counted_for(ino)?;
        let amount = Amount::of(&*self.inode(ino)?);
        self.drop_node_block(ino, ino)?;
        self.space.give_node(true);
        if let Some(owner) = owner {
            self.quotas.give(owner, amount);
        }
        Ok(())
    }

    fn drop_node_block(&mut self, nid: Nid, ino: Nid) -> Result<()> {
        let entry = self.nat.get_mut().get(&self.io, nid)?;
        if is_data_addr(entry.addr) {
            self.logs.get_mut().invalidate(self.segments.get_mut(), entry.addr)?;
        }
        self.inodes.of(ino).nodes.remove(nid);
        self.nat.get_mut().set(&self.io, nid, ino, NULL_ADDR)
    }
}

/// The log for a node: direct nodes of directories are hot, indirect nodes are cold.
pub(crate) fn log_of(footer: &RawNodeFooter) -> LogType {
    match NodeKind::of(footer.node_offset()) {
        Some(NodeKind::Inode | NodeKind::Direct | NodeKind::Xattr) if footer.is_cold() => {
            LogType::WarmNode
        }
        Some(NodeKind::Inode | NodeKind::Direct | NodeKind::Xattr) => LogType::HotNode,
        _ => LogType::ColdNode,
    }
}
