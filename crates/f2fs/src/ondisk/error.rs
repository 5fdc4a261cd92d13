//! What can go wrong in F2FS.

pub use vfs::VolumeError as Error;

/// Result of an F2FS operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Only a build with the feature `foreign` can use `what`.
#[cold]
pub(crate) fn foreign(what: impl std::fmt::Display) -> Error {
    Error::unsupported(format!("{what}: this build is without the feature 'foreign'"))
}
