//! What a harness knows of inodes in addition to the volume: names, open counts, what is not
//! durable, and what the cuts took.

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};
use vfs::kind::Volume;
use vfs::{Attr, Errno, Ino, RenameFlags, Result};

use super::lost::DirtyFile;
use super::names::{Name, Names};
use super::told::Told;
use super::unsynced::{NameChange, Ranges, UnsyncedFile};

/// The most changes of names that are kept; others are forgotten, the report then says less.
const CHANGES_MAX: usize = 1 << 16;

/// An inode that users may know.
#[derive(Clone, Copy, Default)]
struct Known {
    /// As the volume says.
    generation: u32,
    /// [`vfs::FileSystem::open`]s that have not been released.
    held: u64,
    /// Opens by users.
    users: u64,
}

/// Calls to come that undo calls of before a cut.
#[derive(Clone, Copy, Default)]
struct Owed {
    releases: u64,
    closes: u64,
}

pub(super) struct Notes {
    names: Names,
    known: FxHashMap<Ino, Known>,
    /// Numbers whose inodes the cuts took, and that no new inode has.
    gone: FxHashSet<Ino>,
    /// How often a number's inode was taken. The volume may give the next one the same generation.
    taken: FxHashMap<Ino, u32>,
    /// What is still to come of users of inodes that are gone.
    owed: FxHashMap<Ino, Owed>,
    told: Told,
    dirty: BTreeMap<Ino, Ranges>,
    /// Names that changed, whether they are new, and of which inode they are.
    changes: BTreeMap<Name, (bool, Ino)>,
}

/// What an fsync is about to make durable.
#[derive(Default)]
pub(super) struct Covered {
    files: Vec<(Ino, Ranges)>,
    changes: Vec<(Name, (bool, Ino))>,
}

impl Notes {
    pub(super) fn new(root: Ino) -> Self {
        Self {
            names: Names::new(root),
            known: FxHashMap::from_iter([(root, Known::default())]),
            gone: FxHashSet::default(),
            taken: FxHashMap::default(),
            owed: FxHashMap::default(),
            told: Told::default(),
            dirty: BTreeMap::new(),
            changes: BTreeMap::new(),
        }
    }

    /// Fails if a cut took the inode.
    pub(super) fn enter(&self, ino: Ino) -> Result<()> {
        if self.gone.contains(&ino) { Err(Errno::STALE.into()) } else { Ok(()) }
    }

    /// An inode's attributes as users see them.
    pub(super) fn shown(&self, attr: Attr) -> Attr {
        let taken = self.taken.get(&attr.ino).copied().unwrap_or(0);
        // A generation differs from the others of the number, and looks no more ordered than they.
        let generation = attr.generation ^ taken.wrapping_mul(0x9e37_79b9);
        Attr { generation, ..attr }
    }

    /// The volume has found or made an inode under this name.
    pub(super) fn found(&mut self, dir: Ino, name: &[u8], attr: Attr) -> Attr {
        self.names.set((dir, name.to_vec()), attr.ino);
        self.met(attr)
    }

    /// The volume has shown an inode.
    pub(super) fn met(&mut self, attr: Attr) -> Attr {
        self.gone.remove(&attr.ino);
        self.known.entry(attr.ino).or_default().generation = attr.generation;
        self.shown(attr)
    }

    /// A new name, of a new inode or another one.
    pub(super) fn added(&mut self, dir: Ino, name: &[u8], attr: Attr) -> Attr {
        self.change((dir, name.to_vec()), true, attr.ino);
        self.found(dir, name, attr)
    }

    pub(super) fn removed(&mut self, dir: Ino, name: &[u8]) {
        let name = (dir, name.to_vec());
        let Some(ino) = self.names.remove(&name) else { return };
        self.change(name, false, ino);
        self.forget_unused(ino);
    }

    pub(super) fn renamed(&mut self, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: RenameFlags) {
        let (from, to) = ((from.0, from.1.to_vec()), (to.0, to.1.to_vec()));
        let victim = self.names.rename(&from, to.clone(), flags);
        let (old, new) = (self.names.get(&from), self.names.get(&to));
        if let Some(ino) = new {
            self.change(to, true, ino);
            self.change(from, old.is_some(), old.unwrap_or(ino));
        }
        victim.into_iter().for_each(|ino| self.forget_unused(ino));
    }

    fn change(&mut self, name: Name, added: bool, ino: Ino) {
        if self.changes.len() < CHANGES_MAX {
            self.changes.insert(name, (added, ino));
        }
    }

    /// Drops the notes of an inode that is neither named nor in use.
    fn forget_unused(&mut self, ino: Ino) {
        let used = self.known.get(&ino).is_some_and(|known| known.held + known.users > 0);
        if !used && !self.names.has(ino) {
            self.known.remove(&ino);
            self.dirty.remove(&ino);
            self.told.forget(ino);
        }
    }

    /// One more [`vfs::FileSystem::open`]. True if it is the first.
    pub(super) fn hold(&mut self, ino: Ino) -> bool {
        let known = self.known.entry(ino).or_default();
        known.held += 1;
        known.held == 1
    }

    /// A [`vfs::FileSystem::release`]. True if it was the last of an inode that is there.
    pub(super) fn release(&mut self, ino: Ino) -> bool {
        if let Some(owed) = self.owed.get_mut(&ino).filter(|owed| owed.releases > 0) {
            owed.releases -= 1;
            return false;
        }
        let Some(known) = self.known.get_mut(&ino).filter(|known| known.held > 0) else {
            return false;
        };
        known.held -= 1;
        let last = known.held == 0;
        if last {
            self.forget_unused(ino);
        }
        last
    }

