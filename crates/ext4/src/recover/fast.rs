//! Fast commits, brought in after the journal's transactions (`ext4_fc_replay`): each change in its
//! order. Bitmaps, descriptors, trees of extents, directories and counts follow from them.
//!
//! All of it is one transaction, with the number that the fast commits name. Once it is committed
//! they no longer count; after a cut before that, recovery finds the volume and the fast commits as
//! they were. Blocks that they free stay allocated until then, and blocks that they name are kept
//! from the allocator from the start (`ext4_fc_replay_check_excluded`).

use std::ops::Range;

use journal::ondisk::fast::{Change, Naming};
use vfs::FileKind;
use vfs::op::Stop;
use zerocopy::FromBytes;

use crate::alloc::groups::by_group;
use crate::dir::entries;
use crate::error::{Error, Result};
use crate::inode::cached::Inode;
use crate::inode::map::{Mapped, find};
use crate::mount::draft::Draft;
use crate::mount::engine::Engine;
use crate::mount::want::{Step, Want};
use crate::ondisk::extent::{Extent, HOLE_END, RawExtent, emit_leaf};
use crate::ondisk::inode::Flags;
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{Ino, ROOT_INO, bitmap};

/// Room in the log that most changes need.
const ROOM: u32 = 24;
/// Extents that are removed with one operation.
const EXTENTS_MAX: u32 = 64;

#[cold]
fn corrupt(found: impl ToString, allowed: &'static str) -> Error {
    Error::corrupt("fast commit", 0_u32, found, allowed)
}

impl Engine {
    /// Brings in the changes. Durable when this returns. How many there were.
    pub(crate) fn apply_fast_commits(&self, changes: &[Change]) -> Result<usize> {
        for change in changes {
            if let Change::AddRange { ino, extent } = change {
                let extent = self.recorded_extent(*ino, extent)?;
                self.change(&[(*ino).into()], 0, |draft| draft.keep_from_allocator(&extent))?;
            }
        }
        for change in changes {
            self.apply_fast(change)?;
        }
        // Never empty: with it the fast commits end.
        self.change(&[ROOT_INO.into()], 1, |draft| {
            let block = self.orphans.lock().edit_superblock(|_| {});
            draft.put(self.sb.super_block(), block);
            Ok(())
        })?;
        self.commit()?;
        Ok(changes.len())
    }

    fn apply_fast(&self, change: &Change) -> Result<()> {
        match change {
            Change::AddRange { ino, extent } => {
                let extent = self.recorded_extent(*ino, extent)?;
                self.change(&[(*ino).into()], ROOM, |draft| draft.add_range(*ino, extent))
            }
            Change::DelRange { ino, block, count } => {
                let start = u64::from(*block);
                let mut left = Some(start + u64::from(*count));
                while let Some(end) = left {
                    let del = |draft: &mut Draft<'_, '_>| draft.del_range(*ino, start..end);
                    left = self.change(&[(*ino).into()], ROOM, del)?;
                }
                Ok(())
            }
            Change::Inode { ino, raw } => {
                self.free_former(*ino, raw)?;
                self.change(&[(*ino).into()], ROOM, |draft| draft.set_fields(*ino, raw))
            }
            Change::Name { how, parent, ino, name } => {
                check_ino(&self.sb, *ino)?;
                if matches!(&name[..], b"." | b"..") || name.iter().any(|c| [0, b'/'].contains(c)) {
                    return Err(corrupt(String::from_utf8_lossy(name), "a name"));
                }
                let inos = [(*parent).into(), (*ino).into()];
                self.change(&inos, ROOM, |draft| match how {
                    Naming::Create => draft.name_new(*parent, name, *ino),
                    Naming::Link => draft.name_again(*parent, name, *ino),
                    Naming::Unlink => draft.take_name(*parent, name, *ino),
                })
            }
        }
    }

    fn recorded_extent(&self, ino: Ino, bytes: &[u8]) -> Result<Extent> {
        check_ino(&self.sb, ino)?;
        let extent = RawExtent::read_from_bytes(bytes).ok().map(Extent::from);
        let is_good = |extent: &Extent| {
            let fits = extent.len > 0 && extent.end() <= HOLE_END;
            fits && self.sb.holds(extent.start, extent.len.into())
        };
        extent.filter(is_good).ok_or_else(|| corrupt(format!("{bytes:x?}"), "an extent"))
    }

