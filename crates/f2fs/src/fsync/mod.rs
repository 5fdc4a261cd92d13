//! fsync: what it writes, what it waits for, and when it must write a checkpoint instead
//! (`f2fs_do_sync_file`).
//!
//! One file per technique holds its [`Plan`]; [`execute`] runs any of them. The volume is locked
//! while a step allocates and submits, and free while it waits for the drive.

mod atomic;
mod nobarrier;
mod oprw;
mod plan;
mod posix;
mod strict;

use cores::{MutexGuard, Stage};
use vfs::{Errno, FileKind};

pub use atomic::ATOMIC;
pub use nobarrier::NOBARRIER;
pub use oprw::{OPRW_NOBARRIER, OPRW_POSIX};
pub use plan::{Mark, Plan, Step, Writes};
pub use posix::POSIX;
pub use strict::STRICT;

use crate::F2fs;
use crate::error::Result;
use crate::io::WriteSet;
use crate::ondisk::inode::Advise;
use crate::ondisk::node::{NodeKind, first_index_of};
use crate::ondisk::{BLOCK_SIZE, Nid};
use crate::options::{FsyncMode, Inject, MountOptions};
use crate::volume::{Caller, Volume};
use crate::wanted::Naming;

impl Plan {
    /// The technique these options ask for.
    pub fn of(options: &MountOptions) -> &'static Self {
        match (options.fsync_mode, options.oprw) {
            (FsyncMode::Strict, false) => &STRICT,
            (FsyncMode::Strict, true) => &ATOMIC,
            (FsyncMode::Posix, false) => &POSIX,
            (FsyncMode::Posix, true) => &OPRW_POSIX,
            (FsyncMode::Nobarrier, false) => &NOBARRIER,
            (FsyncMode::Nobarrier, true) => &OPRW_NOBARRIER,
        }
    }
}

/// What an fsync has to do.
pub(crate) enum Need {
    /// Everything of this file has been written and flushed before.
    Nothing,
    /// Roll-forward could not restore this state; only a checkpoint can.
    Checkpoint,
    /// The plan.
    Plan,
}

/// Makes `ino` durable by the volume's plan.
pub(crate) fn execute(fs: &F2fs, ino: Nid) -> Result<()> {
    let turn = fs.take_turn(ino);
    let need = {
        let _span = cores::span(Stage::FsyncOther);
        let mut volume = fs.settled();
        volume.operations += 1;
        volume.begin_fsync(ino)?
    };
    match need {
        Need::Nothing => {}
        Need::Checkpoint => {
            fs.write_back_held(ino)?;
            fs.checkpoint(fs.settled(), Caller::Foreground)?;
        }
        Need::Plan => run(fs, ino, fs.plan())?,
    }
    drop(turn);
    Ok(())
}

fn run(fs: &F2fs, ino: Nid, plan: &Plan) -> Result<()> {
    let mut data = WriteSet::default();
    let mut nodes = WriteSet::default();
    for step in plan.steps {
        let done = run_step(fs, ino, *step, &mut data, &mut nodes);
        if let Err(error) = done {
            let mut volume = fs.lock();
            // The commands in flight still own their blocks; their outcome no longer matters.
            let _ = volume.finish(data, Ok(()));
            let _ = volume.finish(nodes, Ok(()));
            volume.stop(&error);
            return Err(error);
        }
    }
    Ok(())
}

fn run_step(
    fs: &F2fs,
    ino: Nid,
    step: Step,
    data: &mut WriteSet,
    nodes: &mut WriteSet,
) -> Result<()> {
    match step {
        Step::SubmitData => {
            let _span = cores::span(Stage::FsyncPrepare);
            let mut volume = fs.settled();
            volume.unflushed.insert(ino);
            volume.submit_data(ino, data)
        }
        Step::SubmitNodes(mark) => {
            let _span = cores::span(Stage::FsyncNode);
            let volume = fs.settled();
            submit_nodes(fs, volume, ino, mark, data, nodes)
        }
        Step::Submit(mark) => {
            let prepare = cores::span(Stage::FsyncPrepare);
            let mut volume = fs.settled();
            volume.unflushed.insert(ino);
            volume.submit_data(ino, data)?;
            drop(prepare);
            let _span = cores::span(Stage::FsyncNode);
            submit_nodes(fs, volume, ino, mark, data, nodes)
        }
        Step::Wait(writes) => {
            if writes.contains(Writes::DATA) {
                let _span = cores::span(Stage::WaitData);
                data.wait(fs.queue())?;
            }
            if writes.contains(Writes::NODES) {
                let _span = cores::span(Stage::WaitNode);
                nodes.wait(fs.queue())?;
            }
            Ok(())
        }
        Step::PreFlush if fs.injected(Inject::DROP_PREFLUSH) => Ok(()),
        Step::Flush if fs.injected(Inject::DROP_FLUSH) => Ok(()),
        Step::PreFlush => fs.flush(),
        Step::Flush => {
            // Before the flush: what is written back during it has to be flushed again.
            fs.lock().unflushed.remove(&ino);
            fs.flush()
        }
    }
}

