//! The entries of one directory block, as a list. When mending, a damaged entry is read as what it
//! most likely was: its hash tells the length of the name, its inode the type.

use vfs::FileKind;

use super::dir::{Reading, place_of};
use super::{Checker, Place};
use crate::ondisk::dentry::{Dentries, SLOT_LEN, slots_for};
use crate::ondisk::hash::dentry_hash;
use crate::ondisk::inode::RawInodeBlock;
use crate::ondisk::{NAME_MAX, Nid};

/// One entry, on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub slot: usize,
    pub name: Vec<u8>,
    pub hash: u32,
    pub ino: Nid,
    pub kind: FileKind,
}

impl Entry {
    fn next_slot(&self) -> usize {
        self.slot + slots_for(self.name.len())
    }
}

impl Checker {
    /// The block's entries, and whether any of them differs from what the block holds.
    pub(super) fn list_entries(
        &mut self,
        dir: &Reading,
        entries: Dentries<'_>,
    ) -> (Vec<Entry>, bool) {
        let (mut list, mut changed, mut from) = (Vec::new(), false, 0);
        while let Some(slot) = entries.next_used(from) {
            let next = entries.next(slot);
            let read = self.keep(|| Place::Inode { ino: dir.ino }, next).flatten();
            let found = match read {
                Some(e) => {
                    let (name, hash) = (e.name.to_vec(), e.hash);
                    Some(Entry { slot, name, hash, ino: e.ino, kind: e.kind })
                }
                None if self.mending() => {
                    changed = true;
                    self.guess_entry(&entries, slot)
                }
                None => return (list, changed),
            };
            let Some(mut entry) = found else {
                from = slot + 1;
                continue;
            };
            changed |= self.check_length(dir, &entries, &mut entry);
            if (slot..entry.next_slot()).any(|slot| !entries.is_used(slot)) {
                self.find(place_of(dir, &entry), "bitmap", "slots of the name clear", "set");
                changed = true;
            }
            from = entry.next_slot();
            list.push(entry);
        }
        (list, changed)
    }

    /// The entry at `slot`, whose length or type is impossible.
    fn guess_entry(&mut self, entries: &Dentries<'_>, slot: usize) -> Option<Entry> {
        let raw = entries.raw(slot)?;
        let (hash, ino) = (raw.hash.get(), raw.ino.get());
        if !self.volume.sb.is_node_id(ino) {
            return None;
        }
        let len = usize::from(raw.name_len.get());
        let readable = (1..=NAME_MAX).contains(&len) && entries.name_at(slot, len).is_some();
        let len = if readable { len } else { length_by_hash(entries, slot, hash)? };
        let name = entries.name_at(slot, len)?.to_vec();
        let kind = match FileKind::from_dirent_type(raw.file_type) {
            Some(kind) => kind,
            None => {
                let (_, block) = self.locate_node(ino, ino, 0)?;
                RawInodeBlock::of(&block).i.kind().unwrap_or(FileKind::Regular)
            }
        };
        Some(Entry { slot, name, hash, ino, kind })
    }

    /// When mending, gives a name another length if its hash would then be right.
    fn check_length(&mut self, dir: &Reading, entries: &Dentries<'_>, entry: &mut Entry) -> bool {
        let hash = dir.naming.hash_of_exact(&entry.name);
        if !self.mending() || hash.is_none_or(|hash| hash == entry.hash) {
            return false;
        }
        let Some(len) = length_by_hash(entries, entry.slot, entry.hash) else { return false };
        let Some(name) = entries.name_at(entry.slot, len) else { return false };
        self.find(place_of(dir, entry), "name_len", entry.name.len(), len);
        entry.name = name.to_vec();
        true
    }
}

/// The length that gives the name at `slot` this hash, if there is just one. `.` and `..` have hash
/// 0.
fn length_by_hash(entries: &Dentries<'_>, slot: usize, hash: u32) -> Option<usize> {
    let room = (entries.slots().saturating_sub(slot)) * SLOT_LEN;
    (1..=room.min(NAME_MAX))
        .find(|&len| entries.name_at(slot, len).is_some_and(|name| dentry_hash(name) == hash))
}
