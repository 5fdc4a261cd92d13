//! A view of a memory whose changes stay in this process: for recovery of what may not be changed.

use std::sync::Arc;

use cores::RwLock;

use super::{Pm, PmInfo, WORD};
use crate::{BLOCK_SIZE, RamMedia};

const BLOCK: u64 = BLOCK_SIZE as u64;

/// Memory over another, which stays as it is.
pub struct PmOverlay {
    below: Arc<dyn Pm>,
    info: PmInfo,
    /// Blocks that were changed. Protects them against readers during a change.
    changed: RwLock<RamMedia>,
}

impl PmOverlay {
    /// Shows what `below` holds, until it is changed here.
    pub fn new(below: Arc<dyn Pm>) -> Arc<Self> {
        let changed = RwLock::named("pm overlay", RamMedia::new());
        Arc::new(Self { info: below.info().clone(), below, changed })
    }
}

impl Pm for PmOverlay {
    fn info(&self) -> &PmInfo {
        &self.info
    }

    fn read(&self, at: u64, to: &mut [u8]) {
        let changed = self.changed.read();
        let mut done = 0;
        while done < to.len() {
            let here = at + done as u64;
            let offset = (here % BLOCK) as usize;
            let len = (to.len() - done).min(BLOCK_SIZE - offset);
            let part = &mut to[done..done + len];
            match changed.get(here / BLOCK) {
                Some(block) => part.copy_from_slice(&block[offset..offset + len]),
                None => self.below.read(here, part),
            }
            done += len;
        }
    }

    fn load(&self, at: u64) -> u64 {
        let mut word = [0; WORD as usize];
        self.read(at, &mut word);
        u64::from_le_bytes(word)
    }

    fn store(&self, at: u64, from: &[u8]) {
        let mut changed = self.changed.write();
        let mut done = 0;
        while done < from.len() {
            let here = at + done as u64;
            let offset = (here % BLOCK) as usize;
            let len = (from.len() - done).min(BLOCK_SIZE - offset);
            let is_new = changed.get(here / BLOCK).is_none();
            let block = changed.change(here / BLOCK);
            if is_new {
                self.below.read(here / BLOCK * BLOCK, block);
            }
            block[offset..offset + len].copy_from_slice(&from[done..done + len]);
            done += len;
        }
    }

    fn store_word(&self, at: u64, word: u64) {
        self.store(at, &word.to_le_bytes());
    }

    fn stream(&self, at: u64, from: &[u8]) {
        self.store(at, from);
    }

    fn write_back(&self, _at: u64, _len: u64) {}

    fn fence(&self) {}
}
