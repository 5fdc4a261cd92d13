//! A mounted volume, beyond POSIX.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use drive::{Block, Lba};
use serde_json::{Map, Value};

use crate::{Attr, Creator, Errno, FileSystem, Ino, Result, SetAttr, Timespec};

/// What recovery found and did at mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The last unmount was clean: there was nothing to do.
    pub clean: bool,
    /// Log entries (node blocks, transactions) looked at.
    pub scanned: u64,
    /// Entries replayed.
    pub replayed: u64,
    /// Inodes of which something was discarded.
    pub skipped: u64,
    /// Unlinked but open inodes, now freed.
    pub orphans: u64,
}

/// Where a page is that is not a hole.
#[derive(Clone, Copy, Debug)]
pub enum PageAt<'a> {
    /// In memory: it may be newer than what the drive has.
    Memory(&'a Block),
    /// On the drive only.
    Drive(Lba),
}

/// What is durable when a volume is shut down while it is mounted (`FS_IOC_SHUTDOWN`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Everything, as `sync`.
    FullSync,
    /// Metadata, without file data.
    MetaSync,
    /// What is durable already.
    NoSync,
    /// Metadata that is dirty, each where it is.
    MetaFlush,
}

/// A step of an atomic write of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// From now on the file changes for its writer only.
    Start,
    /// Everything written since is in the file or, after a cut, none of it.
    Commit,
    /// The file is what it was at the start.
    Abort,
}

/// A call of ioctl(2) on an inode.
#[derive(Clone, Copy, Debug)]
pub struct Ioctl<'a> {
    /// Its number.
    pub number: u32,
    /// The bytes handed over.
    pub input: &'a [u8],
    /// The caller is root or has mounted the volume.
    pub privileged: bool,
    /// The mount offers atomic writes.
    pub atomic_writes: bool,
}

/// How a file was laid out and is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defragmented {
    /// Pieces before.
    pub extents_before: u64,
    /// Pieces now.
    pub extents_after: u64,
    /// Blocks that were moved.
    pub blocks: u64,
}

/// A mounted volume. A file system need not implement what it does not have.
pub trait Volume: FileSystem {
    /// What recovery did when it was mounted.
    fn recovery(&self) -> Recovery;

    /// How it is mounted, as for `mount -o`: what was asked for, and what its drive asks for.
    fn options(&self) -> String {
        String::new()
    }

    /// Attributes and statistics by name, in the order to show them.
    fn status(&self) -> Map<String, Value> {
        Map::new()
    }

    /// Sets attributes, all or none. Fails with a message that says what is allowed.
    fn set(&self, settings: &[(&str, &str)]) -> super::Result<()> {
        match settings.first() {
            Some((name, _)) => Err(super::Error::Usage(format!("{name}: no such attribute"))),
            None => Ok(()),
        }
    }

    /// Starts the threads that look after the volume. Dropping the returned value ends them.
    fn maintain(self: Arc<Self>) -> Box<dyn Any + Send> {
        Box::new(())
    }

    /// Cleans now, if anything is worth it.
    fn clean(&self) -> Result<()> {
        Ok(())
    }

    /// From now on the threads of [`Volume::maintain`] clean all the time.
    fn clean_always(&self) -> super::Result<()> {
        Ok(())
    }

    /// Cleanings since the mount.
    fn cleanings(&self) -> u64 {
        0
    }

    /// Stops the volume: nothing is written any more.
    fn shut_down(&self, how: Shutdown) -> Result<()> {
        let _ = how;
        Err(Errno::OPNOTSUPP.into())
    }

    /// A file without a name, `O_TMPFILE`.
    fn tmpfile(&self, parent: Ino, perm: u16, creator: Creator) -> Result<Attr> {
        let _ = (parent, perm, creator);
        Err(Errno::OPNOTSUPP.into())
    }

    /// Notes that an inode was read. It need not become durable soon.
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

    /// The project an inode is accounted to.
    fn project(&self, ino: Ino) -> Result<u32> {
        self.getattr(ino).map(|_| 0)
    }

    /// Sets it. The caller has checked whether that is allowed.
    fn set_project(&self, ino: Ino, project: u32) -> Result<()> {
        let _ = (ino, project);
        Err(Errno::OPNOTSUPP.into())
    }

    /// A step of an atomic write.
    fn atomic_write(&self, ino: Ino, step: Atomic) -> Result<()> {
        let _ = (ino, step);
        Err(Errno::OPNOTSUPP.into())
    }

    /// Any other ioctl; answers with the bytes handed back, or `ENOTTY`.
    fn ioctl(&self, ino: Ino, call: Ioctl<'_>) -> Result<Vec<u8>> {
        let _ = (ino, call);
        Err(Errno::NOTTY.into())
    }

    /// Lays a file out in one piece, if that makes it fewer pieces.
    fn defragment(&self, ino: Ino) -> Result<Defragmented> {
        let _ = ino;
        Err(Errno::OPNOTSUPP.into())
    }

    /// Shows, in order, which of these pages of a file are not holes, and where they are. False if
    /// it cannot tell, so that the file must be read.
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
