//! A mounted volume, beyond POSIX.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use drive::{Block, Lba};
use serde_json::{Map, Value};

use crate::attributes::Attribute;
use crate::kind::Ioctl;
use crate::{Attr, Creator, Errno, FileSystem, Ino, Result, SetAttr, Timespec};

/// What recovery found and did at mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The last unmount was clean, so there was nothing to do.
    pub clean: bool,
    /// Log entries (node blocks, transactions) that were read.
    pub scanned: u64,
    /// Entries replayed.
    pub replayed: u64,
    /// Inodes of which some entries were discarded.
    pub skipped: u64,
    /// Inodes that were open but had no name, now freed.
    pub orphans: u64,
}

/// Where a page is, if it is not a hole.
#[derive(Clone, Copy, Debug)]
pub enum PageAt<'a> {
    /// In memory: it may be newer than what the drive has.
    Memory(&'a Block),
    /// On the drive only.
    Drive(Lba),
}

/// What becomes durable when a mounted volume is shut down (`FS_IOC_SHUTDOWN`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Everything, as after `sync`.
    FullSync,
    /// Metadata, without file data.
    MetaSync,
    /// Nothing more than is durable already.
    NoSync,
    /// Dirty metadata, each block at its own place.
    MetaFlush,
}

/// A step of an atomic write of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// From now on, only the writer sees its changes to the file.
    Start,
    /// All writes since the start take effect together; after a cut all of them are there or none.
    Commit,
    /// The file is again what it was at the start.
    Abort,
}

/// How a file was laid out, and how it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defragmented {
    /// Pieces before.
    pub extents_before: u64,
    /// Pieces now.
    pub extents_after: u64,
    /// Blocks that were moved.
    pub blocks: u64,
}

/// Is told, in one line each, of failures that no caller learns of or that stop the volume. It may
/// be called with the volume locked, so it must not call it back.
pub type Witness = Arc<dyn Fn(&str) + Send + Sync>;

/// A mounted volume. A file system leaves out what it does not have.
pub trait Volume: FileSystem {
    /// What recovery did when it was mounted.
    fn recovery(&self) -> Recovery;

    /// The options in force, as for `mount -o`: those asked for, and those that its drive requires.
    fn options(&self) -> String {
        String::new()
    }

    /// Attributes and statistics by name, in the order to show them.
    fn status(&self) -> Map<String, Value> {
        Map::new()
    }

    /// What there is to know of each attribute: those of [`Volume::status`] that have a name in
    /// `/sys/fs`, and those that can be set.
    fn attributes(&self) -> Vec<Attribute> {
        Vec::new()
    }

    /// Bytes that files have in memory only, or that were lost on their way to the drive.
    fn unwritten(&self) -> u64 {
        0
    }

    /// Reports failures to `witness` from now on, instead of to nobody.
    fn report_to(&self, witness: Witness) {
        drop(witness);
    }

    /// Sets attributes, all or none. Fails with a message that says what is allowed.
    fn set(&self, settings: &[(&str, &str)]) -> super::Result<()> {
        match settings.first() {
            Some((name, _)) => Err(super::Error::Usage(format!("{name}: no such attribute"))),
            None => Ok(()),
        }
    }

    /// Starts the threads that look after the volume. They end when the returned value is dropped.
    fn maintain(self: Arc<Self>) -> Box<dyn Any + Send> {
        Box::new(())
    }

    /// Cleans now, if it is worth it.
    fn clean(&self) -> Result<()> {
        Ok(())
    }

    /// From now on the threads of [`Volume::maintain`] clean continuously.
    fn clean_always(&self) -> super::Result<()> {
        Ok(())
    }

    /// Cleanings since the mount.
    fn cleanings(&self) -> u64 {
        0
    }

    /// Stops the volume: nothing is written from now on.
    fn shut_down(&self, how: Shutdown) -> Result<()> {
        let _ = how;
        Err(Errno::OPNOTSUPP.into())
    }

    /// A user has opened `ino` as `handle`, until [`Volume::closed`]; no other open has that
    /// number, and `made` says that the same call made the file. This keeps nothing alive, as
    /// [`FileSystem::open`] does: it is for volumes that watch their users. If it fails, so does
    /// the user's open.
    fn opened(&self, ino: Ino, handle: u64, made: bool) -> Result<()> {
        let _ = (ino, handle, made);
        Ok(())
    }

    /// A user has closed `ino` for the last time through one open.
    fn closed(&self, ino: Ino, handle: u64) {
        let _ = (ino, handle);
    }

    /// As [`FileSystem::fsync`], through one open: a volume that watches its users tells each of
    /// them once what was lost.
    fn fsync_through(&self, ino: Ino, handle: u64, datasync: bool) -> Result<()> {
        let _ = handle;
        self.fsync(ino, datasync)
    }

    /// Makes a file without a name, `O_TMPFILE`.
    fn tmpfile(&self, parent: Ino, perm: u16, creator: Creator) -> Result<Attr> {
        let _ = (parent, perm, creator);
        Err(Errno::OPNOTSUPP.into())
    }

    /// Records that an inode was read. The time need not become durable soon.
    fn touch_atime(&self, ino: Ino, time: Timespec) -> Result<()> {
        let (atime, ctime) = (Some(time), Some(self.getattr(ino)?.ctime));
        self.setattr(ino, &SetAttr { atime, ctime, ..SetAttr::default() }).map(drop)
    }

    /// Flags of an inode, `FS_*_FL`.
    fn flags(&self, ino: Ino) -> Result<u32> {
        self.getattr(ino).map(|_| 0)
    }

    /// Sets them. The caller has checked whether that is allowed.
    fn set_flags(&self, ino: Ino, flags: u32) -> Result<()> {
        let _ = (ino, flags);
        Err(Errno::OPNOTSUPP.into())
    }

    /// The project that an inode is accounted to.
    fn project(&self, ino: Ino) -> Result<u32> {
        self.getattr(ino).map(|_| 0)
    }

    /// Sets it. The caller has checked whether that is allowed.
    fn set_project(&self, ino: Ino, project: u32) -> Result<()> {
        let _ = (ino, project);
        Err(Errno::OPNOTSUPP.into())
    }

    /// Takes a step of an atomic write.
    fn atomic_write(&self, ino: Ino, step: Atomic) -> Result<()> {
        let _ = (ino, step);
        Err(Errno::OPNOTSUPP.into())
    }

    /// Any other ioctl. Returns the bytes to pass back, or `ENOTTY`.
    fn ioctl(&self, ino: Ino, call: Ioctl<'_>) -> Result<Vec<u8>> {
        let _ = (ino, call);
        Err(Errno::NOTTY.into())
    }

    /// Moves a file's blocks together, if that leaves it in fewer pieces.
    fn defragment(&self, ino: Ino) -> Result<Defragmented> {
        let _ = ino;
        Err(Errno::OPNOTSUPP.into())
    }

    /// Shows which of these pages of a file are not holes and where they are, in order. False if it
    /// cannot tell, so that the caller must read the file.
    fn pages(
        &self,
        ino: Ino,
        range: Range<u64>,
        see: &mut dyn FnMut(u64, PageAt<'_>),
    ) -> Result<bool> {
        let _ = (ino, range, see);
        Ok(false)
    }
}
