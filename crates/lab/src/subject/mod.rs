//! A file system as the lab needs it: format, mount, check, by name.

#[cfg(test)]
pub(crate) mod snapshot;

use std::sync::Arc;

use drive::Drive;
use vfs::FileSystem;

use crate::{Error, Result};

/// A mounted volume, and what mounting it took.
pub struct Mounted {
    /// The file system.
    pub fs: Box<dyn FileSystem>,
    /// What recovery did.
    pub recovery: Recovery,
}

/// What recovery did at mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Log entries (node blocks) looked at.
    pub scanned: u64,
    /// Entries replayed.
    pub replayed: u64,
    /// Inodes of which something was discarded.
    pub skipped: u64,
}

impl Recovery {
    /// Whether there was nothing to do, as after a clean unmount.
    pub fn is_clean(self) -> bool {
        self.replayed == 0 && self.skipped == 0
    }
}

/// A kind of file system.
pub trait Subject: Send + Sync {
    /// Name on the command line.
    fn name(&self) -> &'static str;

    /// Makes an empty volume.
    fn format(&self, drive: &Arc<dyn Drive>) -> Result<()>;

    /// Mounts, recovering first if need be. `options` as in `mount -o`.
    fn mount(&self, drive: Arc<dyn Drive>, options: &str) -> Result<Mounted>;

    /// Checks an unmounted volume; every line is one fault.
    fn check(&self, drive: &Arc<dyn Drive>) -> Result<Vec<String>>;
}

/// The subject called `name`.
pub fn named(name: &str) -> Result<&'static dyn Subject> {
    match name {
        _ => Err(Error::Usage(format!("unknown file system '{name}'; known: f2fs"))),
    }
}
