//! Making and removing names beside others who work on other inodes.
//!
//! Here are only changes that memory has all it takes for, of files without anything special about
//! them. All others hold the volume.

use vfs::{Attr, FileKind};

use crate::F2fs;
use crate::dir::change::{Entries, NewEntry, Room};
use crate::dir::entries::{EntryPlace, Names};
use crate::dir::namei::{NameIn, Namei, NewInode};
use crate::error::Result;
use crate::inode::attr::Stat;
use crate::inode::change::Change;
use crate::inode::see::{Own, See, Unseen};
use crate::ondisk::inode::Inline;
use crate::ondisk::{NULL_ADDR, Nid, is_data_addr};

/// How many blocks a change of an entry makes dirty at most: that of the entry with its node, and
/// the directory's inode.
const DIRECTORY: u64 = 3;

impl F2fs {
    /// Makes an inode and its name, if others are there and memory has all that takes.
    pub(crate) fn make_beside(&self, new: &NewInode<'_>) -> Result<Option<Attr>> {
        if !self.is_crowded() {
            return Ok(None);
        }
        // The number comes first, for it says which shards are to be locked.
        let Some(ino) = self.look().nat.lock().reserve_known() else { return Ok(None) };
        let made = self.own([new.parent, ino], |own| own.make(ino, new));
        if !matches!(made, Ok(Some(_))) {
            self.look().nat.lock().give_back(ino);
        }
        made
    }

    /// Removes a name, if others are there and memory has all that takes.
    pub(crate) fn unlink_beside(&self, at: NameIn<'_>) -> Result<Option<()>> {
        if !self.is_crowded() {
            return Ok(None);
        }
        // What the name is says which shards are to be locked. Then it is looked up again.
        match self.glance(|volume| volume.find(at.dir, at.name)) {
            Ok(Some(found)) => self.own([at.dir, found.ino], |own| own.unlink(at)),
            _ => Ok(None),
        }
    }
}

impl Own<'_> {
    /// Makes inode `ino`, whose number is taken, and its name.
    fn make(&mut self, ino: Nid, new: &NewInode<'_>) -> Result<Attr, Unseen> {
        let NewInode { parent, name, kind, .. } = *new;
        self.check_free(parent, name)?;
        let known = self.place_of(ino)?;
        let entry = self.new_entry(parent, name, ino, kind)?;
        let room = self.foresee_entry(new, &entry)?;
        self.engine().space.take_node(true)?;
        if let Err(error) = self.make_ready(parent, room) {
            self.engine().space.give_node(true);
            return Err(error);
        }
        // From here on there is nothing that could fail.
        self.put_inode(ino, known, new)?;
        self.put_entry(parent, room, &entry)?;
        self.named(new)?;
        self.attr(ino)
    }

    /// Where the entry of a new inode goes, and blocks to write what that changes.
    fn foresee_entry(&mut self, new: &NewInode<'_>, entry: &NewEntry<'_>) -> Result<Room, Unseen> {
        let engine = self.engine();
        let takes_a_block = new.kind == FileKind::Directory && !engine.options.inline_dentry;
        let has_large_indexes = engine.inodes.names.is_exceeded();
        // It may inherit some of them.
        let has_xattrs = self.view(new.parent)?.may_have_xattrs();
        if takes_a_block || has_large_indexes || has_xattrs {
            return Err(Unseen::Absent);
        }
        let room = self.find_room(new.parent, entry)?.ok_or(Unseen::Absent)?;
        self.pay(new.parent, 1 + DIRECTORY)?;
        Ok(room)
    }

    /// Sees to it that the block with `room` can be changed.
    fn make_ready(&mut self, dir: Nid, room: Room) -> Result<(), Unseen> {
        match room.place {
            EntryPlace::Block(index, _) => self.page_mut(dir, index).map(drop),
            EntryPlace::Inline(_) => Ok(()),
        }
    }

    /// Removes a name. If it was the last one, its inode is freed.
    fn unlink(&mut self, at: NameIn<'_>) -> Result<(), Unseen> {
        let (found, lives_on) = self.find_to_unlink(at)?;
        if lives_on {
            self.pay(at.dir, 1 + DIRECTORY)?;
            self.take_link(found.ino)?;
        } else {
            self.check_free_to_go(found.ino)?;
            self.pay(at.dir, DIRECTORY)?;
            self.free_inode(found.ino)?;
        }
        self.remove_name(at, found.place, lives_on)
    }

    /// Leaves an inode that is in use, or has more than its own node, to those who hold the volume.
    fn check_free_to_go(&mut self, ino: Nid) -> Result<(), Unseen> {
        let engine = self.engine();
        let is_used = engine.opens.is_open(ino.into())
            || engine.turns.is_under_way(ino.into())
            || engine.atomic_writes.contains_key(&ino)
            || engine.lazy_atimes.contains_key(&ino)
            || engine.write_errors.contains(&ino);
        let inode = self.view(ino)?;
        let has_nodes = inode.xattr_nid.get() != 0 || inode.nid.iter().any(|nid| nid.get() != 0);
        let has_blocks = !inode.inline().contains(Inline::DATA)
            && inode.block()[inode.layout().addr_range()].iter().any(|byte| *byte != 0);
        if is_used || has_nodes || has_blocks { Err(Unseen::Absent) } else { Ok(()) }
    }

    /// Frees an inode of which there is only its own node.
    fn free_inode(&mut self, ino: Nid) -> Result<(), Unseen> {
        let known = self.place_of(ino)?;
        if is_data_addr(known.entry.addr) {
            self.invalidate(known.entry.addr)?;
        }
        self.nat(|nat| nat.put(known, ino, ino, NULL_ADDR));
        let shard = self.shard_mut(ino)?;
        shard.forget(ino);
        shard.nodes.remove(ino);
        let engine = self.engine();
        engine.space.give_node(true);
        engine.since_checkpoint.forget(ino);
        Ok(())
    }
}
