//! What can stop a campaign against a kernel. Damage that it finds is not an error but a verdict.

use thiserror::Error;

/// Result of what is done with a machine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a campaign could not run, or not to its end.
#[derive(Debug, Error)]
pub enum Error {
    /// The caller asked for something that does not exist.
    #[error("{0}")]
    Usage(String),
    /// The machine, its programs or a file of the host failed, in one line.
    #[error("{0}")]
    Problem(String),
    /// The workload could not run.
    #[error(transparent)]
    Lab(#[from] lab::Error),
}

impl Error {
    /// A problem with `what`.
    pub(crate) fn on<E: std::fmt::Display>(what: impl std::fmt::Display) -> impl FnOnce(E) -> Self {
        let what = what.to_string();
        move |error| Self::Problem(format!("{what}: {error}"))
    }

    /// A problem with the host's file `path`.
    pub(crate) fn host<E: std::fmt::Display>(path: &std::path::Path) -> impl FnOnce(E) -> Self {
        Self::on(path.display())
    }
}
