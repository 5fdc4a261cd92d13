//! Persistent memory that remembers what it held, for a repair that can be taken back.

use std::io;
use std::sync::Arc;

use super::{Pm, PmInfo, WORD};
use crate::undo::Log;

/// Memory whose blocks are logged, durably, before they are changed. What cannot be logged is not
/// changed, and neither is anything after it: [`Pm::sync`] says so.
pub(crate) struct PmUndo {
    below: Arc<dyn Pm>,
    log: Arc<Log>,
}

impl PmUndo {
    pub(crate) fn new(below: Arc<dyn Pm>, log: Arc<Log>) -> Arc<Self> {
        Arc::new(Self { below, log })
    }
}

impl Pm for PmUndo {
    fn info(&self) -> &PmInfo {
        self.below.info()
    }

    fn read(&self, at: u64, to: &mut [u8]) {
        self.below.read(at, to);
    }

    fn load(&self, at: u64) -> u64 {
        self.below.load(at)
    }

    fn store(&self, at: u64, from: &[u8]) {
        if self.log.keep(at, from.len() as u64) {
            self.below.store(at, from);
        }
    }

    fn store_word(&self, at: u64, word: u64) {
        if self.log.keep(at, WORD) {
            self.below.store_word(at, word);
        }
    }

    fn stream(&self, at: u64, from: &[u8]) {
        if self.log.keep(at, from.len() as u64) {
            self.below.stream(at, from);
        }
    }

    fn write_back(&self, at: u64, len: u64) {
        self.below.write_back(at, len);
    }

    fn fence(&self) {
        self.below.fence();
    }

    fn sync(&self) -> io::Result<()> {
        match self.log.keep(0, 0) {
            true => self.below.sync(),
            false => Err(io::Error::other("the undo log cannot be written")),
        }
    }
}
