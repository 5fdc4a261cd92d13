//! The control socket: a connection sends commands, one a line, and gets a line of JSON for each.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::answer::Answer;
use super::commands::Command;
use super::fifo::Lines;
use super::{Level, Worker};

/// The most connections at a time.
const CLIENTS_MAX: usize = 16;

/// A socket that nobody listens to yet. Dropped, its name is gone.
pub(super) struct Socket {
    listener: UnixListener,
    bound: Bound,
}

/// The name of a socket in a directory, until this is dropped.
pub(super) struct Bound(PathBuf);

impl Drop for Bound {
    fn drop(&mut self) {
        // Somebody else may have done it.
        let _ = fs::remove_file(&self.0);
    }
}

impl Socket {
    /// At this path, for its owner only. A socket that a process has left there when it died is
    /// replaced, and nothing else is.
    pub(super) fn bind(path: &Path) -> io::Result<Self> {
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && is_left_over(path)? => {
                fs::remove_file(path)?;
                UnixListener::bind(path)?
            }
            bound => bound?,
        };
        let bound = Bound(path.to_owned());
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        Ok(Self { listener, bound })
    }

    /// Answers from now on, in threads that end with the process.
    pub(super) fn serve(self, worker: Arc<Worker>) -> Bound {
        let Self { listener, bound } = self;
        let clients = Arc::new(AtomicUsize::new(0));
        cores::spawn("control socket", None, move || {
            for stream in listener.incoming() {
                match stream {
                    Ok(stream) => admit(stream, &worker, &clients),
                    Err(error) => {
                        return worker.say(Level::Critical, &format!("control socket: {error}"));
                    }
                }
            }
        });
        bound
    }
}

/// Whether the name is that of a socket to which no process listens.
fn is_left_over(path: &Path) -> io::Result<bool> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Ok(false);
    }
    let refused = UnixStream::connect(path).err().map(|error| error.kind());
    Ok(refused == Some(ErrorKind::ConnectionRefused))
}

/// Serves a connection, if there are not too many.
fn admit(mut stream: UnixStream, worker: &Arc<Worker>, clients: &Arc<AtomicUsize>) {
    if clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX {
        clients.fetch_sub(1, Ordering::Relaxed);
        let why = Answer::refused([format!("there are {CLIENTS_MAX} connections already")]);
        // It may have gone.
        let _ = stream.write_all(why.line().as_bytes());
        return;
    }
    let (of_client, all) = (worker.clone(), clients.clone());
    let serve = move || {
        // A connection that is gone has no use for an answer.
        let _ = converse(stream, &of_client);
        all.fetch_sub(1, Ordering::Relaxed);
    };
    if let Err(error) = cores::try_spawn("control client", None, serve) {
        clients.fetch_sub(1, Ordering::Relaxed);
        worker.say(Level::Error, &format!("control socket: {error}"));
    }
}

fn converse(stream: UnixStream, worker: &Worker) -> io::Result<()> {
    let mut answers = stream.try_clone()?;
    for line in Lines::new(stream) {
        let answer = worker.carry_out(&line, Command::parse_plain);
        answers.write_all(answer.line().as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_taken_stays_unless_a_dead_process_left_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control");
        fs::write(&path, "text").unwrap();
        assert!(Socket::bind(&path).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"text");
        fs::remove_file(&path).unwrap();
        let first = Socket::bind(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(Socket::bind(&path).is_err(), "a process listens there");
        let Socket { listener, bound } = first;
        drop(listener);
        std::mem::forget(bound);
        drop(Socket::bind(&path).unwrap());
        assert!(!path.exists());
        assert!(Socket::bind(&dir.path().join("no/dir")).is_err());
    }
}
