//! The user's checker: a shell command that judges a directory.

use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use lab::program::{Judgement, State};
use tempfile::TempDir;

use super::child::{self, End};
use super::hint;
use super::mounts::Mount;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;

/// The checker, and where its directories are.
pub(super) struct Checker {
    command: String,
    scratch: TempDir,
    judged: AtomicU64,
    /// Seconds that it may take.
    patience: u32,
    /// Each state is mounted, instead of a copy made.
    mounts: bool,
    interrupt: Interrupt,
}

impl Checker {
    pub(super) fn new(
        command: &str,
        patience: u32,
        mounts: bool,
        interrupt: &Interrupt,
    ) -> Outcome<Self> {
        let scratch = tempfile::Builder::new().prefix("strandline-states-").tempdir();
        let scratch = scratch.map_err(Failure::on("a directory for the checker"))?;
        let (command, judged, interrupt) =
            (command.to_owned(), AtomicU64::new(0), interrupt.clone());
        Ok(Self { command, scratch, judged, patience, mounts, interrupt })
    }

    /// Runs it on what a cut left; `None` if the user wants to stop.
    pub(super) fn judge(&self, state: &State<'_>) -> lab::Result<Option<Judgement>> {
        let number = self.judged.fetch_add(1, Ordering::Relaxed);
        let dir = self.scratch.path().join(number.to_string());
        let host = |source| lab::Error::Host { path: dir.display().to_string(), source };
        fs::create_dir(&dir).map_err(host)?;
        let ended = match self.mounts {
            true => {
                let mount = Mount::of(state, &dir)?;
                let ended = self.ran(state, &mount.home).map_err(host);
                mount.end().map_err(host)?;
                ended
            }
            false => state.tree.write(&dir).and_then(|()| self.ran(state, &dir)).map_err(host),
        };
        child::remove_dir(&dir);
        self.judgement(ended?)
    }

    fn judgement(&self, (end, said): (End, String)) -> lab::Result<Option<Judgement>> {
        let (accepted, how) = match end {
            End::Interrupted => return Ok(None),
            End::Late => (false, format!("(still running after {} s)", self.patience)),
            End::Of(status) if matches!(status.code(), Some(126 | 127)) => {
                let said = said.trim();
                let why = format!("the checker cannot be run: {said}{}", hint(status));
                return Err(lab::Error::Usage(why));
            }
            End::Of(status) => match status.signal() {
                Some(signal) => (false, format!("(ended by signal {signal})")),
                None => (status.success(), String::new()),
            },
        };
        // First, because it may have said much.
        Ok(Some(Judgement { accepted, said: format!("{how}\n{said}").trim().to_owned() }))
    }

    /// How the command ended in this directory, and what it said.
    fn ran(&self, state: &State<'_>, dir: &Path) -> io::Result<(End, String)> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(&self.command).current_dir(dir);
        command.env("STRANDLINE_DIR", dir).env("STRANDLINE_STATE", state.name);
        command.env("STRANDLINE_EXITED", if state.promised.exited { "1" } else { "0" });
        match &state.promised.acknowledged {
            Some(marker) => command.env("STRANDLINE_ACKNOWLEDGED", marker),
            None => command.env_remove("STRANDLINE_ACKNOWLEDGED"),
        };
        child::run(&mut command, self.patience, &self.interrupt)
    }
}
