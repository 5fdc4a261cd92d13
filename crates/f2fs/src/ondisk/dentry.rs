//! Directory entries (`struct f2fs_dentry_block`, 4096 bytes, and the inline form in the inode).
//!
//! Both forms have the same areas in different sizes: a bitmap, entries, and name slots of eight
//! bytes. [`DentryGeometry`] says which form it is, and the views work on both.

use std::ops::Range;

use vfs::FileKind;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::bits::lsb;
use super::inode::MAX_DIR_DEPTH;
use super::{BLOCK_SIZE, NAME_MAX, Nid};
use crate::error::{Error, Result};

/// Bytes of a name slot.
pub const SLOT_LEN: usize = 8;
/// Entries in a directory block.
pub const ENTRIES_PER_BLOCK: usize = 214;

const ENTRY_SIZE: usize = size_of::<RawDirEntry>();
const BLOCK_NAMES: usize = 30 + ENTRIES_PER_BLOCK * ENTRY_SIZE;
const _: () = assert!(BLOCK_NAMES + ENTRIES_PER_BLOCK * SLOT_LEN == BLOCK_SIZE);

/// `struct f2fs_dir_entry`, 11 bytes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawDirEntry {
    /// Hash of the name.
    pub hash: U32,
    /// Inode.
    pub ino: U32,
    /// Bytes of the name; 0 in the second and later slots of a long one.
    pub name_len: U16,
    /// Type; see [`FileKind::dirent_type`].
    pub file_type: u8,
}
const _: () = assert!(ENTRY_SIZE == 11);

/// How many slots a name of `len` bytes takes.
pub fn slots_for(len: usize) -> usize {
    len.div_ceil(SLOT_LEN)
}

/// Where the areas of a group of entries are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DentryGeometry {
    /// Slots.
    pub slots: usize,
    entries: usize,
    names: usize,
    len: usize,
}

impl DentryGeometry {
    /// A whole block: bitmap 27 bytes, 3 reserved, entries, names.
    pub const BLOCK: Self =
        Self { slots: ENTRIES_PER_BLOCK, entries: 30, names: BLOCK_NAMES, len: BLOCK_SIZE };

    /// As many entries as fit into `len` bytes of an inode. The area ends with the names.
    pub fn inline(len: usize) -> Self {
        let slots = len * 8 / ((ENTRY_SIZE + SLOT_LEN) * 8 + 1);
        let names = len - slots * SLOT_LEN;
        Self { slots, entries: names - slots * ENTRY_SIZE, names, len }
    }

    fn bitmap(&self) -> Range<usize> {
        0..self.slots.div_ceil(8)
    }
}

/// One entry of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dentry<'a> {
    /// First slot.
    pub slot: usize,
    /// Name.
    pub name: &'a [u8],
    /// Hash as stored.
    pub hash: u32,
    /// Inode number as stored.
    pub ino: Nid,
    /// Type.
    pub kind: FileKind,
}

impl Dentry<'_> {
    /// The slot behind this entry.
    pub fn next_slot(&self) -> usize {
        self.slot + slots_for(self.name.len())
    }
}

/// Entries, to read.
#[derive(Clone, Copy)]
pub struct Dentries<'a> {
    geometry: DentryGeometry,
    bytes: &'a [u8],
    at: u64,
}

impl<'a> Dentries<'a> {
    /// Entries in `bytes`, which are as long as `geometry` says, from block `at`. If they are too
    /// short, they read as if nothing were there.
    pub fn new(geometry: DentryGeometry, bytes: &'a [u8], at: impl Into<u64>) -> Self {
        let bytes = bytes.get(..geometry.len).unwrap_or_default();
        Self { geometry, bytes, at: at.into() }
    }

    /// Entries of a directory block.
    pub fn block(bytes: &'a [u8; BLOCK_SIZE], at: impl Into<u64>) -> Self {
        Self::new(DentryGeometry::BLOCK, bytes, at)
    }

    /// Slots.
    pub fn slots(&self) -> usize {
        self.geometry.slots
    }

