//! Writing nodes: one into its log, all of a file for an fsync, or all of them for a checkpoint
//! (`f2fs_fsync_node_pages`, `f2fs_sync_node_pages`).

use drive::Block;
use queue::WriteSet;
use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::fsync::Mark;
use crate::inode::node_cache::log_of;
use crate::mount::engine::Engine;
use crate::mount::options::Inject;
use crate::ondisk::inode::RawInodeBlock;
use crate::ondisk::node::{NodeKind, RawNodeFooter};
use crate::ondisk::node_sums::NodeSums;
use crate::ondisk::sit::LogType;
use crate::ondisk::summary::RawSummary;
use crate::ondisk::{BlockAddr, Nid};

/// What roll-forward should do with a node.
#[derive(Clone, Copy, Default)]
struct Marks {
    fsync: bool,
    dent: bool,
}

/// Nodes of one file as they were at one instant, in the order in which they are written. Blocks
/// are copied on write, so a node that changes meanwhile costs a copy.
#[derive(Default)]
pub(crate) struct Frozen(SmallVec<[(Nid, Block); 2]>);

impl Engine {
    /// Takes a block of `log` in place of `old`.
    pub(crate) fn allocate(
        &mut self,
        log: LogType,
        old: BlockAddr,
        summary: RawSummary,
    ) -> Result<BlockAddr> {
        let _span = cores::span(cores::Stage::AllocBlock);
        let now = self.clock.elapsed();
        self.allocated_since_checkpoint += 1;
        self.logs.allocate(&mut self.segments, &mut self.io, log, old, summary, now)
    }

    /// Writes node `nid` of inode `ino` as it is, or as it was when it was `frozen`. Where nodes
    /// may be torn, the last node of an fsync gets the `sums` of those before it.
    fn write_node(
        &mut self,
        (ino, nid): (Nid, Nid),
        mut frozen: Option<Block>,
        marks: Marks,
        sums: Option<&mut NodeSums>,
        set: &mut WriteSet,
    ) -> Result<()> {
        let _span = cores::span(cores::Stage::NodeUpdate);
        let log = log_of(match &frozen {
            Some(block) => RawNodeFooter::of(block),
            None => RawNodeFooter::of(&self.node(ino, nid)?.block),
        });
        let old = self.nat.get(&self.io, nid)?.addr;
        let addr = self.allocate(log, old, RawSummary::node(nid))?;
        let next = self.logs.next_addr(&self.sb, log);
        let cached = self.inodes.of(ino).nodes.clean(nid, frozen.as_ref());
        if cached.is_some() {
            frozen = None;
        }
        let Some(block) = cached.or(frozen.as_mut()) else {
            return Err(Error::corrupt("node cache", nid, "nothing", "the node just read"));
        };
        let bytes = block.make_mut();
        let footer = RawNodeFooter::of_mut(bytes);
        footer.cp_ver.set(self.checkpoint.node_cp_ver());
        footer.next_blkaddr.set(next);
        footer.set_fsync(marks.fsync);
        footer.set_dent(marks.dent);
        if nid == ino {
            let inode = RawInodeBlock::of_mut(bytes);
            if marks.fsync && self.options.oprw {
                let data = self.unjudged.remove(&ino).unwrap_or_default();
                data.store(&mut inode.i, self.checkpoint.node_cp_ver(), sums.is_some());
            }
            if self.checkpoint.sealed {
                // Even if no fsync ends with this node: after a cut, its first sector must show
                // that it is ours.
                sums.map(std::mem::take).unwrap_or_default().close(addr, inode);
            }
            inode.seal(&self.sb);
        } else if let Some(sums) = sums {
            sums.add(addr, bytes);
        }
        let block = block.clone();
        self.nat.set(&self.io, nid, ino, addr)?;
        set.push(self.io.writer(), addr.into(), block);
        Ok(())
    }

    /// The nodes that an fsync of `ino` has to write, as they are now: the changed direct nodes,
    /// then the node of attributes, and always last the inode, which tells recovery that all were
    /// written. Indirect nodes are left to the checkpoint, because recovery rebuilds them.
    pub(crate) fn freeze_nodes(&mut self, ino: Nid) -> Result<Frozen> {
        if let Some(atime) = self.lazy_atimes.remove(&ino) {
            self.inode_mut(ino)?.set_atime(atime);
        }
        let dirty: SmallVec<[Nid; 4]> =
            self.inodes.of(ino).nodes.dirty_of(ino).filter(|nid| *nid != ino).collect();
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
    pub(crate) fn has_nodes(&mut self, frozen: &Frozen) -> Result<bool> {
        for (nid, _) in &frozen.0 {
            if self.nat.get(&self.io, *nid)?.is_free() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes the nodes of an fsync of `ino`, marked for roll-forward.
    pub(crate) fn submit_fsync_nodes(
        &mut self,
        ino: Nid,
        mark: Mark,
        frozen: Frozen,
        set: &mut WriteSet,
    ) -> Result<()> {
        self.check_writable()?;
        self.unflushed.insert(ino);
        let dent = self.nat.needs_dentry_mark(&self.io, ino)?
            && !self.options.inject.contains(Inject::DROP_DENT_MARK);
        let mut sums = self.checkpoint.sealed.then(NodeSums::default);
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
            self.write_node((ino, nid), Some(block), marks, sums.as_mut(), set)?;
        }
        self.nat.set_fsynced_inode(ino);
        set.submit(self.io.writer());
        Ok(())
    }

    /// Writes every changed node, for a checkpoint.
    pub(crate) fn write_all_dirty_nodes(&mut self, set: &mut WriteSet) -> Result<()> {
        for node in self.inodes.changed_nodes() {
            self.write_node(node, None, Marks::default(), None, set)?;
        }
        Ok(())
    }
}
