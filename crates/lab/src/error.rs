//! What can stop the lab itself. Damage found by a campaign is not an error but a verdict.

use thiserror::Error;
use vfs::kind;

/// Result of a lab operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a workload, campaign or benchmark could not run.
#[derive(Debug, Error)]
pub enum Error {
    /// The caller asked for something that does not exist.
    #[error("{0}")]
    Usage(String),
    /// A call of the workload failed although the drive had power.
    #[error("{call} {name}: {source}")]
    FileSystem {
        /// Which call.
        call: &'static str,
        /// On what, may be empty.
        name: String,
        /// The file system's answer.
        source: vfs::Error,
    },
    /// The volume is too small for the workload.
    #[error("the volume is full; use a larger drive or --max-bytes")]
    Full,
    /// Formatting, mounting or checking failed although it must not.
    #[error("{step}: {message}")]
    Volume {
        /// What was being done.
        step: &'static str,
        /// Why it failed.
        message: String,
    },
    /// There is no such file system or technique, or nothing known on a drive.
    #[error(transparent)]
    Kind(#[from] kind::Error),
    /// The machine could not finish the run.
    #[error(transparent)]
    Machine(#[from] cores::MachineError),
    /// A file of the host could not be read or written.
    #[error("{path}: {source}")]
    Host {
        /// Which.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}

impl Error {
    /// Makes a file-system error of `call` on `name`.
    pub(crate) fn at<'a>(
        call: &'static str,
        name: &'a [u8],
    ) -> impl FnOnce(vfs::Error) -> Self + 'a {
        move |source| Self::FileSystem {
            call,
            name: String::from_utf8_lossy(name).into_owned(),
            source,
        }
    }

    /// Makes an error of `step`, something done to a whole volume.
    pub(crate) fn of(step: &'static str) -> impl FnOnce(kind::Error) -> Self {
        move |error| match error {
            kind::Error::Usage(message) => Self::Usage(message),
            error => Self::Volume { step, message: error.to_string() },
        }
    }

    /// Makes a host error for `path`.
    pub(crate) fn host(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self::Host { path, source }
    }
}
