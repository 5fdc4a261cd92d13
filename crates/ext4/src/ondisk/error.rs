//! What can go wrong in ext4, typed.
//!
//! Corrupt and unsupported are different. The first means bytes that no ext4 writes; the second a
//! sound volume that needs something not built here. Both keep their reason. The errno is derived
//! at the edge, and a plain errno becomes a [`vfs::Error`] without an allocation.

use thiserror::Error;
use vfs::{Corrupt, Errno, io_errno};

/// Error of an ext4 operation.
#[derive(Debug, Error)]
pub enum Error {
    /// A structure on the drive has a value that is not allowed.
    #[error(transparent)]
    Corrupt(Corrupt),
    /// The volume is sound but uses something not supported here.
    #[error("not supported: {feature}")]
    Unsupported {
        /// What it uses.
        feature: Box<str>,
    },
    /// The volume is larger than its drive: no part of it can be relied on.
    #[error(
        "the volume has {volume} bytes, the drive only {drive}: it is truncated{}",
        part_of_block(*volume, *drive)
    )]
    Truncated {
        /// Bytes of the volume.
        volume: u64,
        /// Bytes of the drive.
        drive: u64,
    },
    /// The journal cannot be read back.
    #[error(transparent)]
    Journal(#[from] journal::Error),
    /// An option or argument from the caller makes no sense.
    #[error("{0}")]
    Usage(Box<str>),
    /// A command to the drive failed.
    #[error(transparent)]
    Io(#[from] queue::IoError),
    /// The volume or the drive cannot be written.
    #[error("read-only file system")]
    ReadOnly,
    /// No free block or inode is left.
    #[error("no space left on device")]
    NoSpace,
    /// A plain errno, as POSIX asks for.
    #[error("{0}")]
    Posix(Errno),
}

/// What helps if only a part of the drive's last block is missing, which it has no use for: small
/// blocks of the file system may end there.
fn part_of_block(volume: u64, drive: u64) -> &'static str {
    match volume.saturating_sub(drive) < drive::BLOCK_SIZE as u64 {
        true => "; a drive has whole blocks of 4096: 'truncate -s %4096 FILE' makes an image so",
        false => "",
    }
}

/// Result of an ext4 operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A corrupt `structure` read from `block`.
    #[cold]
    pub fn corrupt(
        structure: &'static str,
        block: impl Into<u64>,
        found: impl ToString,
        allowed: impl ToString,
    ) -> Self {
        Self::Corrupt(Corrupt::new(structure, block, found, allowed))
    }

    /// The checksum of a `structure` read from `block` does not match its contents.
    #[cold]
    pub(crate) fn checksum(structure: &'static str, block: u64, found: u32, right: u32) -> Self {
        Self::corrupt(structure, block, format!("{found:#x}"), format!("{right:#x}"))
    }

    /// A volume that uses `feature`.
    #[cold]
    pub fn unsupported(feature: impl ToString) -> Self {
        Self::Unsupported { feature: feature.to_string().into() }
    }

    /// A wrong option or argument.
    #[cold]
    pub fn usage(message: impl ToString) -> Self {
        Self::Usage(message.to_string().into())
    }

    /// The number that a system call would return. Corruption is `EUCLEAN`, like the kernel's
    /// `EFSCORRUPTED`.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Corrupt(_) | Self::Truncated { .. } => Errno::UCLEAN,
            Self::Unsupported { .. } => Errno::OPNOTSUPP,
            Self::Usage(_) => Errno::INVAL,
            Self::Io(error) => io_errno(error),
            Self::Journal(error) => error.errno(),
            Self::ReadOnly => Errno::ROFS,
            Self::NoSpace => Errno::NOSPC,
            Self::Posix(errno) => *errno,
        }
    }
}

impl From<vfs::options::OptionError> for Error {
    fn from(error: vfs::options::OptionError) -> Self {
        Self::usage(error)
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Self::Posix(errno)
    }
}

impl From<Error> for vfs::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::ReadOnly | Error::NoSpace | Error::Posix(_) => error.errno().into(),
            caused => Self::caused(caused.errno(), caused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_errno_carries_no_cause() {
        use std::error::Error as _;
        let error: vfs::Error = Error::Posix(Errno::NOENT).into();
        assert_eq!(error.errno(), Errno::NOENT);
        assert!(error.source().is_none());
    }
}
