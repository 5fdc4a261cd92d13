//! The other side: a machine whose kernel is judged runs this, and does what it is asked.
//!
//! It connects to the host, or waits for it at a serial line, and connects its NVMe driver to the
//! drive that the host serves. It needs root and the module `nvme_tcp`, and no more than this
//! program.

mod calls;

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::{self, MountFlags, UnmountFlags};

use self::calls::{Calls, errno};
use crate::machine::link::{AGAIN, Link, Patience, line};
use crate::machine::wire::{Answer, Ask, Heard, frame, receive};

/// A message that stops in its middle is given up after so long: the host will ask again, later.
const SILENCE: u64 = AGAIN / 2;
/// How much the kernel writes to its console, and in this mode only its last words: the console may
/// be the host's line.
const CONSOLE: &str = "/proc/sys/kernel/printk";
const CONSOLE_QUIET: &str = "1";

/// Waited for a device to come or go, in steps of this many nanoseconds.
const STEP: u64 = 10_000_000;
const STEPS: usize = 3000;

/// What namespaces are called here, with their numbers. Newer kernels number disks as they find
/// them, and a volume of two devices knows the other one by the name it had when it was made.
const NAME: &str = "/dev/strandline-";

/// Nobody said where drives are.
const NO_ADDRESS: &str = "the host listens at all its addresses: start the agent with --host";

/// Who does what the host asks.
struct Agent {
    /// Where volumes are mounted.
    mount: PathBuf,
    calls: Calls,
    /// Number of the controller.
    controller: Option<u32>,
    /// Names of its namespaces.
    names: Vec<String>,
    /// Where drives are, and who knows best: who started us, the host, the link to it.
    host: Option<IpAddr>,
    peer: Option<IpAddr>,
}

/// Where the host is met.
#[derive(Clone, Debug)]
pub struct Meeting {
    /// Its address and port, or the path of a line to it.
    pub at: String,
    /// Speed of the line.
    pub baud: u32,
    /// Where drives are, if the host does not know.
    pub host: Option<IpAddr>,
}

/// Serves the host until it hangs up or says goodbye.
pub fn serve(meeting: &Meeting) -> io::Result<()> {
    let mount = std::env::temp_dir().join(format!("strandline-agent-{}", std::process::id()));
    std::fs::create_dir_all(&mount)?;
    let _quiet = line(&meeting.at).map(|_| Quiet::new());
    let served = serve_at(meeting, mount.clone());
    let _left = std::fs::remove_dir(&mount);
    served
}

/// As [`serve`], with volumes mounted on `mount`.
pub(crate) fn serve_at(meeting: &Meeting, mount: PathBuf) -> io::Result<()> {
    let line = line(&meeting.at);
    let mut link = match &line {
        Some(path) => Link::line(path, meeting.baud)?,
        None => Link::tcp(TcpStream::connect(&meeting.at)?)?,
    };
    // What is created gets the permissions that were asked for.
    rustix::process::umask(rustix::fs::Mode::empty());
    let calls = Calls::new(mount.clone());
    let (host, peer) = (meeting.host, link.their_address());
    let mut agent = Agent { mount, calls, controller: None, names: Vec::new(), host, peer };
    let served = agent.converse(&mut link, line.is_some());
    // Whatever became of the host: the machine may be somebody's own.
    agent.leave();
    served
}

/// The console says nothing but why the kernel ends, until this is dropped.
struct Quiet(io::Result<Vec<u8>>);

impl Quiet {
    fn new() -> Self {
        let before = std::fs::read(CONSOLE);
        // Without the right to do so there is more noise, which is passed over.
        let _quiet = std::fs::write(CONSOLE, CONSOLE_QUIET);
        Self(before)
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let _loud = self.0.as_ref().map(|before| std::fs::write(CONSOLE, before));
    }
}

impl Agent {
    /// Until the host has gone; before it has come, a `line` without another end is waited at.
    fn converse(&mut self, link: &mut Link, line: bool) -> io::Result<()> {
        link.wait(Patience::silence(SILENCE));
        let mut last: Option<(u64, Vec<u8>)> = None;
        loop {
            let (number, ask, bytes) = match receive::<Ask>(link.from()) {
                Ok(Heard::Message(number, ask, bytes)) => (number, ask, bytes),
                Ok(Heard::End) if line && last.is_none() => {
                    cores::sleep(STEP);
                    continue;
                }
                Ok(Heard::End) => return Ok(()),
                Ok(Heard::Noise(_)) => continue,
                Err(error) if error.kind() == io::ErrorKind::TimedOut => continue,
                Err(error) => return Err(error),
            };
            let answer = match last.take() {
                Some((of, answer)) if of == number && !matches!(ask, Ask::Hello) => answer,
                _ => {
                    let (answer, bytes) = self.answer(&ask, &bytes).unwrap_or_else(|error| {
                        let errno = errno(&error).raw_os_error();
                        (Answer::Failed { errno, what: error.to_string() }, Vec::new())
                    });
                    frame(number, &answer, &bytes)?
                }
            };
            link.wait(Patience::silence(u64::MAX));
            link.to().write_all(&answer)?;
            if matches!(ask, Ask::Bye) {
                return Ok(());
            }
            link.wait(Patience::silence(SILENCE));
            last = Some((number, answer));
        }
    }

