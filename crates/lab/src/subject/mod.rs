//! A file system as the lab needs it: format, mount, check, by name.

mod f2fs;
#[cfg(test)]
pub(crate) mod snapshot;

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

pub use ::f2fs::PageAt;
use drive::{Block, Drive, Lba};
use vfs::{Errno, FileSystem, Ino, InodeFlags};

use crate::{Error, Result};

pub use f2fs::F2fsSubject;

/// A mounted file system, with what a campaign needs besides POSIX.
pub trait Volume: FileSystem {
    /// Sections cleaned since the mount; 0 if there is nothing to clean.
    fn cleanings(&self) -> u64;

    /// Cleans a section now, if any is worth it.
    fn clean(&self) -> vfs::Result<()>;

    /// Starts the threads that look after the volume; with `clean` they clean all the time.
    /// Dropping the returned value ends them.
    fn maintain(self: Arc<Self>, clean: bool) -> vfs::Result<Box<dyn Any>> {
        let _ = clean;
        Ok(Box::new(()))
    }

    /// The flags of an inode.
    fn flags(&self, _ino: Ino) -> vfs::Result<InodeFlags> {
        Ok(InodeFlags::empty())
    }

    /// Sets them.
    fn set_flags(&self, _ino: Ino, _flags: InodeFlags) -> vfs::Result<()> {
        Err(Errno::OPNOTSUPP.into())
    }

    /// Shows, in order, which of these pages of a file are not holes, and where they are. False if
    /// it cannot tell, so that the file must be read.
    fn pages(
        &self,
        ino: Ino,
        range: Range<u64>,
        see: &mut dyn FnMut(u64, PageAt<'_>),
    ) -> vfs::Result<bool>;
}

/// A mounted volume, and what mounting it took.
pub struct Mounted {
    /// The file system.
    pub fs: Arc<dyn Volume>,
    /// What recovery did.
    pub recovery: Recovery,
}

/// What recovery found and did at mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The last unmount was clean: there was nothing to do.
    pub clean: bool,
    /// Log entries (node blocks) looked at.
    pub scanned: u64,
    /// Entries replayed.
    pub replayed: u64,
    /// Inodes of which something was discarded.
    pub skipped: u64,
    /// Unlinked but open inodes, now freed.
    pub orphans: u64,
}

/// Something the checker found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What, where, found, allowed.
    pub text: String,
    /// A sound structure points at a block that never reached NAND: damage to data, not to
    /// structure, and so a question of what the mode promises about their order.
    pub data_only: bool,
}

/// What a file system may leave after a cut that no call explains, because of its way of making
/// things durable. Nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Habits {
    /// When anything is synced, the current sizes, attributes and holes of all other files may
    /// become durable with it, and those of their contents that were written back.
    pub takes_others_along: bool,
    /// The parts of an fsync count one by one: a block may be there without the size. The file then
    /// ends with the block.
    pub blocks_may_set_size: bool,
    /// Files up to this length may be kept outside blocks: as one grows, its first block moves with
    /// whatever else is written.
    pub small_file: u64,
}

/// A kind of file system.
pub trait Subject: Send + Sync {
    /// Name on the command line.
    fn name(&self) -> &'static str;

    /// Makes an empty volume.
    fn format(&self, drive: &Arc<dyn Drive>) -> Result<()>;

    /// Mounts, recovering first if necessary. `options` as in `mount -o`.
    fn mount(&self, drive: Arc<dyn Drive>, options: &str) -> Result<Mounted>;

    /// Which kind of node of inode `ino` the block at `lba` is, if it is one.
    fn node(&self, block: &Block, lba: Lba, ino: Ino) -> Option<&'static str>;

    /// What it may leave after a cut that is a habit and not damage.
    fn habits(&self) -> Habits {
        Habits::default()
    }

    /// Checks an unmounted volume.
    fn check(&self, drive: &Arc<dyn Drive>) -> Result<Vec<Fault>>;
}

/// The subject called `name`.
pub fn named(name: &str) -> Result<&'static dyn Subject> {
    match name {
        "f2fs" => Ok(&F2fsSubject),
        _ => Err(Error::Usage(format!("unknown file system '{name}'; known: f2fs"))),
    }
}
