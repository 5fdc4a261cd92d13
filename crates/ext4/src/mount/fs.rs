//! A mounted ext4.

use std::sync::Arc;

use cores::Nanos;
use drive::Drive;
use vfs::upkeep::Upkeep;
use vfs::{Errno, FileKind, Health};

use crate::error::{Error, Result};
use crate::mount::engine::Engine;
use crate::mount::journal::Replay;
use crate::mount::load::load;
use crate::mount::options::MountOptions;
use crate::ondisk::ROOT_INO;

/// A mounted ext4 volume.
///
/// Dropping it without [`vfs::FileSystem::unmount`] is a crash: what was not durable is lost, and
/// the next mount recovers.
pub struct Ext4 {
    pub(crate) engine: Arc<Engine>,
    pub(super) options: MountOptions,
    /// What the thread that commits an area is told: how old changes may become. One for each, or
    /// all threads would wake at once and wait for one another.
    pub(super) commits: Box<[Upkeep<Nanos>]>,
    replay: Replay,
    orphans: usize,
    /// What was corrupt about an orphan, until somebody can be told.
    pub(super) corrupt: Option<Error>,
}

impl Ext4 {
    /// Mounts the volume on `drive`.
    ///
    /// Fails if a structure that it needs is corrupt ([`crate::Error::Corrupt`]) or requires
    /// something not built here ([`crate::Error::Unsupported`]).
    pub fn mount(drive: Arc<dyn Drive>, options: &MountOptions) -> Result<Self> {
        let (replay, engine) = load(drive, options)?;
        let marked = engine.check_root().and_then(|()| engine.mark(false));
        let cleaned = marked.and_then(|()| {
            engine.notes_corruption.store(1);
            engine.clean_orphans()
        });
        // A log with areas or records is not left to others, who do not know them.
        let (orphans, corrupt) = cleaned.inspect_err(|_| drop(engine.journal.close()))?;
        let commits = |_| Upkeep::new("ext4 commits", options.commit);
        let commits = (0..engine.journal.areas()).map(commits).collect();
        let policy = Some(engine.journal.options().policy);
        let options = MountOptions { data: Some(engine.data), policy, ..options.clone() };
        Ok(Self { engine: Arc::new(engine), options, commits, replay, orphans, corrupt })
    }

    /// What the log had when this volume was mounted.
    pub fn replay(&self) -> Replay {
        self.replay
    }

    /// How many orphans were freed when this volume was mounted.
    pub fn orphans(&self) -> usize {
        self.orphans
    }
}

impl Engine {
    /// Fails unless the root is a directory (`ext4_fill_super`).
    fn check_root(&self) -> Result<()> {
        let is_directory = self.look(ROOT_INO.into(), |shard| {
            let inode = &shard.inode(ROOT_INO)?.inode;
            Ok(inode.kind() == FileKind::Directory && inode.links() > 0 && inode.size > 0)
        });
        match is_directory {
            Ok(true) => Ok(()),
            Ok(false) | Err(Error::Posix(Errno::NOENT)) => {
                Err(Error::corrupt("root inode", 0_u32, "something else", "a directory"))
            }
            Err(error) => Err(error),
        }
    }

    /// Writes back everything and commits.
    pub(super) fn sync_all(&self) -> Result<()> {
        let mut written = Ok(());
        for index in 0..self.inodes.count() {
            let inos: Vec<_> = {
                let Some(shard) = self.inodes.at(index) else { continue };
                let dirty = shard.pages.dirty_inos().map(|ino| ino as u32);
                dirty.chain(shard.changed.iter().copied()).collect()
            };
            for ino in inos {
                // One that fails keeps no other from being written.
                written = written.and(self.flush_inode(ino));
            }
        }
        self.commit().and(written)
    }

    /// Syncs, and leaves the volume marked as clean. Calls that other threads make meanwhile fail,
    /// or what they made durable stays so.
    pub(crate) fn unmount(&self) -> Result<()> {
        self.check_usable()?;
        self.free_orphans();
        let synced = self.sync_all();
        // Nothing new begins, and the journal ends what has begun: the log of a volume that is
        // marked clean is not read, so it must be empty, and stay so.
        self.set_health(Health::Gone);
        synced
            .and_then(|()| self.journal.close().map_err(Into::into))
            .and_then(|()| self.mark(true))
    }

    /// Frees the inodes that only open files have kept, which nobody uses any more. Those that
    /// cannot be freed stay in the list.
    fn free_orphans(&self) {
        let orphans = self.orphans.lock().all();
        for ino in orphans {
            self.opens.forget(ino.into());
            let _ = self.evict(ino);
        }
    }
}
