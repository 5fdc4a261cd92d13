//! Writing nodes: one at a time into its log, all of a file for an fsync, all there are for a
//! checkpoint (`f2fs_fsync_node_pages`, `f2fs_sync_node_pages`).

use crate::error::{Error, Result};
use crate::fsync::Mark;
use crate::io::WriteSet;
use crate::node_cache::log_of;
use crate::ondisk::inode::RawInodeBlock;
use crate::ondisk::node::{NodeKind, RawNodeFooter};
use crate::ondisk::sit::LogType;
use crate::ondisk::summary::RawSummary;
use crate::ondisk::{BlockAddr, Nid};
use crate::options::Inject;
use crate::volume::Volume;

/// What roll-forward is to make of a node.
#[derive(Clone, Copy, Default)]
struct Marks {
    fsync: bool,
    dent: bool,
}

impl Volume {
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

    fn write_node(&mut self, nid: Nid, marks: Marks, set: &mut WriteSet) -> Result<()> {
        let _span = cores::span(cores::Stage::NodeUpdate);
        let (log, ino) = {
            let footer = RawNodeFooter::of(&self.node(nid)?.block);
            (log_of(footer), footer.ino.get())
        };
        if nid == ino
            && let Some(atime) = self.lazy_atimes.remove(&ino)
        {
            self.inode_mut(ino)?.set_atime(atime);
        }
        let old = self.nat.get(&self.io, nid)?.addr;
        let addr = self.allocate(log, old, RawSummary::node(nid))?;
        let next = self.logs.next_addr(&self.sb, log);
        let Some(block) = self.nodes.clean(nid) else {
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
                let sums = self.unjudged.remove(&ino).unwrap_or_default();
                sums.store(&mut inode.i, self.checkpoint.node_cp_ver());
            }
            inode.seal(&self.sb);
        }
        let block = block.clone();
        self.nat.set(&self.io, nid, ino, addr)?;
        set.push(&mut self.io, addr, block);
        Ok(())
    }

    /// Writes the file's changed direct nodes and last its inode, marked for roll-forward.
    /// Indirect nodes are left to the checkpoint: recovery makes them anew.
    pub(crate) fn submit_fsync_nodes(
        &mut self,
        ino: Nid,
        mark: Mark,
        set: &mut WriteSet,
    ) -> Result<()> {
        self.check_writable()?;
        let dirty: Vec<Nid> = self.nodes.dirty_of(ino).filter(|nid| *nid != ino).collect();
        let mut attributes = None;
        for nid in dirty {
            let footer = RawNodeFooter::of(&self.node(nid)?.block);
            match NodeKind::of(footer.node_offset()) {
                Some(NodeKind::Direct) => {
                    self.write_node(nid, Marks { fsync: mark == Mark::Every, dent: false }, set)?;
                }
                Some(NodeKind::Xattr) => attributes = Some(nid),
                _ => {}
            }
        }
        // One attribute may lie half in this node and half in the inode. Without a mark, and with
        // no other node between the two, it is recovered with the inode or not at all.
        if let Some(nid) = attributes {
            self.write_node(nid, Marks::default(), set)?;
        }
        // The inode goes last and always: it is the node that tells recovery all was written.
        let dent = self.nat.needs_dentry_mark(&self.io, ino)?
            && !self.options.inject.contains(Inject::DROP_DENT_MARK);
        self.write_node(ino, Marks { fsync: true, dent }, set)?;
        self.nat.set_fsynced_inode(ino);
        set.submit(&mut self.io);
        Ok(())
    }

    /// Writes every changed node, for a checkpoint.
    pub(crate) fn write_all_dirty_nodes(&mut self, set: &mut WriteSet) -> Result<()> {
        let dirty: Vec<Nid> = self.nodes.dirty_all().collect();
        for nid in dirty {
            self.write_node(nid, Marks::default(), set)?;
        }
        Ok(())
    }
}
