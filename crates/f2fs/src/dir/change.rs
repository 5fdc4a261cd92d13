//! Changing the entries of directories, under the exclusive or the shared lock
//! (`f2fs_add_link`, `f2fs_delete_entry`).

use drive::BLOCK_SIZE;
use vfs::{Errno, FileKind, Ino};

use crate::dir::entries::{EntryPlace, Names};
use crate::error::{Error, Result};
use crate::inode::change::Change;
use crate::inode::shards::Shard;
use crate::mount::engine::Engine;
use crate::mount::faults::FaultType;
use crate::ondisk::Nid;
use crate::ondisk::dentry::{Dentries, DentriesMut, bucket_of, slots_for};
use crate::ondisk::inode::{Inline, MAX_DIR_DEPTH, RawInodeBlock};

/// An entry to be made.
pub(crate) struct NewEntry<'a> {
    /// As it is stored.
    name: &'a [u8],
    hash: u32,
    ino: Nid,
    kind: FileKind,
}

/// Where a new entry goes.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    pub(crate) place: EntryPlace,
    /// How many levels the directory has then.
    depth: u32,
}

/// Changes of directory entries.
pub(crate) trait Entries: Change + Names {
    /// An entry `name`, to be made in `dir`. In an encrypted directory `name` must be ciphertext,
    /// which only recovery has.
    fn new_entry<'a>(
        &mut self,
        dir: Nid,
        name: &'a [u8],
        ino: Nid,
        kind: FileKind,
    ) -> Result<NewEntry<'a>, Self::Error> {
        match self.naming(dir)?.stored(name)? {
            Some(wanted) => Ok(NewEntry { name, hash: wanted.hash(), ino, kind }),
            None => Err(Error::from(Errno::NOKEY).into()),
        }
    }

    /// Where `entry` goes; `None` if it does not fit into the inode, where all entries are.
    fn find_room(&mut self, dir: Nid, entry: &NewEntry<'_>) -> Result<Option<Room>, Self::Error> {
        let slots = slots_for(entry.name.len());
        let inode = self.view(dir)?;
        if inode.inline().contains(Inline::DENTRY) {
            let area = &inode.block()[inode.layout().inline_range()];
            let entries = Dentries::new(inode.layout().inline_dentries(), area, dir);
            let slot = entries.find_free(slots);
            return Ok(slot.map(|slot| Room { place: EntryPlace::Inline(slot), depth: 0 }));
        }
        self.find_room_in_blocks(dir, slots, entry.hash).map(Some)
    }

    /// First block and slot with a row of `slots` free slots, on the first level that has one.
    fn find_room_in_blocks(
        &mut self,
        dir: Nid,
        slots: usize,
        hash: u32,
    ) -> Result<Room, Self::Error> {
        let dir_level = self.view(dir)?.dir_level;
        let first = self.shard_mut(dir)?.names.level_with_room(dir, hash, slots);
        for level in first..=MAX_DIR_DEPTH {
            for index in bucket_of(level, dir_level, hash) {
                let free = match self.page(dir, index, index + 1)? {
                    Some(block) => Dentries::block(block, dir).find_free(slots),
                    None => Some(0),
                };
                if let Some(slot) = free {
                    return Ok(Room { place: EntryPlace::Block(index, slot), depth: level + 1 });
                }
            }
        }
        Err(Error::NoSpace.into())
    }

    /// Makes `entry` where there is room for it.
    fn put_entry(&mut self, dir: Nid, room: Room, entry: &NewEntry<'_>) -> Result<(), Self::Error> {
        let NewEntry { name, hash, ino, kind } = *entry;
        self.change_entry(dir, room.place, |entries, slot| {
            entries.insert(slot, name, hash, ino, kind);
        })?;
        if let EntryPlace::Block(index, slot) = room.place {
            self.note_entry(dir, index, slot)?;
            let inode = &mut RawInodeBlock::of_mut(self.node_mut(dir, dir)?).i;
            inode.size.set(inode.size.get().max((index + 1) * BLOCK_SIZE as u64));
            inode.current_depth.set(inode.current_depth.get().max(room.depth));
        }
        Ok(())
    }

    /// Removes the entry at `place`.
    fn remove_entry(&mut self, dir: Nid, place: EntryPlace) -> Result<(), Self::Error> {
        self.change_entry(dir, place, |entries, slot| {
            entries.remove(slot);
        })?;
        match place {
            EntryPlace::Block(index, slot) => self.note_entry(dir, index, slot),
            EntryPlace::Inline(_) => Ok(()),
        }
    }

    /// Points the entry at `place` to another inode.
    fn set_entry(
        &mut self,
        dir: Nid,
        place: EntryPlace,
        ino: Nid,
        kind: FileKind,
    ) -> Result<(), Self::Error> {
        self.change_entry(dir, place, |entries, slot| entries.set_target(slot, ino, kind))
    }

    fn change_entry(
        &mut self,
        dir: Nid,
        place: EntryPlace,
        change: impl FnOnce(&mut DentriesMut<'_>, usize),
    ) -> Result<(), Self::Error> {
        let _span = cores::span(cores::Stage::DirEntry);
        match place {
            EntryPlace::Inline(slot) => {
                let layout = self.view(dir)?.layout();
                let area = &mut self.node_mut(dir, dir)?[layout.inline_range()];
                change(&mut DentriesMut::new(layout.inline_dentries(), area), slot);
            }
            EntryPlace::Block(index, slot) => {
                change(&mut DentriesMut::block(self.page_mut(dir, index)?), slot);
            }
        }
        Ok(())
    }

    /// Tells the index of `dir` that the entry at `slot` of block `index` was added or removed.
    fn note_entry(&mut self, dir: Nid, index: u64, slot: usize) -> Result<(), Self::Error> {
        let Shard { names, pages, .. } = self.shard_mut(dir)?;
        if names.knows(dir, index)
            && let Some(page) = pages.peek(Ino::from(dir), index)
        {
            names.changed(dir, index, slot, &Dentries::block(page, dir));
        }
        Ok(())
    }
}

impl<C: Change + Names> Entries for C {}

impl Engine {
    /// Adds an entry that is not there yet.
    pub(crate) fn add_entry(
        &mut self,
        dir: Nid,
        name: &[u8],
        ino: Nid,
        kind: FileKind,
    ) -> Result<()> {
        let entry = self.new_entry(dir, name, ino, kind)?;
        if self.faults.fires(FaultType::DIR_DEPTH) {
            return Err(Error::NoSpace);
        }
        loop {
            match self.find_room(dir, &entry)? {
                Some(room) => return self.put_entry(dir, room, &entry),
                None => self.convert_inline_dir(dir)?,
            }
        }
    }
}
