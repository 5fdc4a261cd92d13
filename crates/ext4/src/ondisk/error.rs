//! What can go wrong in ext4.

pub use vfs::VolumeError as Error;

/// Result of an ext4 operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;