fn submit_nodes<'a>(
    fs: &'a F2fs,
    mut volume: MutexGuard<'a, Volume>,
    ino: Nid,
    mark: Mark,
    data: &mut WriteSet,
    nodes: &mut WriteSet,
) -> Result<()> {
    // Data of which neither write pointers nor checksums will tell recovery is ordered here. Again,
    // if the cleaner moved some there meanwhile.
    while volume.has_unjudgeable(ino, fs.plan())? {
        volume.unjudged.remove(&ino);
        drop(volume);
        data.wait(fs.queue())?;
        fs.flush()?;
        volume = fs.settled();
    }
    let mark = if fs.injected(Inject::MARK_EVERY_NODE) { Mark::Every } else { mark };
    volume.submit_fsync_nodes(ino, mark, nodes)
}

impl Volume {
    /// What an fsync of `ino` has to do. On a volume that has stopped it fails, as `f2fs_sync_file`
    /// does: what a checkpoint that failed had taken up is clean in memory, and not on the drive.
    fn begin_fsync(&mut self, ino: Nid) -> Result<Need> {
        self.check_usable()?;
        if self.write_errors.remove(&ino) {
            return Err(Errno::IO.into());
        }
        if self.options.read_only {
            return Ok(Need::Nothing);
        }
        self.check_writable()?;
        self.balance()?;
        self.fsync_need(ino)
    }

    /// Whether this file needs an fsync at all, and whether roll-forward could repeat it
    /// (`need_do_checkpoint`).
    fn fsync_need(&mut self, ino: Nid) -> Result<Need> {
        let clean = self.pages.dirty_count(ino.into()) == 0 && !self.nodes.has_dirty(ino);
        let kind = self.kind_of(ino)?;
        if !matches!(kind, FileKind::Regular | FileKind::Directory) {
            return Err(Errno::INVAL.into());
        }
        if kind == FileKind::Directory {
            let quiet = clean && self.since_checkpoint.is_empty() && self.nodes.dirty_count() == 0;
            return Ok(if quiet && self.pages.dirty_total() == 0 {
                Need::Nothing
            } else {
                Need::Checkpoint
            });
        }
        if clean && !self.unflushed.contains(&ino) && !self.since_checkpoint.moved.contains(&ino) {
            return Ok(Need::Nothing);
        }
        let compressed = self.layout(ino)?.cluster().is_some();
        let inode = self.raw_inode(ino)?;
        let (parent, links) = (inode.pino.get(), inode.links.get());
        let unrecoverable = links != 1
            || compressed
            || self.lacks_a_node(ino)?
            || self.since_checkpoint.moved.contains(&ino)
            || self.since_checkpoint.xattr_changed.contains(&parent)
            || !self.nat.is_checkpointed(&self.io, parent)?
            || !self.has_room_to_roll_forward()
            || self.takes_left_name(ino)?
            || self.options.fsync_mode == FsyncMode::Strict
                && self.since_checkpoint.removed_from.contains(&parent)
                && self.nat.needs_dentry_mark(&self.io, ino)?;
        Ok(if unrecoverable { Need::Checkpoint } else { Need::Plan })
    }

    /// Whether the file has data of which recovery could not tell that it is there.
    fn has_unjudgeable(&mut self, ino: Nid, plan: &Plan) -> Result<bool> {
        let Some(sums) = self.unjudged.get(&ino).filter(|_| plan.orders_at_recovery()) else {
            return Ok(false);
        };
        let sums = sums.clone();
        let storable = plan.atomic && !self.is_pinned(ino)? && sums.fit(self.raw_inode(ino)?);
        Ok(!storable)
    }

    /// Whether recovery would make the file anew under a name that is not its owner's of before to
    /// lose. Linux's F2FS has this in `fsync_mode=strict` only (xfstests generic/342).
    fn takes_left_name(&mut self, ino: Nid) -> Result<bool> {
        let left = &self.since_checkpoint.left_names;
        if left.is_empty() || !self.nat.needs_dentry_mark(&self.io, ino)? {
            return Ok(false);
        }
        let inode = self.inode(ino)?;
        let dir = inode.pino.get();
        // Elsewhere other bytes may be the same name.
        let exact = self.naming(dir)? == Naming::Exact;
        let left = self.since_checkpoint.left_names.range((dir, Vec::new())..);
        let mut of_dir = left.take_while(|(of, _)| *of == dir);
        Ok(of_dir.any(|(_, name)| !exact || name == inode.name()))
    }

    /// Whether a node of the file was freed whose place recovery would take for unchanged: one of
    /// attributes, or one of blocks that does not lie behind the end of the file, where recovery
    /// cuts off.
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

    /// Roll-forward keeps old blocks until it is done, so all it may claim must fit
    /// (`f2fs_space_for_roll_forward`).
    fn has_room_to_roll_forward(&self) -> bool {
        let (total, _) = self.space.totals();
        self.checkpoint.valid_block_count + self.allocated_since_checkpoint <= total
    }
}
