//! The other side of a campaign: a machine whose kernel is judged does what it is asked.
//!
//! It connects to the host, and its NVMe driver to the drive that the host serves. It needs root
//! and the module `nvme_tcp`, and no more than this program.

use std::fs::OpenOptions;
use std::io::{self, BufReader, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::{self, MountFlags, UnmountFlags};
use vfs::ops::{Op, Outcome};

use crate::apply::{Directory, errno};
use crate::machine::wire::{Answer, Ask, LONGEST, receive, send};

/// Waited for a device to come or go, in steps of this many nanoseconds.
const STEP: u64 = 10_000_000;
const STEPS: usize = 3000;

/// What namespaces are called here, with their numbers. Newer kernels number disks as they find
/// them, and a volume of two devices knows the other one by the name it had when it was made.
const NAME: &str = "/dev/strandline-";

/// Carries out what the host asks.
struct Agent {
    /// Where volumes are mounted.
    mount: PathBuf,
    tree: Directory,
    /// Number of the controller.
    controller: Option<u32>,
    /// Names of its namespaces.
    names: Vec<String>,
    /// The host.
    peer: IpAddr,
}

/// Does what the host at `address` asks, until it hangs up.
pub fn serve(address: &str) -> io::Result<()> {
    let mount = std::env::temp_dir().join(format!("strandline-agent-{}", std::process::id()));
    std::fs::create_dir_all(&mount)?;
    let served = serve_at(address, mount.clone());
    let _left = std::fs::remove_dir(&mount);
    served
}

/// As [`serve`], with volumes mounted on `mount`.
pub(crate) fn serve_at(address: &str, mount: PathBuf) -> io::Result<()> {
    let link = TcpStream::connect(address)?;
    link.set_nodelay(true)?;
    // What is created gets the permissions that were asked for.
    rustix::process::umask(rustix::fs::Mode::empty());
    let tree = Directory::new(&mount);
    let peer = link.peer_addr()?.ip();
    let mut agent = Agent { mount, tree, controller: None, names: Vec::new(), peer };
    let served = agent.converse(BufReader::new(link));
    // However the host ended: the machine may be in use for other things.
    agent.leave();
    served
}

impl Agent {
    fn converse(&mut self, mut link: BufReader<TcpStream>) -> io::Result<()> {
        while let Some((ask, bytes)) = receive::<Ask>(&mut link, &LONGEST)? {
            let (answer, bytes) = self.answer(&ask, &bytes).unwrap_or_else(|error| {
                let errno = errno(&error).raw_os_error();
                (Answer::Failed { errno, what: error.to_string() }, Vec::new())
            });
            send(link.get_mut(), &answer, &bytes)?;
        }
        Ok(())
    }

    /// Lets go of everything.
    fn leave(&mut self) {
        let _left = self.unmount();
        let _left = self.disconnect();
    }

    fn answer(&mut self, ask: &Ask, bytes: &[u8]) -> io::Result<(Answer, Vec<u8>)> {
        match ask {
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
            Ask::Apply { op } => {
                let op: Op = op.parse().map_err(io::Error::other)?;
                Ok(match self.tree.apply_with(&op, bytes)? {
                    Outcome::Bytes(bytes) => (Answer::Done, bytes),
                    Outcome::Count(count) => (Answer::Count(count), Vec::new()),
                    _ => (Answer::Done, Vec::new()),
                })
            }
            ask => Ok(self.tree.tell(ask)?),
        }
    }

    fn unmount(&mut self) -> io::Result<()> {
        self.tree.close_all();
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
        let address = told.unwrap_or(self.peer);
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
            // Left by an agent that was killed.
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
            // The kernel may have given it up already.
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
