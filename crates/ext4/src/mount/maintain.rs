//! The threads of a mounted volume: the flusher writes back what has been dirty for long, and a
//! thread for each area of the journal commits it by age (`commit=`; the kernel's `kjournald2`), so
//! that no commit waits for write-back or for another area's.

use std::sync::Arc;

use cores::{JoinHandle, Nanos, now};
use vfs::upkeep::{Flushed, Upkeep, flush};
use vfs::{Health, Ino};

use crate::mount::fs::Ext4;

/// The thread that looks after a mounted volume. It must be stopped before unmount.
#[must_use = "dropped, its thread ends"]
pub struct Maintenance {
    fs: Arc<Ext4>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Maintenance {
    fn drop(&mut self) {
        self.fs.engine.upkeep.end();
        self.fs.commits.iter().for_each(Upkeep::end);
        for thread in self.threads.drain(..) {
            // A thread that panicked has reported it; the volume's own state shows the rest.
            let _ = thread.result();
        }
    }
}

impl Ext4 {
    /// Starts looking after the volume.
    pub fn maintain(self: &Arc<Self>) -> Maintenance {
        let fs = self.clone();
        let mut threads = vec![cores::spawn("ext4_flush", None, move || flush(&*fs))];
        let areas = self.engine.journal.areas();
        for area in 0..areas {
            let fs = self.clone();
            // An area of several is its core's (Z-Journal, 2.2).
            let core = (areas > 1).then_some(area);
            threads.push(cores::spawn("ext4_commit", core, move || fs.commit_by_age(area)));
        }
        Maintenance { fs: self.clone(), threads }
    }

    /// Commits the running transaction of an area once it is as old as `commit=` says
    /// (`t_expires`). Where a commit took those of other areas along, they are young again.
    fn commit_by_age(&self, area: usize) {
        let Some(upkeep) = self.commits.get(area) else { return };
        let mut last = now();
        let mut interval = upkeep.lock().own;
        let due = |last: Nanos, interval| last.saturating_add(interval);
        while let Some(state) = upkeep.sleep(due(last, interval), |own| *own != interval) {
            interval = state.own;
            drop(state);
            let Some((running, since)) = self.engine.journal.running(area) else {
                last = now();
                continue;
            };
            last = last.max(since);
            if now() < due(last, interval) {
                continue;
            }
            if !self.is_sound() {
                return;
            }
            last = now();
            // Where another area's commit is closing this one, that commit is waited for, and the
            // transaction that follows is young. A commit that fails stops the journal, which the
            // next operation reports.
            let _ = self.engine.commit_one(running);
        }
    }
}

impl Flushed for Ext4 {
    type Own = ();

    fn upkeep(&self) -> &Upkeep<()> {
        &self.engine.upkeep
    }

    fn is_sound(&self) -> bool {
        self.engine.health() == Health::Sound && self.engine.journal.check().is_ok()
    }

    /// Blocks written stand for operations: nothing here waits for a quiet moment.
    fn operations(&self) -> u64 {
        self.engine.io.written_blocks()
    }

    fn dirty_inos(&self) -> Vec<Ino> {
        let mut inos = Vec::new();
        for index in 0..self.engine.inodes.count() {
            let Some(shard) = self.engine.inodes.at(index) else { continue };
            inos.extend(shard.pages.dirty_inos());
            inos.extend(shard.changed.iter().map(|ino| Ino::from(*ino)));
        }
        inos.sort_unstable();
        inos.dedup();
        inos
    }

    fn write_back(&self, ino: Ino) {
        if let Ok(ino) = u32::try_from(ino) {
            // It stays dirty, so the file's next fsync meets the failure again.
            let _ = self.engine.flush_by_parts(ino);
        }
    }
}
