//! fsync(2): the file's data, then a record of the file or the transaction that has last changed
//! it, as the journal's policy says.

pub(crate) mod eligible;
pub(crate) mod fast;
mod record;
pub(crate) mod vouched;

use vfs::inode::Turn;
use vfs::{Errno, FileKind};

use crate::error::{Error, Result};
use crate::mount::engine::Engine;
use crate::ondisk::Ino;

impl Engine {
    /// Makes a file or directory durable.
    pub(crate) fn fsync(&self, ino: Ino, datasync: bool) -> Result<()> {
        self.check_usable()?;
        self.check_writable()?;
        let kind = self.attr(ino)?.kind;
        if !matches!(kind, FileKind::Regular | FileKind::Directory) {
            return Err(Errno::INVAL.into());
        }
        let _turn = Turn::take(self, ino.into());
        // The kernel answers for a directory's size alone. Names are what callers mean.
        match datasync && kind == FileKind::Regular {
            true => self.datasync_in_turn(ino),
            false => self.fsync_in_turn(ino),
        }
    }

    /// fdatasync(2): contents, and of the inode only what it takes to find them. Times of an
    /// overwritten file stay in memory, and no transaction is committed for them.
    fn datasync_in_turn(&self, ino: Ino) -> Result<()> {
        self.flush_contents(ino)?;
        let changed = {
            let shard = self.inodes.look(ino.into());
            shard.inodes.get(&ino).and_then(|cached| cached.data_id)
        };
        match self.is_open(changed) {
            true => self.fsync_in_turn(ino),
            false => self.commit_inode(ino, None),
        }
    }

    /// As [`Engine::fsync`]; the caller has the inode's turn.
    pub(crate) fn fsync_in_turn(&self, ino: Ino) -> Result<()> {
        let done = self.journal.fsync_by_record(ino.into(), self, || {
            self.inodes.look(ino.into()).inodes.get(&ino).and_then(|cached| cached.id)
        });
        self.heed(done)?;
        if self.journal.has_records()
            && let Some(cached) = self.inodes.own(ino.into()).inodes.get_mut(&ino)
        {
            // A record has it, until the transaction that changed it is committed. During the turn
            // neither the file's map nor its size on the drive changes.
            cached.data_id = None;
            self.note_fsynced(cached);
        }
        self.give_back_parked();
        Ok(())
    }

    /// Makes the transaction durable that has last changed an inode.
    pub(crate) fn commit_inode(&self, ino: Ino, changed: Option<journal::Id>) -> Result<()> {
        self.heed(self.journal.fsync(ino.into(), changed).map_err(Error::from))?;
        self.give_back_parked();
        Ok(())
    }
}
