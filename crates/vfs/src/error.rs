//! One error for all file systems: an errno and, if there is one, the reason behind it.

#[cfg(target_os = "linux")]
pub use rustix::io::Errno;

#[cfg(not(target_os = "linux"))]
pub use crate::errno::Errno;

use drive::Status;
use thiserror::Error as ThisError;

/// The error of a file system operation. A plain errno costs nothing to make; a fault of the medium
/// carries its typed cause, which says which structure and block it is, what was found there and
/// what is allowed.
#[derive(Debug)]
pub struct Error {
    errno: Errno,
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Result of a file system operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with a cause worth reporting.
    pub fn caused(errno: Errno, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { errno, cause: Some(Box::new(cause)) }
    }

    /// The number that the caller of a system call would see.
    pub fn errno(&self) -> Errno {
        self.errno
    }

    /// Whether a structure of the volume was found corrupt.
    pub fn is_corruption(&self) -> bool {
        [Errno::UCLEAN, Errno::BADMSG].contains(&self.errno)
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Self { errno, cause: None }
    }
}

/// A structure of a volume with a value that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
#[error("{structure} at block {block:#x} is corrupt: found {found}, allowed {allowed}")]
pub struct Corrupt {
    /// Structure and field, in the kernel's names.
    pub structure: &'static str,
    /// Block from which it was read.
    pub block: u64,
    /// What was there.
    pub found: Box<str>,
    /// What is allowed there.
    pub allowed: Box<str>,
    /// Whether it is a checksum that does not match what it is of.
    pub is_checksum: bool,
}

impl Corrupt {
    /// A corrupt `structure` read from `block`.
    #[cold]
    pub fn new(
        structure: &'static str,
        block: impl Into<u64>,
        found: impl ToString,
        allowed: impl ToString,
    ) -> Self {
        let (found, allowed) = (found.to_string().into(), allowed.to_string().into());
        Self { structure, block: block.into(), found, allowed, is_checksum: false }
    }

    /// A checksum of a `structure` read from `block` that does not match its contents.
    #[cold]
    pub fn checksum(
        structure: &'static str,
        block: impl Into<u64>,
        found: impl ToString,
        right: impl ToString,
    ) -> Self {
        Self { is_checksum: true, ..Self::new(structure, block, found, right) }
    }

    /// The number that a system call would return: `EBADMSG` for a checksum, like the kernel's
    /// `EFSBADCRC`, and otherwise `EUCLEAN`, like its `EFSCORRUPTED`.
    pub fn errno(&self) -> Errno {
        if self.is_checksum { Errno::BADMSG } else { Errno::UCLEAN }
    }
}

/// What a command that the drive failed is to the user of a file: `EIO`, because a zone that is
/// full or read only says nothing about the volume; `ENOSPC` if the drive has no room left, as the
/// kernel has it of a thin device whose pool is full.
pub fn io_errno(error: &queue::IoError) -> Errno {
    match error.status {
        Status::CapacityExceeded => Errno::NOSPC,
        _ => Errno::IO,
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.cause {
            Some(cause) => cause.fmt(f),
            None => self.errno.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().and_then(|c| c.source())
    }
}

#[cfg(test)]
mod tests {
    use queue::{IoError, Verb};

    use super::*;

    #[test]
    fn corruption_names_structure_block_found_and_allowed() {
        assert_eq!(
            Corrupt::new("checkpoint.cp_pack_start_sum", 512_u32, 9, "1..=4").to_string(),
            "checkpoint.cp_pack_start_sum at block 0x200 is corrupt: found 9, allowed 1..=4"
        );
        assert_eq!(Corrupt::new("magic", 0_u64, 1, 2).errno(), Errno::UCLEAN);
        assert_eq!(Corrupt::checksum("crc", 0_u64, 1, 2).errno(), Errno::BADMSG);
    }

    #[test]
    fn a_drive_without_room_is_a_full_volume() {
        let of = |status| io_errno(&IoError { verb: Verb::Write, lba: 1, blocks: 1, status });
        assert_eq!(of(Status::CapacityExceeded), Errno::NOSPC);
        assert_eq!(of(Status::WriteFault), Errno::IO);
    }
}
