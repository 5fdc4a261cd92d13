//! fsync(2): the file's data, then a record of the file or the transaction that has last changed
//! it, as the journal's policy says.

pub(crate) mod eligible;
mod record;

use vfs::inode::Turn;
use vfs::{Errno, FileKind};

use crate::error::{Error, Result};
use crate::mount::engine::Engine;
use crate::ondisk::Ino;

impl Engine {
    /// Makes a file or directory durable.
    pub(crate) fn fsync(&self, ino: Ino, _datasync: bool) -> Result<()> {
        self.check_usable()?;
        self.check_writable()?;
        if !matches!(self.attr(ino)?.kind, FileKind::Regular | FileKind::Directory) {
            return Err(Errno::INVAL.into());
        }
        let _turn = Turn::take(self, ino.into());
        self.fsync_in_turn(ino)
    }

    /// As [`Engine::fsync`]; the caller has the inode's turn.
    pub(crate) fn fsync_in_turn(&self, ino: Ino) -> Result<()> {
        self.journal.fsync_by_record(ino.into(), self, || {
            self.inodes.look(ino.into()).inodes.get(&ino).and_then(|cached| cached.id)
        })?;
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
