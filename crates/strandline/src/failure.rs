//! Why a command ends early: one line for stderr and an exit status.

use std::path::Path;

use thiserror::Error;
use vfs::kind;

/// Result of a subcommand: its exit status.
pub(crate) type Outcome<T = u8> = Result<T, Failure>;

/// Exit status when a problem was found.
pub(crate) const PROBLEM: u8 = 1;

/// What stopped a command.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// The command line makes no sense.
    #[error("{0}")]
    Usage(String),
    /// Anything else, already put in one line.
    #[error("{0}")]
    Problem(String),
    /// As `Problem`, with the exit status another tool's users expect.
    #[error("{message}")]
    Coded {
        /// What went wrong.
        message: String,
        /// Exit status.
        code: u8,
    },
    /// Standard output is gone or full.
    #[error("standard output: {0}")]
    Output(std::io::Error),
}

impl Failure {
    /// The exit status.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Problem(_) | Self::Output(_) => PROBLEM,
            Self::Coded { code, .. } => *code,
        }
    }

    /// A failure about `what`.
    pub(crate) fn on<E: std::fmt::Display>(what: impl std::fmt::Display) -> impl FnOnce(E) -> Self {
        let what = what.to_string();
        move |error| Self::Problem(format!("{what}: {error}"))
    }

    /// A failure about the host's file `path`.
    pub(crate) fn host<E: std::fmt::Display>(path: &Path) -> impl FnOnce(E) -> Self {
        Self::on(path.display())
    }
}

impl From<linux::Error> for Failure {
    fn from(error: linux::Error) -> Self {
        match error {
            linux::Error::Usage(message) => Self::Usage(message),
            linux::Error::Problem(message) => Self::Problem(message),
            linux::Error::Lab(error) => error.into(),
        }
    }
}

impl From<kind::Error> for Failure {
    fn from(error: kind::Error) -> Self {
        match error {
            kind::Error::Usage(message) => Self::Usage(message),
            error => Self::Problem(error.to_string()),
        }
    }
}

impl From<lab::Error> for Failure {
    fn from(error: lab::Error) -> Self {
        match error {
            lab::Error::Usage(message) => Self::Usage(message),
            lab::Error::Kind(error) => error.into(),
            error => Self::Problem(error.to_string()),
        }
    }
}