    /// Frees what had the number of an inode before, if that is another one.
    fn free_former(&self, ino: Ino, raw: &[u8]) -> Result<()> {
        check_ino(&self.sb, ino)?;
        let generation = &raw[0x64..0x68];
        let is_another = self.change(&[ino.into()], ROOM, |draft| {
            if !draft.has_inode(ino)?
                || draft.inode(ino)?.raw.generation.get().to_le_bytes() == generation
            {
                return Ok(false);
            }
            draft.inode_mut(ino)?.raw.links_count = 0.into();
            draft.add_orphan(ino)?;
            Ok(true)
        })?;
        if is_another { self.evict(ino) } else { Ok(()) }
    }
}

/// Those that fast commits change are inodes of users.
fn check_ino(sb: &Superblock, ino: Ino) -> Result<()> {
    sb.inode_place(ino)?;
    if ino < sb.first_ino { Err(corrupt(ino, "an inode that is not reserved")) } else { Ok(()) }
}

impl Draft<'_, '_> {
    /// What is made for other changes must not get these blocks.
    fn keep_from_allocator(&mut self, extent: &Extent) -> Step<()> {
        let engine = self.volume();
        for (group, bits) in by_group(&engine.sb, extent.home()) {
            let mut state = engine.groups.lock(group);
            let bitmaps = state.bitmaps.as_mut().ok_or(Stop::Want(Want::Group(group)))?;
            bitmap::set_range(bitmaps.blocks_taken.make_mut(), bits);
        }
        Ok(())
    }

    /// Whether the inode is there, and has an extent tree. Changes of others are left out.
    fn has_tree(&self, ino: Ino) -> Step<bool> {
        if !self.has_inode(ino)? {
            return Ok(false);
        }
        let inode = self.inode(ino)?;
        Ok(inode.has_extents() && inode.kind() != FileKind::Directory)
    }

    /// File `ino` has this extent; where it has other blocks, these are freed.
    fn add_range(&mut self, ino: Ino, new: Extent) -> Step<()> {
        if !self.has_tree(ino)? {
            return Ok(());
        }
        let mut at = u64::from(new.block);
        while at < new.end() {
            let found = find(self, self.inode(ino)?, at as u32)?;
            let piece = new.part(at..found.end());
            at = piece.end();
            match found {
                Mapped::Extent(old) if found.at(piece.block) == Some(piece.start) => {
                    if old.unwritten == new.unwritten {
                        continue;
                    }
                    self.unmap(ino, piece.range())?;
                }
                Mapped::Extent(_) => {
                    self.remove_extents(ino, piece.range(), u32::MAX)?;
                    self.adopt(ino, &piece)?;
                }
                Mapped::Hole(_) => self.adopt(ino, &piece)?,
            }
            self.insert_extent(ino, piece)?;
        }
        Ok(())
    }

    /// Allocates free blocks to the file.
    fn adopt(&mut self, ino: Ino, piece: &Extent) -> Step<()> {
        self.take_gained(ino, vec![piece.home()])?;
        self.changes.adopted.push(piece.home());
        self.count_blocks(ino, piece.len.into())
    }

    /// File `ino` has a hole. Up to where it has not, if that was too much for one operation.
    fn del_range(&mut self, ino: Ino, range: Range<u64>) -> Step<Option<u64>> {
        check_ino(&self.volume().sb, ino)?;
        match self.has_tree(ino)? {
            true => self.remove_extents(ino, range, EXTENTS_MAX),
            false => Ok(None),
        }
    }

