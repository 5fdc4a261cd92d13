//! Where the names of large directories are, in memory.
//!
//! A name may be in two blocks of each level of its directory, and there are as many levels as the
//! directory has doubled. The index of a directory has for each entry its hash and its place, and
//! for each block the longest row of free slots. So a look-up reads the block of the name it finds
//! and no other, and a new name goes where the walk through the levels would put it.
//!
//! An index is built by look-ups: each one that holds the volume's lock exclusively reads a few
//! more blocks ([`STEP`]) into it. Until it has them all, it answers nothing. All indexes together
//! have a limit. Beyond it, the next exclusive holder drops an index that was not used recently, as
//! a whole. If all were used, the one that grew is dropped, and its directory goes without an index
//! for a while.
//!
//! Invariant: of the blocks it has read, an index has each entry that the walk would find. A
//! look-up checks the entry in its block.

#[cfg(test)]
mod tests;

use std::array;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use cores::Line;
use hashbrown::HashTable;
use smallvec::SmallVec;
use vfs::Ino;

use crate::error::Result;
use crate::inode::see::See;
use crate::inode::shards::{Inodes, Shard};
use crate::mount::engine::Engine;
use crate::ondisk::Nid;
use crate::ondisk::dentry::{
    Dentries, ENTRIES_PER_BLOCK, bucket_blocks, bucket_of, buckets, level_of,
};
use crate::ondisk::inode::MAX_DIR_DEPTH;

/// Directories of fewer levels have at most 14 blocks, and are looked through without an index.
const LEAST_DEPTH: u32 = 3;
/// How many blocks a walk adds to an unfinished index.
const STEP: u64 = 32;
/// How many walks a directory without room for its index makes before it tries again.
const WALKS: u32 = 1 << 14;
/// Tables of an index. Growing takes the time of one of them, and the next operation waits for it.
const TABLES: usize = 16;

/// The indexes of some directories.
pub(crate) struct NameIndexes {
    dirs: BTreeMap<Nid, NameIndex>,
    room: Arc<NameRoom>,
}

/// How much memory all indexes of a volume take.
pub(crate) struct NameRoom {
    bytes: Line,
    limit: usize,
    /// The directory whose index grew beyond the limit.
    grown: Line,
}

/// How much an index knows of its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// The blocks below this one.
    Below(u64),
    /// All of them.
    All,
    /// Nothing, for so many walks.
    Nothing(u32),
}

struct NameIndex {
    dir_level: u8,
    extent: Extent,
    /// Used since the last index was begun or dropped. Set under the shared lock, too.
    used: AtomicBool,
    /// Entries as [`key_of`] makes them, by the highest bits of their hash.
    tables: [HashTable<u64>; TABLES],
    /// The longest row of free slots of each block. Blocks behind the last one are empty.
    room: Vec<u8>,
    /// What all this takes.
    bytes: usize,
}

/// An entry: its hash, and below it the level, which block of the bucket, and the slot. Among
/// entries of one hash this is the order in which the walk finds them.
fn key_of(hash: u32, dir_level: u8, index: u64, slot: usize) -> Option<u64> {
    let level = level_of(index, dir_level)?;
    let bucket = bucket_of(level, dir_level, hash);
    let nth = index.checked_sub(bucket.start).filter(|_| bucket.end > index)?;
    Some(u64::from(hash) << 32 | u64::from(level) << 16 | nth << 8 | slot as u64)
}

/// Spreads hashes over a table. They are well mixed, but the table looks at both ends.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn hash_of(key: u64) -> u32 {
    (key >> 32) as u32
}

impl NameIndex {
    fn new(dir_level: u8) -> Self {
        Self {
            dir_level,
            extent: Extent::Below(0),
            used: AtomicBool::new(true),
            tables: array::from_fn(|_| HashTable::new()),
            room: Vec::new(),
            bytes: size_of::<Self>(),
        }
    }

    fn knows(&self, index: u64) -> bool {
        match self.extent {
            Extent::Below(end) => index < end,
            Extent::All => true,
            Extent::Nothing(_) => false,
        }
    }

    fn table(&mut self, hash: u32) -> &mut HashTable<u64> {
        &mut self.tables[(hash >> 28) as usize]
    }

    fn insert(&mut self, hash: u32, index: u64, slot: usize) {
        if let Some(key) = key_of(hash, self.dir_level, index, slot) {
            let table = self.table(hash);
            let before = table.allocation_size();
            table.insert_unique(spread(hash), key, |key| spread(hash_of(*key)));
            let grown = table.allocation_size() - before;
            self.bytes += grown;
        }
    }

    fn remove(&mut self, hash: u32, index: u64, slot: usize) {
        if let Some(key) = key_of(hash, self.dir_level, index, slot)
            && let Ok(entry) = self.table(hash).find_entry(spread(hash), |other| *other == key)
        {
            entry.remove();
        }
    }

