//! Quota files in the kernel's "vfs v1" format (`fs/quota/quotaio_v2.h`, `quota_tree.h`).
//!
//! A file consists of blocks of 1 KiB: a header, a tree of four levels, each indexed by a byte of
//! the id, the highest first, and blocks of entries. Those of them that have room form a list.

use std::collections::{BTreeMap, BTreeSet};

use drive::Block;

use crate::error::{Error, Result};
use crate::ondisk::BLOCK_SIZE;

/// Bytes of a quota block.
const QUOTA_BLOCK: usize = 1024;
/// Quota blocks in a file with one entry.
const FIRST_BLOCKS: usize = 6;
/// Bytes of a file with one entry.
pub(crate) const FIRST_SIZE: u64 = (FIRST_BLOCKS * QUOTA_BLOCK) as u64;
/// F2FS blocks of a file with one entry.
pub(crate) const FIRST_FS_BLOCKS: u32 = FIRST_SIZE.div_ceil(BLOCK_SIZE as u64) as u32;
/// The largest file that is read: over 800,000 ids.
pub(crate) const MAX_SIZE: u64 = 64 << 20;
/// Header of a block of entries, `struct qt_disk_dqdbheader`, 16 bytes: next and previous block
/// with room, then the number of entries, 16 bits.
const DATA_HEADER: usize = 16;
/// `struct v2r1_disk_dqblk`, 72 bytes.
const ENTRY: usize = 72;
const ENTRIES_PER_BLOCK: usize = (QUOTA_BLOCK - DATA_HEADER) / ENTRY;
/// The root of the tree, `QT_TREEOFF`.
const ROOT: u32 = 1;
const LEVELS: usize = 4;
/// Offsets in the header, `v2_disk_dqheader` and `v2_disk_dqinfo`.
const GRACE: usize = 8;
const BLOCKS: usize = 20;
const FREE_BLOCK: usize = 24;
const WITH_ROOM: usize = 28;
/// A week, the grace time of both limits.
const GRACE_SECONDS: u32 = 7 * 24 * 60 * 60;

/// What a quota file counts by. The number is its place in the superblock's `qf_ino`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuotaType {
    /// Owners.
    User = 0,
    /// Groups.
    Group = 1,
    /// Projects.
    Project = 2,
}

impl QuotaType {
    /// All of them, by number.
    pub const ALL: [Self; 3] = [Self::User, Self::Group, Self::Project];

    /// Its name.
    pub fn name(self) -> &'static str {
        ["user", "group", "project"][self as usize]
    }

    fn magic(self) -> u32 {
        [0xd9c0_1f11, 0xd9c0_1927, 0xd9c0_3f14][self as usize]
    }
}

/// How much an id uses and may use (`struct v2r1_disk_dqblk`). A limit of 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Most inodes.
    pub inode_hard_limit: u64,
    /// Inodes from which on the grace time runs.
    pub inode_soft_limit: u64,
    /// Inodes now.
    pub inodes: u64,
    /// Most space, in KiB.
    pub block_hard_limit: u64,
    /// Space from which on the grace time runs, in KiB.
    pub block_soft_limit: u64,
    /// Bytes now.
    pub bytes: u64,
    /// When the grace time for space ends, in seconds; 0 if it does not run.
    pub block_time: u64,
    /// When that for inodes ends.
    pub inode_time: u64,
}

impl Usage {
    fn decode(entry: &[u8]) -> Self {
        let word = |i: usize| long(entry, 8 * i);
        let usage = Self {
            inode_hard_limit: word(1),
            inode_soft_limit: word(2),
            inodes: word(3),
            block_hard_limit: word(4),
            block_soft_limit: word(5),
            bytes: word(6),
            block_time: word(7),
            inode_time: word(8),
        };
        // So that id 0 without use does not look like a free entry (`v2r1_mem2diskdqb`).
        let zero_but_time = Self { inode_time: 1, ..Self::default() };
        if usage == zero_but_time { Self::default() } else { usage }
    }

