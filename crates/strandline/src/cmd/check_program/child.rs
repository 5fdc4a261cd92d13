//! A command that is waited for: not for ever, and not longer than the user wants.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::interrupt::Interrupt;

/// Bytes of its output that are kept. The rest is read and dropped.
const SAID_MAX: usize = 2000;
/// How long a signal to this process may go unnoticed.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// How a command ended.
pub(super) enum End {
    Of(ExitStatus),
    /// It had to be killed, because its time was over.
    Late,
    /// It had to be killed, because the user wants to stop.
    Interrupted,
}

/// Runs a command in a process group of its own, which is killed when it ends, with all that it
/// has left behind. Returns what it said on its outputs, too.
pub(super) fn run(
    command: &mut Command,
    seconds: u32,
    interrupt: &Interrupt,
) -> io::Result<(End, String)> {
    let (reader, writer) = io::pipe()?;
    rustix::io::ioctl_fionbio(&reader, true)?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let child = command.process_group(0).spawn();
    // Or its ends of the pipe would stay open here.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = child?;
    let mut output = Output { reader, kept: Vec::new(), is_open: true };
    let waited = wait(&child, seconds, interrupt, &mut output);
    // Also what it has started and not waited for: that would go on in a directory that is gone.
    let killed = kill_process_group(Pid::from_child(&child), Signal::KILL);
    let status = child.wait()?;
    output.read()?;
    let end = match waited? {
        Waited::Ended => End::Of(status),
        Waited::Late => End::Late,
        Waited::Interrupted => End::Interrupted,
    };
    // The group is empty if everything has ended.
    match killed {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(errno) => return Err(errno.into()),
    }
    Ok((end, String::from_utf8_lossy(&output.kept).trim().to_owned()))
}

/// What a command says.
struct Output {
    reader: io::PipeReader,
    kept: Vec<u8>,
    is_open: bool,
}

impl Output {
    /// Reads what there is.
    fn read(&mut self) -> io::Result<()> {
        let mut buf = [0; 4096];
        // A command that never pauses must not keep the caller from looking at its time.
        for _ in 0..64 {
            match self.reader.read(&mut buf) {
                Ok(0) => self.is_open = false,
                Ok(len) => {
                    let room = SAID_MAX - self.kept.len();
                    self.kept.extend_from_slice(&buf[..len.min(room)]);
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            break;
        }
        Ok(())
    }
}

enum Waited {
    Ended,
    Late,
    Interrupted,
}

/// Waits for the child, and reads its output meanwhile.
fn wait(
    child: &Child,
    seconds: u32,
    interrupt: &Interrupt,
    output: &mut Output,
) -> io::Result<Waited> {
    let ended = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let begun = cores::now();
    let most = u64::from(seconds) * 1_000_000_000;
    loop {
        if interrupt.came() {
            return Ok(Waited::Interrupted);
        }
        if cores::now() - begun >= most {
            return Ok(Waited::Late);
        }
        let reader = output.reader.as_fd();
        let mut ready =
            [PollFd::new(&ended, PollFlags::IN), PollFd::from_borrowed_fd(reader, PollFlags::IN)];
        let of_output = if output.is_open { 2 } else { 1 };
        match poll(&mut ready[..of_output], Some(&TICK)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        if ready[0].revents().contains(PollFlags::IN) {
            return Ok(Waited::Ended);
        }
        if of_output == 2 && !ready[1].revents().is_empty() {
            output.read()?;
        }
    }
}

/// Removes a directory with all that is in it, even if the checker has closed it to its owner. What
/// cannot be removed now may be when everything is done.
pub(super) fn remove_dir(dir: &Path) {
    if fs::remove_dir_all(dir).is_err() {
        open_up(dir);
        let _ = fs::remove_dir_all(dir);
    }
}

fn open_up(dir: &Path) {
    // Whatever fails here fails when it is removed.
    let _ = fs::set_permissions(dir, Permissions::from_mode(0o700));
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(text: &str, seconds: u32, interrupt: &Interrupt) -> (End, String) {
        run(Command::new("sh").args(["-c", text]), seconds, interrupt).unwrap()
    }

    #[test]
    fn a_command_ends_is_late_or_is_interrupted() {
        let never = Interrupt::default();
        let (end, said) = ran("echo out; echo err >&2; exit 3", 9, &never);
        assert!(matches!(end, End::Of(status) if status.code() == Some(3)));
        assert_eq!(said, "out\nerr");
        let (end, said) = ran("echo waits; sleep 100", 1, &never);
        assert!(matches!(end, End::Late) && said == "waits");
        let (end, _) = ran("sleep 100", 100, &Interrupt::now());
        assert!(matches!(end, End::Interrupted));
    }

    /// What it says is dropped beyond a limit, and does not stop it; what it leaves running is
    /// killed, and holds nothing up.
    #[test]
    fn a_command_may_say_much_and_leave_daemons() {
        let never = Interrupt::default();
        let (end, said) = ran("head -c 3000000 /dev/zero | tr '\\0' x; exit 0", 60, &never);
        assert!(matches!(end, End::Of(status) if status.success()));
        assert_eq!(said.len(), SAID_MAX);
        let (end, said) = ran("yes", 1, &never);
        assert!(matches!(end, End::Late) && said.starts_with("y\ny"));
        let begun = cores::now();
        let (end, said) = ran("sleep 100 & echo $!", 60, &never);
        assert!(matches!(end, End::Of(status) if status.success()));
        assert!(cores::now() - begun < 50_000_000_000);
        let left = Path::new("/proc").join(said).join("stat");
        // Its new parent may take its time.
        let is_gone = || {
            let stat = fs::read_to_string(&left).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z") || stat.contains(") X")
        };
        assert!((0..500).any(|_| {
            cores::sleep(10_000_000);
            is_gone()
        }));
    }

    #[test]
    fn what_a_checker_has_closed_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let closed = dir.path().join("closed");
        fs::create_dir_all(closed.join("deep/er")).unwrap();
        for path in ["deep/er", "deep", ""] {
            fs::set_permissions(closed.join(path), Permissions::from_mode(0o000)).unwrap();
        }
        remove_dir(&closed);
        assert!(!closed.exists());
    }
}
