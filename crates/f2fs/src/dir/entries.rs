//! Directories: entries in the inode, or in blocks found by a multi-level hash (`dir.c`).

use drive::BLOCK_SIZE;
use vfs::{DirEntry, Errno, FileKind};

use crate::dir::wanted::{Naming, Wanted};
use crate::dir::{index, nokey};
use crate::error::{Error, Result};
use crate::inode::see::See;
use crate::mount::engine::Engine;
use crate::ondisk::dentry::{
    Dentries, DentriesMut, Dentry, DentryGeometry, ENTRIES_PER_BLOCK, bucket_of,
};
use crate::ondisk::inode::Inline;
use crate::ondisk::{NAME_MAX, Nid};

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryPlace {
    /// In the inode, at this slot.
    Inline(usize),
    /// In a block of the directory, at this slot.
    Block(u64, usize),
}

/// An entry found by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) place: EntryPlace,
    pub(crate) ino: Nid,
    pub(crate) kind: FileKind,
}

impl Found {
    fn inline(entry: &Dentry<'_>) -> Self {
        Self { place: EntryPlace::Inline(entry.slot), ino: entry.ino, kind: entry.kind }
    }

    fn in_block(index: u64, entry: &Dentry<'_>) -> Self {
        Self { place: EntryPlace::Block(index, entry.slot), ino: entry.ino, kind: entry.kind }
    }
}

/// Reading directories.
pub(crate) trait Names: See {
    /// Fails unless `dir` is a directory.
    fn check_dir(&mut self, dir: Nid) -> Result<(), Self::Error> {
        self.naming(dir).map(drop)
    }

    /// How directory `dir` stores names; fails if it is not a directory.
    fn naming(&mut self, dir: Nid) -> Result<Naming, Self::Error> {
        let Engine { sb, options, .. } = self.engine();
        let casefold = sb.casefold.map(|folding| options.lookup_mode.applied_to(folding));
        let inode = self.view(dir)?;
        match inode.file_kind() {
            FileKind::Directory => Ok(Naming::of(&inode, casefold)),
            _ => Err(Error::from(Errno::NOTDIR).into()),
        }
    }

    /// The entry that a user calls `name`, or `ENOENT`.
    fn find(&mut self, dir: Nid, name: &[u8]) -> Result<Found, Self::Error> {
        if name.len() > NAME_MAX {
            return Err(Error::from(Errno::NAMETOOLONG).into());
        }
        Ok(self.find_entry(dir, name)?.ok_or(Error::from(Errno::NOENT))?)
    }

    /// The entry that a user calls `name`, if there is one.
    fn find_entry(&mut self, dir: Nid, name: &[u8]) -> Result<Option<Found>, Self::Error> {
        match self.naming(dir)?.wanted(name)? {
            Some(wanted) => self.find_wanted(dir, &wanted),
            None => Ok(None),
        }
    }

    /// The entry for `wanted`, if there is one.
    fn find_wanted(&mut self, dir: Nid, wanted: &Wanted<'_>) -> Result<Option<Found>, Self::Error> {
        let found = self.find_by_hash(dir, wanted)?;
        if found.is_some() || !wanted.may_be_elsewhere() {
            return Ok(found);
        }
        self.find_elsewhere(dir, wanted)
    }

    /// The entry for `wanted` where its hash says, if there is one.
    fn find_by_hash(
        &mut self,
        dir: Nid,
        wanted: &Wanted<'_>,
    ) -> Result<Option<Found>, Self::Error> {
        let _span = cores::span(cores::Stage::DirEntry);
        let hash = wanted.hash();
        let matches = |name: &[u8]| wanted.matches(name);
        let inode = self.view(dir)?;
        if inode.inline().contains(Inline::DENTRY) {
            let area = &inode.block()[inode.layout().inline_range()];
            let found =
                Dentries::new(inode.layout().inline_dentries(), area, dir).find(hash, matches)?;
            let found = found.map(|entry| Found::inline(&entry));
            return Ok(self.engine().check_target(dir, found)?);
        }
        let (depth, dir_level) = (inode.current_depth.get(), inode.dir_level);
        let names = if index::is_worth_it(depth) { self.index_of(dir)? } else { None };
        let Some(places) = names.map(|names| names.find(dir, hash, depth)) else {
            return self.walk(dir, wanted, depth, dir_level);
        };
        for (index, slot) in places {
            let Some(block) = self.page(dir, index, index + 1)? else { continue };
            if let Some(entry) = Dentries::block(block, dir).find_at(slot, hash, matches)? {
                let found = Found::in_block(index, &entry);
                return Ok(self.engine().check_target(dir, Some(found))?);
            }
        }
        Ok(None)
    }

    /// The entry for `wanted` in a directory's blocks, level by level.
    fn walk(
        &mut self,
        dir: Nid,
        wanted: &Wanted<'_>,
        depth: u32,
        dir_level: u8,
    ) -> Result<Option<Found>, Self::Error> {
        let hash = wanted.hash();
        for level in 0..depth {
            for index in bucket_of(level, dir_level, hash) {
                let Some(block) = self.page(dir, index, index + 1)? else { continue };
                let found = Dentries::block(block, dir).find(hash, |name| wanted.matches(name))?;
                if let Some(entry) = found {
                    let found = Found::in_block(index, &entry);
                    return Ok(self.engine().check_target(dir, Some(found))?);
                }
            }
        }
        Ok(None)
    }

