//! Messages of the server of a mount: on standard error in the foreground, through syslog in the
//! background, or to a file. Keeps the first error, for `strandline status` and `umount`.

use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use cores::Mutex;
use vfs::Timespec;

use crate::cmd::stat::time_text;
use crate::out;

/// syslog(3): `LOG_DAEMON | LOG_ERR` and `LOG_DAEMON | LOG_INFO`.
const ERROR: u8 = 3 << 3 | 3;
const INFO: u8 = 3 << 3 | 6;
/// Where syslogd and journald listen.
const SYSLOG: &str = "/dev/log";

/// The log of one mount.
pub(super) struct Log {
    /// The mount that it is about.
    about: String,
    /// Says everything, not only errors.
    verbose: bool,
    to: Sink,
    /// Protects what has been said. The last lock of all: it is taken with the volume locked.
    said: Mutex<Said>,
}

#[derive(Default)]
struct Said {
    /// The first error, from which the others most often follow.
    first: Option<String>,
    /// The last one; it is not repeated.
    last: String,
}

enum Sink {
    Stderr,
    File(File),
    Syslog(UnixDatagram),
    /// There is no syslog either.
    Nowhere,
}

impl Log {
    /// The log of the mount `about`: in `file` if there is one, which is appended to.
    pub(super) fn open(
        about: String,
        file: Option<&Path>,
        verbose: bool,
        in_background: bool,
    ) -> std::io::Result<Self> {
        let to = match file {
            Some(path) => Sink::File(File::options().append(true).create(true).open(path)?),
            None if in_background => {
                let socket = UnixDatagram::unbound()?;
                // A syslog that does not read must not hold the volume up.
                socket.set_nonblocking(true)?;
                socket.connect(SYSLOG).map_or(Sink::Nowhere, |()| Sink::Syslog(socket))
            }
            None => Sink::Stderr,
        };
        Ok(Self { about, verbose, to, said: Mutex::new(Said::default()) })
    }

    /// Reports a failure that no call returns.
    pub(super) fn fail(&self, what: &str) {
        let what = out::plain(what).replace('\n', " ");
        let mut said = self.said.lock();
        said.first.get_or_insert_with(|| what.clone());
        if said.last != what {
            self.put(ERROR, &what);
            said.last = what;
        }
    }

    /// An event, for verbose logs.
    pub(super) fn note(&self, what: &str) {
        if self.verbose {
            self.put(INFO, what);
        }
    }

    /// The first error.
    pub(super) fn first_error(&self) -> Option<String> {
        self.said.lock().first.clone()
    }

    /// A failure to write the log cannot be reported.
    fn put(&self, priority: u8, what: &str) {
        let (about, id) = (&self.about, std::process::id());
        match &self.to {
            Sink::Stderr => out::complain(&format!("{about}: {what}")),
            Sink::File(file) => {
                let now = cores::wall_clock();
                let now = Timespec { secs: now.as_secs().cast_signed(), nanos: 0 };
                let line = format!("{} strandline[{id}]: {about}: {what}\n", time_text(now));
                let _ = (&*file).write_all(line.as_bytes());
            }
            Sink::Syslog(socket) => {
                let line = format!("<{priority}>strandline[{id}]: {about}: {what}");
                let _ = socket.send(line.as_bytes());
            }
            Sink::Nowhere => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_said_once_and_the_first_one_is_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let log = Log::open("/mnt".into(), Some(&path), false, true).expect("a file");
        log.note("mounted");
        for what in ["no space", "no space", "no\nspace", "no space"] {
            log.fail(what);
        }
        assert_eq!(log.first_error().as_deref(), Some("no space"));
        let text = std::fs::read_to_string(&path).expect("the log");
        let (lines, about) = (text.lines().count(), text.matches("]: /mnt: no space").count());
        assert_eq!((lines, about), (1, 1), "{text}");
    }
}
