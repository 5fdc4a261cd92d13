//! What can go wrong in F2FS.

use queue::Verb;
use vfs::Errno;
pub use vfs::VolumeError as Error;

/// Result of an F2FS operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Whether something could not be read, or is corrupt or missing. Where this ends an operation
/// before it has changed anything, it harms nobody who does not need what is there.
pub(crate) fn is_unreadable(error: &Error) -> bool {
    match error {
        Error::Corrupt(_) | Error::Posix(Errno::NOENT) => true,
        Error::Io(error) => error.verb == Verb::Read,
        _ => false,
    }
}

/// Only a build with the feature `foreign` can use `what`.
#[cold]
pub(crate) fn foreign(what: impl std::fmt::Display) -> Error {
    Error::unsupported(format!("{what}: this build is without the feature 'foreign'"))
}
