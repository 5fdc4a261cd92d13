//! Names that threads make, move and remove. A thread reserves a name before it changes it, so that
//! it is always certain what a name stood for when it was moved. The files may be used by anybody.

use std::sync::Arc;

use cores::Mutex;

use crate::Result;
use crate::workload::Rng;
use crate::workload::recorder::{Node, Recorder};

/// Names in each of the first directories.
const NAMES: usize = 6;

/// A file that is open as long as it may be used.
pub(super) struct File {
    pub(super) node: Node,
    fs: Recorder,
}

impl File {
    pub(super) fn open(fs: &Recorder, node: Node) -> Result<Arc<Self>> {
        fs.open(node)?;
        Ok(Arc::new(Self { node, fs: fs.clone() }))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.fs.close(self.node);
    }
}

/// A name, and what is called so.
#[derive(Clone)]
pub(super) struct Name {
    slot: usize,
    pub(super) dir: Node,
    pub(super) name: Vec<u8>,
    pub(super) file: Option<Arc<File>>,
}

struct Slot {
    name: Name,
    /// Some thread has reserved it.
    taken: bool,
}

/// All of them.
pub(super) struct Table {
    slots: Mutex<Vec<Slot>>,
    /// The directory that is there from the beginning.
    pub(super) dir: Node,
}

impl Table {
    pub(super) fn new(fs: &Recorder) -> Result<Self> {
        let dir = fs.mkdir(fs.root(), b"d", 0o755)?;
        // Protects which names there are, and which are reserved.
        let table = Self { slots: Mutex::instrument("names of a workload", Vec::new()), dir };
        (0..NAMES).for_each(|number| table.add(dir, &format!("n{number}"), None));
        (0..NAMES / 2).for_each(|number| table.add(fs.root(), &format!("n{number}"), None));
        Ok(table)
    }

    /// One more name.
    pub(super) fn add(&self, dir: Node, name: &str, file: Option<Arc<File>>) {
        let mut slots = self.slots.lock();
        let name = Name { slot: slots.len(), dir, name: name.into(), file };
        slots.push(Slot { name, taken: false });
    }

    /// Reserves a name: a used one or a free one.
    pub(super) fn take(&self, used: bool, rng: &mut Rng) -> Option<Name> {
        let mut slots = self.slots.lock();
        let fits = |slot: &&mut Slot| !slot.taken && slot.name.file.is_some() == used;
        let mut fitting: Vec<&mut Slot> = slots.iter_mut().filter(fits).collect();
        let at = rng.below(fitting.len() as u64) as usize;
        let slot = fitting.get_mut(at)?;
        slot.taken = true;
        Some(slot.name.clone())
    }

    /// Releases it, in its present state.
    pub(super) fn put(&self, name: Name) {
        let mut slots = self.slots.lock();
        let slot = name.slot;
        slots[slot] = Slot { name, taken: false };
    }

    /// Any file that has a name, even a reserved one.
    pub(super) fn any(&self, rng: &mut Rng) -> Option<Arc<File>> {
        let slots = self.slots.lock();
        let files: Vec<&Arc<File>> =
            slots.iter().filter_map(|slot| slot.name.file.as_ref()).collect();
        files.get(rng.below(files.len() as u64) as usize).map(|file| Arc::clone(file))
    }
}
