//! `--mounted`: the checker works on a mount of the state itself, not in a copy of its files.

use std::io;
use std::path::{Path, PathBuf};

use fuse::{How, MountOptions, Session};
use lab::program::State;

/// Threads that serve a mount.
const THREADS: usize = 2;

/// A mounted state.
pub(super) struct Mount {
    session: Session,
    point: PathBuf,
    /// The program's directory.
    pub(super) home: PathBuf,
}

impl Mount {
    /// Mounts a state on `point`.
    pub(super) fn of(state: &State<'_>, point: &Path) -> lab::Result<Self> {
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        let (volume, home) = state.mount(uid.as_raw(), gid.as_raw())?;
        // A checker is one client, and there are as many mounts as checkers.
        let options = MountOptions::with_threads(THREADS);
        let name = Path::new("state");
        let session = Session::start(volume, None, name, point, &options);
        let session = session.map_err(|error| lab::Error::Host {
            path: point.display().to_string(),
            source: io::Error::other(error),
        })?;
        Ok(Self { session, point: point.to_owned(), home: point.join(home) })
    }

    /// Unmounts it. Nothing that the checker has done is kept.
    pub(super) fn end(self) -> io::Result<()> {
        if fuse::unmount(&self.point, How::Plainly).is_err() {
            // A process that the checker has left there, in a session of its own, loses it.
            fuse::unmount(&self.point, How::Lazily).map_err(io::Error::other)?;
            // Its end is not waited for.
            std::mem::forget(self.session);
            return Ok(());
        }
        self.session.wait().map(drop).map_err(|errno| io::Error::other(errno.to_string()))
    }
}