    fn encode(&self, id: u32) -> [u8; ENTRY] {
        let mut entry = [0; ENTRY];
        let inode_time = match (id, *self == Self::default()) {
            (0, true) => 1,
            _ => self.inode_time,
        };
        let words = [
            u64::from(id),
            self.inode_hard_limit,
            self.inode_soft_limit,
            self.inodes,
            self.block_hard_limit,
            self.block_soft_limit,
            self.bytes,
            self.block_time,
            inode_time,
        ];
        for (field, word) in entry.chunks_exact_mut(8).zip(words) {
            field.copy_from_slice(&word.to_le_bytes());
        }
        entry
    }
}

/// A quota file in memory.
#[derive(Clone)]
pub(crate) struct QuotaFile {
    kind: QuotaType,
    bytes: Vec<u8>,
    /// Where the entry of each id is.
    entries: BTreeMap<u32, usize>,
    /// F2FS blocks that differ from the file.
    changed: BTreeSet<u32>,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    field.map_or(0, |field| u32::from_le_bytes(*field))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>());
    field.map_or(0, |field| u64::from_le_bytes(*field))
}

/// Where quota block `block` begins.
fn start(block: u32) -> usize {
    block as usize * QUOTA_BLOCK
}

impl QuotaFile {
    /// A file without entries.
    pub(crate) fn new(kind: QuotaType) -> Self {
        let bytes = vec![0; 2 * QUOTA_BLOCK];
        let mut file = Self { kind, bytes, entries: BTreeMap::new(), changed: BTreeSet::new() };
        let header = [kind.magic(), 1, GRACE_SECONDS, GRACE_SECONDS, 0, 2, 0, 0];
        for (i, field) in header.into_iter().enumerate() {
            file.put(4 * i, &field.to_le_bytes());
        }
        file
    }

    /// The file with these contents.
    pub(crate) fn parse(kind: QuotaType, bytes: Vec<u8>) -> Result<Self> {
        let mut file = Self { kind, bytes, entries: BTreeMap::new(), changed: BTreeSet::new() };
        let (magic, version) = (word(&file.bytes, 0), word(&file.bytes, 4));
        if (magic, version) != (kind.magic(), 1) {
            let found = format!("magic {magic:#x}, version {version}");
            return Err(file.corrupt(0, found, "a quota file of its type, version 1"));
        }
        let (blocks, held) = (file.blocks() as usize, file.bytes.len() / QUOTA_BLOCK);
        if blocks > held || blocks < 2 {
            return Err(file.corrupt(0, format!("{blocks} blocks"), format!("2..={held}")));
        }
        file.walk(ROOT, 0, 0, &mut BTreeSet::new())?;
        Ok(file)
    }

    fn corrupt(&self, block: u32, found: String, allowed: impl ToString) -> Error {
        let what = ["user quota file", "group quota file", "project quota file"];
        Error::corrupt(what[self.kind as usize], block, found, allowed.to_string())
    }

    /// Notes the entries below `block` of the tree, whose ids begin with the bytes of `prefix`.
    fn walk(
        &mut self,
        block: u32,
        level: usize,
        prefix: u32,
        seen: &mut BTreeSet<u32>,
    ) -> Result<()> {
        if !seen.insert(block) {
            return Err(self.corrupt(block, "two pointers to it".into(), "a tree"));
        }
        for byte in 0..256_u32 {
            let child = word(&self.bytes, start(block) + 4 * byte as usize);
            if child == 0 {
                continue;
            }
            if child <= ROOT || child >= self.blocks() {
                let allowed = format!("2..{}", self.blocks());
                return Err(self.corrupt(block, format!("a pointer to {child}"), allowed));
            }
            let id = prefix << 8 | byte;
            if level + 1 < LEVELS {
                self.walk(child, level + 1, id, seen)?;
                continue;
            }
            let Some(at) = self.find_in_block(child, id) else {
                return Err(self.corrupt(child, "no entry".into(), format!("one of id {id}")));
            };
            self.entries.insert(id, at);
        }
        Ok(())
    }

