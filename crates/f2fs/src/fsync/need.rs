//! What an fsync has to do: nothing, its plan, or a checkpoint (`need_do_checkpoint`).
//!
//! This is decided in the hold of the volume in which the nodes are put together, so that nothing
//! can change between the decision and the act.

use vfs::{Errno, FileKind};

use super::submit::Plan;
use crate::dir::entries::Names;
use crate::dir::wanted::Naming;
use crate::error::Result;
use crate::mount::engine::Engine;
use crate::mount::options::FsyncMode;
use crate::ondisk::inode::Advise;
use crate::ondisk::node::{NodeKind, first_index_of};
use crate::ondisk::{BLOCK_SIZE, Nid, node_sums};

/// What an fsync has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Everything of this file has already been written and flushed.
    Nothing,
    /// Only a checkpoint can restore this state; roll-forward could not.
    Checkpoint,
    /// What the plan says.
    Plan,
}

impl Engine {
    /// Fails if `ino` cannot be fsynced now. On a volume that has stopped it cannot, as in
    /// `f2fs_sync_file`: what a failed checkpoint included is clean in memory but not on the drive.
    pub(super) fn check_fsync(&mut self, ino: Nid) -> Result<()> {
        self.check_usable()?;
        if self.write_errors.remove(&ino) {
            return Err(Errno::IO.into());
        }
        let kind = self.kind_of(ino)?;
        if !matches!(kind, FileKind::Regular | FileKind::Directory) {
            return Err(Errno::INVAL.into());
        }
        if self.options.read_only {
            return Ok(());
        }
        self.check_writable()
    }

    /// Whether this file needs an fsync at all, and whether roll-forward could repeat it. Its dirty
    /// data has been submitted.
    pub(super) fn fsync_need(&mut self, ino: Nid) -> Result<Need> {
        let shard = self.inodes.of(ino);
        let clean = shard.pages.dirty_count(ino.into()) == 0 && !shard.nodes.has_dirty(ino);
        if self.is_dir(ino)? {
            let quiet =
                clean && self.since_checkpoint.is_empty() && self.inodes.nodes().changed() == 0;
            let nothing = quiet && self.inodes.pages().dirty() == 0;
            return Ok(if nothing { Need::Nothing } else { Need::Checkpoint });
        }
        let changed = self.since_checkpoint.moved.contains(&ino) || self.lacks_a_node(ino)?;
        if clean && !changed && !self.unflushed.contains(&ino) {
            return Ok(Need::Nothing);
        }
        let compressed = self.layout(ino)?.cluster().is_some();
        let sealed = self.checkpoint.sealed;
        let inode = self.raw_inode(ino)?;
        let (parent, links) = (inode.pino.get(), inode.links.get());
        let unrecoverable = changed
            || sealed && !node_sums::fits(inode)
            || links != 1
            || compressed
            || self.since_checkpoint.xattr_changed.contains(&parent)
            || !self.nat.is_checkpointed(&self.io, parent)?
            || !self.has_room_to_roll_forward()
            || self.chain_is_long()
            || self.takes_left_name(ino)?
            || self.options.fsync_mode == FsyncMode::Strict
                && self.since_checkpoint.removed_from.contains(&parent)
                && self.nat.needs_dentry_mark(&self.io, ino)?;
        Ok(if unrecoverable { Need::Checkpoint } else { Need::Plan })
    }

    /// Whether the file has data that recovery could not verify.
    pub(super) fn has_unjudgeable(&mut self, ino: Nid, plan: &Plan) -> Result<bool> {
        let Some(sums) = self.unjudged.get(&ino).filter(|_| plan.orders_at_recovery()) else {
            return Ok(false);
        };
        let (sums, sealed) = (sums.clone(), self.checkpoint.sealed);
        let storable =
            plan.atomic && !self.is_pinned(ino)? && sums.fit(self.raw_inode(ino)?, sealed);
        Ok(!storable)
    }

    /// Whether recovery would create the file under a name that still belongs to another file.
    /// Linux's F2FS has this in `fsync_mode=strict` only (xfstests generic/342).
    fn takes_left_name(&mut self, ino: Nid) -> Result<bool> {
        let left = &self.since_checkpoint.left_names;
        if left.is_empty() || !self.nat.needs_dentry_mark(&self.io, ino)? {
            return Ok(false);
        }
        let inode = self.inode(ino)?;
        let dir = inode.pino.get();
        // In other directories, different bytes may be the same name.
        let exact = self.naming(dir)? == Naming::Exact;
        let left = self.since_checkpoint.left_names.range((dir, Vec::new())..);
        let mut of_dir = left.take_while(|(of, _)| *of == dir);
        Ok(of_dir.any(|(_, name)| !exact || name == inode.name()))
    }

    /// Whether a node of the file was freed that recovery would take for unchanged: a node of
    /// attributes, or one of blocks before the end of the file. (Recovery cuts off only what lies
    /// behind the end.)
    fn lacks_a_node(&mut self, ino: Nid) -> Result<bool> {
        let freed = self.since_checkpoint.freed_nodes.range((ino, 0)..=(ino, u32::MAX));
        let offsets: Vec<u32> = freed.map(|(_, offset)| *offset).collect();
        if offsets.is_empty() {
            return Ok(false);
        }
        let addrs = self.layout(ino)?.addr_counts();
        let inode = self.raw_inode(ino)?;
        let keeps_size = inode.advise().contains(Advise::KEEP_SIZE);
        let end = inode.size.get().div_ceil(BLOCK_SIZE as u64);
        Ok(offsets.into_iter().any(|offset| match NodeKind::of(offset) {
            Some(NodeKind::Xattr) => true,
            Some(NodeKind::Direct) => {
                keeps_size || first_index_of(offset, addrs).is_some_and(|first| first < end)
            }
            _ => false,
        }))
    }

    /// Roll-forward keeps old blocks until it is done, so there must be room for everything it may
    /// claim (`f2fs_space_for_roll_forward`).
    fn has_room_to_roll_forward(&self) -> bool {
        let (total, _) = self.space.totals();
        self.checkpoint.valid_block_count + self.allocated_since_checkpoint <= total
    }
}