    fn set_room(&mut self, index: u64, room: usize) {
        let index = index as usize;
        if index >= self.room.len() {
            let before = self.room.capacity();
            self.room.resize(index + 1, ENTRIES_PER_BLOCK as u8);
            self.bytes += self.room.capacity() - before;
        }
        self.room[index] = room as u8;
    }

    fn add_block(&mut self, index: u64, entries: &Dentries<'_>) {
        for (slot, hash) in (0..entries.slots()).filter_map(|s| Some((s, entries.hash_at(s)?))) {
            self.insert(hash, index, slot);
        }
        self.set_room(index, entries.longest_free());
    }

    /// Where entries of `hash` are on the first `depth` levels, in the order of the walk.
    fn find(&self, hash: u32, depth: u32) -> SmallVec<[(u64, usize); 2]> {
        let table = &self.tables[(hash >> 28) as usize];
        let of_hash = table.iter_hash(spread(hash)).filter(|key| hash_of(**key) == hash);
        let mut keys: SmallVec<[u64; 2]> = of_hash.copied().collect();
        keys.sort_unstable();
        let places = keys.into_iter().map(|key| {
            let (level, nth, slot) = (key as u32 >> 16, key >> 8 & 0xff, key as usize & 0xff);
            (level, bucket_of(level, self.dir_level, hash).start + nth, slot)
        });
        places
            .take_while(|(level, ..)| *level < depth)
            .map(|(_, index, slot)| (index, slot))
            .collect()
    }

    /// The first level on which an entry of `hash` finds `slots` free slots in a row.
    fn level_with_room(&self, hash: u32, slots: usize) -> u32 {
        let mut start = 0;
        for level in 0..MAX_DIR_DEPTH {
            let (count, blocks) = (buckets(level, self.dir_level), bucket_blocks(level));
            let bucket = start + u64::from(hash) % count * blocks;
            let room = self.room.get(bucket as usize..).unwrap_or_default();
            let known = room.len().min(blocks as usize);
            if known < blocks as usize || room[..known].iter().any(|&r| usize::from(r) >= slots) {
                return level;
            }
            start += count * blocks;
        }
        MAX_DIR_DEPTH
    }
}

impl NameRoom {
    /// For indexes of up to `bytes` in all.
    pub(crate) fn new(bytes: u64) -> Self {
        let limit = usize::try_from(bytes).unwrap_or(usize::MAX);
        Self { bytes: Line::default(), limit, grown: Line::default() }
    }

    /// Bytes that the indexes take.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load()
    }

    /// Whether there are more than there should be.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.bytes.load() as usize > self.limit
    }

    /// The index of `dir` takes `after` bytes now.
    fn resize(&self, dir: Nid, before: usize, after: usize) {
        if before != after {
            self.bytes.fetch_add((after as u64).wrapping_sub(before as u64));
            if after > before && self.is_exceeded() {
                self.grown.store(dir.into());
            }
        }
    }
}

impl NameIndexes {
    /// No indexes yet.
    pub(crate) fn sharing(room: &Arc<NameRoom>) -> Self {
        Self { dirs: BTreeMap::new(), room: room.clone() }
    }

    /// Whether the index of `dir` answers; `None` if it may do so before long.
    pub(crate) fn answers(&self, dir: Nid) -> Option<bool> {
        let index = self.dirs.get(&dir)?;
        match index.extent {
            Extent::Below(_) => None,
            Extent::Nothing(_) => Some(false),
            Extent::All => {
                // Most often it is set: others need not lose their copy of the cache line.
                if !index.used.load(Relaxed) {
                    index.used.store(true, Relaxed);
                }
                Some(true)
            }
        }
    }

    /// Block and slot of each entry of `hash` on the first `depth` levels of `dir`, whose index
    /// answers.
    pub(crate) fn find(&self, dir: Nid, hash: u32, depth: u32) -> SmallVec<[(u64, usize); 2]> {
        self.dirs.get(&dir).map(|index| index.find(hash, depth)).unwrap_or_default()
    }

    /// A level of `dir` below which an entry of `hash` finds no row of `slots` free slots.
    pub(crate) fn level_with_room(&self, dir: Nid, hash: u32, slots: usize) -> u32 {
        let index = self.dirs.get(&dir).filter(|index| index.extent == Extent::All);
        index.map_or(0, |index| index.level_with_room(hash, slots))
    }

    /// Whether the index of `dir` has to be told of changes at this place.
    pub(crate) fn knows(&self, dir: Nid, index: u64) -> bool {
        self.dirs.get(&dir).is_some_and(|names| names.knows(index))
    }

    /// To be called when the entry at `slot` of block `index` was added or removed.
    pub(crate) fn changed(&mut self, dir: Nid, index: u64, slot: usize, entries: &Dentries<'_>) {
        self.change(dir, index, |names| {
            match entries.hash_at(slot) {
                Some(hash) => names.insert(hash, index, slot),
                None => {
                    // What was there still has its hash.
                    let raw = entries.raw(slot).unwrap_or_default();
                    names.remove(raw.hash.get(), index, slot);
                }
            }
            names.set_room(index, entries.longest_free());
        });
    }

