//! What a record can carry: a file's contents and attributes, and where it and its new ancestors
//! were made. All else that happens to names needs a commit, until that is done.
//!
//! Recovery puts a recorded file under its name, and takes from that name whatever stands there.
//! That is right if what stands there was unlinked before, and was left without a name. So names
//! that inodes have lost in other ways make their directory ineligible for new files.

use std::sync::Arc;

use journal::Id;
use journal::ondisk::fast::Naming;

use crate::inode::cached::Shard;
use crate::mount::draft::Draft;
use crate::mount::engine::Engine;
use crate::ondisk::Ino;

/// What happened to an inode lately. It matters as long as its transaction is not committed.
#[derive(Clone, Default)]
pub(crate) struct Recent {
    /// It was made.
    pub(crate) born: Option<Born>,
    /// It was changed in a way that no record carries: its names, or its attributes by name.
    pub(crate) mixed: Option<Id>,
    /// A directory's name went to an inode that lives on, or was a directory's.
    pub(crate) lost_name: Option<Id>,
}

/// Where an inode was made.
#[derive(Clone)]
pub(crate) struct Born {
    pub(crate) id: Id,
    pub(crate) parent: Ino,
    pub(crate) name: Arc<[u8]>,
}

/// Something that an operation does, for [`Recent`].
pub(crate) enum Mark {
    Born(Ino, Arc<[u8]>),
    Mixed,
    LostName,
}

impl Draft<'_, '_> {
    /// Inode `ino` is made as `name` in `parent`.
    pub(crate) fn mark_born(&mut self, ino: Ino, parent: Ino, name: &[u8]) {
        self.note_name(Naming::Create, parent, ino, name);
        if self.volume().journal.has_records() {
            self.changes.marks.push((ino, Mark::Born(parent, name.into())));
        }
    }

    /// No record carries what happens to inode `ino`.
    pub(crate) fn mark_mixed(&mut self, ino: Ino) {
        self.changes.marks.push((ino, Mark::Mixed));
    }

    /// Directory `dir` loses a name that records must not take over.
    pub(crate) fn mark_lost_name(&mut self, dir: Ino) {
        self.changes.marks.push((dir, Mark::LostName));
    }

    /// A directory gets another path.
    pub(crate) fn mark_moved_dir(&mut self) {
        self.changes.moves_dir = true;
    }
}

impl Mark {
    /// Notes it in the shard of `ino`.
    pub(crate) fn note(self, shard: &mut Shard, ino: Ino, id: Id) {
        let Some(cached) = shard.inodes.get_mut(&ino) else { return };
        let recent = &mut cached.recent;
        match self {
            Self::Born(parent, name) => recent.born = Some(Born { id, parent, name }),
            Self::Mixed => {
                recent.mixed = Some(id);
                cached.data_id = Some(id);
            }
            Self::LostName => recent.lost_name = Some(id),
        }
    }
}

impl Engine {
    /// Whether what happened in `id` is not durable.
    pub(crate) fn is_open(&self, id: Option<Id>) -> bool {
        id.is_some_and(|id| !self.committed.reaches(id))
    }

    /// Where the inode was made, if that is not durable.
    pub(crate) fn open_birth<'r>(&self, recent: &'r Recent) -> Option<&'r Born> {
        recent.born.as_ref().filter(|born| self.is_open(Some(born.id)))
    }

    /// Notes that a directory got another path in `id`.
    pub(crate) fn note_moved_dir(&self, id: Id) {
        let mut moved = self.moved_dirs.lock();
        moved.retain(|other| other.area != id.area);
        moved.push(id);
        self.have_dirs_moved.store(1);
    }

    /// Whether no directory has got another path that is not durable.
    pub(crate) fn paths_are_durable(&self) -> bool {
        if self.have_dirs_moved.load() == 0 {
            return true;
        }
        let moved = self.moved_dirs.lock().clone();
        !moved.into_iter().any(|id| self.is_open(Some(id)))
    }
}
