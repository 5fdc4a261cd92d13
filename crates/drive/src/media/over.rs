//! The contents of another drive, with changes kept in memory.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use cores::Mutex;

use super::RamMedia;
use crate::{Block, Command, Drive, Lba, Output, Status};

/// Changes over a drive that itself does not change. Cloning takes a snapshot of the changes.
#[derive(Clone)]
pub struct OverMedia {
    /// Commands go one at a time, under one identifier.
    below: Arc<Mutex<Arc<dyn Drive>>>,
    blocks: u64,
    changed: RamMedia,
    /// Discarded ranges, start to end. They are zeroes, except for what was written since.
    holes: BTreeMap<Lba, Lba>,
}

impl OverMedia {
    /// No changes yet. Queue 0 of `below` is used only by this from now on.
    pub fn new(below: Arc<dyn Drive>) -> Self {
        let blocks = below.identify().blocks;
        let below = Arc::new(Mutex::named("below", below));
        Self { below, blocks, changed: RamMedia::new(), holes: BTreeMap::new() }
    }

    /// The block at `lba`.
    pub fn read(&self, lba: Lba) -> io::Result<Block> {
        if let Some(block) = self.changed.get(lba) {
            return Ok(block.clone());
        }
        let hole = self.holes.range(..=lba).next_back();
        if hole.is_some_and(|(_, end)| lba < *end) || lba >= self.blocks {
            return Ok(Block::zeroed());
        }
        self.read_below(lba).map_err(io::Error::other)
    }

    fn read_below(&self, lba: Lba) -> Result<Block, Status> {
        let below = self.below.lock();
        let read = Command::Read { lba, blocks: 1 };
        let completion = below.issue(0, 0, read).or_else(|| below.wait_for(0, 0));
        match completion.ok_or(Status::NotReady)?.result? {
            Output::Data(mut data) => data.pop().ok_or(Status::UnrecoveredRead),
            _ => Err(Status::UnrecoveredRead),
        }
    }

    /// Keeps `block` for `lba`.
    pub fn write(&mut self, lba: Lba, block: Block) {
        self.changed.write(lba, block);
    }

    /// Makes the range read as zeroes.
    pub fn discard(&mut self, lba: Lba, blocks: u64) {
        let (mut start, mut end) = (lba, lba.saturating_add(blocks));
        self.changed.discard(lba, blocks);
        // Merges the new hole with all holes that it touches, so that holes never overlap.
        while let Some((&first, &last)) = self.holes.range(..=end).next_back() {
            if last < start {
                break;
            }
            self.holes.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        self.holes.insert(start, end);
    }

    /// All of it in memory, and how many blocks could not be read.
    pub fn snapshot(&self) -> (RamMedia, u64) {
        let (mut ram, mut unreadable) = (RamMedia::new(), 0);
        for lba in 0..self.blocks {
            match self.read(lba) {
                Ok(block) if block == Block::zeroed() => {}
                Ok(block) => ram.write(lba, block),
                Err(_) => unreadable += 1,
            }
        }
        (ram, unreadable)
    }
}

impl std::fmt::Debug for OverMedia {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (changed, holes) = (&self.changed, &self.holes);
        f.debug_struct("OverMedia").field("changed", changed).field("holes", holes).finish()
    }
}
