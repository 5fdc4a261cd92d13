//! One error for all file systems: an errno and, if there is one, the reason behind it.

#[cfg(target_os = "linux")]
pub use rustix::io::Errno;

#[cfg(not(target_os = "linux"))]
pub use crate::errno::Errno;

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
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Self { errno, cause: None }
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
