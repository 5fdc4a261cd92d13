//! The structures on the medium; nothing else names offsets. All numbers are little-endian.
//!
//! ```text
//! block 0      superblock
//! journal      two blocks per core: a mark, a record
//! table        inodes of 256 bytes; number 0 is never used, 1 is the root
//! data         file pages, directory pages, map blocks, logs, extended attributes
//! last block   superblock, second copy
//! ```
//!
//! What is free is not stored: it is what no inode points to. So allocating and freeing need no
//! writes and cannot be torn, and every mount builds the lists anew.

pub(crate) mod entry;
pub(crate) mod extent;
pub(crate) mod inode;
pub(crate) mod log;
pub(crate) mod record;
pub(crate) mod superblock;

use thiserror::Error;

/// Bytes of a block and of a page.
pub(crate) const BLOCK: u64 = drive::BLOCK_SIZE as u64;

/// A structure that says something it cannot say.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{structure} at {at:#x}: {what}: found {found:#x}, should be {allowed}")]
pub struct Corrupt {
    /// Which structure.
    pub structure: &'static str,
    /// Its address in bytes.
    pub at: u64,
    /// Which of its fields.
    pub what: &'static str,
    /// What the field says.
    pub found: u64,
    /// What it may say.
    pub allowed: &'static str,
}

impl From<Corrupt> for vfs::Error {
    fn from(corrupt: Corrupt) -> Self {
        Self::caused(vfs::Errno::UCLEAN, corrupt)
    }
}

impl From<Corrupt> for vfs::kind::Error {
    fn from(corrupt: Corrupt) -> Self {
        Self::Volume(corrupt.into())
    }
}
