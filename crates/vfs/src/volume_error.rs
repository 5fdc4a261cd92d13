//! What can go wrong inside a file system of block drives, typed.
//!
//! Corrupt and unsupported are different. The first means bytes that no such file system writes;
//! the second a sound volume that needs something not built here. Both keep their reason. The errno
//! is derived at the edge, and a plain errno becomes an [`Error`] without an allocation.

use thiserror::Error as ThisError;

use crate::attributes::AttributeError;
use crate::options::OptionError;
use crate::{Corrupt, Errno, Error, io_errno, kind};

/// Error of an operation on a volume.
#[derive(Debug, ThisError)]
pub enum VolumeError {
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
        "the volume has {volume} {unit}, the drive only {drive}: it is truncated{}",
        part_of_block(*volume, *drive, unit)
    )]
    Truncated {
        /// The end of the volume.
        volume: u64,
        /// The end of the drive.
        drive: u64,
        /// `bytes` or `blocks`.
        unit: &'static str,
    },
    /// The journal has failed, or cannot be read back.
    #[error(transparent)]
    Journal(Error),
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
fn part_of_block(volume: u64, drive: u64, unit: &str) -> &'static str {
    match unit == "bytes" && volume.saturating_sub(drive) < drive::BLOCK_SIZE as u64 {
        true => "; a drive has whole blocks of 4096: 'truncate -s %4096 FILE' makes an image so",
        false => "",
    }
}

impl VolumeError {
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
    pub fn checksum(structure: &'static str, block: u64, found: u32, right: u32) -> Self {
        let (found, right) = (format!("{found:#x}"), format!("{right:#x}"));
        Self::Corrupt(Corrupt::checksum(structure, block, found, right))
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

    /// The number that a system call would return.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Corrupt(corrupt) => corrupt.errno(),
            Self::Truncated { .. } => Errno::UCLEAN,
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

impl From<OptionError> for VolumeError {
    fn from(error: OptionError) -> Self {
        Self::usage(error)
    }
}

impl From<AttributeError> for VolumeError {
    fn from(error: AttributeError) -> Self {
        Self::usage(error)
    }
}

impl From<Errno> for VolumeError {
    fn from(errno: Errno) -> Self {
        Self::Posix(errno)
    }
}

impl From<VolumeError> for Error {
    fn from(error: VolumeError) -> Self {
        use VolumeError::{Journal, NoSpace, Posix, ReadOnly};
        match error {
            ReadOnly | NoSpace | Posix(_) => error.errno().into(),
            Journal(error) => error,
            caused => Self::caused(caused.errno(), caused),
        }
    }
}

impl From<VolumeError> for kind::Error {
    fn from(error: VolumeError) -> Self {
        match error {
            VolumeError::Usage(message) => Self::Usage(message.into()),
            // No repair can bring back what is cut off.
            error @ VolumeError::Truncated { .. } => Self::Unknown(error.to_string()),
            error => Self::Volume(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_errno_carries_no_cause() {
        use std::error::Error as _;
        let error: Error = VolumeError::Posix(Errno::NOENT).into();
        assert_eq!(error.errno(), Errno::NOENT);
        assert!(error.source().is_none());
    }
}
