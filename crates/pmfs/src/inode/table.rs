//! The inodes in memory, by number. One that was used stays until it is freed, so its index of
//! names or extents is built once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cores::{Mutex, Rank, core_count, slot};
use rustc_hash::FxHashMap;
use vfs::{Errno, Ino, Result};

use super::node::{Inode, Node};
use crate::ondisk::Corrupt;

const SHARDS: usize = 64;
/// Inodes that a core remembers.
const NEAR: usize = 64;

/// Inodes by number.
pub(crate) struct Table {
    /// Each protects which inodes of its own are in memory and how often they are open.
    shards: Box<[Mutex<FxHashMap<Ino, Entry>>]>,
    /// By core, the inodes that it used last, so that many cores find one without a shared lock.
    near: Box<[Near]>,
}

/// Aligned so that cores do not share lines.
#[repr(align(128))]
struct Near {
    /// Protects the core's own list; threads of the real machine may share it.
    nodes: Mutex<Vec<Option<Arc<Node>>>>,
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
        let near = |_| {
            let nodes = Mutex::ranked(Rank::Opens, "pmfs inodes of a core", vec![None; NEAR]);
            Near { nodes: nodes.keyed(SHARDS as u64) }
        };
        let near = (0..core_count()).map(near).collect();
        Self { shards: (0..SHARDS).map(shard).collect(), near }
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
        let near = &self.near[slot() % self.near.len()].nodes;
        let place = ino as usize % NEAR;
        if let Some(node) = &near.lock()[place]
            && node.ino == ino
            && !node.is_gone.load(Ordering::Acquire)
        {
            return Ok(node.clone());
        }
        let node = self.find(ino, load)?;
        near.lock()[place] = Some(node.clone());
        Ok(node)
    }

    fn find(
        &self,
        ino: Ino,
        load: impl FnOnce() -> Result<Option<Inode>, Corrupt>,
    ) -> Result<Arc<Node>> {
        let mut shard = self.shard(ino).lock();
        if let Some(entry) = shard.get(&ino) {
            return Ok(entry.node.clone());
        }
        // An inode that is not cached cannot change, so it is read as it is.
        let inode = load()?.ok_or(Errno::NOENT)?;
        let node = Arc::new(Node::new(ino, inode));
        shard.insert(ino, Entry { node: node.clone(), opens: 0, linkable: false });
        Ok(node)
    }

    /// A new inode, which the caller has locked. It is here before it is on the medium: a caller
    /// that knows its number from an earlier file would read it from there, and there would be two
    /// of it.
    pub(crate) fn insert(&self, node: &Arc<Node>) {
        let entry = Entry { node: node.clone(), opens: 0, linkable: false };
        self.shard(node.ino).lock().insert(node.ino, entry);
    }

    /// As [`Table::insert`], without a name and open once.
    pub(crate) fn insert_nameless(&self, node: &Arc<Node>) {
        let entry = Entry { node: node.clone(), opens: 1, linkable: true };
        self.shard(node.ino).lock().insert(node.ino, entry);
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
        if let Some(entry) = self.shard(ino).lock().remove(&ino) {
            entry.node.is_gone.store(true, Ordering::Release);
        }
    }
}
