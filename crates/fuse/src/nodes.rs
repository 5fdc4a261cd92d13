//! The inodes that the kernel knows: how often it looked up each one, and what it is owed for that.
//!
//! The kernel may name an inode until it has forgotten every lookup of it, whether the inode is
//! open or not (a working directory, an `O_PATH` descriptor, a mapping). So an inode that loses its
//! last name is kept alive ("pinned", with [`FileSystem::open`]) until the kernel has forgotten it.

use cores::{Mutex, Nanos};
use rustc_hash::FxHashMap;
use vfs::{FileSystem, Ino, Result};

#[derive(Default)]
struct Node {
    /// Lookups that the kernel has not forgotten.
    lookups: u64,
    /// Kept alive although it has no name.
    pinned: bool,
    /// It is known to have no `security.capability`, which a write would remove.
    unprivileged: bool,
    /// The handle that started an atomic write of it.
    atomic_by: Option<u64>,
    /// Until when its access time needs no update.
    atime_fresh_until: Nanos,
    /// Whether it is a directory that folds case; `None` if not known yet.
    folds: Option<bool>,
    /// Handles open for reading and writing, through which the file may be mapped and changed.
    mappable: u64,
}

/// All inodes that the kernel knows.
pub(crate) struct Nodes {
    nodes: Mutex<FxHashMap<Ino, Node>>,
}

impl Nodes {
    pub(crate) fn new() -> Self {
        Self { nodes: Mutex::named("fuse nodes", FxHashMap::default()) }
    }

    /// Counts one more lookup of `ino`.
    pub(crate) fn looked_up(&self, ino: Ino) {
        self.nodes.lock().entry(ino).or_default().lookups += 1;
    }

    /// Counts the first lookup of `ino`, which has no name and is open already.
    pub(crate) fn looked_up_nameless(&self, ino: Ino) {
        let mut nodes = self.nodes.lock();
        let node = nodes.entry(ino).or_default();
        node.lookups += 1;
        node.pinned = true;
    }

    /// The kernel has forgotten `count` lookups.
    pub(crate) fn forget(&self, fs: &dyn FileSystem, ino: Ino, count: u64) {
        let mut nodes = self.nodes.lock();
        let Some(node) = nodes.get_mut(&ino) else { return };
        node.lookups = node.lookups.saturating_sub(count);
        if node.lookups > 0 {
            return;
        }
        let pinned = node.pinned;
        nodes.remove(&ino);
        drop(nodes);
        if pinned {
            fs.release(ino);
        }
    }

    /// Keeps `ino`, which is about to lose its last name, until the kernel forgets it. False if the
    /// kernel does not know it, or if it is kept already.
    pub(crate) fn pin(&self, fs: &dyn FileSystem, ino: Ino) -> Result<bool> {
        let mut nodes = self.nodes.lock();
        let Some(node) = nodes.get_mut(&ino).filter(|node| !node.pinned) else { return Ok(false) };
        fs.open(ino)?;
        node.pinned = true;
        Ok(true)
    }

    /// Reverses [`Nodes::pin`], because the name is still there.
    pub(crate) fn unpin(&self, fs: &dyn FileSystem, ino: Ino) {
        if let Some(node) = self.nodes.lock().get_mut(&ino) {
            node.pinned = false;
        }
        fs.release(ino);
    }

    /// All of them. What is known of their attributes is forgotten, because the volume has changed.
    pub(crate) fn changed_below(&self) -> Vec<Ino> {
        let mut nodes = self.nodes.lock();
        for node in nodes.values_mut() {
            (node.unprivileged, node.folds, node.atime_fresh_until) = (false, None, 0);
        }
        nodes.keys().copied().collect()
    }

    /// Records which handle started an atomic write of `ino` that has not ended; `None` if none
    /// did.
    pub(crate) fn set_atomic_by(&self, ino: Ino, handle: Option<u64>) {
        if let Some(node) = self.nodes.lock().get_mut(&ino) {
            node.atomic_by = handle;
        }
    }

    /// The handle that started an atomic write of `ino`.
    pub(crate) fn atomic_by(&self, ino: Ino) -> Option<u64> {
        self.nodes.lock().get(&ino)?.atomic_by
    }

    /// Whether `ino` is a directory that folds case; the first time, `ask` says so. It is called
    /// with the nodes locked, so that an answer from before [`Nodes::refold`] is not kept.
    pub(crate) fn folds(&self, ino: Ino, ask: impl FnOnce() -> bool) -> bool {
        match self.nodes.lock().get_mut(&ino) {
            Some(node) => *node.folds.get_or_insert_with(ask),
            None => ask(),
        }
    }

    /// Whether directory `ino` folds case may have changed.
    pub(crate) fn refold(&self, ino: Ino) {
        if let Some(node) = self.nodes.lock().get_mut(&ino) {
            node.folds = None;
        }
    }

    /// A handle was opened for reading and writing.
    pub(crate) fn opened_mappable(&self, ino: Ino) {
        self.nodes.lock().entry(ino).or_default().mappable += 1;
    }

    /// The kernel has released such a handle: closed, unmapped and written back.
    pub(crate) fn closed_mappable(&self, ino: Ino) {
        if let Some(node) = self.nodes.lock().get_mut(&ino) {
            node.mappable = node.mappable.saturating_sub(1);
        }
    }

    /// Whether `ino` may have a shared mapping through which it is changed: the kernel may then
    /// have dirty pages of it.
    pub(crate) fn is_mappable(&self, ino: Ino) -> bool {
        self.nodes.lock().get(&ino).is_some_and(|node| node.mappable > 0)
    }

    /// Notes that `ino` is being changed. True if it may have a `security.capability`.
    pub(crate) fn changed(&self, ino: Ino) -> bool {
        let mut nodes = self.nodes.lock();
        let Some(node) = nodes.get_mut(&ino) else { return true };
        node.atime_fresh_until = 0;
        !node.unprivileged
    }

    /// Records whether `ino` is known to have no `security.capability`.
    pub(crate) fn set_unprivileged(&self, ino: Ino, unprivileged: bool) {
        if let Some(node) = self.nodes.lock().get_mut(&ino) {
            node.unprivileged = unprivileged;
        }
    }

    /// Whether the access time of `ino` needs no update now.
    pub(crate) fn is_atime_fresh(&self, ino: Ino, now: Nanos) -> bool {
        self.nodes.lock().get(&ino).is_some_and(|node| now < node.atime_fresh_until)
    }

    /// Records that the access time of `ino` needs no update until then, unless it is changed.
    pub(crate) fn set_atime_fresh(&self, ino: Ino, until: Nanos) {
        if let Some(node) = self.nodes.lock().get_mut(&ino) {
            node.atime_fresh_until = until;
        }
    }
}
