//! What a fast commit says: all that operations have changed since the last commit or fast commit
//! (`ext4_fc_track_*`, `ext4_fc_perform_commit`).
//!
//! Each operation records its changes when it is applied: files, their blocks that were remapped,
//! and names. A fast commit cannot carry any other change; after one there is no fast commit until
//! the transaction is committed. So a kind of change that is missing here costs speed, not data.
//!
//! Notes belong to one transaction. The first operation of the next one discards them: a closed
//! transaction is always committed in full.
//!
//! Directories, symbolic links and devices are left to commits: the kernel's replay gives a new
//! directory too few links, and what is in the inode in place of extents is not copied.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use cores::{Mutex, Rank};
use journal::Tid;
use journal::ondisk::fast::{Change, Naming};
use smallvec::SmallVec;
use vfs::FileKind;
use vfs::op::Work;
use zerocopy::IntoBytes;

use crate::blocks::{Blocks, Kind};
use crate::inode::cached::{Cached, Inode};
use crate::inode::map::{Mapped, find};
use crate::mount::draft::{Changes, Draft};
use crate::mount::engine::Engine;
use crate::mount::inject::Inject;
use crate::mount::want::Step;
use crate::ondisk::Ino;
use crate::ondisk::extent::RawExtent;
use crate::ondisk::inode::fields_len;

/// Blocks of a file are below this (`EXT_MAX_BLOCKS`).
const BLOCKS_MAX: u64 = u32::MAX as u64;

/// What an operation notes for fast commits.
#[derive(Default)]
pub(crate) struct Note {
    names: SmallVec<[Change; 1]>,
    /// Blocks of files that are others now.
    ranges: SmallVec<[(Ino, Range<u64>); 2]>,
    /// It does more than a fast commit can say.
    is_more: bool,
}

/// What no fast commit has said.
pub(crate) struct Unsaid(Mutex<Notes>);

#[derive(Default)]
struct Notes {
    /// The transaction that they are of.
    tid: Tid,
    /// Some of it cannot be said.
    is_more: bool,
    /// What happened to names, in its order.
    names: Vec<Change>,
    /// Changed files, and the blocks of them that are others now.
    files: BTreeMap<Ino, Vec<Range<u64>>>,
    /// Inodes that were freed. Their numbers are not used again before the commit.
    freed: BTreeSet<Ino>,
}

impl Draft<'_, '_> {
    /// Inode `ino` gets `name` in `parent`, or loses it.
    pub(crate) fn note_name(&mut self, how: Naming, parent: Ino, ino: Ino, name: &[u8]) {
        if self.volume().unsaid.is_some() {
            self.changes.note.names.push(Change::Name { how, parent, ino, name: name.into() });
        }
    }

    /// These blocks of file `ino` are others now.
    pub(crate) fn note_range(&mut self, ino: Ino, range: Range<u64>) {
        if self.volume().unsaid.is_some() {
            self.changes.note.ranges.push((ino, range));
        }
    }

    /// New inode `ino` has room for `rest` bytes of extended attributes. Replay of a fast commit
    /// leaves in them what an inode before it had there (`ext4_fc_replay_inode`).
    pub(crate) fn note_old_attributes(&mut self, ino: Ino, rest: usize) -> Step<()> {
        let engine = self.volume();
        if engine.unsaid.is_none() || !engine.has_table_block(ino)? {
            return Ok(());
        }
        let (at, byte) = engine.inode_slot(ino)?;
        let end = byte + engine.inode_size();
        let before = self.block(at, Kind::Table)?;
        if before[end - rest..end].iter().any(|&byte| byte != 0) {
            self.note_more();
        }
        Ok(())
    }

    /// The operation does more than a fast commit can say.
    pub(crate) fn note_more(&mut self) {
        self.changes.note.is_more = true;
    }
}

impl Changes<'_> {
    /// Notes the operation, which is about to be applied.
    pub(crate) fn note_down(&mut self, work: &Work<'_, Engine>) {
        let Some(unsaid) = &self.engine.unsaid else { return };
        let is_more = !self.can_be_said(work);
        let mut notes = unsaid.0.lock();
        let tid = work.permit.id().tid;
        if notes.tid != tid {
            *notes = Notes { tid, ..Notes::default() };
        }
        notes.is_more |= is_more;
        if notes.is_more {
            return;
        }
        notes.names.extend(self.note.names.drain(..));
        for (ino, inode) in &self.inodes {
            if inode.kind() == FileKind::Regular {
                notes.files.entry(*ino).or_default();
            }
        }
        for (ino, range) in self.note.ranges.drain(..) {
            if let Some(ranges) = notes.files.get_mut(&ino) {
                add(ranges, range);
            }
        }
        notes.freed.extend(self.unmade.iter().map(|(ino, _)| *ino));
    }

    fn can_be_said(&self, work: &Work<'_, Engine>) -> bool {
        let is_more = self.note.is_more || self.moves_dir || self.unshared.is_some();
        let logs_data = !self.logged_data.is_empty() || !self.revoked.is_empty();
        let names = |is_it: &dyn Fn(Ino, Ino) -> bool| {
            self.note.names.iter().any(|change| match change {
                Change::Name { parent, ino, .. } => is_it(*parent, *ino),
                _ => false,
            })
        };
        let is_named = |made: &(Ino, bool)| !made.1 && names(&|_, ino| ino == made.0);
        let is_said = |(ino, inode): &(Ino, Inode)| match inode.kind() {
            _ if self.unmade.iter().any(|(freed, _)| freed == ino) => true,
            FileKind::Regular => {
                let shard = work.shards.get((*ino).into());
                let old = shard.and_then(|shard| shard.inodes.get(ino));
                has_same_attributes(old, inode) && inode.raw.file_acl() == 0
            }
            // Its entries are others; what else it has follows.
            FileKind::Directory => names(&|parent, _| parent == *ino),
            _ => inode.links() == 0,
        };
        !is_more && !logs_data && self.made.iter().all(is_named) && self.inodes.iter().all(is_said)
    }
}