    /// The entry that begins at or behind slot `from`; `None` after the last one. An entry is
    /// corrupt if its name leaves the area, is empty or too long, or if its type is unknown.
    pub fn next(&self, from: usize) -> Result<Option<Dentry<'a>>> {
        let bitmap = &self.bytes[..self.geometry.bitmap().end.min(self.bytes.len())];
        let Some(slot) = lsb::next_one(bitmap, from, self.geometry.slots) else {
            return Ok(None);
        };
        let raw = self.raw(slot).ok_or_else(|| self.corrupt("slot", slot, self.slots()))?;
        let len = usize::from(raw.name_len.get());
        let room = (self.geometry.slots - slot) * SLOT_LEN;
        if len == 0 || len > NAME_MAX || len > room {
            let allowed = format!("1..={}", room.min(NAME_MAX));
            return Err(self.corrupt("dir_entry.name_len", len, allowed));
        }
        let start = self.geometry.names + slot * SLOT_LEN;
        let name = self.bytes.get(start..start + len).unwrap_or_default();
        let kind = FileKind::from_dirent_type(raw.file_type)
            .ok_or_else(|| self.corrupt("dir_entry.file_type", raw.file_type, "1..=7"))?;
        Ok(Some(Dentry { slot, name, hash: raw.hash.get(), ino: raw.ino.get(), kind }))
    }

    /// The entry with `hash` whose name `matches`. Compares hashes first, because most blocks of a
    /// big directory have nothing similar.
    pub fn find(&self, hash: u32, matches: impl Fn(&[u8]) -> bool) -> Result<Option<Dentry<'a>>> {
        let entries = self.bytes.get(self.geometry.entries..self.geometry.names);
        let hash_bytes = hash.to_le_bytes();
        for (slot, raw) in entries.unwrap_or_default().chunks_exact(ENTRY_SIZE).enumerate() {
            if raw[..4] == hash_bytes
                && let Some(entry) = self.find_at(slot, hash, &matches)?
            {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// The entry at `slot`, if it has `hash` and its name `matches`.
    pub fn find_at(
        &self,
        slot: usize,
        hash: u32,
        matches: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Dentry<'a>>> {
        if self.hash_at(slot) != Some(hash) {
            return Ok(None);
        }
        Ok(self.next(slot)?.filter(|entry| entry.slot == slot && matches(entry.name)))
    }

    /// The hash of the entry that begins at `slot`, whatever else is wrong with it; `None` if none
    /// does.
    pub fn hash_at(&self, slot: usize) -> Option<u32> {
        let raw = self.raw(slot).filter(|raw| raw.name_len.get() != 0 && self.is_used(slot))?;
        Some(raw.hash.get())
    }

    /// How many slots the longest row of free ones has.
    pub fn longest_free(&self) -> usize {
        let (bitmap, slots) = (&self.bytes[self.bitmap()], self.geometry.slots);
        let (mut from, mut longest) = (0, 0);
        while let Some(start) = lsb::next_zero(bitmap, from, slots) {
            from = lsb::next_one(bitmap, start, slots).unwrap_or(slots);
            longest = longest.max(from - start);
        }
        longest
    }

    /// First of `count` free slots in a row.
    pub fn find_free(&self, count: usize) -> Option<usize> {
        let (bitmap, slots) = (&self.bytes[self.bitmap()], self.geometry.slots);
        let mut from = 0;
        loop {
            let start = lsb::next_zero(bitmap, from, slots)?;
            let end = lsb::next_one(bitmap, start, slots).unwrap_or(slots);
            if end - start >= count {
                return Some(start);
            }
            from = end;
        }
    }

    /// First slot in use at or behind `from`.
    pub fn next_used(&self, from: usize) -> Option<usize> {
        lsb::next_one(&self.bytes[self.bitmap()], from, self.geometry.slots)
    }

    /// `len` bytes of name from `slot` on, if they lie within the area.
    pub fn name_at(&self, slot: usize, len: usize) -> Option<&'a [u8]> {
        let room = self.geometry.slots.checked_sub(slot)? * SLOT_LEN;
        let start = self.geometry.names + slot * SLOT_LEN;
        if len > room { None } else { self.bytes.get(start..start + len) }
    }

    /// Hashes of the entries except `.` and `..`, whatever else is wrong with them.
    pub fn hashes(&self) -> impl Iterator<Item = u32> + '_ {
        let used = (0..self.slots()).filter(|&slot| self.is_used(slot));
        used.filter_map(|slot| self.raw(slot))
            .filter(|raw| raw.name_len.get() != 0 && raw.hash.get() != 0)
            .map(|raw| raw.hash.get())
    }

    /// Whether no slot is in use.
    pub fn is_empty(&self) -> bool {
        lsb::next_one(&self.bytes[self.bitmap()], 0, self.geometry.slots).is_none()
    }

    /// Whether slot `slot` is marked as used.
    pub fn is_used(&self, slot: usize) -> bool {
        slot < self.geometry.slots && lsb::test(&self.bytes[self.bitmap()], slot)
    }

    /// The raw entry at `slot`.
    pub fn raw(&self, slot: usize) -> Option<RawDirEntry> {
        let start = self.geometry.entries + slot * ENTRY_SIZE;
        RawDirEntry::read_from_prefix(self.bytes.get(start..)?).ok().map(|(raw, _)| raw)
    }

    fn bitmap(&self) -> Range<usize> {
        0..self.geometry.bitmap().end.min(self.bytes.len())
    }

    fn corrupt(&self, field: &'static str, found: impl ToString, allowed: impl ToString) -> Error {
        Error::corrupt(field, self.at, found, allowed)
    }
}

