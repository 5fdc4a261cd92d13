//! What is read and written, in bytes and by kind, while `iostat_enable` is 1 (`iostat.c`).

use std::sync::atomic::{AtomicBool, Ordering};

use cores::Line;
use serde_json::{Map, Value};

use crate::ondisk::BLOCK_SIZE;

/// What moves bytes, by its name in `/proc/fs/f2fs/<disk>/iostat_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    AppBuffered,
    AppDirect,
    FsData,
    FsNode,
    FsMeta,
    GcData,
    CpData,
    CpNode,
    Discard,
    AppBufferedRead,
    AppDirectRead,
    FsDataRead,
    FsNodeRead,
}

const NAMES: [&str; 13] = [
    "app_buffered",
    "app_direct",
    "fs_data",
    "fs_node",
    "fs_meta",
    "gc_data",
    "cp_data",
    "cp_node",
    "discard",
    "app_buffered_read",
    "app_direct_read",
    "fs_data_read",
    "fs_node_read",
];

/// The counts.
#[derive(Default)]
pub(crate) struct IoStat {
    on: AtomicBool,
    /// What is written is part of a checkpoint. Set only with the volume locked exclusively.
    in_checkpoint: AtomicBool,
    bytes: [Line; NAMES.len()],
}

impl IoStat {
    /// Begins to count, or ends it and forgets the counts (`f2fs_reset_iostat`).
    pub(crate) fn switch(&self, on: bool) {
        let was = self.on.swap(on, Ordering::Relaxed);
        if was && !on {
            self.bytes.iter().for_each(|bytes| bytes.store(0));
        }
    }

    /// A checkpoint begins or ends.
    pub(crate) fn set_in_checkpoint(&self, within: bool) {
        self.in_checkpoint.store(within, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn add(&self, what: Moved, bytes: usize) {
        if self.on.load(Ordering::Relaxed) {
            self.count(what, bytes);
        }
    }

    #[cold]
    fn count(&self, what: Moved, bytes: usize) {
        let what = match what {
            Moved::FsData if self.in_checkpoint.load(Ordering::Relaxed) => Moved::CpData,
            Moved::FsNode if self.in_checkpoint.load(Ordering::Relaxed) => Moved::CpNode,
            what => what,
        };
        self.bytes[what as usize].fetch_add(bytes as u64);
    }

    /// As [`IoStat::add`], in blocks.
    #[inline]
    pub(crate) fn add_blocks(&self, what: Moved, blocks: usize) {
        self.add(what, blocks * BLOCK_SIZE);
    }

    /// By name; empty if nothing is counted.
    pub(crate) fn by_name(&self) -> Map<String, Value> {
        if !self.on.load(Ordering::Relaxed) {
            return Map::new();
        }
        let counts = NAMES.iter().zip(&self.bytes);
        counts.map(|(name, bytes)| ((*name).to_owned(), bytes.load().into())).collect()
    }
}