/// Extended attributes are behind what a fast commit says of an inode. The kernel's replay does not
/// count a block of them, even if it is as before (`ext4_ext_replay_set_iblocks`).
fn has_same_attributes(old: Option<&Cached>, new: &Inode) -> bool {
    match old {
        Some(Cached { inode: old, .. }) => {
            old.rest == new.rest && old.raw.file_acl() == new.raw.file_acl()
        }
        None => new.raw.file_acl() == 0 && new.rest.iter().all(|byte| *byte == 0),
    }
}

/// Adds a range to the others, with its neighbour if that is the last one added.
fn add(ranges: &mut Vec<Range<u64>>, new: Range<u64>) {
    match ranges.last_mut().filter(|last| last.start <= new.end && new.start <= last.end) {
        Some(last) => *last = last.start.min(new.start)..last.end.max(new.end),
        None => ranges.push(new),
    }
}

/// The same blocks, in order and each once.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut merged = Vec::new();
    ranges.into_iter().for_each(|range| add(&mut merged, range));
    merged
}

impl Unsaid {
    pub(crate) fn new() -> Self {
        Self(Mutex::ranked(Rank::Space, "ext4 changes for fast commits", Notes::default()).keyed(2))
    }

    /// Nothing can be said until the transaction is committed.
    pub(crate) fn give_up(&self) {
        self.0.lock().is_more = true;
    }
}

impl Engine {
    /// All changes of transaction `tid` that no fast commit has carried, and forgets them. `None`
    /// if a fast commit cannot carry them. No handle is open.
    pub(super) fn say_changes(&self, tid: Tid) -> Option<Vec<Change>> {
        let unsaid = self.unsaid.as_ref()?;
        let notes = {
            let mut notes = unsaid.0.lock();
            if notes.tid != tid {
                return Some(Vec::new());
            }
            if notes.is_more {
                return None;
            }
            std::mem::replace(&mut *notes, Notes { tid, ..Notes::default() })
        };
        let said = self.say(notes);
        if said.is_none() {
            unsaid.give_up();
        }
        said
    }

    /// Names first, each new inode ahead of its own; then what all files are like now.
    fn say(&self, mut notes: Notes) -> Option<Vec<Change>> {
        let mut said = Vec::new();
        let born: BTreeSet<Ino> = notes.names.iter().filter_map(born).collect();
        for change in std::mem::take(&mut notes.names) {
            let Change::Name { how, ino, .. } = &change else { continue };
            let is_gone = notes.freed.contains(ino) || self.links(*ino)? == 0;
            if is_gone && born.contains(ino) {
                continue;
            }
            if *how == Naming::Create {
                let ranges = notes.files.get_mut(ino).map(std::mem::take).unwrap_or_default();
                let at = said.len();
                self.say_file(*ino, ranges, &mut said)?;
                // The inode ahead of its ranges, which it must be there for.
                said[at..].rotate_right(1);
            }
            said.push(change);
        }
        for (ino, ranges) in notes.files {
            if !notes.freed.contains(&ino) && self.links(ino)? > 0 {
                self.say_file(ino, ranges, &mut said)?;
            }
        }
        Some(said)
    }

    /// Links of an inode that is in memory.
    fn links(&self, ino: Ino) -> Option<u32> {
        self.inodes.look(ino.into()).inodes.get(&ino).map(|cached| cached.inode.links())
    }

    /// What a file is like: its ranges, then the inode with its size.
    fn say_file(&self, ino: Ino, ranges: Vec<Range<u64>>, said: &mut Vec<Change>) -> Option<()> {
        // What is in the middle of a truncation is left to a commit.
        if self.orphans.lock().contains(ino) {
            return None;
        }
        let shard = self.inodes.look(ino.into());
        let inode = &shard.inodes.get(&ino)?.inode;
        if !self.inject.contains(Inject::FC_MISS) {
            for range in merged(ranges) {
                self.say_range(ino, inode, range, said)?;
            }
        }
        let mut raw = vec![0; self.inode_size()];
        inode.emit(&mut raw, Some(0));
        raw.truncate(fields_len(&raw, 0).ok()?);
        said.push(Change::Inode { ino, raw: raw.into() });
        Some(())
    }

    fn say_range(
        &self,
        ino: Ino,
        inode: &Inode,
        range: Range<u64>,
        said: &mut Vec<Change>,
    ) -> Option<()> {
        let (mut at, last) = (range.start, range.end.min(BLOCKS_MAX));
        while at < last {
            let block = at as u32;
            let found = find(self, inode, block).ok()?;
            let end = found.end().min(last);
            said.push(match found {
                Mapped::Extent(extent) => {
                    let piece = RawExtent::from(extent.part(at..end));
                    Change::AddRange { ino, extent: piece.as_bytes().try_into().ok()? }
                }
                Mapped::Hole(_) => Change::DelRange { ino, block, count: (end - at) as u32 },
            });
            at = end;
        }
        Some(())
    }
}

fn born(change: &Change) -> Option<Ino> {
    match change {
        Change::Name { how: Naming::Create, ino, .. } => Some(*ino),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_said_once_and_in_order() {
        let mut ranges = Vec::new();
        for range in [5..6, 6..9, 20..30, 0..2, 2..5, 25..40] {
            add(&mut ranges, range);
        }
        assert_eq!(ranges, [5..9, 20..30, 0..5, 25..40]);
        assert_eq!(merged(ranges), [0..9, 20..40]);
    }
}
