//! LazyFS's log: what happens, as lines that scripts wait for.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use cores::Mutex;
use vfs::Timespec;

use crate::cmd::stat::time_text;
use crate::out;

/// How grave it is.
#[derive(Clone, Copy)]
pub(super) enum Level {
    Info,
    Warning,
    Error,
    Critical,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Info => "info",
            Level::Warning => "warning",
            Level::Error => "error",
            Level::Critical => "critical",
        }
    }
}

/// Standard output, and a file if there is one.
pub(super) struct Log {
    /// Keeps lines whole. The last lock of all.
    file: Mutex<Option<File>>,
    to_stdout: bool,
}

impl Log {
    /// One that nobody reads.
    pub(super) fn none() -> Self {
        Self { file: Mutex::new(None), to_stdout: false }
    }

    /// A log that begins now; with the reason why there is no file, if one was wanted.
    pub(super) fn open(path: Option<&Path>, to_stdout: bool) -> (Self, Option<std::io::Error>) {
        // A script may empty the file while it is written.
        let open = |path: &Path| {
            let file = File::options().append(true).create(true).open(path)?;
            file.set_len(0).map(|()| file)
        };
        let (file, refused) = match path.map(open) {
            None => (None, None),
            Some(Ok(file)) => (Some(file), None),
            Some(Err(error)) => (None, Some(error)),
        };
        (Self { file: Mutex::new(file), to_stdout }, refused)
    }

    /// Appends a line.
    pub(super) fn say(&self, level: Level, text: &str) {
        let now = cores::wall_clock();
        let (secs, millis) = (now.as_secs().cast_signed(), now.subsec_millis());
        let time = time_text(Timespec { secs, nanos: 0 });
        let text = out::plain(text).replace('\n', " ");
        let line = format!("[{time}.{millis:03}] [lazyfs] [{}] {text}\n", level.name());
        let file = self.file.lock();
        // A failure to write the log cannot be reported.
        if let Some(mut file) = file.as_ref() {
            let _ = file.write_all(line.as_bytes());
        }
        if self.to_stdout {
            let _ = rustix::io::write(rustix::stdio::stdout(), line.as_bytes());
        }
    }
}
