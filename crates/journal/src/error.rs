//! What can go wrong in a journal, typed.

use thiserror::Error;
use vfs::{Corrupt, Errno, io_errno};

/// Error of a journal.
#[derive(Clone, Debug, Error)]
pub enum Error {
    /// A structure of the log has a value that is not allowed.
    #[error("journal {0}")]
    Corrupt(#[source] Corrupt),
    /// The journal is sound but uses something not supported here.
    #[error("not supported: {feature}")]
    Unsupported {
        /// What it uses.
        feature: Box<str>,
    },
    /// One operation wants more blocks than a transaction may have.
    #[error("an operation that changes {wanted} blocks does not fit a transaction of {max}")]
    TooLarge {
        /// Blocks it may change.
        wanted: u32,
        /// Blocks of a transaction.
        max: u32,
    },
    /// The journal was closed: no operation begins any more.
    #[error("the journal is closed")]
    Closed,
    /// An earlier error has stopped the journal: nothing more is committed.
    #[error("the journal was aborted")]
    Aborted,
    /// A command to the drive failed.
    #[error(transparent)]
    Io(#[from] queue::IoError),
}

/// Result of a journal's operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A corrupt `structure` read from `block` of the file system.
    #[cold]
    pub fn corrupt(
        structure: &'static str,
        block: impl Into<u64>,
        found: impl ToString,
        allowed: impl ToString,
    ) -> Self {
        Self::Corrupt(Corrupt::new(structure, block, found, allowed))
    }

    /// A checksum of a `structure` in `block` of the file system that does not match its contents.
    #[cold]
    pub fn checksum(
        structure: &'static str,
        block: impl Into<u64>,
        found: impl ToString,
        right: impl ToString,
    ) -> Self {
        Self::Corrupt(Corrupt::checksum(structure, block, found, right))
    }

    /// A journal that uses `feature`.
    #[cold]
    pub fn unsupported(feature: impl ToString) -> Self {
        Self::Unsupported { feature: feature.to_string().into() }
    }

    /// The number that a system call would return.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Corrupt(corrupt) => corrupt.errno(),
            Self::Unsupported { .. } => Errno::OPNOTSUPP,
            Self::TooLarge { .. } => Errno::NOSPC,
            Self::Closed => Errno::IO,
            Self::Aborted => Errno::ROFS,
            Self::Io(error) => io_errno(error),
        }
    }
}

impl From<Error> for vfs::VolumeError {
    fn from(error: Error) -> Self {
        Self::Journal(error.into())
    }
}

impl From<Error> for vfs::Error {
    fn from(error: Error) -> Self {
        vfs::Error::caused(error.errno(), error)
    }
}