    fn slots(block: u32) -> impl Iterator<Item = usize> {
        (0..ENTRIES_PER_BLOCK).map(move |slot| start(block) + DATA_HEADER + slot * ENTRY)
    }

    fn is_free_slot(&self, at: usize) -> bool {
        self.bytes.get(at..at + ENTRY).is_none_or(|entry| entry.iter().all(|byte| *byte == 0))
    }

    fn find_in_block(&self, block: u32, id: u32) -> Option<usize> {
        Self::slots(block).find(|at| word(&self.bytes, *at) == id && !self.is_free_slot(*at))
    }

    fn blocks(&self) -> u32 {
        word(&self.bytes, BLOCKS)
    }

    /// Ids and what they use, ascending.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, Usage)> {
        self.entries.keys().map(|id| (*id, self.get(*id)))
    }

    /// What `id` uses.
    pub(crate) fn get(&self, id: u32) -> Usage {
        let at = self.entries.get(&id);
        at.map_or(Usage::default(), |at| Usage::decode(&self.bytes[*at..*at + ENTRY]))
    }

    /// Grace times for space and for inodes, in seconds.
    pub(crate) fn grace(&self) -> [u64; 2] {
        [GRACE, GRACE + 4].map(|at| word(&self.bytes, at).into())
    }

    /// Sets what `id` uses.
    pub(crate) fn set(&mut self, id: u32, usage: &Usage) -> Result<()> {
        let at = match self.entries.get(&id) {
            Some(at) => *at,
            None => self.insert(id)?,
        };
        self.put(at, &usage.encode(id));
        Ok(())
    }

    fn put(&mut self, at: usize, data: &[u8]) {
        self.bytes[at..at + data.len()].copy_from_slice(data);
        let last = (at + data.len() - 1) / BLOCK_SIZE;
        self.changed.extend((at / BLOCK_SIZE..=last).map(|block| block as u32));
    }

    fn put_word(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_le_bytes());
    }

    /// Takes a free block, filled with zeroes (`get_free_dqblk`).
    fn take_block(&mut self) -> Result<u32> {
        let free = word(&self.bytes, FREE_BLOCK);
        if free > ROOT && free < self.blocks() {
            let next = word(&self.bytes, start(free));
            self.put_word(FREE_BLOCK, next);
            self.put(start(free), &[0; QUOTA_BLOCK]);
            return Ok(free);
        }
        let block = self.blocks();
        let end = start(block + 1);
        if end as u64 > MAX_SIZE {
            return Err(Error::NoSpace);
        }
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.put_word(BLOCKS, block + 1);
        self.put(start(block), &[0; QUOTA_BLOCK]);
        Ok(block)
    }

    /// Makes an entry for `id` and the way to it in the tree (`do_insert_tree`).
    fn insert(&mut self, id: u32) -> Result<usize> {
        let mut block = ROOT;
        let bytes = id.to_be_bytes();
        for byte in &bytes[..LEVELS - 1] {
            let at = start(block) + 4 * usize::from(*byte);
            let child = word(&self.bytes, at);
            block = if child == 0 {
                let new = self.take_block()?;
                self.put_word(at, new);
                new
            } else {
                child
            };
        }
        let (with_room, slot) = self.take_slot()?;
        self.put_word(start(block) + 4 * usize::from(bytes[LEVELS - 1]), with_room);
        self.entries.insert(id, slot);
        Ok(slot)
    }

    /// A free slot, and its block (`find_free_dqentry`).
    fn take_slot(&mut self) -> Result<(u32, usize)> {
        let listed = word(&self.bytes, WITH_ROOM);
        let is_sound = listed > ROOT && listed < self.blocks();
        let has_slot = |at: usize| self.is_free_slot(at);
        let slot = is_sound.then(|| Self::slots(listed).find(|at| has_slot(*at))).flatten();
        let (block, slot) = match slot {
            Some(slot) => (listed, slot),
            None => {
                let new = self.take_block()?;
                self.put_word(WITH_ROOM, new);
                (new, start(new) + DATA_HEADER)
            }
        };
        let head = start(block);
        let used = word(&self.bytes, head + 8) as u16;
        let used = used.saturating_add(1);
        self.put(head + 8, &used.to_le_bytes());
        if usize::from(used) == ENTRIES_PER_BLOCK {
            let next = word(&self.bytes, head);
            self.put(head, &[0; 8]);
            self.put_word(WITH_ROOM, next);
            if next > ROOT && next < self.blocks() {
                self.put_word(start(next) + 4, 0);
            }
        }
        Ok((block, slot))
    }

    /// The F2FS blocks that changed, by their place in the file; forgets that they did.
    pub(crate) fn take_changed(&mut self) -> Vec<(u64, &[u8])> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        let of = |block: u32| {
            let from = block as usize * BLOCK_SIZE;
            let to = self.bytes.len().min(from + BLOCK_SIZE);
            (from as u64, &self.bytes[from..to])
        };
        changed.map(of).collect()
    }

    /// How many F2FS blocks changed.
    pub(crate) fn changed(&self) -> usize {
        self.changed.len()
    }
}