    /// Drops the index of `dir`, which was removed.
    pub(crate) fn forget(&mut self, dir: Nid) {
        if let Some(index) = self.dirs.remove(&dir) {
            self.room.resize(dir, index.bytes, 0);
        }
    }

    fn insert(&mut self, dir: Nid, index: NameIndex) {
        self.forget(dir);
        self.room.resize(dir, 0, index.bytes);
        self.dirs.insert(dir, index);
    }

    /// Changes what is known of block `index`.
    fn change(&mut self, dir: Nid, index: u64, change: impl FnOnce(&mut NameIndex)) {
        let Some(names) = self.dirs.get_mut(&dir) else { return };
        if index >= self.room.limit as u64 {
            // The room of the blocks before it alone is too much.
            return self.leave_out(dir);
        }
        let before = names.bytes;
        change(names);
        self.room.resize(dir, before, names.bytes);
    }

    fn leave_out(&mut self, dir: Nid) {
        self.insert(dir, NameIndex { extent: Extent::Nothing(WALKS), ..NameIndex::new(0) });
    }

    fn set_extent(&mut self, dir: Nid, extent: Extent) {
        if let Some(index) = self.dirs.get_mut(&dir)
            && matches!(index.extent, Extent::Below(_))
        {
            index.extent = extent;
        }
    }
}

/// Whether a directory of this depth is large enough for an index.
pub(crate) fn is_worth_it(depth: u32) -> bool {
    depth >= LEAST_DEPTH
}

impl Inodes {
    /// Drops unused indexes until the rest is within the limit, or else the one that has grown.
    pub(crate) fn shrink_names(&mut self) {
        while self.names.is_exceeded() {
            let grown = self.names.grown.load() as Nid;
            let all = self.all().flat_map(|shard| &shard.names.dirs);
            let unused = all.filter(|(dir, index)| **dir != grown && !index.used.load(Relaxed));
            let Some(dir) = unused.map(|(dir, _)| *dir).min() else {
                self.begin_watch();
                self.names.grown.store(0);
                let names = &mut self.of(grown).names;
                if names.dirs.contains_key(&grown) {
                    names.leave_out(grown);
                }
                return;
            };
            self.of(dir).names.forget(dir);
        }
    }

    /// From now on only those that are used again are in use.
    fn begin_watch(&mut self) {
        let all = self.all().flat_map(|shard| shard.names.dirs.values_mut());
        all.for_each(|index| *index.used.get_mut() = false);
    }

    /// The block at which the index of `dir` goes on. `None` if it needs no more, or is left out.
    fn next_block(&mut self, dir: Nid, dir_level: u8) -> Option<u64> {
        let names = &mut self.of(dir).names;
        if let Some(NameIndex { extent: Extent::Nothing(walks), .. }) = names.dirs.get_mut(&dir) {
            *walks -= 1;
            if *walks > 0 {
                return None;
            }
            names.forget(dir);
        }
        if !names.dirs.contains_key(&dir) {
            self.begin_watch();
            self.of(dir).names.insert(dir, NameIndex::new(dir_level));
        }
        match self.of(dir).names.dirs.get(&dir)?.extent {
            Extent::Below(next) => Some(next),
            Extent::All | Extent::Nothing(_) => None,
        }
    }
}

impl Engine {
    /// Whether the index of `dir` answers. If not, a few more blocks are read into it.
    pub(crate) fn learn_names(&mut self, dir: Nid) -> Result<bool> {
        if let Some(true) = self.inodes.of(dir).names.answers(dir) {
            return Ok(true);
        }
        let inode = self.view(dir)?;
        let (dir_level, end) = (inode.dir_level, inode.layout().addr_counts().max_blocks());
        // Where a block cannot be read, the walk may still find its way.
        if let Some(next) = self.inodes.next_block(dir, dir_level)
            && self.learn_blocks(dir, next, end).is_err()
        {
            self.inodes.of(dir).names.leave_out(dir);
        }
        Ok(self.inodes.of(dir).names.answers(dir) == Some(true))
    }

    fn learn_blocks(&mut self, dir: Nid, from: u64, end: u64) -> Result<()> {
        let mut next = from;
        for _ in 0..STEP {
            let known = next < end && self.page(dir, next, (from + STEP).min(end))?.is_some();
            if !known {
                let Some(index) = self.next_allocated(dir, next..end, true)? else {
                    self.inodes.of(dir).names.set_extent(dir, Extent::All);
                    break;
                };
                next = index;
                self.page(dir, next, next + 1)?;
            }
            let Shard { names, pages, .. } = self.inodes.of(dir);
            if let Some(block) = pages.peek(Ino::from(dir), next) {
                let entries = Dentries::block(block, dir);
                names.change(dir, next, |index| index.add_block(next, &entries));
            }
            next += 1;
            names.set_extent(dir, Extent::Below(next));
            self.inodes.shrink_names();
            if self.inodes.of(dir).names.answers(dir).is_some() {
                break;
            }
        }
        Ok(())
    }
}