    /// Inode `ino` has these fields. Its blocks and, in a directory, what follows from its entries
    /// stay as they are.
    fn set_fields(&mut self, ino: Ino, fields: &[u8]) -> Step<()> {
        let engine = self.volume();
        let mut bytes = vec![0; engine.inode_size()];
        let old = match self.has_inode(ino)? {
            true => Some(self.inode(ino)?.clone()),
            false => None,
        };
        if let Some(old) = &old {
            old.emit(&mut bytes, None);
        }
        let room =
            bytes.get_mut(..fields.len()).ok_or_else(|| corrupt(fields.len(), "an inode"))?;
        room.copy_from_slice(fields);
        let (at, _) = engine.inode_slot(ino)?;
        let mut new = Inode::unverified(&engine.sb, ino, &bytes, at)?;
        if old.as_ref().is_some_and(|old| old.kind() != new.kind()) {
            return Err(corrupt(format!("another type of inode {ino}"), "the same").into());
        }
        keep_contents(&mut new, old.as_ref(), engine.sb.block_size);
        let (was_named, is_named) = (old.as_ref().map(|old| old.links() > 0), new.links() > 0);
        let is_dir = new.kind() == FileKind::Directory;
        match old {
            Some(_) => *self.inode_mut(ino)? = new,
            None => {
                self.use_inode(ino, is_dir)?;
                self.put_inode(ino, new);
            }
        }
        match (was_named, is_named) {
            (Some(false), true) => self.remove_orphan(ino),
            (_, false) => self.add_orphan(ino),
            _ => Ok(()),
        }
    }

    /// Inode `ino`, which has no other name, is `name` in `parent` (`ext4_fc_replay_create`).
    fn name_new(&mut self, parent: Ino, name: &[u8], ino: Ino) -> Step<()> {
        if !self.has_inode(ino)? {
            return Err(corrupt(format!("a name of inode {ino}"), "one that is there").into());
        }
        let inode = self.inode(ino)?;
        let (kind, is_dir) = (inode.kind(), inode.kind() == FileKind::Directory);
        if is_dir && inode.size == 0 {
            self.init_dir(ino, parent)?;
        }
        self.give_name((parent, name), ino, kind)?;
        if !is_dir {
            self.inode_mut(ino)?.raw.links_count = 1.into();
        }
        Ok(())
    }

    /// Inode `ino` is `name` in `parent`, too (`ext4_fc_replay_link`).
    fn name_again(&mut self, parent: Ino, name: &[u8], ino: Ino) -> Step<()> {
        if !self.has_inode(ino)? || !self.has_inode(parent)? {
            return Ok(());
        }
        let inode = self.inode(ino)?;
        let (kind, was_named) = (inode.kind(), inode.links() > 0);
        let there = entries::find(self, self.inode(parent)?, name)?;
        if kind == FileKind::Directory || there.is_some_and(|found| found.ino == ino) {
            return Ok(());
        }
        self.give_name((parent, name), ino, kind)?;
        self.add_link(ino)?;
        if was_named { Ok(()) } else { self.remove_orphan(ino) }
    }

    /// Inode `ino` is not `name` in `parent` (`ext4_fc_replay_unlink`). Without a name, it is an
    /// orphan, which the mount frees.
    fn take_name(&mut self, parent: Ino, name: &[u8], ino: Ino) -> Step<()> {
        if !self.has_inode(ino)? || !self.has_inode(parent)? {
            return Ok(());
        }
        let found = entries::find(self, self.inode(parent)?, name)?;
        let Some(found) = found.filter(|found| found.ino == ino) else { return Ok(()) };
        self.remove_entry(parent, found)?;
        if self.inode(ino)?.kind() != FileKind::Directory {
            return self.drop_link(ino);
        }
        self.take_link(parent)?;
        self.drop_dir(ino)
    }
}

/// What a fast commit does not say of an inode stays as it was.
fn keep_contents(new: &mut Inode, old: Option<&Inode>, block_size: u32) {
    new.raw.set_file_acl(old.map_or(0, |old| old.raw.file_acl()));
    new.raw.set_sectors(old.map_or(0, |old| old.raw.sectors(block_size)), block_size);
    if new.has_extents() {
        match old.filter(|old| old.has_extents()) {
            Some(old) => new.raw.block = old.raw.block,
            None => emit_leaf(&mut new.raw.block, &[]),
        }
    }
    if new.kind() == FileKind::Directory {
        let index = old.map_or(Flags::empty(), |old| old.raw.flags() & Flags::INDEX);
        new.raw.flags = ((new.raw.flags() - Flags::INDEX) | index).bits().into();
        new.raw.links_count = old.map_or(2.into(), |old| old.raw.links_count);
        new.size = old.map_or(0, |old| old.size);
        new.raw.set_size(new.size);
    }
}
