//! The program's run in a directory that records it.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;

use cores::Mutex;
use fuse::{How, MountOptions, Session};
use lab::record::{Run, Watched};
use regex::Regex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};

use super::hint;
use crate::cmd::record::watched;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;

/// What the program did and said.
pub(super) struct Recorded {
    pub(super) run: Run,
    /// It ended with success.
    pub(super) exited: bool,
}

/// How long a signal to this process may go unnoticed, and how many times as long a program has to
/// end then.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
const PATIENCE_TICKS: u32 = 20;

/// A line of output is kept up to this length.
const LINE_MAX: usize = 64 << 10;

/// What runs.
pub(super) struct Plan<'a> {
    pub(super) setup: Option<&'a str>,
    pub(super) program: &'a str,
    /// What its standard output is for; nothing else is.
    pub(super) acknowledged: Option<&'a Regex>,
    pub(super) interrupt: &'a Interrupt,
}

/// Runs the program once; with `failing`, each fsync of it fails.
pub(super) fn record(plan: &Plan<'_>, failing: bool) -> Outcome<Recorded> {
    let dir = tempfile::tempdir().map_err(Failure::on("a directory to mount on"))?;
    let said = Arc::new(Said::new(plan.acknowledged.cloned()));
    let listener = said.clone();
    let fs = watched()?.keeping(Box::new(move || listener.hear()));
    let fs = Arc::new(if failing { fs.failing_syncs() } else { fs });
    let options = MountOptions::default();
    let session = Session::start(fs.clone(), None, Path::new("program"), dir.path(), &options)
        .map_err(Failure::host(dir.path()))?;
    let ran = work(&fs, &said, dir.path(), plan, failing);
    if let Err(error) = fuse::unmount(dir.path(), How::Plainly) {
        // Processes that still use it lose it when this process ends.
        let _ = fuse::unmount(dir.path(), How::Lazily);
        return ran.and(Err(Failure::on("what the program began still goes on")(error)));
    }
    session.wait().map_err(Failure::on("the mount"))?;
    let status = ran?;
    if !status.success() && !failing {
        let hint = hint(status);
        return Err(Failure::Problem(format!("the program: {status}{hint}; nothing was judged")));
    }
    let run = fs.end();
    if run.steps_after_begin() == 0 && !failing {
        return Err(Failure::Problem("the program changed nothing: no cut can harm it".into()));
    }
    Ok(Recorded { run, exited: status.success() })
}

fn work(
    fs: &Arc<Watched>,
    said: &Arc<Said>,
    dir: &Path,
    plan: &Plan<'_>,
    failing: bool,
) -> Outcome<ExitStatus> {
    let shell = |text: &str| {
        let mut command = Command::new("sh");
        command.arg("-c").arg(text).current_dir(dir);
        if has_group() {
            command.process_group(0);
        }
        command
    };
    if let Some(setup) = plan.setup {
        let to = io::stderr().as_fd().try_clone_to_owned().map_err(Failure::on("stderr"))?;
        let child = shell(setup).stdout(to).spawn().map_err(Failure::on("sh"))?;
        let status = ended(child, plan.interrupt)?;
        if !status.success() {
            let hint = hint(status);
            return Err(Failure::Problem(format!("--setup: {status}{hint}; nothing was judged")));
        }
    }
    fs.begin();
    let mut command = shell(plan.program);
    if failing {
        // It is meant to fail.
        command.stderr(Stdio::null());
    }
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(Failure::on("sh"))?;
    if let Some(pipe) = child.stdout.take() {
        said.listen_to(fs, pipe).map_err(Failure::on("the program's output"))?;
    }
    let status = ended(child, plan.interrupt)?;
    fs.hear();
    Ok(status)
}

/// Whether commands have a process group of their own, so that all of it can be told to end. On a
/// terminal they share ours: they may read from it, and it tells all of them by itself.
fn has_group() -> bool {
    !io::stdin().is_terminal()
}

/// How a command ends. If the user wants to stop, it is told to end, and has a while for that.
fn ended(mut child: Child, interrupt: &Interrupt) -> Outcome<ExitStatus> {
    let is_over =
        pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).map_err(Failure::on("sh"))?;
    let mut ticks = 0;
    loop {
        let mut ready = [PollFd::new(&is_over, PollFlags::IN)];
        match poll(&mut ready, Some(&TICK)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => break,
            Err(errno) => return Err(Failure::on("sh")(errno)),
        }
        if interrupt.came() {
            let signal = if ticks < PATIENCE_TICKS { Signal::TERM } else { Signal::KILL };
            let kill = if has_group() { kill_process_group } else { kill_process };
            // It may have ended meanwhile.
            let _ = kill(Pid::from_child(&child), signal);
            ticks += 1;
        }
    }
    let status = child.wait().map_err(Failure::on("sh"))?;
    interrupt.check(|| "nothing was judged".into())?;
    Ok(status)
}

/// What the program says. It is read before each change that the program makes, so that a marker
/// counts from the moment on at which it was printed.
struct Said {
    pattern: Option<Regex>,
    heard: Mutex<Heard>,
}

#[derive(Default)]
struct Heard {
    pipe: Option<File>,
    /// The beginning of a line.
    line: Vec<u8>,
}

impl Said {
    fn new(pattern: Option<Regex>) -> Self {
        Self { pattern, heard: Mutex::new(Heard::default()) }
    }

    /// The markers printed since the last call.
    fn hear(&self) -> Vec<String> {
        let mut heard = self.heard.lock();
        let Heard { pipe, line } = &mut *heard;
        let mut markers = Vec::new();
        let mut buf = [0; 4096];
        while let Some(open) = pipe {
            match open.read(&mut buf) {
                Ok(0) => *pipe = None,
                Ok(len) => {
                    for &byte in &buf[..len] {
                        if byte == b'\n' {
                            markers.extend(self.marker(&std::mem::take(line)));
                        } else if line.len() < LINE_MAX {
                            line.push(byte);
                        }
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return markers,
                Err(_) => *pipe = None,
            }
        }
        markers.extend(self.marker(&std::mem::take(line)));
        markers
    }

    fn marker(&self, line: &[u8]) -> Option<String> {
        let line = String::from_utf8_lossy(line);
        let found = self.pattern.as_ref()?.captures(&line)?;
        Some(found.get(1).or(found.get(0))?.as_str().to_owned())
    }

    fn is_open(&self) -> bool {
        self.heard.lock().pipe.is_some()
    }

    /// Reads on in a thread as well: a program that only prints must not wait for us.
    fn listen_to(self: &Arc<Self>, fs: &Arc<Watched>, pipe: ChildStdout) -> io::Result<()> {
        let pipe = File::from(std::os::fd::OwnedFd::from(pipe));
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let wake = pipe.try_clone()?;
        self.heard.lock().pipe = Some(pipe);
        let (said, fs) = (self.clone(), fs.clone());
        cores::spawn("program output", None, move || {
            while said.is_open() {
                let mut ready = [PollFd::new(&wake, PollFlags::IN)];
                // Whatever poll says, the next read knows better.
                let _ = poll(&mut ready, None);
                fs.hear();
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_groups_or_matches() {
        let said = |pattern: &str| Said::new(Some(Regex::new(pattern).unwrap()));
        assert_eq!(said(r"committed (\d+)").marker(b"committed 17"), Some("17".into()));
        assert_eq!(said(r"committed \d+").marker(b"x committed 17 y"), Some("committed 17".into()));
        assert_eq!(said("committed").marker(b"begun"), None);
        assert_eq!(Said::new(None).marker(b"committed"), None);
    }
}
