//! The inode table: numbers of new inodes, and blocks of it that come into use.
//!
//! A group's descriptor says how many inodes at the end of its table were never used
//! (`bg_itable_unused`). The blocks that have only such inodes hold anything, and are created as
//! zeroes when they come into use.

use std::ops::Range;

use drive::Block;
use vfs::op::Stop;

use crate::alloc::groups::GroupState;
use crate::alloc::inodes::Number;
use crate::error::{Error, Result};
use crate::mount::draft::Draft;
use crate::mount::engine::Engine;
use crate::mount::journal::Handle;
use crate::mount::options::Alloc;
use crate::mount::want::{Step, Want};
use crate::ondisk::group::INODE_UNINIT;
use crate::ondisk::{Group, Ino, ROOT_INO};

/// Blocks of the inode table that one operation brings into use. More are wanted by recovery: a
/// record may say of an inode whose predecessors' transactions were lost.
const TABLE_MAX: usize = 16;

impl Engine {
    /// Brings blocks of a group's inode table into use, those in front of that of inode `index` and
    /// that one, a few at a time.
    pub(crate) fn extend_table(&self, group: Group, index: u32) -> Result<()> {
        loop {
            let unused = self.unused_table(group, index);
            if unused.is_empty() {
                return Ok(());
            }
            let last = unused.end.min(unused.start + TABLE_MAX as u32) - 1;
            let index = last * self.sb.inodes_per_block();
            let ino = self.sb.ino_of(group, index).into();
            self.change(&[ino], 0, |draft| draft.lengthen_table(group, index))?;
        }
    }

    /// Whether the block of the inode table that has `ino` was ever used.
    pub(crate) fn has_table_block(&self, ino: Ino) -> Result<bool> {
        let place = self.sb.inode_place(ino)?;
        Ok(self.unused_table(place.group, place.index).is_empty())
    }

    /// The blocks of a group's inode table, by their number in it, that were never used, up to that
    /// of inode `index`.
    pub(crate) fn unused_table(&self, group: Group, index: u32) -> Range<u32> {
        let used = self.groups.lock(group).used_inodes(&self.sb);
        self.sb.unused_table(used, index)
    }

    /// From now on inode `index` of a group counts as used, and so do those in front, which
    /// concurrent operations may have taken, whether or not these come to pass.
    pub(crate) fn use_table(&self, handle: &mut Handle<'_>, state: &mut GroupState, index: u32) {
        let (used, desc) = (state.used_inodes(&self.sb), &mut state.desc);
        for block in self.sb.unused_table(used, index) {
            handle.create(desc.inode_table() + u64::from(block), (), Block::zeroed());
        }
        let unused = self.sb.inodes_per_group - index - 1;
        desc.set_itable_unused(desc.itable_unused().min(unused));
        desc.flags = (desc.flags.get() & !INODE_UNINIT).into();
    }
}

impl<'v> Draft<'_, 'v> {
    /// Takes a number for a new inode in directory `parent`, and makes that. Its shard is locked.
    ///
    /// A number whose shard is to be locked first is kept meanwhile: given back, another core would
    /// take it, and both would wait for that shard.
    pub(crate) fn take_inode(&mut self, parent: Ino, is_dir: bool) -> Step<Ino> {
        let number = match self.changes.kept.take() {
            Some(number) => number,
            None => self.free_number(parent, is_dir)?,
        };
        if let Err(stop) = self.shard(number.ino()) {
            self.changes.kept = Some(number);
            return Err(stop);
        }
        let (ino, has_block) = number.into_used();
        self.changes.made.push((ino, is_dir));
        match has_block {
            true => self.changes.pin(ino)?,
            false => self.use_table(ino)?,
        }
        Ok(ino)
    }

    /// A number for a new inode in directory `parent`.
    fn free_number(&self, parent: Ino, is_dir: bool) -> Step<Number<'v>> {
        let engine = self.volume();
        let home = engine.sb.inode_place(parent)?.group;
        let first = match engine.alloc {
            Alloc::PerCore => engine.groups.of_core(),
            Alloc::Orlov if is_dir && parent == ROOT_INO => engine.groups.emptiest(),
            Alloc::Orlov => home,
        };
        let spread = (engine.alloc == Alloc::Orlov && !is_dir).then_some(parent);
        match engine.groups.take_inode(&engine.sb, first, spread)? {
            Some(number) => Ok(number),
            None if engine.has_parked_inodes() => Err(Stop::Want(Want::Commit)),
            None => Err(Error::NoSpace.into()),
        }
    }

    /// Makes inode `ino`, whose number is free.
    pub(crate) fn use_inode(&mut self, ino: Ino, is_dir: bool) -> Step<()> {
        self.changes.made.push((ino, is_dir));
        self.shard(ino)?;
        self.use_table(ino)
    }

    /// Plans to bring the inode table of `group` into use up to the block of inode `index`. The
    /// inodes in it stay free.
    fn lengthen_table(&mut self, group: Group, index: u32) -> Step<()> {
        let engine = self.volume();
        if engine.groups.lock(group).bitmaps.is_none() {
            return Err(Stop::Want(Want::Group(group)));
        }
        // And the bitmap and descriptor.
        self.changes.table_blocks += engine.unused_table(group, index).len() as u32 + 2;
        self.changes.table = Some((group, index));
        Ok(())
    }

    /// Keeps the new inode's block of the table in memory. If it was never used, it is created when
    /// this is applied, or by another thread before.
    fn use_table(&mut self, ino: Ino) -> Step<()> {
        let engine = self.volume();
        let (at, _) = engine.inode_slot(ino)?;
        // First, so that a block which is created from now on stays in memory.
        let pin = engine.journal.hold(at);
        let place = engine.sb.inode_place(ino)?;
        match engine.unused_table(place.group, place.index).len() {
            0 => return self.changes.pin(ino),
            unused if unused > TABLE_MAX => {
                return Err(Stop::Want(Want::Table(place.group, place.index)));
            }
            unused => self.changes.table_blocks += unused as u32,
        }
        self.changes.pins.push((at, pin));
        Ok(())
    }
}
