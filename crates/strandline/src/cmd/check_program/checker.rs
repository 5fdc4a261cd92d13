//! The user's checker: a shell command that judges a directory.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use lab::program::{Judgement, Promised, Tree};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use tempfile::TempDir;

use crate::failure::{Failure, Outcome};

/// Bytes of its output that are shown.
const SAID_MAX: u64 = 2000;

/// The checker, and where its directories are.
pub(super) struct Checker {
    command: String,
    scratch: TempDir,
    judged: AtomicU64,
    /// Seconds that it may take.
    patience: u32,
}

impl Checker {
    pub(super) fn new(command: &str, patience: u32) -> Outcome<Self> {
        let scratch = tempfile::Builder::new().prefix("strandline-states-").tempdir();
        let scratch = scratch.map_err(Failure::on("a directory for the checker"))?;
        let (command, judged) = (command.to_owned(), AtomicU64::new(0));
        Ok(Self { command, scratch, judged, patience })
    }

    /// Runs it on what a cut left.
    pub(super) fn judge(
        &self,
        tree: &Tree,
        promised: &Promised,
        state: &str,
    ) -> lab::Result<Judgement> {
        let number = self.judged.fetch_add(1, Ordering::Relaxed);
        let dir = self.scratch.path().join(number.to_string());
        let host = |source| lab::Error::Host { path: dir.display().to_string(), source };
        fs::create_dir(&dir).and_then(|()| tree.write(&dir)).map_err(host)?;
        let mut command = Command::new("sh");
        command.arg("-c").arg(&self.command).current_dir(&dir).stdin(Stdio::null());
        command.env("STRANDLINE_DIR", &dir).env("STRANDLINE_STATE", state);
        command.env("STRANDLINE_EXITED", if promised.exited { "1" } else { "0" });
        match &promised.acknowledged {
            Some(marker) => command.env("STRANDLINE_ACKNOWLEDGED", marker),
            None => command.env_remove("STRANDLINE_ACKNOWLEDGED"),
        };
        let (status, said) = self.ran(&mut command).map_err(host)?;
        fs::remove_dir_all(&dir).map_err(host)?;
        let Some(status) = status else {
            let said = format!("{said}\n(still running after {} s)", self.patience);
            return Ok(Judgement { accepted: false, said: said.trim().to_owned() });
        };
        if matches!(status.code(), Some(126 | 127)) {
            return Err(lab::Error::Usage(format!("the checker cannot be run: {said}")));
        }
        let said = match status.signal() {
            Some(signal) => format!("{said}\n(ended by signal {signal})").trim().to_owned(),
            None => said,
        };
        Ok(Judgement { accepted: status.success(), said })
    }

    /// How the command ended, if it did in time, and what it said.
    fn ran(&self, command: &mut Command) -> io::Result<(Option<ExitStatus>, String)> {
        let mut output = tempfile::tempfile_in(self.scratch.path())?;
        let both: [File; 2] = [output.try_clone()?, output.try_clone()?];
        let [out, err] = both.map(Stdio::from);
        let mut child = command.stdout(out).stderr(err).process_group(0).spawn()?;
        let in_time = wait(&child, self.patience)?;
        if !in_time {
            kill_process_group(Pid::from_child(&child), Signal::KILL)?;
        }
        let status = child.wait()?;
        let mut said = Vec::new();
        output.rewind()?;
        output.take(SAID_MAX).read_to_end(&mut said)?;
        Ok((in_time.then_some(status), String::from_utf8_lossy(&said).trim().to_owned()))
    }
}

/// Whether the child ends within so many seconds.
fn wait(child: &Child, seconds: u32) -> io::Result<bool> {
    let ended = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let most = Timespec { tv_sec: seconds.into(), tv_nsec: 0 };
    loop {
        match poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&most)) {
            Err(Errno::INTR) => {}
            ready => return Ok(ready? > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checker_accepts_rejects_or_hangs() {
        let judge = |command: &str| {
            let checker = Checker::new(command, 1).unwrap();
            let promised = Promised { acknowledged: Some("17".into()), exited: true };
            checker.judge(&Tree::default(), &promised, "1.2")
        };
        let all = "test $STRANDLINE_ACKNOWLEDGED$STRANDLINE_EXITED$STRANDLINE_STATE = 1711.2 && \
                   test \"$PWD\" = \"$STRANDLINE_DIR\"";
        assert!(judge(all).unwrap().accepted);
        let rejected = judge("echo lost; exit 3").unwrap();
        assert_eq!((rejected.accepted, &*rejected.said), (false, "lost"));
        let hangs = judge("echo waits; sleep 100").unwrap();
        assert_eq!((hangs.accepted, &*hangs.said), (false, "waits\n(still running after 1 s)"));
        assert!(judge("kill -9 $$").unwrap().said.contains("signal 9"));
        assert!(judge("no-such-program").is_err());
    }
}