    /// Lets go of everything.
    fn leave(&mut self) {
        let _left = self.unmount();
        let _left = self.disconnect();
    }

    fn answer(&mut self, ask: &Ask, bytes: &[u8]) -> io::Result<(Answer, Vec<u8>)> {
        match ask {
            Ask::Hello => {
                self.leave();
                Ok((Answer::Done, Vec::new()))
            }
            Ask::Bye => Ok((Answer::Done, Vec::new())),
            Ask::Uname => Ok((Answer::Done, std::fs::read("/proc/sys/kernel/osrelease")?)),
            Ask::Run { argv } => run(argv),
            Ask::Connect { address, port, nqn, namespaces } => {
                let devices = self.connect(*address, *port, nqn, *namespaces)?;
                Ok((Answer::Devices(devices), Vec::new()))
            }
            Ask::Disconnect => self.disconnect().map(|()| (Answer::Done, Vec::new())),
            Ask::Mount { device, kind, options } => {
                let options = std::ffi::CString::new(options.as_str())?;
                let flags = MountFlags::empty();
                mount::mount(device, &self.mount, kind, flags, Some(&*options))?;
                Ok((Answer::Done, Vec::new()))
            }
            Ask::Unmount => self.unmount().map(|()| (Answer::Done, Vec::new())),
            ask => Ok(self.calls.apply(ask, bytes)?),
        }
    }

    fn unmount(&mut self) -> io::Result<()> {
        self.calls.close_all();
        Ok(mount::unmount(&self.mount, UnmountFlags::empty())?)
    }

    /// As `nvme connect` does it: drivers/nvme/host/fabrics.c has the words.
    fn connect(
        &mut self,
        told: Option<IpAddr>,
        port: u16,
        nqn: &str,
        count: usize,
    ) -> io::Result<Vec<String>> {
        self.disconnect()?;
        let told = told.filter(|told| !told.is_unspecified());
        let address =
            self.host.or(told).or(self.peer).ok_or_else(|| io::Error::other(NO_ADDRESS))?;
        let mut fabrics = OpenOptions::new().read(true).write(true).open("/dev/nvme-fabrics")?;
        // A host that is gone does not come back: a file system that waits for its drive would keep
        // this machine from ending.
        let words = format!(
            "transport=tcp,traddr={address},trsvcid={port},nqn={nqn},nr_io_queues=1,\
             ctrl_loss_tmo=5,reconnect_delay=1"
        );
        fabrics.write_all(words.as_bytes())?;
        let mut said = String::new();
        Read::take(&mut fabrics, 256).read_to_string(&mut said)?;
        let number = said.split(',').find_map(|word| word.trim().strip_prefix("instance="));
        let number = number.and_then(|number| number.parse().ok());
        let number = number.ok_or_else(|| io::Error::other(format!("nvme-fabrics said {said}")))?;
        self.controller = Some(number);
        let devices = wait_for(|| {
            let devices = namespaces(number)?;
            let there = devices.len() == count && devices.iter().all(|d| Path::new(d).exists());
            Ok(there.then_some(devices))
        })?;
        for (namespace, device) in (1..).zip(devices) {
            let name = format!("{NAME}{namespace}");
            // That of an agent that was killed.
            let _old = std::fs::remove_file(&name);
            std::os::unix::fs::symlink(device, &name)?;
            self.names.push(name);
        }
        Ok(self.names.clone())
    }

    fn disconnect(&mut self) -> io::Result<()> {
        for name in self.names.drain(..) {
            let _gone = std::fs::remove_file(name);
        }
        let Some(number) = self.controller.take() else { return Ok(()) };
        let switch = format!("/sys/class/nvme/nvme{number}/delete_controller");
        match std::fs::write(switch, "1") {
            // The kernel may have given it up before.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        wait_for(|| Ok(namespaces(number)?.is_empty().then_some(())))
    }
}

/// The block devices of a controller, in order of their namespaces.
fn namespaces(number: u32) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/sys/block")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let of = name.strip_prefix(&format!("nvme{number}n"));
        if let Some(disk) = of.and_then(|n| n.parse::<u32>().ok()) {
            // Newer kernels number disks as they find them. A disk on its way out has no namespace.
            let namespace = std::fs::read_to_string(format!("/sys/block/{name}/nsid")).ok();
            let namespace = namespace.and_then(|text| text.trim().parse().ok()).unwrap_or(disk);
            found.push((namespace, format!("/dev/{name}")));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, device)| device).collect())
}

fn wait_for<T>(mut look: impl FnMut() -> io::Result<Option<T>>) -> io::Result<T> {
    for _ in 0..STEPS {
        if let Some(found) = look()? {
            return Ok(found);
        }
        cores::sleep(STEP);
    }
    Err(Errno::TIMEDOUT.into())
}

fn run(argv: &[String]) -> io::Result<(Answer, Vec<u8>)> {
    let (program, arguments) = argv.split_first().ok_or(Errno::INVAL)?;
    let mut command = Command::new(program);
    let out = command.args(arguments).stdin(Stdio::null()).output()?;
    let mut said = out.stdout;
    said.extend_from_slice(&out.stderr);
    said.truncate(1 << 20);
    Ok((Answer::Ran { status: out.status.code().unwrap_or(-1) }, said))
}
