//! When reading a file changes its access time, mount(8): `noatime`, `relatime`, `strictatime`,
//! `nodiratime`, `lazytime`.
//!
//! The kernel leaves access times to a FUSE server, but does not tell it about reads that its page
//! cache answers. So a file whose access time is due is opened with an empty cache, and the server
//! sees the first read.

use cores::Nanos;
use vfs::{Attr, FileKind, Timespec};

/// `relatime` updates an access time that is older than this, in seconds, even if nothing has
/// changed since.
const RELATIME_SECS: i64 = 24 * 60 * 60;

/// Which reads update access times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Atime {
    /// None.
    Never,
    /// The first read after a change, and the first of a day.
    #[default]
    Relative,
    /// All.
    Strict,
}

/// Which reads of which files update access times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AtimePolicy {
    pub(crate) atime: Atime,
    /// Reads of directories do not.
    pub(crate) nodiratime: bool,
}

impl AtimePolicy {
    /// Whether no read ever updates the access time of a file.
    pub(crate) fn is_never(self) -> bool {
        self.atime == Atime::Never
    }

    /// Whether every read does.
    pub(crate) fn is_strict(self) -> bool {
        self.atime == Atime::Strict
    }

    /// Whether a read of an inode at `now` updates its access time.
    pub(crate) fn is_due(self, attr: &Attr, now: Timespec) -> bool {
        if self.nodiratime && attr.kind == FileKind::Directory {
            return false;
        }
        match self.atime {
            Atime::Never => false,
            Atime::Strict => true,
            Atime::Relative => {
                attr.atime <= attr.mtime
                    || attr.atime <= attr.ctime
                    || now.secs.saturating_sub(attr.atime.secs) >= RELATIME_SECS
            }
        }
    }

    /// For how long after a check an access time needs no update, in nanoseconds, unless the file
    /// changes.
    pub(crate) fn fresh_for(self) -> Nanos {
        match self.atime {
            Atime::Strict => 0,
            Atime::Never | Atime::Relative => RELATIME_SECS as u64 * 1_000_000_000 / 2,
        }
    }
}