/// Entries, to change.
pub struct DentriesMut<'a> {
    geometry: DentryGeometry,
    bytes: &'a mut [u8],
}

impl<'a> DentriesMut<'a> {
    /// Entries in `bytes`, which are as long as `geometry` says. If they are shorter, they cannot
    /// be changed.
    pub fn new(geometry: DentryGeometry, bytes: &'a mut [u8]) -> Self {
        let bytes = bytes.get_mut(..geometry.len).unwrap_or_default();
        Self { geometry, bytes }
    }

    /// Entries of a directory block.
    pub fn block(bytes: &'a mut [u8; BLOCK_SIZE]) -> Self {
        Self::new(DentryGeometry::BLOCK, bytes)
    }

    /// The entries, to read.
    pub fn view(&self) -> Dentries<'_> {
        Dentries::new(self.geometry, self.bytes, 0_u64)
    }

    /// Writes an entry at `slot`, where [`Dentries::find_free`] found room for its name.
    pub fn insert(&mut self, slot: usize, name: &[u8], hash: u32, ino: Nid, kind: FileKind) {
        let start = self.geometry.names + slot * SLOT_LEN;
        let slots = slots_for(name.len());
        debug_assert!(slot + slots <= self.geometry.slots && !name.is_empty());
        if let Some(room) = self.bytes.get_mut(start..start + slots * SLOT_LEN) {
            room.fill(0);
            room[..name.len()].copy_from_slice(name);
        }
        let len = name.len() as u16;
        let first = RawDirEntry {
            hash: U32::new(hash),
            ino: U32::new(ino),
            name_len: U16::new(len),
            file_type: kind.dirent_type(),
        };
        for i in 0..slots {
            // Later slots of a long name are in use, but are no entries of their own.
            self.put_raw(slot + i, if i == 0 { first } else { RawDirEntry::new_zeroed() });
            lsb::set(self.bitmap(), slot + i);
        }
    }

    /// Removes the entry at `slot`.
    pub fn remove(&mut self, slot: usize) {
        let len = self.view().raw(slot).map_or(0, |raw| usize::from(raw.name_len.get()));
        let end = (slot + slots_for(len).max(1)).min(self.geometry.slots);
        for i in slot..end {
            lsb::clear(self.bitmap(), i);
        }
    }

    /// Points the entry at `slot` to another inode.
    pub fn set_target(&mut self, slot: usize, ino: Nid, kind: FileKind) {
        if let Some(mut raw) = self.view().raw(slot) {
            raw.ino.set(ino);
            raw.file_type = kind.dirent_type();
            self.put_raw(slot, raw);
        }
    }

    fn put_raw(&mut self, slot: usize, raw: RawDirEntry) {
        let start = self.geometry.entries + slot * ENTRY_SIZE;
        if let Some(bytes) = self.bytes.get_mut(start..start + ENTRY_SIZE) {
            bytes.copy_from_slice(raw.as_bytes());
        }
    }

    fn bitmap(&mut self) -> &mut [u8] {
        let end = self.geometry.bitmap().end.min(self.bytes.len());
        &mut self.bytes[..end]
    }
}

