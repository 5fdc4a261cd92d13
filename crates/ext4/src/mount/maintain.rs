//! The flusher of a mounted volume: writes back what has been dirty for long, and commits by age
//! (`commit=`). Where the journal has an area per core, a thread on each commits that.

use std::sync::Arc;

use cores::{JoinHandle, Nanos, now};
use vfs::inode::Shards;
use vfs::upkeep::{Flushed, Upkeep, flush};
use vfs::{Health, Ino};

use crate::inode::cached::Shard;
use crate::mount::fs::Ext4;

/// The thread that looks after a mounted volume. It must be stopped before unmount.
#[must_use = "dropped, its thread ends"]
pub struct Maintenance {
    fs: Arc<Ext4>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Maintenance {
    fn drop(&mut self) {
        self.fs.upkeep.end();
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
        if self.commits_by_core() {
            for core in 0..self.engine.journal.areas() {
                let fs = self.clone();
                let commit = move || fs.commit_on(core);
                threads.push(cores::spawn("ext4_commit", Some(core), commit));
            }
        }
        Maintenance { fs: self.clone(), threads }
    }

    /// Whether each area of the journal has a thread on its core that commits (Z-Journal, 2.2), so
    /// that none waits for another's.
    fn commits_by_core(&self) -> bool {
        self.engine.journal.areas() > 1
    }

    /// Commits the area of `core` by age.
    fn commit_on(&self, core: usize) {
        let mut next = now();
        while let Some(state) = self.upkeep.sleep(next, |_| false) {
            next = now() + state.own;
            drop(state);
            if !self.is_sound() {
                return;
            }
            // A commit that fails stops the journal, which the next operation reports.
            let _ = self.engine.commit_area(core);
        }
    }
}

impl Flushed for Ext4 {
    /// How old the last commit may become.
    type Own = Nanos;

    fn upkeep(&self) -> &Upkeep<Nanos> {
        &self.upkeep
    }

    fn commit_interval(own: &Nanos) -> Nanos {
        *own
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
        for index in 0..Shards::<Shard>::COUNT {
            let shard = self.engine.inodes.at(index);
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
            let _ = self.engine.flush_inode(ino);
        }
    }

    fn commit_if_older(&self, age: Nanos) {
        if self.commits_by_core() {
            return;
        }
        if now().saturating_sub(self.engine.last_commit.load()) >= age {
            // A commit that fails stops the journal, which the next operation reports.
            let _ = self.engine.commit();
        }
    }
}

/// An [`Upkeep`] for commits this often.
pub(super) fn upkeep(interval: Nanos) -> Upkeep<Nanos> {
    Upkeep::new("ext4 upkeep", interval)
}
