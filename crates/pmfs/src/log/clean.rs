//! Cleaning: a log that is mostly history is replaced by one that says what is.
//!
//! The new log is written where nothing points to, durably, and then one word of the inode switches
//! to it (NOVA's "thorough" collection, section 4.6, with one word instead of head and tail). So a
//! cut leaves the old log or the new one. Where there are logs of cores, the new log says what they
//! say as well, and a second word lets go of them in the same commit. The order of the entries does
//! not matter but for the attributes, which come last, because entries about data carry a size and
//! a time of their own.

use super::Log;
use super::cores::CoreLogs;
use crate::commit::Change;
use crate::inode::node::Inode;
use crate::mount::Pmfs;
use crate::ondisk::extent::Extent;
use crate::ondisk::inode::{CORES_AT, RawInode};
use crate::ondisk::log::{Entry, LINES};

/// Shorter logs are left alone.
const PAGES_MIN: usize = 4;

impl Pmfs {
    /// Cleans the inode's log if more than half of it says nothing any more. The caller has the
    /// inode locked, and nothing is staged.
    pub(crate) fn clean(&self, inode: &mut Inode) {
        let Some(log) = inode.log.as_ref().filter(|_| !inode.is_free()) else { return };
        let of_cores = inode.cores.as_ref().map_or(0, |cores| cores.pages());
        let pages = log.pages.len() + of_cores;
        // It is counted again only when the log has grown by half.
        if pages < PAGES_MIN || pages * 2 < log.cleaned * 3 {
            return;
        }
        let live = inode.live_lines();
        if live * 2 > pages as u64 * (LINES - 1) {
            if let Some(log) = &mut inode.log {
                log.cleaned = pages;
            }
            return;
        }
        let mut new = inode.snapshot(log);
        // Without space it stays as it is.
        if new.reserve(&self.space, live + 1, false).is_err() {
            new.blocks().for_each(|block| self.space.give(block, 1));
            return;
        }
        let mut change = Change::new(&*self.pm);
        new.flush(&mut change);
        let cores = inode.cores.take_if(|cores| of_cores > 0 && !cores.blocks().is_empty());
        if cores.is_some() {
            change.patch(inode.at + CORES_AT, &[0; 8]);
            inode.cores = Some(Box::new(CoreLogs::new(self.log_count())));
        }
        let _done = self.journal.commit(change);
        new.cleaned = new.pages.len();
        if let Some(old) = inode.log.replace(new) {
            old.blocks().for_each(|block| self.space.give(block, 1));
        }
        let old = cores.into_iter().flat_map(|cores| cores.blocks());
        old.for_each(|block| self.space.give(block, 1));
    }
}

impl Inode {
    /// Lines that a log of what is would have.
    fn live_lines(&self) -> u64 {
        2 + self.map.extents().count() as u64 + self.index.log_lines()
    }

    /// A log of what is, all of it staged.
    fn snapshot(&self, old: &Log) -> Log {
        let mut new = Log::new(old.slot_at);
        new.version = old.version;
        for extent in self.map.extents() {
            new.stage(&written(&self.raw, extent));
        }
        for (cookie, ino, kind, name) in self.index.log_entries() {
            new.stage(&Entry::Name { cookie, to: Some((ino, kind)), name: name.into() });
        }
        new.stage(&Entry::Attr(Box::new(self.raw)));
        new
    }
}

/// The entry for an extent of a file with these attributes.
pub(crate) fn written(raw: &RawInode, extent: Extent) -> Entry {
    let mtime = (raw.mtime.get(), raw.mtime_nanos.get());
    Entry::Write { extent, size: raw.size.get(), mtime }
}
