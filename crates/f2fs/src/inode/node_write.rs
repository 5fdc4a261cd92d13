//! Writing nodes: one into its log, all of a file for an fsync, or all of them for a checkpoint
//! (`f2fs_fsync_node_pages`, `f2fs_sync_node_pages`).

use drive::Block;
use queue::WriteSet;
use smallvec::SmallVec;
use vfs::Errno;

use crate::error::{Error, Result};
use crate::fsync::{Mark, NAME_BLOCKS};
use crate::inode::change::Change;
use crate::inode::node_cache::log_of;
use crate::mount::engine::Engine;
use crate::mount::iostat::Moved;
use crate::mount::options::Inject;
use crate::ondisk::inode::RawInodeBlock;
use crate::ondisk::node::{NodeKind, RawNodeFooter};
use crate::ondisk::node_sums::NodeSums;
use crate::ondisk::sit::LogType;
use crate::ondisk::summary::RawSummary;
use crate::ondisk::{BlockAddr, Nid};

/// What roll-forward should do with a node.
#[derive(Clone, Copy, Default)]
pub(crate) struct Marks {
    fsync: bool,
    dent: bool,
}

/// Nodes of one file as they were at one instant, in the order in which they are written. Blocks
/// are copied on write, so a node that changes meanwhile costs a copy.
#[derive(Clone, Default)]
pub(crate) struct Frozen(SmallVec<[(Nid, Block); 2]>);

/// Nodes that have their places, to be written there.
pub(crate) type Placed = SmallVec<[(BlockAddr, Block); 2]>;

impl Frozen {
    /// Their numbers.
    pub(crate) fn nids(&self) -> impl Iterator<Item = Nid> + '_ {
        self.0.iter().map(|(nid, _)| *nid)
    }

    /// Whether `log` takes all of them.
    pub(crate) fn are_all_for(&self, log: LogType) -> bool {
        self.0.iter().all(|(_, block)| log_of(RawNodeFooter::of(block)) == log)
    }
}

/// Writing the nodes of an inode.
pub(crate) trait WriteNodes: Change {
    /// Gives node `nid` of inode `ino` a place, as it is or as it was when it was `frozen`. Where
    /// nodes may be torn, the last node of an fsync gets the `sums` of those before it.
    fn place_node(
        &mut self,
        (ino, nid): (Nid, Nid),
        mut frozen: Option<Block>,
        marks: Marks,
        sums: Option<&mut NodeSums>,
    ) -> Result<(BlockAddr, Block), Self::Error> {
        let _span = cores::span(cores::Stage::NodeUpdate);
        let log = log_of(match &frozen {
            Some(block) => RawNodeFooter::of(block),
            None => RawNodeFooter::of(self.block_of(ino, nid)?),
        });
        let known = self.place_of(nid)?;
        let addr = self.allocate(log, known.entry.addr, RawSummary::node(nid))?;
        let next = self.next_addr(log);
        let engine = self.engine();
        let (cp_ver, sealed) = (engine.checkpoint.node_cp_ver(), engine.checkpoint.sealed);
        let oprw = engine.options.oprw;
        let (sb, shard) = self.shard_and_sb(ino)?;
        let cached = shard.nodes.clean(nid, frozen.as_ref());
        if cached.is_some() {
            frozen = None;
        }
        let Some(block) = cached.or(frozen.as_mut()) else {
            // It has just been read. Its place is taken, so nothing may be written any more.
            return Err(Error::from(Errno::IO).into());
        };
        let bytes = block.make_mut();
        let footer = RawNodeFooter::of_mut(bytes);
        footer.cp_ver.set(cp_ver);
        footer.next_blkaddr.set(next);
        footer.set_fsync(marks.fsync);
        footer.set_dent(marks.dent);
        if nid == ino {
            let inode = RawInodeBlock::of_mut(bytes);
            if marks.fsync && oprw {
                let data = shard.unjudged.remove(&ino).unwrap_or_default();
                data.store(&mut inode.i, cp_ver, sums.is_some());
            }
            if sealed {
                // Even if no fsync ends with this node: after a cut, its first sector must show
                // that it is ours.
                sums.map(std::mem::take).unwrap_or_default().close(addr, inode);
            }
            inode.seal(sb);
        } else if let Some(sums) = sums {
            sums.add(addr, bytes);
        }
        let block = block.clone();
        self.nat(|nat| nat.put(known, nid, ino, addr));
        self.engine().iostat.add_blocks(Moved::FsNode, 1);
        Ok((addr, block))
    }