    pub(super) fn opened(&mut self, ino: Ino, handle: u64) {
        self.told.opened(ino, handle);
        self.known.entry(ino).or_default().users += 1;
    }

    pub(super) fn closed(&mut self, ino: Ino, handle: u64) {
        self.told.closed(handle);
        if let Some(owed) = self.owed.get_mut(&ino).filter(|owed| owed.closes > 0) {
            owed.closes -= 1;
            return;
        }
        let Some(known) = self.known.get_mut(&ino) else { return };
        known.users = known.users.saturating_sub(1);
        if known.users == 0 {
            self.forget_unused(ino);
        }
    }

    /// The file changes: in `range`, or its attributes.
    pub(super) fn changed(&mut self, ino: Ino, range: Option<Range<u64>>) {
        let ranges = self.dirty.entry(ino).or_default();
        range.into_iter().for_each(|range| ranges.add(range));
    }

    /// An fsync of `ino` begins. Fails if its caller has still to be told that a cut took what it
    /// should have confirmed.
    pub(super) fn cover(&mut self, ino: Ino, handle: Option<u64>) -> Result<Covered> {
        self.enter(ino)?;
        self.told.tell(ino, handle)?;
        let files = self.dirty.remove(&ino).map(|ranges| (ino, ranges));
        // Of a directory its names, of a file the names it has now.
        let within = self.changes.range((ino, Vec::new())..(ino.saturating_add(1), Vec::new()));
        let within = within.map(|(name, _)| name.clone());
        let names: Vec<Name> = within.chain(self.names.of(ino).iter().cloned()).collect();
        let changes = names.into_iter().filter_map(|name| self.changes.remove_entry(&name));
        Ok(Covered { files: files.into_iter().collect(), changes: changes.collect() })
    }

    /// Everything is about to become durable.
    pub(super) fn cover_all(&mut self) -> Covered {
        let files = std::mem::take(&mut self.dirty).into_iter().collect();
        let changes = std::mem::take(&mut self.changes).into_iter().collect();
        Covered { files, changes }
    }

    /// It has not.
    pub(super) fn uncover(&mut self, covered: Covered) {
        for (ino, ranges) in covered.files {
            self.dirty.entry(ino).or_default().merge(ranges);
        }
        for (name, change) in covered.changes {
            self.changes.entry(name).or_insert(change);
        }
    }

    /// The files with changes that no fsync has covered; none if no file is open, because no fsync
    /// can report a loss then.
    pub(super) fn dirty_files(&self, volume: &dyn Volume) -> Vec<DirtyFile> {
        if !self.told.has_users() {
            return Vec::new();
        }
        let of = |(ino, ranges): (&Ino, &Ranges)| DirtyFile::of(volume, *ino, ranges.list());
        self.dirty.iter().map(of).collect()
    }

    /// The cut has taken what was not durable, and `volume` is what is left. `dirty` were the
    /// files of [`Notes::dirty_files`] before it.
    pub(super) fn survive(&mut self, volume: &dyn Volume, dirty: &[DirtyFile]) {
        if self.told.has_users() {
            let changed = dirty.iter().filter(|file| !file.is_same(volume));
            let directories = self.changes.iter().filter(|change| !stands(volume, change));
            let directories = directories.map(|((dir, _), _)| *dir);
            self.told.lost(changed.map(DirtyFile::ino).chain(directories));
        }
        self.dirty.clear();
        self.changes.clear();
        let known: Vec<(Ino, Known)> =
            self.known.iter().map(|(ino, known)| (*ino, *known)).collect();
        for (ino, known) in known {
            let same = |attr: Attr| attr.generation == known.generation;
            let is_there = ino == volume.root() || volume.getattr(ino).is_ok_and(same);
            // Held since before the cut: as long as it has users, it must not go away.
            if !is_there || known.held > 0 && volume.open(ino).is_err() {
                self.take(ino, known);
            }
        }
        for (name, ino) in self.names.all() {
            let stands = |attr: Attr| attr.ino == ino && self.known.contains_key(&ino);
            if !volume.lookup(name.0, &name.1).is_ok_and(stands) {
                self.names.remove(&name);
            }
        }
    }

    /// The cut took an inode.
    fn take(&mut self, ino: Ino, known: Known) {
        self.known.remove(&ino);
        self.told.forget(ino);
        self.gone.insert(ino);
        *self.taken.entry(ino).or_default() += 1;
        let owed = self.owed.entry(ino).or_default();
        owed.releases += known.held;
        owed.closes += known.users;
    }

    /// The paths of an inode.
    pub(super) fn paths(&self, ino: Ino) -> Vec<Vec<u8>> {
        self.names.paths(ino)
    }

    /// The path of a name.
    pub(super) fn path(&self, dir: Ino, name: &[u8]) -> Option<Vec<u8>> {
        self.names.path(dir, name)
    }

    /// What no fsync has covered.
    pub(super) fn unsynced(&self) -> (Vec<UnsyncedFile>, Vec<NameChange>) {
        let files = self.dirty.iter().map(|(ino, ranges)| UnsyncedFile {
            ino: *ino,
            paths: self.names.paths(*ino),
            ranges: ranges.list(),
        });
        let changes = self.changes.iter().filter_map(|((dir, name), (added, _))| {
            Some(NameChange { path: self.names.path(*dir, name)?, added: *added })
        });
        (files.collect(), changes.collect())
    }
}

/// Whether a change of a name is there on what is left.
fn stands(volume: &dyn Volume, change: &(&Name, &(bool, Ino))) -> bool {
    let ((dir, name), (added, ino)) = change;
    let found = volume.lookup(*dir, name).ok().map(|attr| attr.ino);
    found == added.then_some(*ino)
}