/// The blocks of a file in which `id` has `inodes` inodes and `bytes` bytes.
pub(crate) fn first_blocks(kind: QuotaType, id: u32, inodes: u64, bytes: u64) -> Vec<Block> {
    let mut file = QuotaFile::new(kind);
    let set = file.set(id, &Usage { inodes, bytes, ..Usage::default() });
    debug_assert!(set.is_ok(), "a new file has room");
    file.bytes.resize(FIRST_FS_BLOCKS as usize * BLOCK_SIZE, 0);
    file.bytes.chunks_exact(BLOCK_SIZE).map(Block::from_prefix).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_again() {
        let mut file = QuotaFile::new(QuotaType::Group);
        let ids = [0, 1, 255, 256, 65_534, 1000, u32::MAX, 0x0102_0304];
        let more = 2000..2100;
        let of = |id: u32| Usage { inodes: u64::from(id) + 1, bytes: 4096, ..Usage::default() };
        for id in ids.into_iter().chain(more.clone()) {
            file.set(id, &of(id)).unwrap();
        }
        file.set(255, &Usage::default()).unwrap();
        file.set(0, &Usage::default()).unwrap();
        let mut again = QuotaFile::parse(QuotaType::Group, file.bytes.clone()).unwrap();
        assert_eq!(again.all().count(), ids.len() + more.len());
        assert_eq!(again.get(1000), of(1000));
        assert_eq!((again.get(0), again.get(255), again.get(7)), Default::default());
        again.set(3000, &of(3000)).unwrap();
        again.set(1000, &of(5)).unwrap();
        let third = QuotaFile::parse(QuotaType::Group, again.bytes.clone()).unwrap();
        assert_eq!((third.get(3000), third.get(1000)), (of(3000), of(5)));
        assert!(QuotaFile::parse(QuotaType::User, again.bytes.clone()).is_err());
    }

    #[test]
    fn damage_is_named() {
        let mut file = QuotaFile::new(QuotaType::User);
        file.set(7, &Usage { inodes: 1, ..Usage::default() }).unwrap();
        for at in (0..file.bytes.len()).step_by(4) {
            let mut bytes = file.bytes.clone();
            bytes[at] ^= 0x55;
            // Whatever it says, it neither panics nor loops.
            if let Ok(mut parsed) = QuotaFile::parse(QuotaType::User, bytes) {
                drop(parsed.set(9, &Usage { inodes: 1, ..Usage::default() }));
            }
        }
        let mut bytes = file.bytes.clone();
        bytes[BLOCKS] = 200;
        let said = QuotaFile::parse(QuotaType::User, bytes).err().unwrap().to_string();
        assert!(said.contains("user quota file"), "{said}");
    }
}