    /// The nodes that an fsync of `ino` has to write, as they are now: the changed direct nodes,
    /// then the node of attributes, and always last the inode, which tells recovery that all were
    /// written. Indirect nodes are left to the checkpoint, because recovery rebuilds them.
    fn freeze_nodes(&mut self, ino: Nid) -> Result<Frozen, Self::Error> {
        self.settle_atime(ino)?;
        let dirty = self.shard_mut(ino)?.nodes.dirty_of(ino).filter(|nid| *nid != ino);
        let dirty: SmallVec<[Nid; 4]> = dirty.collect();
        let (mut nodes, mut attributes) = (Frozen::default(), None);
        for nid in dirty {
            let block = self.node(ino, nid)?.block.clone();
            match NodeKind::of(RawNodeFooter::of(&block).node_offset()) {
                Some(NodeKind::Direct) => nodes.0.push((nid, block)),
                Some(NodeKind::Xattr) => attributes = Some((nid, block)),
                _ => {}
            }
        }
        nodes.0.extend(attributes);
        nodes.0.push((ino, self.node(ino, ino)?.block.clone()));
        Ok(nodes)
    }

    /// Whether none of these nodes has been freed.
    fn has_nodes(&mut self, frozen: &Frozen) -> Result<bool, Self::Error> {
        for (nid, _) in &frozen.0 {
            if self.place_of(*nid)?.entry.is_free() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives the nodes of an fsync of `ino` their places, marked for roll-forward. If this fails,
    /// the `placed` ones must be written all the same, since they count as written.
    fn place_fsync_nodes(
        &mut self,
        ino: Nid,
        mark: Mark,
        frozen: Frozen,
        placed: &mut Placed,
    ) -> Result<(), Self::Error> {
        self.engine().check_writable()?;
        self.shard_mut(ino)?.unflushed.insert(ino);
        let dent = self.place_of(ino)?.needs_dentry_mark()
            && !self.engine().options.inject.contains(Inject::DROP_DENT_MARK);
        if dent {
            self.engine().space.claim(NAME_BLOCKS);
        }
        let mut sums = self.engine().checkpoint.sealed.then(NodeSums::default);
        for (nid, block) in frozen.0 {
            let offset = RawNodeFooter::of(&block).node_offset();
            let marks = match NodeKind::of(offset) {
                Some(NodeKind::Inode) => Marks { fsync: true, dent },
                Some(NodeKind::Direct) => Marks { fsync: mark == Mark::Every, dent: false },
                // An attribute may lie partly in this node and partly in the inode. Without a mark,
                // and with no other node between the two, this node is recovered together with the
                // inode or not at all.
                _ => Marks::default(),
            };
            placed.push(self.place_node((ino, nid), Some(block), marks, sums.as_mut())?);
        }
        self.nat(|nat| nat.set_fsynced_inode(ino));
        Ok(())
    }
}

impl<C: Change> WriteNodes for C {}

impl Engine {
    /// Writes every changed node, for a checkpoint.
    pub(crate) fn write_all_dirty_nodes(&mut self, set: &mut WriteSet) -> Result<()> {
        for node in self.inodes.changed_nodes() {
            let (addr, block) = self.place_node(node, None, Marks::default(), None)?;
            set.push(self.io.writer(), addr.into(), block);
        }
        Ok(())
    }
}
