//! What happened since the last checkpoint that roll-forward could not repeat.
//!
//! An fsync that depends on it writes a checkpoint instead (`need_do_checkpoint`). Names are made
//! and removed under the volume's shared lock, so this has a lock of its own. Most often nothing
//! has happened, which is seen without the lock.

use std::collections::BTreeSet;

use cores::{Line, Mutex, MutexGuard, Rank};
use smallvec::SmallVec;

use crate::dir::namei::NameIn;
use crate::ondisk::Nid;

/// What happened, for all who change or fsync something.
pub(crate) struct SinceCheckpoint {
    /// Whether anything did.
    any: Line,
    events: Mutex<Events>,
}

/// What happened, by inode and directory.
#[derive(Default)]
struct Events {
    /// Files renamed or linked: the parent in the inode may not be the one that recovery needs.
    moved: BTreeSet<Nid>,
    /// Directories that lost a name.
    removed_from: BTreeSet<Nid>,
    /// Names, by directory, that a directory lost, or an inode that still exists under another
    /// name. Where recovery meets such a name, it frees the inode that had it at the checkpoint,
    /// with everything in it.
    left_names: BTreeSet<(Nid, Vec<u8>)>,
    /// Directories whose attributes changed.
    xattr_changed: BTreeSet<Nid>,
    /// Nodes freed and not replaced, by inode and node offset. They leave no trace in the chain, so
    /// recovery would find their old contents still in place.
    freed_nodes: BTreeSet<(Nid, u32)>,
}

/// What happened to one file and its directory.
#[derive(Default)]
pub(crate) struct About {
    /// The file was renamed or linked.
    pub(crate) moved: bool,
    /// The directory lost a name.
    pub(crate) dir_lost_a_name: bool,
    /// The directory's attributes changed.
    pub(crate) dir_xattr_changed: bool,
    /// The offsets of the file's nodes that were freed.
    pub(crate) freed_nodes: SmallVec<[u32; 4]>,
}

impl Default for SinceCheckpoint {
    fn default() -> Self {
        let events = Mutex::ranked(Rank::Space, "f2fs since checkpoint", Events::default());
        Self { any: Line::default(), events }
    }
}

impl SinceCheckpoint {
    /// What happened, if anything did.
    fn seen(&self) -> Option<MutexGuard<'_, Events>> {
        (self.any.load() != 0).then(|| self.events.lock())
    }

    fn note(&self, note: impl FnOnce(&mut Events)) {
        note(&mut self.events.lock());
        if self.any.load() == 0 {
            self.any.store(1);
        }
    }

    /// To be called when a checkpoint is durable.
    pub(crate) fn clear(&mut self) {
        *self.events.get_mut() = Events::default();
        self.any.store(0);
    }

    /// Whether only the contents of files changed.
    pub(crate) fn is_empty(&self) -> bool {
        self.seen().is_none_or(|events| {
            let Events { moved, removed_from, xattr_changed, .. } = &*events;
            moved.is_empty() && removed_from.is_empty() && xattr_changed.is_empty()
        })
    }

    /// What happened to file `ino` and to `dir`, its directory.
    pub(crate) fn about(&self, ino: Nid, dir: Nid) -> About {
        let Some(events) = self.seen() else { return About::default() };
        let freed = events.freed_nodes.range((ino, 0)..=(ino, u32::MAX));
        About {
            moved: events.moved.contains(&ino),
            dir_lost_a_name: events.removed_from.contains(&dir),
            dir_xattr_changed: events.xattr_changed.contains(&dir),
            freed_nodes: freed.map(|(_, offset)| *offset).collect(),
        }
    }

    /// Whether directory `dir` lost this name; any name, if there is `None`.
    pub(crate) fn has_left(&self, dir: Nid, name: Option<Vec<u8>>) -> bool {
        self.seen().is_some_and(|events| match name {
            Some(name) => events.left_names.contains(&(dir, name)),
            None => {
                let next = events.left_names.range((dir, Vec::new())..).next();
                next.is_some_and(|(of, _)| *of == dir)
            }
        })
    }

    /// A file was renamed or linked.
    pub(crate) fn moved(&self, ino: Nid) {
        self.note(|events| _ = events.moved.insert(ino));
    }

    /// Inode `ino` was freed.
    pub(crate) fn forget(&self, ino: Nid) {
        if let Some(mut events) = self.seen() {
            events.moved.remove(&ino);
        }
    }

    /// A directory, or an inode that `lives_on`, has lost this name.
    pub(crate) fn lost_name(&self, at: NameIn<'_>, lives_on: bool) {
        self.note(|events| {
            events.removed_from.insert(at.dir);
            if lives_on {
                events.left_names.insert((at.dir, at.name.to_vec()));
            }
        });
    }

    /// The attributes of directory `dir` changed.
    pub(crate) fn xattr_changed(&self, dir: Nid) {
        self.note(|events| _ = events.xattr_changed.insert(dir));
    }

    /// The node at `offset` of inode `ino` was freed.
    pub(crate) fn freed_node(&self, ino: Nid, offset: u32) {
        self.note(|events| _ = events.freed_nodes.insert((ino, offset)));
    }

    /// There is a node at `offset` of inode `ino` again.
    pub(crate) fn made_node(&self, ino: Nid, offset: u32) {
        if let Some(mut events) = self.seen() {
            events.freed_nodes.remove(&(ino, offset));
        }
    }
}