/// Hash buckets of a directory's `level`.
pub fn buckets(level: u32, dir_level: u8) -> u64 {
    1 << level.saturating_add(dir_level.into()).min(30)
}

/// Blocks of each bucket of `level`.
pub fn bucket_blocks(level: u32) -> u64 {
    if level < 31 { 2 } else { 4 }
}

/// The level of block `index`; `None` if no directory is as deep.
pub fn level_of(index: u64, dir_level: u8) -> Option<u32> {
    let mut end = 0;
    (0..=MAX_DIR_DEPTH).find(|&level| {
        end += buckets(level, dir_level) * bucket_blocks(level);
        index < end
    })
}

/// First block of `level` in the directory.
pub fn level_start(level: u32, dir_level: u8) -> u64 {
    (0..level).map(|l| buckets(l, dir_level) * bucket_blocks(l)).sum()
}

/// Blocks of `level` where a name with `hash` may be.
pub fn bucket_of(level: u32, dir_level: u8, hash: u32) -> Range<u64> {
    let bucket = u64::from(hash) % buckets(level, dir_level);
    let start = level_start(level, dir_level) + bucket * bucket_blocks(level);
    start..start + bucket_blocks(level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_geometry_matches_the_kernel() {
        for (len, slots, bitmap, reserved) in [(3488, 182, 23, 7), (3452, 180, 23, 9)] {
            let g = DentryGeometry::inline(len);
            assert_eq!((g.slots, g.bitmap().end), (slots, bitmap));
            assert_eq!(g.entries - bitmap, reserved);
            assert_eq!(g.names + slots * SLOT_LEN, len);
        }
    }

    #[test]
    fn insert_find_remove() {
        let mut block = [0; BLOCK_SIZE];
        let mut dir = DentriesMut::block(&mut block);
        let long = [b'n'; 255];
        for (i, name) in [&b"a"[..], &long, b"bc"].into_iter().enumerate() {
            let slot = dir.view().find_free(slots_for(name.len())).unwrap();
            dir.insert(slot, name, i as u32, 10 + i as u32, FileKind::Regular);
        }
        let found = dir.view().find(1, |name| name == long).unwrap().unwrap();
        assert_eq!((found.slot, found.ino, found.next_slot()), (1, 11, 33));
        dir.remove(1);
        assert_eq!(dir.view().find(1, |name| name == long).unwrap(), None);
        assert_eq!(dir.view().next(1).unwrap().unwrap().slot, 33);
        assert_eq!(dir.view().find_free(180), Some(34));
        assert_eq!(dir.view().find_free(181), None);
    }

    #[test]
    fn a_name_cannot_leave_the_block() {
        let mut block = [0; BLOCK_SIZE];
        DentriesMut::block(&mut block).insert(213, b"x", 0, 5, FileKind::Regular);
        block[30 + 213 * 11 + 8] = 200;
        assert!(Dentries::block(&block, 9_u64).next(0).is_err());
    }

    #[test]
    fn buckets_double_with_the_level() {
        assert_eq!((0..4).map(|l| level_start(l, 0)).collect::<Vec<_>>(), [0, 2, 6, 14]);
        assert_eq!(bucket_of(2, 0, 7), 12..14);
        assert_eq!(bucket_of(0, 2, 7), 6..8);
        assert_eq!(buckets(63, 63), 1 << 30);
    }
}
