//! The inodes in memory, by number. One that was used stays until it is freed, so its index of
//! names or extents is built once.

use std::sync::Arc;

use cores::{Mutex, Rank};
use rustc_hash::FxHashMap;
use vfs::{Errno, Ino, Result};

use super::node::{Inode, Node};
use crate::ondisk::Corrupt;

const SHARDS: usize = 64;

/// Inodes by number.
pub(crate) struct Table {
    /// Each protects which inodes of its own are in memory and how often they are open.
    shards: Box<[Mutex<FxHashMap<Ino, Entry>>]>,
}

struct Entry {
    node: Arc<Node>,
    opens: u64,
    /// Made without a name, and may be given one (`I_LINKABLE`).
    linkable: bool,
}

impl Table {
    pub(crate) fn new() -> Self {
        let shard = |n: usize| {
            Mutex::ranked(Rank::Opens, "pmfs inodes", FxHashMap::default()).keyed(n as u64)
        };
        Self { shards: (0..SHARDS).map(shard).collect() }
    }

    fn shard(&self, ino: Ino) -> &Mutex<FxHashMap<Ino, Entry>> {
        &self.shards[ino as usize % SHARDS]
    }

    /// The inode, read by `load` if it is not in memory. `ENOENT` if it is free.
    pub(crate) fn get(
        &self,
        ino: Ino,
        load: impl FnOnce() -> Result<Option<Inode>, Corrupt>,
    ) -> Result<Arc<Node>> {
        let mut shard = self.shard(ino).lock();
        if let Some(entry) = shard.get(&ino) {
            return Ok(entry.node.clone());
        }
        // Nobody can change an inode that is not in memory, so it is read as it is.
        let inode = load()?.ok_or(Errno::NOENT)?;
        let node = Arc::new(Node::new(ino, inode));
        shard.insert(ino, Entry { node: node.clone(), opens: 0, linkable: false });
        Ok(node)
    }

    /// A new inode, which nobody knows yet.
    pub(crate) fn insert(&self, ino: Ino, inode: Inode) {
        let node = Arc::new(Node::new(ino, inode));
        self.shard(ino).lock().insert(ino, Entry { node, opens: 0, linkable: false });
    }

    /// A new inode without a name, open once.
    pub(crate) fn insert_nameless(&self, ino: Ino, inode: Inode) {
        let node = Arc::new(Node::new(ino, inode));
        self.shard(ino).lock().insert(ino, Entry { node, opens: 1, linkable: true });
    }

    /// Whether an inode without links may be given a name.
    pub(crate) fn is_linkable(&self, ino: Ino) -> bool {
        self.shard(ino).lock().get(&ino).is_some_and(|entry| entry.linkable)
    }

    /// The inode has a name now.
    pub(crate) fn named(&self, ino: Ino) {
        if let Some(entry) = self.shard(ino).lock().get_mut(&ino) {
            entry.linkable = false;
        }
    }

    /// Counts one more user. The caller has the inode locked, so that it is not being freed.
    pub(crate) fn open(&self, ino: Ino) {
        if let Some(entry) = self.shard(ino).lock().get_mut(&ino) {
            entry.opens += 1;
        }
    }

    /// Counts one user less; true if none is left.
    pub(crate) fn close(&self, ino: Ino) -> bool {
        let mut shard = self.shard(ino).lock();
        let Some(entry) = shard.get_mut(&ino) else { return false };
        entry.opens = entry.opens.saturating_sub(1);
        entry.opens == 0
    }

    pub(crate) fn is_open(&self, ino: Ino) -> bool {
        self.shard(ino).lock().get(&ino).is_some_and(|entry| entry.opens > 0)
    }

    /// Forgets an inode that was freed. The caller has it locked.
    pub(crate) fn remove(&self, ino: Ino) {
        self.shard(ino).lock().remove(&ino);
    }
}