    /// The entry for `wanted`, whatever its hash, if there is one.
    fn find_elsewhere(
        &mut self,
        dir: Nid,
        wanted: &Wanted<'_>,
    ) -> Result<Option<Found>, Self::Error> {
        let inode = self.view(dir)?;
        if inode.inline().contains(Inline::DENTRY) {
            let area = &inode.block()[inode.layout().inline_range()];
            let entries = Dentries::new(inode.layout().inline_dentries(), area, dir);
            let found = find_any_hash(entries, wanted)?.map(|entry| Found::inline(&entry));
            return Ok(self.engine().check_target(dir, found)?);
        }
        let end = inode.size.get().div_ceil(BLOCK_SIZE as u64);
        let mut index = 0;
        while let Some(next) = self.next_page(dir, index..end)? {
            if let Some(block) = self.page(dir, next, end)?
                && let Some(entry) = find_any_hash(Dentries::block(block, dir), wanted)?
            {
                let found = Found::in_block(next, &entry);
                return Ok(self.engine().check_target(dir, Some(found))?);
            }
            index = next + 1;
        }
        Ok(None)
    }

    /// Emits the entries from position `from` on; a position is block × 214 + slot.
    fn read_dir(
        &mut self,
        dir: Nid,
        from: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<(), Self::Error> {
        let encrypted = matches!(self.naming(dir)?, Naming::Encrypted { .. });
        let inode = self.view(dir)?;
        if inode.inline().contains(Inline::DENTRY) {
            let geometry = inode.layout().inline_dentries();
            let area = &inode.block()[inode.layout().inline_range()];
            emit_block(Dentries::new(geometry, area, dir), encrypted, 0, from, emit)?;
            return Ok(());
        }
        let end = inode.size.get().div_ceil(BLOCK_SIZE as u64);
        let per_block = ENTRIES_PER_BLOCK as u64;
        let mut index = from / per_block;
        while let Some(next) = self.next_page(dir, index..end)? {
            if let Some(block) = self.page(dir, next, end)? {
                let entries = Dentries::block(block, dir);
                if !emit_block(entries, encrypted, next * per_block, from, emit)? {
                    return Ok(());
                }
            }
            index = next + 1;
        }
        Ok(())
    }
}

impl<S: See> Names for S {}

impl Engine {
    fn check_target(&self, dir: Nid, found: Option<Found>) -> Result<Option<Found>> {
        if let Some(entry) = &found
            && !self.sb.is_node_id(entry.ino)
        {
            let allowed = format!("3..{}", self.sb.max_nid());
            return Err(Error::corrupt("dir_entry.ino", dir, entry.ino, allowed));
        }
        Ok(found)
    }

    /// Whether the directory holds only `.` and `..`.
    pub(crate) fn is_empty_dir(&mut self, dir: Nid) -> Result<bool> {
        let mut empty = true;
        self.read_dir(dir, 0, &mut |entry| {
            empty = entry.name == b"." || entry.name == b"..";
            empty
        })?;
        Ok(empty)
    }
}

/// The entry for `wanted` in one group of entries, whatever its hash.
fn find_any_hash<'a>(entries: Dentries<'a>, wanted: &Wanted<'_>) -> Result<Option<Dentry<'a>>> {
    let mut slot = 0;
    while let Some(entry) = entries.next(slot)? {
        if wanted.matches_elsewhere(entry.name) {
            return Ok(Some(entry));
        }
        slot = entry.next_slot();
    }
    Ok(None)
}

/// Emits one group of entries, of which slot 0 is position `base`. False once `emit` has returned
/// false.
fn emit_block(
    entries: Dentries<'_>,
    encrypted: bool,
    base: u64,
    from: u64,
    emit: &mut dyn FnMut(DirEntry) -> bool,
) -> Result<bool> {
    let mut slot = from.saturating_sub(base) as usize;
    while let Some(entry) = entries.next(slot)? {
        slot = entry.next_slot();
        let is_ciphertext = encrypted && entry.name != b"." && entry.name != b"..";
        let name = if is_ciphertext {
            nokey::encode(entry.hash, entry.name, entry.ino)?
        } else {
            entry.name.to_vec()
        };
        let more = emit(DirEntry {
            name,
            ino: entry.ino.into(),
            kind: entry.kind,
            next: base + slot as u64,
        });
        if !more {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Puts the two entries that every directory has into `area`, which is shaped like `geometry`.
pub(crate) fn init_dots(geometry: DentryGeometry, area: &mut [u8], dir: Nid, parent: Nid) {
    let mut entries = DentriesMut::new(geometry, area);
    entries.insert(0, b".", 0, dir, FileKind::Directory);
    entries.insert(1, b"..", 0, parent, FileKind::Directory);
}
