//! What an fsync has to do: nothing, its plan, or a checkpoint (`need_do_checkpoint`).
//!
//! This is decided under the same lock of the volume under which the nodes are put together, so
//! that nothing can change between the decision and the act.

use vfs::{Errno, FileKind};

use super::submit::Plan;
use crate::alloc::curseg::Logs;
use crate::dir::entries::Names;
use crate::dir::wanted::Naming;
use crate::error::Result;
use crate::inode::change::Change;
use crate::inode::see::{Own, See, Unseen};
use crate::mount::engine::Engine;
use crate::mount::options::FsyncMode;
use crate::ondisk::inode::{Advise, Inline};
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

/// The most blocks that roll-forward takes for a name: the place that it got may have been another
/// one's, which recovery still finds there. The directory's entries may leave its inode then, or
/// get one more block, with the direct and the indirect nodes above it.
pub(crate) const NAME_BLOCKS: u64 = 8;

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
}

impl Own<'_> {
    /// As [`Engine::check_fsync`], and draws a node's block from the credit. Fails for all but
    /// plain files on drives without zones, which need the exclusive path: on zones, blocks have to
    /// be submitted in the order in which logs give them out. Fails also for several pages that
    /// must show one instant: a log may have to move on between them.
    pub(super) fn check_fsync(&mut self, ino: Nid, plan: &Plan) -> Result<(), Unseen> {
        let engine = self.engine();
        let special = engine.zones.is_some()
            || engine.write_errors.contains(&ino)
            || engine.top_inode(ino) != ino;
        let pages = self.shard(ino)?.pages.dirty_count(ino.into());
        let inode = self.view(ino)?;
        let special = special
            || plan.atomic && pages > 1
            || inode.file_kind() != FileKind::Regular
            || inode.inline().contains(Inline::PIN_FILE)
            || inode.layout().cluster().is_some();
        if special {
            return Err(Unseen::Absent);
        }
        self.pay(ino, 1)
    }
}

/// Deciding what an fsync has to do.
pub(super) trait Decide: Change + Names {
    /// Whether this file needs an fsync at all, and whether roll-forward could repeat it. Its dirty
    /// data has been submitted.
    fn fsync_need(&mut self, ino: Nid) -> Result<Need, Self::Error> {
        let shard = self.shard_mut(ino)?;
        let clean = shard.pages.dirty_count(ino.into()) == 0 && !shard.nodes.has_dirty(ino);
        let flushed = !shard.unflushed.contains(&ino);
        let sealed = self.engine().checkpoint.sealed;
        let inode = self.view(ino)?;
        let (parent, links) = (inode.pino.get(), inode.links.get());
        let compressed = inode.layout().cluster().is_some();
        let unsealable = sealed && !node_sums::fits(&inode);
        if inode.file_kind() == FileKind::Directory {
            let Engine { inodes, since_checkpoint, .. } = self.engine();
            let quiet = clean && since_checkpoint.is_empty() && inodes.nodes().changed() == 0;
            let nothing = quiet && inodes.pages().dirty() == 0;
            return Ok(if nothing { Need::Nothing } else { Need::Checkpoint });
        }
        let since = self.engine().since_checkpoint.about(ino, parent);
        let changed = since.moved || self.lacks_a_node(ino, &since.freed_nodes)?;
        if clean && !changed && flushed {
            return Ok(Need::Nothing);
        }
        let unrecoverable = changed
            || unsealable
            || links != 1
            || compressed
            || since.dir_xattr_changed
            || !self.place_of(parent)?.checkpointed
            || !self.has_room_in_chain()
            || since.dir_lost_a_name
                && self.place_of(ino)?.needs_dentry_mark()
                && self.takes_left_name(ino)?
            || self.engine().options.fsync_mode == FsyncMode::Strict
                && since.dir_lost_a_name
                && self.place_of(ino)?.needs_dentry_mark();
        Ok(if unrecoverable { Need::Checkpoint } else { Need::Plan })
    }

    /// Whether the file has data that recovery could not verify.
    fn has_unjudgeable(&mut self, ino: Nid, plan: &Plan) -> Result<bool, Self::Error> {
        let sums = self.shard_mut(ino)?.unjudged.get(&ino);
        let Some(sums) = sums.filter(|_| plan.orders_at_recovery()).cloned() else {
            return Ok(false);
        };
        let sealed = self.engine().checkpoint.sealed;
        let inode = self.view(ino)?;
        let pinned = inode.inline().contains(Inline::PIN_FILE);
        Ok(!(plan.atomic && !pinned && sums.fit(&inode, sealed)))
    }

    /// Whether recovery would create the file under a name that still belongs to another file.
    /// Linux's F2FS has this in `fsync_mode=strict` only (xfstests generic/342).
    fn takes_left_name(&mut self, ino: Nid) -> Result<bool, Self::Error> {
        let inode = self.view(ino)?;
        let (dir, own) = (inode.pino.get(), inode.name().to_vec());
        // In other directories, different bytes may be the same name.
        let exact = self.naming(dir)? == Naming::Exact;
        Ok(self.engine().since_checkpoint.has_left(dir, exact.then_some(own)))
    }

    /// Whether a node of the file was freed that recovery would take for unchanged: a node of
    /// attributes, or one of blocks before the end of the file. (Recovery cuts off only what lies
    /// behind the end.)
    fn lacks_a_node(&mut self, ino: Nid, freed: &[u32]) -> Result<bool, Self::Error> {
        if freed.is_empty() {
            return Ok(false);
        }
        let inode = self.view(ino)?;
        let addrs = inode.layout().addr_counts();
        let keeps_size = inode.advise().contains(Advise::KEEP_SIZE);
        let end = inode.size.get().div_ceil(BLOCK_SIZE as u64);
        Ok(freed.iter().any(|&offset| match NodeKind::of(offset) {
            Some(NodeKind::Xattr) => true,
            Some(NodeKind::Direct) => {
                keeps_size || first_index_of(offset, addrs).is_some_and(|first| first < end)
            }
            _ => false,
        }))
    }
}

impl<C: Change + Names> Decide for C {}

impl Engine {
    /// Roll-forward keeps old blocks until it is done, and takes as many as were taken since the
    /// checkpoint: there must be room for everything that it may claim with `more` blocks
    /// (`f2fs_space_for_roll_forward`). Nor may it have to read more nodes than allowed
    /// (`max_roll_forward_node_blocks`), and the chain must be whole.
    pub(crate) fn can_roll_forward(&self, logs: &Logs, more: u64) -> bool {
        let (limit, total) = (self.knobs.max_roll_forward_node_blocks, self.space.user_blocks());
        let is_long = limit > 0 && logs.chain_blocks() >= limit;
        let claimed = self.space.used().taken.max(logs.allocated() + more) + NAME_BLOCKS;
        !is_long && !logs.is_chain_broken() && self.checkpoint.valid_block_count + claimed <= total
    }
}
